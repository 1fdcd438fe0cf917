"""Clipped sums as whole numbers of a unit, which is what exact noise is added to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..fast.kernels import compiled

NUMBERS_PER_PASS = 2**15  # so that every pass over them stays in the cache


def in_units(
    parts: Sequence[Tensor], times: float, most: float, room: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """All numbers of the parts, one after the other, times a number, rounded to the nearest whole one.

    They are written into ``room`` if there is one, which must be long enough: memory that is used again is not fetched anew.
    Products are of double precision. What is no number becomes 0, and what is larger than ``most`` becomes that: sums of clipped
    numbers never are, so that nothing is lost, but whatever comes in, whole numbers come out.

    >>> in_units([torch.tensor([0.5, -0.25]), torch.tensor([[torch.nan], [torch.inf]])], 6.0, 100.0)
    array([  3,  -2,   0, 100])
    """
    count = sum(part.numel() for part in parts)
    own = np.empty(count, np.int64) if room is None else room[:count]
    if compiled():
        return _compiled(parts, times, most, own)
    total = torch.from_numpy(own)
    real, done = torch.empty(NUMBERS_PER_PASS, dtype=torch.float64), 0
    for part in parts:
        for few in part.detach().reshape(-1).to("cpu").split(NUMBERS_PER_PASS):
            count = len(few)
            exact = real[:count].copy_(few).mul_(times).round_().nan_to_num_(nan=0.0).clamp_(-most, most)
            total[done : done + count].copy_(exact)
            done += count
    return own


def _compiled(parts: Sequence[Tensor], times: float, most: float, total: NDArray[np.int64]) -> NDArray[np.int64]:
    from ..fast.whole_numbers_compiled import put

    done = 0
    for part in parts:
        flat = part.detach().reshape(-1).to("cpu").numpy()
        put(flat, float(times), float(most), total[done : done + len(flat)])
        done += len(flat)
    return total
