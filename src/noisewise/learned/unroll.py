"""Running a protector on public tasks: the very steps of a private run, many copies at once, with a graph.

A task's rows stand for a private data set of ``size`` records: the mean gradient is that of the rows, the noise that of
the size and the budget. Noise is drawn from a seeded generator, since nothing here is private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..asking import array
from ..protect.learned.parts import LearnedSchedule
from ..protect.protector import Protector, ProtectorRuns, begin, step, with_scores_scaled
from ..protect.schedules import longest_step
from ..protect.signal import first_signal
from ..trusted.losses import Loss
from ..trusted.models import MLP, Model
from ..trusted.torch_extra import Tensor, torch

# Clipped mean gradients and mean losses of public rows in differentiable operations: what meta-training unrolls.
#
# Many copies of a model's parameters, ``thetas`` (R, dimension), are tried on the same rows side by side, with a graph from
# parameters and clip norms to the answers.


class TaskRows(NamedTuple):
    """Public rows of a linear model or a perceptron, of unit length where the model keeps lengths apart."""

    model: Any
    X: Tensor
    y: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, model: Model, X: NDArray[Any] | Tensor, y: NDArray[Any] | Tensor) -> TaskRows:
        batch = model.lay_out(np.asarray(array(X)), np.asarray(array(y)))
        return cls(model, *(torch.from_numpy(part) for part in (batch.X, batch.y, batch.lengths)))

    def __len__(self) -> int:
        return len(self.y)

    def scores(self, thetas: Tensor) -> Tensor:
        """(R, n) of one output, or (R, n, K) of several."""
        return _layers(self, thetas)[1] if isinstance(self.model, MLP) else _linear_scores(self, thetas)

    def mean_losses(self, thetas: Tensor) -> Tensor:
        """The mean loss (R,) of each copy."""
        return _values(self.model.loss, self.scores(thetas), self.y).mean(1)

    def clipped_means(self, thetas: Tensor, clip: Tensor) -> Tensor:
        """The mean gradient (R, dimension) of each copy, every row's clipped to the copy's entry of ``clip`` (R,)."""
        clipped = _layered_sums if isinstance(self.model, MLP) else _linear_sums
        return clipped(self, thetas, clip) / len(self)


def starts(model: Model, copies: int = 1) -> Tensor:
    """The public starting point, once for each copy."""
    return torch.from_numpy(model.start()).repeat(copies, 1)


def _values(loss: Loss, scores: Tensor, y: Tensor) -> Tensor:
    """The loss (R, n) of each row in each copy."""
    if loss.task != "classes":
        return loss.value(scores, y)
    copies, n, outputs = scores.shape
    return loss.value(scores.reshape(-1, outputs), y.repeat(copies)).view(copies, n)


def _slopes(loss: Loss, scores: Tensor, y: Tensor) -> Tensor:
    """Derivative of each row's loss in its scores, with a graph where the scores have one."""
    with torch.enable_grad():
        at = scores if scores.requires_grad else scores.detach().requires_grad_(True)
        (slopes,) = torch.autograd.grad(_values(loss, at, y).sum(), at, create_graph=scores.requires_grad)
    return slopes


def _factors(norms: Tensor, bound: Tensor) -> Tensor:
    """What each row is multiplied by so that its norm is at most its copy's bound."""
    return (bound[:, None] / norms.clamp(min=1e-20)).clamp(max=1)


def _linear_scores(rows: TaskRows, thetas: Tensor) -> Tensor:
    outputs, features = rows.model.outputs, rows.model.features
    if outputs == 1:
        return thetas @ rows.X.T * rows.lengths
    return torch.einsum("nd,rkd->rnk", rows.X, thetas.view(-1, outputs, features)) * rows.lengths[:, None]


def _linear_sums(rows: TaskRows, thetas: Tensor, clip: Tensor) -> Tensor:
    slopes = _slopes(rows.model.loss, rows.scores(thetas), rows.y)
    if rows.model.outputs == 1:
        return torch.clamp(slopes * rows.lengths, -clip[:, None], clip[:, None]) @ rows.X
    c = slopes * rows.lengths[:, None]
    c = c * _factors(torch.linalg.vector_norm(c, dim=2), clip)[:, :, None]
    return torch.einsum("rnk,nd->rkd", c, rows.X).flatten(1)


def _layers(rows: TaskRows, thetas: Tensor) -> tuple[list[Tensor], Tensor]:
    """The input of each dense layer, and the scores; the first input is the same for all copies."""
    model, inputs = rows.model, [rows.X]
    layers = model.layers(thetas)
    for number, (weights, bias) in enumerate(layers, 1):
        outputs = torch.matmul(inputs[-1], weights.transpose(1, 2)) + bias[:, None, :]
        inputs.append(outputs if number == len(layers) else model.between.forward(outputs))
    return inputs[:-1], inputs[-1][..., 0] if model.outputs == 1 else inputs[-1]


def _layered_sums(rows: TaskRows, thetas: Tensor, clip: Tensor) -> Tensor:
    """By book-keeping, as in :mod:`noisewise.trusted.models.perceptron`."""
    model, layers = rows.model, rows.model.layers(thetas)
    inputs, scores = _layers(rows, thetas)
    slopes = _slopes(model.loss, scores, rows.y)
    gradients = [slopes[:, :, None] if model.outputs == 1 else slopes]
    for a, (weights, _) in zip(inputs[:0:-1], layers[:0:-1], strict=True):
        gradients.append(torch.bmm(gradients[-1], weights) * model.between.derivative(a))
    gradients.reverse()
    squares = [
        b.square().sum(2) * ((rows.lengths.square() if a is rows.X else a.square().sum(2)) + 1)
        for a, b in zip(inputs, gradients, strict=True)
    ]
    factors = _factors(torch.sqrt(torch.stack(squares).sum(0) + 1e-20), clip)[:, :, None]
    parts = []
    for a, b in zip(inputs, gradients, strict=True):
        weighted = (b * factors).transpose(1, 2)
        parts += [torch.matmul(weighted, a).flatten(1), weighted.sum(2)]
    return torch.cat(parts, 1)


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
