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
    missing = np.isnan(values)
    inside = np.minimum(np.maximum(np.where(missing, points[0], values), points[0]), points[-1])
    piece = np.clip(np.searchsorted(points, inside, side="right") - 1, 0, len(points) - 2)
    slopes = slopes_of(points, ranks)
    place = ranks[piece] + (inside - points[piece]) * slopes[piece]
    place = np.where(place > ranks[piece], np.minimum(place, ranks[piece + 1]), ranks[piece])  # also if it is no number
    return np.where(missing, np.nan, place)


def slopes_of(points: Floats, ranks: Floats) -> Floats:
    """How fast ranks grow from each point to the next."""
    return (ranks[1:] - ranks[:-1]) / (points[1:] - points[:-1])


def check_scale(points: object, ranks: object, name: str = "a scale") -> None:
    """Refuse what is no scale: points that grow, a plain distance apart, and as many ranks that grow from 0 to 1."""
    at, to = np.asarray(points, np.float64), np.asarray(ranks, np.float64)
    if at.ndim != 1 or at.shape != to.shape or len(at) < 2:
        raise ValueError(f"points and ranks of {name} must be as many, at least two")
    with np.errstate(all="ignore"):
        steps, rises = np.diff(at), np.diff(to)
        plain = (steps > 0) & (rises > 0) & np.isfinite(steps) & np.isfinite(rises / steps)
    if not (plain.all() and to[0] == 0 and to[-1] == 1):
        raise ValueError(f"points of {name} must grow, not too near or far apart, and their ranks from 0 to 1")


def values_at(places: Floats, points: Floats, ranks: Floats) -> Floats:
    """The value at each place: the way back, for pictures and reports."""
    return np.interp(places, ranks, points)


def log_scale(low: float, high: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Points at equal ratios from low > 0 to high."""
    points = np.geomspace(low, high, LOG_POINTS)
    points[0], points[-1] = low, high
    return tuple(points.tolist()), tuple(np.linspace(0.0, 1.0, LOG_POINTS).tolist())
