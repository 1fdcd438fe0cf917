"""Arrays of a protector: numpy's in a private run, torch's tensors with a graph in meta-training, by the very same code.

The two share arithmetic, ``x.clip(low, high)``, ``x ** 0.5``, ``x.sum(1)`` and slices. What they do not share is here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # of either kind, in single precision


def filled(like: Array, shape: tuple[int, ...], value: float) -> Array:
    """An array of that shape, of the kind of ``like``."""
    if isinstance(like, np.ndarray):
        return np.full(shape, value, np.float32)
    return like.new_full(shape, value).float()
