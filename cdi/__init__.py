"""CDI names, specs, directories, resolution and projection."""
