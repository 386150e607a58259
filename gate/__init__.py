"""The reverse proxy that is a repo's Docker socket."""
