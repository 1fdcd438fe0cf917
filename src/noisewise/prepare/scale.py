"""Where a value lies between declared points: piecewise linear, from 0 at the first to 1 at the last.

Every declared scale is such a map. A logarithmic one has points at equal ratios, declared knots are points at equal
distances, ranks that were bought are points at quantiles. Arithmetic is + - * and comparisons on single values, so that a
value's place does not depend on its company.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LOG_POINTS = 129


def positions(values: Floats, points: Floats, ranks: Floats) -> Floats:
    """The place of each value, clamped to the ends; NaN for what is missing.

    >>> positions(np.array([5.0, 15.0, np.nan, 99.0]), np.array([0.0, 10.0, 20.0]), np.array([0.0, 0.5, 1.0])).tolist()
    [0.25, 0.75, nan, 1.0]
    """
    inside = np.minimum(np.maximum(values, points[0]), points[-1])  # NaN stays
    piece = np.clip(
        np.searchsorted(points, np.where(np.isnan(inside), points[0], inside), side="right") - 1, 0, len(points) - 2
    )
    slopes = (ranks[1:] - ranks[:-1]) / (points[1:] - points[:-1])
    place = ranks[piece] + (inside - points[piece]) * slopes[piece]
    return np.minimum(np.maximum(place, ranks[piece]), ranks[piece + 1])


def values_at(places: Floats, points: Floats, ranks: Floats) -> Floats:
    """The value at each place: the way back, for pictures and reports."""
    return np.interp(places, ranks, points)


def log_scale(low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points at equal ratios from low > 0 to high."""
    points = np.geomspace(low, high, LOG_POINTS)
    points[0], points[-1] = low, high
    return tuple(points.tolist()), tuple(np.linspace(0.0, 1.0, LOG_POINTS).tolist())
