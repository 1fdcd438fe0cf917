"""Losses of a loop: as a loop calls them, for the probe; and as means of one loss for each record, for the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..engine import per_record_losses
from ..late import Tensor


class AsCalled(nn.Module):
    """A loss as a loop calls it, on labels that are not negative: torch's losses leave out the label -100.

    So a mean that is weighted by classes, or that leaves out a class, is found to mix records.
    """

    def __init__(self, criterion: Callable[..., Any]) -> None:
        super().__init__()
        self.criterion = criterion

    def forward(self, outputs: Any, *targets: Tensor) -> Any:
        kept = [one if one.is_floating_point() or one.is_complex() else one.clamp(min=0) for one in targets]
        return self.criterion(outputs, *kept)


class PerRecord(nn.Module):
    """The loss that ``make_private(grad_sample_mode="ghost")`` returns: the mean (or sum) of each record's own loss.

    Weights and labels that are left out count within their record alone. Plain losses are what they were.
    """

    def __init__(self, criterion: Callable[..., Any], reduction: str) -> None:
        super().__init__()
        self.criterion, self.reduction = criterion, reduction

    def forward(self, outputs: Any, *targets: Tensor) -> Any:
        rows = len(targets[0]) if targets else 0
        if not rows:
            return self.criterion(outputs, *targets)
        losses = per_record_losses(self.criterion, outputs, targets, rows, self.reduction)
        if not losses.dim():
            return losses / rows if self.reduction == "mean" else losses
        return losses.mean() if self.reduction == "mean" else losses.sum()
