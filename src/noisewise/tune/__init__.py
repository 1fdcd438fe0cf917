"""Choosing hyper-parameters: on public rows for nothing, on private ones for a price, or during the run."""
