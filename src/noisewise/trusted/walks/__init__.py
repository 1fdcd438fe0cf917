"""Whole training runs at the data, of which only the end is released: the proofs, and the walks themselves."""
