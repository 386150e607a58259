"""renet: the command line on the machine."""
