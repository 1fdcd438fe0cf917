"""The walk that gradient methods share: a projector's steps from a public start, and the mean of the last iterates."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..curator import Answer, Facts, PublicCurator
from ..protect.optimizers import OPTIMIZERS, Optimizer
from .dpsgd import WARM_START_L2, default_learning_rate
from .nonprivate import minimise


class Walk(NamedTuple):
    step: int
    theta: Tensor
    projector: Optimizer[Any]
    memory: Any
    tail_sum: Tensor


def set_out(
    theta: Tensor, facts: Facts, public: PublicCurator | None, optimizer: str, learning_rate: float | None
) -> Walk:
    """At the public start, or at the minimum of the public loss if there are public rows."""
    if public is not None:
        theta = minimise(public, theta, l2=WARM_START_L2, steps=50)
    projector: Optimizer[Any] = OPTIMIZERS[optimizer](learning_rate or default_learning_rate(optimizer, facts))
    return Walk(0, theta, projector, projector.init(len(theta)), torch.zeros_like(theta))


def onward(walk: Walk, gradient: Tensor, *, l2: float, steps: int, tail: float) -> Walk:
    """One step along a released gradient; l2 is added after the noise and costs nothing."""
    if l2:
        gradient = gradient + l2 * walk.theta
    theta, memory = walk.projector(Answer(gradient, 0.0), walk.theta, walk.memory)
    in_tail = walk.step + 1 > steps - _tail_steps(steps, tail)
    tail_sum = walk.tail_sum + theta if in_tail else walk.tail_sum
    return walk._replace(step=walk.step + 1, theta=theta, memory=memory, tail_sum=tail_sum)


def arrived(walk: Walk, *, steps: int, tail: float) -> Tensor:
    """The mean of the last ``tail`` share of the iterates: post-processing that cancels noise."""
    return walk.tail_sum / _tail_steps(steps, tail) if walk.step >= steps else walk.theta


def _tail_steps(steps: int, tail: float) -> int:
    return max(1, round(tail * steps))
