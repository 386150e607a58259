"""Pure CDI rules: no I/O, no clock, no logging."""
