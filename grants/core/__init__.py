"""Pure grant rules: no I/O, no clock, no logging."""
