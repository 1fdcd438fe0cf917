"""Running a protector on public tasks: the very steps of a private run, many copies at once, with a graph.

A task's rows stand for a private data set of ``size`` records: the mean gradient is that of the rows, the noise that of
the size and the budget. Noise is drawn from a seeded generator, since nothing here is private.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..curator import PublicCurator
from ..protect.clips import longest_step, typical_clip
from ..protect.learned.parts import LearnedSchedule
from ..protect.protector import Protector, Run, answered, begin, question, scaled
from ..protect.signal import first_signal


class Task(NamedTuple):
    """Public rows, how many private records they stand for, and the budgets (mu of Gaussian DP) of the copies."""

    name: str
    curator: PublicCurator
    size: float
    mu: Tensor
    horizon: int

    @property
    def copies(self) -> int:
        return len(self.mu)


class Track(NamedTuple):
    """What happened in a span of steps: mean loss after each, spent share of the budget and clip norm at each (T, R)."""

    losses: Tensor
    spent: Tensor
    clips: Tensor


def start(protector: Protector, task: Task) -> Run:
    """A run of each copy, at the model's public starting point."""
    model = task.curator.model
    clip = typical_clip(model.loss.name, model.loss.task)
    signal = first_signal(
        task.copies,
        model.dimension,
        horizon=task.horizon,
        ratio=task.size * task.mu / math.sqrt(model.dimension),
        typical_clip=clip,
        longest_step=longest_step(model.loss.name, clip, len(model.groups)),
        groups=model.groups,
    )
    return begin(protector, model.start().repeat(task.copies, 1), signal)


def advance(
    protector: Protector, task: Task, run: Run, steps: int, generator: torch.Generator, *, constants: bool = False
) -> tuple[Run, Track]:
    """``steps`` more steps. ``constants``: gradients of the task are observations without a graph, as in the paper.

    The open form of a learned schedule may spend more than there is: meta-training has to see by how much.
    """
    losses, spent, clips = [], [], []
    for _ in range(steps):
        if protector.norm_share:
            run = _with_paid_norm(protector, task, run, generator)
        before = run
        clip, share, run = question(protector, run)
        spend = share * run.signal.remaining.clamp(min=0)
        if isinstance(protector.schedule, LearnedSchedule) and protector.schedule.design.form == "open":
            spend = protector.schedule.spend(before.signal, before.schedule_memory)[0]
        noise_std = 1 / (task.mu * spend.clamp(min=1e-9).sqrt() * task.size)
        at = run.thetas.detach() if constants else run.thetas
        mean = task.curator.clipped_means(at, clip) / clip[:, None]
        noise = torch.randn(mean.shape, generator=generator)
        run = answered(protector, run, mean + noise_std[:, None] * noise, noise_std, clip, run.signal.remaining - spend)
        losses.append(task.curator.mean_losses(run.thetas))
        spent.append(spend)
        clips.append(clip)
    return run, Track(torch.stack(losses), torch.stack(spent), torch.stack(clips))


def _with_paid_norm(protector: Protector, task: Task, run: Run, generator: torch.Generator) -> Run:
    """Algorithm 2, line 1: the norm of the clipped mean gradient, noised and paid for."""
    signal = run.signal
    spend = protector.norm_share / max(signal.horizon - signal.step, 1) * signal.remaining.clamp(min=0)
    std = 1 / (task.mu * spend.clamp(min=1e-9).sqrt() * task.size)
    with torch.no_grad():
        mean = task.curator.clipped_means(run.thetas.detach(), signal.clip.detach()) / signal.clip.detach()[:, None]
        norm, noise = torch.linalg.vector_norm(mean, dim=1), torch.randn(len(mean), generator=generator)
        if protector.squared_norm:
            released = (norm.square() + 2 * std * noise).clamp(min=0).sqrt()
        else:
            released = (norm + std * noise).clamp(min=0)
    return run._replace(signal=signal._replace(paid_norm=released, remaining=signal.remaining - spend))


def detached(run: Run) -> Run:
    """The same place without the graph that led there: what lets a long run be trained in batches of steps."""

    def cut(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach()
        if isinstance(value, tuple):
            parts = [cut(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    cut_off: Run = cut(run)
    return cut_off


def calibrated_losses(task: Task, thetas: Tensor) -> Tensor:
    """Mean loss at the best scale of the scores: what a classifier is worth when only its ranking counts.

    The factor is a minimiser, so by the envelope theorem the gradient may treat it as a constant.
    """
    factors, groups = torch.logspace(-2, 1.5, 29), task.curator.model.groups
    with torch.no_grad():
        tried = [task.curator.mean_losses(scaled(thetas, factor.expand(len(thetas)), groups)) for factor in factors]
        best = factors[torch.stack(tried).argmin(0)]
    return task.curator.mean_losses(scaled(thetas, best, groups))
