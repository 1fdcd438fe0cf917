"""The laboratory of noisewise: the papers' tables and figures, ablations, timings. Nothing here is timed in a test."""
