"""Compiled twins of references elsewhere in ``trusted``: tests compare them bit for bit, so they need not be read."""
