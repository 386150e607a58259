"""A strict sans-IO HTTP/1.1 reader and writer."""
