"""Projectors: from the answer in the signal to the next thetas. Post-processing, so they cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..asking import Answer
from .arrays import Array
from .optimizers import Optimizer
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
