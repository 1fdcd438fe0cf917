"""A brake for steps that are too long for the records: released gradients that contradict each other tell where.

A step beyond 2/h along a direction of curvature h lands further away on the other side, and the next one comes back: a
run that goes to and fro, in which everything else is learned and this is not. The clearer the answers, the longer the
steps, so it is a large budget that does harm. Answers show it: with G_t the gradient released at theta_t,

    G_t . G_(t-1) < -3 sd   (sd the standard deviation of the noise in it)

cannot be noise. The direction u of G_t - G_(t-1) and its curvature h = |G_t - G_(t-1)| / u.(theta_t - theta_(t-1)) are
kept, and from then on a step goes along u no further than -u.G/h, to where the gradient would vanish.

*Guarantee*: post-processing of released answers, whose noise is known; nothing is asked.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
MIN_CLEAR_DEVIATIONS = 3.0  # of noise
MAX_DIRECTIONS = 16
MIN_NEW_SHARE = 0.7  # of a direction's length outside of those that are held already


class HeldDirection(NamedTuple):
    """A unit vector, orthogonal to the others that are held, and the largest curvature that was seen along it."""

    along: Vector
    curvature: float


class ReleasedGradient(NamedTuple):
    """A released gradient, the standard deviation of the noise on each coordinate, and where it was asked."""

    gradient: Vector
    noise: float
    theta: Vector


class Brake(NamedTuple):
    """What was seen so far; never changed, only replaced."""

    last: ReleasedGradient | None = None
    held: tuple[HeldDirection, ...] = ()

    def seen(self, asked: ReleasedGradient) -> Brake:
        """The brake after one more answer."""
        if self.last is None or not contradict(self.last, asked):
            return self._replace(last=asked)
        change, moved = asked.gradient - self.last.gradient, asked.theta - self.last.theta
        along = change / np.linalg.norm(change)
        way = float(along @ moved)
        if way <= 0:
            return self._replace(last=asked)
        return Brake(asked, _with(self.held, along, float(np.linalg.norm(change)) / way))

    def braked(self, asked: ReleasedGradient, step: Vector) -> Vector:
        """The step, no further along what is held than to where the gradient would vanish."""
        for along, curvature in self.held:
            wanted, limit = float(along @ step), -float(along @ asked.gradient) / curvature
            step = step + (min(max(wanted, min(limit, 0.0)), max(limit, 0.0)) - wanted) * along
        return step


def agreement(one: ReleasedGradient, other: ReleasedGradient) -> tuple[float, float]:
    """The product of two gradients, and the standard deviation of what noise makes of it."""
    first, second = float(one.gradient @ one.gradient), float(other.gradient @ other.gradient)
    variance = other.noise**2 * first + one.noise**2 * second + len(one.gradient) * (one.noise * other.noise) ** 2
    return float(one.gradient @ other.gradient), math.sqrt(variance)


def contradict(one: ReleasedGradient, other: ReleasedGradient) -> bool:
    """Whether two gradients point against each other, clearly beyond their noise."""
    product, deviation = agreement(one, other)
    return product < -MIN_CLEAR_DEVIATIONS * deviation


def _with(held: tuple[HeldDirection, ...], along: Vector, curvature: float) -> tuple[HeldDirection, ...]:
    """What is held with one direction more, or with a larger curvature of the one that it is nearest to."""
    rest = along - sum((float(old.along @ along) * old.along for old in held), np.zeros_like(along))
    length = float(np.linalg.norm(rest))
    if length > MIN_NEW_SHARE and len(held) < MAX_DIRECTIONS:
        return (*held, HeldDirection(rest / length, curvature))
    nearest = max(range(len(held)), key=lambda place: abs(float(held[place].along @ along)))
    old = held[nearest]
    return (*held[:nearest], HeldDirection(old.along, max(old.curvature, curvature)), *held[nearest + 1 :])
