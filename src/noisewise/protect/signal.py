"""The signal: everything a protector may look at. Public facts and released answers, nothing else.

Runs go side by side: every array has a leading dimension R, which is 1 in a private run and the number of copies when
a protector is tried or trained on public tasks. Gradients are in units of their clip norm, so that a protector does not
depend on the scale of the loss.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..asking import Facts
from ..trusted.accountants.gdp import mu_of
from .optimizers import Array, filled

BETA = 0.9  # memory of the running average of released gradients


class Signal(NamedTuple):
    """Before the first answer the gradient and its average are zero and ``norm`` is 1.

    ``remaining``: share of the training budget that is left. ``ratio``: n mu / sqrt(d), how clear one release of the
    whole training budget would be. ``gradient`` has noise ``noise_std`` on each coordinate, ``average`` (of past
    gradients, bias corrected) has ``average_std``. ``norm`` estimates the norm of the true average from these two.
    ``longest_step``: of plain descent for the loss, in units of the clip norm.
    ``paid_norm``: a norm that was asked for and paid before this step, if the protector wants one.
    """

    step: int
    horizon: int
    ratio: Array
    remaining: Array
    typical_clip: float
    longest_step: float
    groups: tuple[int, ...]
    clip: Array
    gradient: Array
    noise_std: Array
    average: Array
    average_std: Array
    norm: Array
    sum_weight: float = 0.0
    paid_norm: Array | None = None

    @property
    def copies(self) -> int:
        return len(self.gradient)

    @property
    def dimension(self) -> int:
        return self.gradient.shape[1]


def first_signal(
    copies: int,
    dimension: int,
    *,
    horizon: int,
    ratio: Array,
    typical_clip: float,
    longest_step: float = math.inf,
    groups: tuple[int, ...] = (),
) -> Signal:
    """What is known before anything is asked."""
    one, none = filled(ratio, (copies,), 1.0), filled(ratio, (copies, dimension), 0.0)
    return Signal(
        step=0,
        horizon=horizon,
        ratio=ratio,
        remaining=one,
        typical_clip=typical_clip,
        longest_step=longest_step,
        groups=groups or (dimension,),
        clip=typical_clip * one,
        gradient=none,
        noise_std=0 * one,
        average=none,
        average_std=one,
        norm=one,
    )


def with_answer(signal: Signal, gradient: Array, noise_std: Array, clip: Array, remaining: Array) -> Signal:
    """The signal with one more released gradient (in units of ``clip``, as its noise).

    The average is m = sum_i w_i g_i / sum_i w_i, w_i = (1-b) b^(t-i), so its noise variance is sum_i w_i^2 s_i^2 over
    the squared sum of weights; ||m||^2 minus d times that is an unbiased estimate of the true squared norm.
    """
    weight = BETA * signal.sum_weight + (1 - BETA)
    if signal.copies == 1 and isinstance(gradient, np.ndarray):  # there plain numbers take half the time
        old, new = BETA * signal.sum_weight / weight, (1 - BETA) / weight
        average = old * signal.average
        average += new * gradient
        variance = (old * signal.average_std.item()) ** 2 + (new * noise_std.item()) ** 2
        squared = float(np.vdot(average, average)) - signal.dimension * variance
        average_std, norm = one(math.sqrt(variance)), one(max(squared, 1e-6) ** 0.5)
    else:
        average = (BETA * signal.sum_weight * signal.average + (1 - BETA) * gradient) / weight
        variances = ((BETA * signal.sum_weight * signal.average_std) ** 2 + ((1 - BETA) * noise_std) ** 2) / weight**2
        average_std = variances**0.5
        norm = ((average * average).sum(1) - signal.dimension * variances).clip(1e-6, None) ** 0.5
    return signal._replace(
        clip=clip,
        gradient=gradient,
        noise_std=noise_std,
        average=average,
        average_std=average_std,
        norm=norm,
        remaining=remaining,
        sum_weight=weight,
    )


def one(number: float) -> NDArray[np.float32]:
    """The number as an array for one run."""
    return np.array([number], np.float32)


def next_step(signal: Signal) -> Signal:
    """The signal before the next question; a paid norm is for one step only."""
    return signal._replace(step=signal.step + 1, paid_norm=None)


def signal_to_noise(facts: Facts) -> float:
    """r = n mu / sqrt(d), from public or released facts: how clear one release of the whole budget would be."""
    return (facts.size or 1.0) * worth(facts) / math.sqrt(facts.dimension)


def worth(facts: Facts) -> float:
    """What the budget is worth in Gaussian DP: its mu, halved under replace_one."""
    return worth_of(facts.budget)


def worth_of(budget: Budget) -> float:
    """The same of a budget."""
    return mu_of(budget.epsilon, budget.delta) / (2 if budget.adjacency == "replace_one" else 1)
