"""Pure parts of `machine`: names, configurations and plans, computed without I/O, clock or logging."""
