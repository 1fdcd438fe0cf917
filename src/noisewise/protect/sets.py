"""Convex sets that parameters can be kept in, with exact Euclidean projections. Post-processing, so they cost nothing.

    project(v) = argmin over u in the set of ||u - v||

``diameter`` is the largest distance of two points of the set, which step sizes are made from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ..trusted import validate
from ..trusted.late import Tensor, torch


class ConvexSet(Protocol):
    def project(self, theta: Tensor) -> Tensor: ...
    def diameter(self, dimension: int) -> float: ...


@dataclass(frozen=True)
class Ball:
    """||theta|| <= radius."""

    radius: float

    def project(self, theta: Tensor) -> Tensor:
        """theta min(1, radius / ||theta||)."""
        length = float(torch.linalg.vector_norm(theta.double()))
        return theta if length <= self.radius else theta * (self.radius / length)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius


@dataclass(frozen=True)
class Box:
    """|theta_j| <= radius in every coordinate."""

    radius: float

    def project(self, theta: Tensor) -> Tensor:
        """Each coordinate by itself."""
        return theta.clamp(-self.radius, self.radius)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius * math.sqrt(dimension)


@dataclass(frozen=True)
class Simplex:
    """theta_j >= 0 and sum of theta_j = radius.

    >>> Simplex(1.0).project(torch.tensor([0.5, 1.0, -3.0]))
    tensor([0.2500, 0.7500, 0.0000])
    """

    radius: float

    def project(self, theta: Tensor) -> Tensor:
        """max(theta - tau, 0) with the tau that makes the sum right, found by sorting (Held, Wolfe & Crowder 1974)."""
        descending = theta.double().sort(descending=True).values
        surplus = descending.cumsum(0) - self.radius
        taus = surplus / torch.arange(1, len(theta) + 1, dtype=torch.float64)
        support = int((descending > taus).nonzero()[-1]) if bool((descending > taus).any()) else 0
        return (theta.double() - taus[support]).clamp_(min=0).to(theta.dtype)

    def diameter(self, dimension: int) -> float:
        return math.sqrt(2) * self.radius if dimension > 1 else 0.0


SETS: dict[str, type[Ball | Box | Simplex]] = {"ball": Ball, "box": Box, "simplex": Simplex}


def set_named(name: str, radius: float) -> ConvexSet:
    """The set with that name and size.

    >>> set_named("box", 2.0)
    Box(radius=2.0)
    """
    validate.one_of(tuple(SETS), constraint=name)
    validate.positive(radius=radius)
    return SETS[name](radius)
