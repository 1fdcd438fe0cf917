"""Models: shape, capabilities, and clipped sums of gradients without ever storing a per-record gradient."""

from __future__ import annotations

from .base import Model, leading_subspace
from .batches import Batch, RowSource
from .linear import Additive, Linear
from .perceptron import MLP

__all__ = ["MLP", "Additive", "Batch", "Linear", "Model", "RowSource", "leading_subspace"]
