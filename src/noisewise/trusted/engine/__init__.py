"""Clipped sums of gradients for any module, each record alone: one pass, norms from books, one reweighted product.

Trusted code: it touches private rows, and what it returns is private until noise is added. Sums are floats; what their rounding
means for a promise is proved where they become whole numbers (:mod:`noisewise.trusted.stores.modules`).
"""

from __future__ import annotations

from .. import torch_extra as _torch_extra
from . import rules as _rules
from .alone import passed, values
from .books import clip_factors
from .public_facts import Layout, Refused, Spec, layout_of, trainable
from .rehearsal import rehearsed
from .tape import Tape
from .whole_numbers import in_units

__all__ = [
    "Layout",
    "Refused",
    "Spec",
    "Tape",
    "clip_factors",
    "in_units",
    "layout_of",
    "passed",
    "rehearsed",
    "trainable",
    "values",
]
assert _rules and _torch_extra
