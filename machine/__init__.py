"""What runs on the machine: repo daemons and their configuration."""
