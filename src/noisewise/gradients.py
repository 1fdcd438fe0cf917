"""Deprecated: :mod:`noisewise.models` is the name now; this one goes with the next version."""

from __future__ import annotations

import warnings

from .models import MLP, Batch, Linear, Model

warnings.warn("noisewise.gradients is noisewise.models now; import from there", DeprecationWarning, stacklevel=2)

__all__ = ["MLP", "Batch", "Linear", "Model"]
