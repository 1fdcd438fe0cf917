"""Protectors whose parts are small networks: their cells, weights and files, and those that come with the package."""
