"""The documentation site: what ``make docs`` makes of README, docs and docstrings, and what it refuses."""
