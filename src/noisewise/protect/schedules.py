"""Schedules: shares of what is left, and noise that is optimal for its known influence on the final loss.

With q_t the influence of step t, the expected excess loss of a run holds a term sum_t q_t sigma_t^2, and the privacy
cost of full-batch Gaussian steps is sum_t sigma_t^-2. The least influence for that cost has sigma_t proportional to
q_t^(-1/4) (Lemma 3.1; :func:`noisewise.evidence.theory.optimal_schedule`).

*Guarantee*: none needed. A schedule is computed from public facts, and noise in any proportions is calibrated to the
budget before it is used.

Hong, Wang & Zhou 2022, Dynamic Privacy Budget Allocation Improves Data Efficiency of DP Gradient Descent (Lemma 3.1,
Theorems 3.2 and 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..trusted import validate
from .optimizers import Array, filled
from .signal import Signal

Floats = npt.NDArray[np.float64]
MIN_INFLUENCE = 1e-12  # of the largest: no step gets more than 1,000 times the noise of another


class Schedule(Protocol):
    """Shares (R,) in (0, 1] of what is left, for the next question."""

    def init(self, copies: int, dimension: int) -> Any: ...
    def __call__(self, signal: Signal, memory: Any) -> tuple[Array, Any]: ...


@dataclass(frozen=True)
class Uniform:
    """The same noise at every step: 1/(T - t) of what is left."""

    def init(self, copies: int, dimension: int) -> None:
        return None

    def __call__(self, signal: Signal, memory: None) -> tuple[Array, None]:
        return filled(signal.gradient, (signal.copies,), 1 / max(signal.horizon - signal.step, 1)), None


def noise_shape(influence: Sequence[float] | Floats) -> Floats:
    """The optimal noise up to a factor, q_t^(-1/4) with the least entry 1: what ``calibrate(shape=...)`` takes."""
    q = np.asarray(influence, dtype=np.float64)
    if q.ndim != 1 or not len(q) or not (np.isfinite(q).all() and (q >= 0).all() and q.max() > 0):
        raise ValueError("influence must hold finite numbers >= 0, one for each step, not all zero")
    q = np.maximum(q, np.finfo(np.float64).tiny)
    shape: Floats = np.maximum(q / q.max(), MIN_INFLUENCE) ** -0.25
    return shape


def debiased_momentum(steps: int, gamma: float, beta: float) -> Floats:
    """Descent along v_t / (1 - beta^t), v_t = beta v_{t-1} + (1 - beta) g_t (Algorithm 2), exactly.

    q_t = sum over s = t .. T of gamma^(T-s) ((1-beta) beta^(s-t) / (1-beta^s))^2: the noise of step t enters every
    later step s with that weight.
    """
    validate.whole(steps=steps)
    validate.share(gamma=gamma)
    if not 0 <= beta < 1:
        raise ValueError(f"beta is {beta!r}; pass a number in [0, 1)")
    s = np.arange(1.0, steps + 1)
    later = s[None, :] - s[:, None]  # row t, column s
    weights = np.where(later >= 0, (1 - beta) * beta ** np.maximum(later, 0) / (1 - beta**s), 0.0)
    q: Floats = weights**2 @ gamma ** (steps - s)
    return q


# Clip norms: what a protector asks for, and those (and step sizes) that follow from the loss alone.


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
