"""Which records a question sees. The same value that draws the batch builds the event, so they cannot disagree."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
from numpy.typing import NDArray

from .events import Sampling
from .noise import Stream


def draw(sampling: Sampling, records: Sized, stream: Stream) -> NDArray[np.int64] | None:
    """Secret row numbers of a fresh batch; None means every record.

    Poisson: each record joins independently. Fixed: rate * records rows, rounded down, every subset equally likely.
    """
    match sampling:
        case ("poisson", rate):
            return stream.each_with_probability(rate, len(records))
        case ("fixed", rate):
            return stream.subset(fixed_size(rate, len(records)), len(records))
    return None


def expected_size(sampling: Sampling, size: float) -> float:
    """The expected batch size, from the public or released size: what a sum is divided by, never the realised one."""
    match sampling:
        case ("poisson", rate):
            return max(rate * size, 1.0)
        case ("fixed", rate):
            return max(float(fixed_size(rate, round(size))), 1.0)
    return max(size, 1.0)


def fixed_size(rate: float, records: int) -> int:
    """rate * records rounded down (the price at ``rate`` covers it); 1e-12 forgives the rounding of b / n."""
    return min(records, int(rate * records * (1 + 1e-12)))
