"""Deprecated: :mod:`noisewise.models` is the name now; this one goes with the next version."""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("MLP", "Batch", "Linear", "Model"):
        raise AttributeError(f"module 'noisewise.gradients' has no attribute {name!r}")
    from . import models

    warnings.warn("noisewise.gradients is noisewise.models now; import from there", DeprecationWarning, stacklevel=2)
    return getattr(models, name)
