"""Projectors: from the answer in the signal to the next thetas. Post-processing, so they cost nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..asking import Answer
from ..trusted import validate
from .optimizers import Array, Optimizer
from .signal import Signal


class Projector(Protocol):
    """The next thetas (R, dimension), from the answer in the signal."""

    def init(self, copies: int, dimension: int) -> Any: ...
    def __call__(self, signal: Signal, thetas: Array, memory: Any) -> tuple[Array, Any]: ...


@dataclass(frozen=True)
class Stepped:
    """One of the ordinary optimizers (SGD, momentum, Adam, ...) on gradients in units of their clip norm."""

    rule: Optimizer[Any]

    def init(self, copies: int, dimension: int) -> Any:
        return self.rule.init(dimension)

    def __call__(self, signal: Signal, thetas: Array, memory: Any) -> tuple[Array, Any]:
        return self.rule(Answer(signal.gradient, 0.0), thetas, memory)


# Convex sets that parameters can be kept in, with exact Euclidean projections. Post-processing, so they cost nothing.
#
# project(v) = argmin over u in the set of ||u - v||
#
# ``diameter`` is the largest distance of two points of the set, which step sizes are made from.


class ConvexSet(Protocol):
    """Where theta has to stay; a stack of thetas is projected one by one."""

    def project(self, theta: Array) -> Array: ...
    def diameter(self, dimension: int) -> float: ...


@dataclass(frozen=True)
class Ball:
    """||theta|| <= radius."""

    radius: float

    def project(self, theta: Array) -> Array:
        """theta min(1, radius / ||theta||)."""
        lengths = np.linalg.norm(np.asarray(theta, np.float64), axis=-1, keepdims=True)
        return (theta * (self.radius / np.maximum(lengths, self.radius))).astype(theta.dtype)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius


@dataclass(frozen=True)
class Box:
    """|theta_j| <= radius in every coordinate."""

    radius: float

    def project(self, theta: Array) -> Array:
        """Each coordinate by itself."""
        return theta.clip(-self.radius, self.radius)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius * math.sqrt(dimension)


@dataclass(frozen=True)
class Simplex:
    """theta_j >= 0 and sum of theta_j = radius.

    >>> Simplex(1.0).project(np.array([0.5, 1.0, -3.0]))
    array([0.25, 0.75, 0.  ])
    """

    radius: float

    def project(self, theta: Array) -> Array:
        """max(theta - tau, 0) with the tau that makes the sum right, found by sorting (Held, Wolfe & Crowder 1974)."""
        descending = np.sort(np.asarray(theta, np.float64))[..., ::-1]
        taus = (descending.cumsum(-1) - self.radius) / np.arange(1, theta.shape[-1] + 1)
        last = np.maximum(
            (descending > taus).sum(-1, keepdims=True) - 1, 0
        )  # they are larger up to one place, then never
        return (theta - np.take_along_axis(taus, last, -1)).clip(0, None).astype(theta.dtype)

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
