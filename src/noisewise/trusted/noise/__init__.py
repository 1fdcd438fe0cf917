"""Randomness drawn exactly: rounded Gaussian noise, batches and choices from one secret stream.

This room knows numbers only, nothing of records or of questions about them. What is drawn is a function of secret words
(:mod:`~noisewise.trusted.noise.secret_words`); :class:`Stream` is the one thing that others hold.
"""

from __future__ import annotations

from .stream import Stream

__all__ = ["Stream"]
