"""Command lines: rdc for the operator, renet on the machine."""
