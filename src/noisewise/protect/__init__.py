"""Turning noised answers into updates. Everything here reads released facts only."""
