"""Clipped sums of gradients for any module: one backward pass, per-record norms from books, one reweighted product.

Trusted code: it touches private rows, and what it returns is private until the curator has noised it. Sums are floats; what that
means for a promise is said where they become whole numbers (:mod:`noisewise.records.modules`).
"""

from __future__ import annotations

from . import rules as _rules
from .clip import clip_factors, per_record_losses
from .layout import Layout, Refused, Spec, trainable
from .probe import probed
from .tape import Tape
from .units import in_units

__all__ = ["Layout", "Refused", "Spec", "Tape", "clip_factors", "in_units", "per_record_losses", "probed", "trainable"]
assert _rules
