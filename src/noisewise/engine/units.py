"""Clipped sums as whole numbers of a unit, which is what exact noise is added to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FEW = 2**15  # numbers at a time, so that every pass over them stays in the cache


def in_units(parts: Sequence[Tensor], times: float, most: float) -> NDArray[np.int64]:
    """All numbers of the parts, one after the other, times a number, rounded to the nearest whole one.

    Products are of double precision. What is no number becomes 0, and what is larger than ``most`` becomes that: sums of clipped
    numbers never are, so that nothing is lost, but whatever comes in, whole numbers come out.

    >>> in_units([torch.tensor([0.5, -0.25]), torch.tensor([[torch.nan], [torch.inf]])], 6.0, 100.0)
    array([  3,  -2,   0, 100])
    """
    total = torch.empty(sum(part.numel() for part in parts), dtype=torch.int64)
    room, done = torch.empty(FEW, dtype=torch.float64), 0
    for part in parts:
        for few in part.detach().reshape(-1).to("cpu").split(FEW):
            count = len(few)
            exact = room[:count].copy_(few).mul_(times).round_()
            if count:
                least, largest = torch.aminmax(exact)
                if not (float(least) >= -most and float(largest) <= most):
                    exact.nan_to_num_(nan=0.0).clamp_(-most, most)
            total[done : done + count].copy_(exact)
            done += count
    return total.numpy()
