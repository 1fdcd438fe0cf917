"""Losses of single records, and what each record's gradient is multiplied by."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .layout import Refused


def per_record_losses(
    loss: Any, outputs: Any, targets: Sequence[Tensor], batch: int, reduction: str = "mean", *, as_called: bool = False
) -> Tensor:
    """One loss for each record, or a number that is their sum.

    A loss of torch's with a ``reduction`` is asked for single entries, whose mean (or sum) over each record is taken: no record's
    loss depends on another's label. Any other function gives a loss for each record, or their mean or sum. ``as_called``: a
    loss of torch's is called as it is, too.
    """
    if not as_called and getattr(loss, "reduction", None) in ("mean", "sum"):
        single = copy.copy(loss)
        single.reduction = "none"
        values, how = single(outputs, *targets), loss.reduction
        if values.dim() and len(values) == batch:
            rest = values.flatten(1) if values.dim() > 1 else values[:, None]
            return rest.mean(1) if how == "mean" else rest.sum(1)
    values = loss(outputs, *targets)
    if not isinstance(values, Tensor) or values.dim() > 1 or (values.dim() == 1 and len(values) != batch):
        raise Refused("the loss must be one number for each record, or their mean or sum; see loss_reduction")
    if values.dim() == 1:
        return values
    return values * batch if getattr(loss, "reduction", reduction) == "mean" else values


def clip_factors(squared: Tensor, clip: float | Sequence[float]) -> Tensor:
    """What records are multiplied by so that norms are at most ``clip``, one for all or one for each parameter; not finite: 0.

    >>> clip_factors(torch.tensor([[9.0, 0.25, torch.inf], [16.0, 0.0, 1.0]]), 1.0)
    tensor([0.2000, 1.0000, 0.0000])
    """
    if isinstance(clip, int | float):
        norms = squared.sum(0).sqrt()
        factors = (float(clip) / norms).clamp(max=1)
        return torch.where(torch.isfinite(norms), factors, 0)
    bounds = torch.as_tensor(clip, dtype=squared.dtype, device=squared.device)[:, None]
    norms = squared.sqrt()
    factors = (bounds / norms).clamp(max=1)
    return torch.where(torch.isfinite(norms).all(0), factors, 0)
