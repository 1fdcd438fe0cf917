"""Clipped sums of per-record gradients, without ever storing a per-record gradient."""

from __future__ import annotations

from .batches import Batch
from .layers import MLP
from .linear import Linear
from .transformed import clipped_sum_and_count, leading_subspace, per_record

Model = Linear | MLP

__all__ = ["MLP", "Batch", "Linear", "Model", "clipped_sum_and_count", "leading_subspace", "per_record"]
