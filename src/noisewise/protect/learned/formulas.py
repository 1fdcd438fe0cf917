"""What the cells of a learned protector see, written once: for stacks of runs with a graph, and for one run in floats.

Inputs are ratios of released numbers to their known noise, or public facts, so that one set of weights serves any
dimension, size, budget and horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import methodcaller
from typing import Any, NamedTuple

from ..optimizers import Array
from ..signal import Signal

CLIP_EXPONENTS, SCALE_EXPONENTS, RATE_EXPONENTS = (-4.0, 1.0), (-4.0, 2.0), (-6.0, 6.0)
MAX_OUTPUT = 10.0
MAX_COORDINATE = 1e3  # of theta, whatever the weights
MIN_SPEND = 1e-7  # of the budget: noise stays finite whatever the weights
PAPER_P = 10.0  # Andrychowicz et al. 2016, appendix A: gradients below e^-p count as small


class Maths(NamedTuple):
    """The functions of one kind of number, how it is read from an array, and what replaces what is not finite."""

    log: Callable[[Any], Any]
    log1p: Callable[[Any], Any]
    at_least: Callable[[Any, float], Any]
    read: Callable[[Array], Any]
    tame: Callable[[Any], Any]


def _tame_number(out: float) -> float:
    return 0.0 if math.isnan(out) else min(max(out, -MAX_OUTPUT), MAX_OUTPUT)


def _tame_stack(out: Array) -> Array:
    """A network's output with what is not finite replaced: no weights may produce a NaN step or share."""
    return out.nan_to_num(0.0, MAX_OUTPUT, -MAX_OUTPUT).clamp(-MAX_OUTPUT, MAX_OUTPUT)


NUMBERS = Maths(math.log, math.log1p, max, methodcaller("item"), _tame_number)
STACKS = Maths(
    methodcaller("log"),
    methodcaller("log1p"),
    lambda x, least: x.clamp(min=least),
    lambda stack: stack,
    _tame_stack,
)


def log_norm(maths: Maths, signal: Signal) -> Any:
    norm = signal.norm if signal.paid_norm is None else signal.paid_norm
    return maths.log(maths.at_least(maths.read(norm), 0.0) + 1e-3)


def global_inputs(maths: Maths, signal: Signal) -> list[Any]:
    """Log norm and its clarity, what is left, t/T, log noise ratio, log T."""
    norm, std = maths.read(signal.norm), maths.read(signal.average_std)
    return [
        log_norm(maths, signal),
        clarity(maths, norm, std, signal.dimension),
        maths.at_least(maths.read(signal.remaining), 0.0),
        signal.step / signal.horizon,
        -0.5 * maths.log(maths.read(signal.ratio)),
        math.log(signal.horizon / 50),
    ]


def common_inputs(maths: Maths, signal: Signal, length: Any) -> list[Any]:
    """What all coordinates share: log noise, t/T, what is left, log T, log length of theta."""
    return [
        maths.log(maths.read(signal.noise_std) * math.sqrt(signal.dimension)),
        signal.step / signal.horizon,
        maths.at_least(maths.read(signal.remaining), 0.0),
        math.log(signal.horizon / 50),
        maths.log1p(length),
    ]


def clarity(maths: Maths, norm: Any, noise_std: Any, dimension: int) -> Any:
    """log(1 + norm / norm of the noise)."""
    return maths.log1p(norm / (noise_std * math.sqrt(dimension) + 1e-6))


def base_step(signal: Signal) -> Array:
    """The step sizes (R,) that weights of zero take: n mu / T, but none that is too long for the loss."""
    return (math.sqrt(signal.dimension) / signal.horizon * signal.ratio).clip(None, signal.longest_step)
