"""Methods that noisewise does not ship, for tests: run as guests, never imported beside records."""
