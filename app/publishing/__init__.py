"""Runs as a static page: a folder that opens from a file or any web space, without a server."""
