"""Clip norms: what a protector asks for, and those (and step sizes) that follow from the loss alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from .arrays import Array, filled
from .signal import Signal


class Clip(Protocol):
    """Clip norms (R,) for the next question."""

    def init(self, copies: int, dimension: int) -> Any: ...
    def __call__(self, signal: Signal, memory: Any) -> tuple[Array, Any]: ...


@dataclass(frozen=True)
class FixedClip:
    """``factor`` times the typical clip norm of the loss, at every step."""

    factor: float = 1.0

    def init(self, copies: int, dimension: int) -> None:
        return None

    def __call__(self, signal: Signal, memory: None) -> tuple[Array, None]:
        return filled(signal.gradient, (signal.copies,), self.factor * signal.typical_clip), None


def longest_step(lipschitz: float, clip: float, layers: int = 1) -> float:
    """The longest step of plain descent on gradients in units of a clip norm C.

    The squared loss has slopes without end, and beyond 2 C / M for its curvature M = 2 descent on unit rows may run away.
    The slopes of the others end, so a long step is no danger to a linear model; in a perceptron it would drive hidden
    units to where they no longer learn.

    >>> longest_step(math.inf, 2.0), longest_step(1.0, 0.5), longest_step(1.5, 1.0, 2)
    (2.0, 30.0, 10.0)
    """
    if math.isinf(lipschitz):
        return clip
    return 30.0 if layers == 1 else 10.0
