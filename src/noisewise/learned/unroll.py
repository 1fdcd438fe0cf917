"""Running a protector on public tasks: the very steps of a private run, many copies at once, with a graph.

A task's rows stand for a private data set of ``size`` records: the mean gradient is that of the rows, the noise that of
the size and the budget. Noise is drawn from a seeded generator, since nothing here is private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..protect.clips import longest_step
from ..protect.learned.parts import LearnedSchedule
from ..protect.protector import Protector, ProtectorRuns, begin, step, with_scores_scaled
from ..protect.signal import first_signal
from ..trusted.torch_extra import Tensor, torch
from .differentiable import TaskRows, starts


class PublicTask(NamedTuple):
    """Public rows, how many private records they stand for, and the budgets (mu of Gaussian DP) of the copies."""

    name: str
    rows: TaskRows
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


def start(protector: Protector, task: PublicTask) -> ProtectorRuns:
    """A run of each copy, at the model's public starting point."""
    model = task.rows.model
    clip = model.loss.typical_clip
    signal = first_signal(
        task.copies,
        model.dimension,
        horizon=task.horizon,
        ratio=task.size * task.mu / math.sqrt(model.dimension),
        typical_clip=clip,
        longest_step=longest_step(model.loss.lipschitz, clip, len(model.groups)),
        groups=model.groups,
    )
    return begin(protector, starts(model, task.copies), signal)


@dataclass(frozen=True)
class Simulated:
    """The answers of a task's rows, with the noise that its size and budgets would have.

    ``limited``: at most what is left is spent, as in a private run; else the open form of a learned schedule may spend
    more than there is, because meta-training has to see by how much.
    """

    protector: Protector
    task: PublicTask
    generator: torch.Generator
    constants: bool
    limited: bool
    spent: list[Tensor] = field(default_factory=list)
    clips: list[Tensor] = field(default_factory=list)

    def norm(self, run: ProtectorRuns, share: float) -> tuple[Tensor, Tensor]:
        task, clip = self.task, run.signal.clip.detach()
        spend = share * run.signal.remaining.clamp(min=0)
        std = self._std(spend)
        with torch.no_grad():
            mean = task.rows.clipped_means(run.thetas.detach(), clip) / clip[:, None]
            norm, noise = torch.linalg.vector_norm(mean, dim=1), torch.randn(len(mean), generator=self.generator)
            if self.protector.squared_norm:
                released = (norm.square() + 2 * std * noise).clamp(min=0).sqrt()
            else:
                released = (norm + std * noise).clamp(min=0)
        return released, run.signal.remaining - spend

    def gradient(self, run: ProtectorRuns, clip: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        schedule = self.protector.schedule
        spend = share * run.signal.remaining.clamp(min=0)
        if not self.limited and isinstance(schedule, LearnedSchedule) and schedule.design.form == "open":
            spend = schedule.spend(run.signal, run.schedule_memory)[0]
        self.spent.append(spend)
        self.clips.append(clip)
        noise_std = self._std(spend)
        at = run.thetas.detach() if self.constants else run.thetas
        mean = self.task.rows.clipped_means(at, clip) / clip[:, None]
        noise = torch.randn(mean.shape, generator=self.generator)
        return mean + noise_std[:, None] * noise, noise_std, clip, run.signal.remaining - spend

    def _std(self, spend: Tensor) -> Tensor:
        return 1 / (self.task.mu * spend.clamp(min=1e-9).sqrt() * self.task.size)


def advance(
    protector: Protector,
    task: PublicTask,
    run: ProtectorRuns,
    steps: int,
    generator: torch.Generator,
    *,
    constants: bool = False,
    limited: bool = False,
) -> tuple[ProtectorRuns, Track]:
    """``steps`` more steps. ``constants``: gradients of the task are observations without a graph, as in the paper."""
    answers, losses = Simulated(protector, task, generator, constants, limited), []
    for _ in range(steps):
        run = step(protector, run, answers)
        losses.append(task.rows.mean_losses(run.thetas))
    return run, Track(torch.stack(losses), torch.stack(answers.spent), torch.stack(answers.clips))


def detached(run: ProtectorRuns) -> ProtectorRuns:
    """The same place without the graph that led there: what lets a long run be trained in batches of steps."""

    def cut(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach()
        if isinstance(value, tuple):
            parts = [cut(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    cut_off: ProtectorRuns = cut(run)
    return cut_off


def calibrated_losses(task: PublicTask, thetas: Tensor) -> Tensor:
    """Mean loss at the best scale of the scores: what a classifier is worth when only its ranking counts.

    The factor is a minimiser, so by the envelope theorem the gradient may treat it as a constant.
    """
    factors, groups = torch.logspace(-2, 1.5, 29), task.rows.model.groups
    with torch.no_grad():
        tried = [
            task.rows.mean_losses(with_scores_scaled(thetas, factor.expand(len(thetas)), groups)) for factor in factors
        ]
        best = factors[torch.stack(tried).argmin(0)]
    return task.rows.mean_losses(with_scores_scaled(thetas, best, groups))
