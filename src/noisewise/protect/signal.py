"""The signal: everything a protector may look at. Public facts and released answers, nothing else.

Runs go side by side: every tensor has a leading dimension R, which is 1 in a private run and the number of copies when
a protector is tried or trained on public tasks. Gradients are in units of their clip norm, so that a protector does not
depend on the scale of the loss.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BETA = 0.9  # memory of the running average of released gradients


class Signal(NamedTuple):
    """Before the first answer the gradient and its average are zero and ``norm`` is 1.

    ``remaining``: share of the training budget that is left. ``ratio``: n mu / sqrt(d), how clear one release of the
    whole training budget would be. ``gradient`` has noise ``noise_std`` on each coordinate, ``average`` (of past
    gradients, bias corrected) has ``average_std``. ``norm`` estimates the norm of the true average from these two.
    ``paid_norm``: a norm that was asked for and paid before this step, if the protector wants one.
    """

    step: int
    horizon: int
    ratio: Tensor
    remaining: Tensor
    typical_clip: float
    groups: tuple[int, ...]
    clip: Tensor
    gradient: Tensor
    noise_std: Tensor
    average: Tensor
    average_std: Tensor
    norm: Tensor
    sum_weight: float = 0.0
    paid_norm: Tensor | None = None

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
    ratio: Tensor,
    typical_clip: float,
    groups: tuple[int, ...] = (),
) -> Signal:
    """What is known before anything is asked."""
    one, zero = torch.ones(copies), torch.zeros(copies)
    none = torch.zeros(copies, dimension)
    return Signal(
        step=0, horizon=horizon, ratio=ratio, remaining=one, typical_clip=typical_clip, groups=groups or (dimension,),
        clip=typical_clip * one, gradient=none, noise_std=zero, average=none, average_std=one, norm=one,
    )  # fmt: skip


def heard(signal: Signal, gradient: Tensor, noise_std: Tensor, clip: Tensor, remaining: Tensor) -> Signal:
    """The signal with one more released gradient (in units of ``clip``, as its noise).

    The average is m = sum_i w_i g_i / sum_i w_i, w_i = (1-b) b^(t-i), so its noise variance is sum_i w_i^2 s_i^2 over
    the squared sum of weights; ||m||^2 minus d times that is an unbiased estimate of the true squared norm.
    """
    weight = BETA * signal.sum_weight + (1 - BETA)
    average = (BETA * signal.sum_weight * signal.average + (1 - BETA) * gradient) / weight
    variance = ((BETA * signal.sum_weight * signal.average_std) ** 2 + ((1 - BETA) * noise_std) ** 2) / weight**2
    squared = average.square().sum(1) - signal.dimension * variance
    return signal._replace(
        clip=clip, gradient=gradient, noise_std=noise_std, average=average, average_std=variance.sqrt(),
        norm=squared.clamp(min=1e-6).sqrt(), remaining=remaining, sum_weight=weight,
    )  # fmt: skip


def next_step(signal: Signal) -> Signal:
    """The signal before the next question; a paid norm is for one step only."""
    return signal._replace(step=signal.step + 1, paid_norm=None)
