"""What every package stands on: errors, clock, files, layout, processes. No domain words."""
