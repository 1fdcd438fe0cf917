"""Measurements. Nothing here is timed in a test."""
