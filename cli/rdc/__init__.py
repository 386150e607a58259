"""rdc: the operator's command line."""
