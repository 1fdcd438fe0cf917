"""Searching with a price: what is tried on private records is paid for, and only the winner gets out."""
