"""What a protector does to the noise: how far its steps are from noise-free ones, and which noise matters in the end.

Denoising.  g the noise-free clipped mean gradient at theta_t, u what stands in for it: the released gradient, the running
    average, or the step theta_t - theta_{t+1}. Cosine of u and g; error ||a u - g|| / ||g|| with one factor a for the
    whole run, the best one, so that a step size counts neither for nor against.
Influence.  d f_T / d log sigma_t, the noise of the other steps kept, relative to the starting loss. Where a schedule is
    best under sum_t sigma_t^-2 = const, this is proportional to what it spends at t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from noisewise.learned.unroll import PublicTask, start, starts
from noisewise.protect.protector import Protector, answered, finished, next_question

from .store import Row
from .transfer import standard_error

STAND_INS = ("released", "average", "step")
DRAWS = 2  # of the noise, on each task


@dataclass(frozen=True)
class Look:
    """A protector on one held-out task."""

    protector: str
    epsilon: float
    task: int
    epochs: int


def dissect(part: Protector, task: PublicTask, seed: int) -> Row:
    """Per step, means of the copies: cosine and error of each stand-in, share of the budget, influence.

    Every run has a twin with the opposite noise: what is odd in the noise would hide the influence, and cancels.
    """
    runs = [_dissected(part, task, DRAWS * seed + draw, sign) for draw in range(DRAWS) for sign in (1.0, -1.0)]
    return {name: np.mean([run[name] for run in runs], axis=0).tolist() for name in runs[0]}


def _dissected(part: Protector, task: PublicTask, seed: int, sign: float) -> Row:
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.zeros(task.horizon, task.copies, requires_grad=True)
    run = start(part, task)
    exact: list[Tensor] = []
    signals: dict[str, list[Tensor]] = {name: [] for name in STAND_INS}
    spends = []
    for t in range(task.horizon):
        clip, share, run = next_question(part, run)
        spend = (share * run.signal.remaining.clamp(min=0)).detach()
        noise_std = torch.exp(exponents[t]) / (task.mu * spend.clamp(min=1e-9).sqrt() * task.size)
        mean = task.rows.clipped_means(run.thetas, clip) / clip[:, None]
        released = mean + sign * noise_std[:, None] * torch.randn(mean.shape, generator=generator)
        before = run.thetas
        run = answered(part, run, released, noise_std, clip, (run.signal.remaining - spend).detach())
        exact.append(mean.detach())
        for name, value in zip(STAND_INS, (released, run.signal.average, before - run.thetas), strict=True):
            signals[name].append(value.detach())
        spends.append(spend)
    final = task.rows.mean_losses(finished(part, run))
    first = float(task.rows.mean_losses(starts(task.rows.model)))
    (influence,) = torch.autograd.grad(final.sum(), exponents)
    row: Row = {"spend": _means(torch.stack(spends)), "influence": _means(influence / first)}
    truth = torch.stack(exact)
    for name in STAND_INS:
        cosine, error = nearness(torch.stack(signals[name]), truth)
        row |= {f"{name}_cosine": _means(cosine), f"{name}_error": _means(error)}
    return row


def nearness(stand_ins: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and relative error (T, R) of vectors (T, R, d), scaled by the one factor per run that suits it best."""
    products, squares = (stand_ins * truth).sum(2), stand_ins.square().sum(2)
    lengths = truth.square().sum(2).sqrt().clamp(min=1e-12)
    cosine = products / (squares.sqrt().clamp(min=1e-12) * lengths)
    factor = products.sum(0) / squares.sum(0).clamp(min=1e-24)
    return cosine, torch.linalg.vector_norm(factor[:, None] * stand_ins - truth, dim=2) / lengths


def summary(results: Iterable[Row]) -> list[Row]:
    """A row per protector, epsilon and step: means over tasks with standard errors."""
    names = ("spend", "influence", *(f"{name}_{what}" for name in STAND_INS for what in ("cosine", "error")))
    by: dict[tuple[str, float], list[Row]] = {}
    for seen in results:
        by.setdefault((seen["protector"], seen["epsilon"]), []).append(seen)
    rows = []
    for (name, epsilon), group in by.items():
        tables = {what: np.array([seen[what] for seen in group]) for what in names}
        for t in range(tables["spend"].shape[1]):
            row: Row = {"protector": name, "epsilon": epsilon, "step": t + 1, "tasks": len(group)}
            for what, values in tables.items():
                row |= {what: float(values[:, t].mean()), f"{what}_standard_error": standard_error(values[:, t])}
            rows.append(row)
    return rows


def _means(values: Tensor) -> list[float]:
    """Over the copies; what is not finite would not be a JSON number."""
    return [value if math.isfinite(value) else 0.0 for value in values.mean(1).tolist()]
