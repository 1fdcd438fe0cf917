"""Training inside a shard: a run by a protector is simulated on half of its rows and judged on both halves.

    for each half: theta_0 = start;  T times: g = clipped mean gradient of the half + simulated noise;  theta <- projector(g)
    the shard's vector: the gradient, in the protector's weights, of the loss on the rows trained on and on the others, averaged

*Noise.* The mean gradient of a shard estimates that of all n records, which is what the run will be answered with; so the
noise on it is the run's own, of deviation C / (n mu_t) on each coordinate of the mean, mu_t^2 being the step's part of the
budget. On the sum over a shard of m rows that is m/n of the run's noise: a shard is the whole run on a smaller scale, with
the same ratio of noise to signal. A shard also has the error of its sample: its mean gradient is off by about C / sqrt(m),
which a run on all records is not. To first order a small sample makes the loss on rows trained on too low by as much as the loss on
others too high, so their average is what a run on all records would have. Beyond first order it does not help: very small
shards prefer shorter steps.

*Few* numbers (:data:`KNOBS`) are added to biases of the protector's heads, each shard having its own copy of them, so that all
shards are unrolled side by side; *whole*: all weights, one shard after the other. How fast theta shrinks is not among the few:
less data needs more of it, so shards would vote for what their own small size needs.

*Guarantee*: a shard's vector depends on that shard alone; :class:`~noisewise.trusted.questions.meta_gradient.MetaGradient` clips and
noises it. This is trusted code: it reads private rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...trusted.models import Model
from ...trusted.questions.meta_gradient import units_of
from ...trusted.stores.shards import SIDES, ShardRows
from ...trusted.stores.totals import Floats
from ...trusted.torch_extra import Tensor, torch
from ..protector import Protector, ProtectorRuns, begin, step, with_scores_scaled
from ..schedules import longest_step
from ..signal import first_signal
from .parts import protector
from .weights import KNOBS, Design, Weights, unflattened, with_knobs

MAX_GRAPH_NUMBERS = 100_000_000  # of a graph that is kept at a time


@contextmanager
def unwatched() -> Iterator[None]:
    """A graph without any mode of torch that keeps, shows or checks its tensors."""
    message = "hooks on saved tensors are on, which would see private rows; leave them before asking"
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
        torch.autograd.graph.disable_saved_tensors_hooks(message),
    ):
        yield


def unrolled(model: Model, asked: Any, shards: ShardRows) -> Floats:
    """The vector (S, 4 or all weights) of every shard."""
    with unwatched():
        units = units_of(len(asked.weights))
        flat = torch.from_numpy(asked.weights).float().clone()
        many = at_once(model, int(asked.horizon), shards.sides.shape[1], units) if asked.few else 1
        parts = [
            _vectors(model, asked, shards.part(start, start + many), flat, units)
            for start in range(0, len(shards.seeds), many)
        ]
        return torch.cat(parts).double().numpy()


def at_once(model: Model, horizon: int, height: int, units: int) -> int:
    """How many shards are unrolled side by side, from public facts."""
    numbers = SIDES * horizon * (model.dimension * (24 * units + 40) + 12 * height * model.outputs)
    return max(1, MAX_GRAPH_NUMBERS // numbers)


def _vectors(model: Model, asked: Any, shards: ShardRows, flat: Tensor, units: int) -> Tensor:
    """The vectors of some shards."""
    few, base = asked.few, unflattened(flat, units)
    if few:
        learned = torch.zeros(len(shards.seeds), len(KNOBS), requires_grad=True)
        weights = _for_copies(with_knobs(base, learned.repeat_interleave(SIDES, 0)), model.dimension)
    else:
        learned = flat.clone()[None].requires_grad_(True)
        weights = unflattened(learned[0], units)
    task = Halves.of(model, shards, int(asked.horizon), float(asked.worth))
    losses = judged(task, protector(weights, Design(units=units)))
    (vectors,) = torch.autograd.grad(losses.sum(), learned)
    return vectors.detach()


def _for_copies(weights: Weights, dimension: int) -> Weights:
    """Weights with biases for each copy, as a projector sees them: one row for each coordinate of each copy."""
    projector = weights.projector
    return weights._replace(projector=projector._replace(bias=projector.bias.repeat_interleave(dimension, 0)))


class Halves(NamedTuple):
    """Two runs for each of R shards: copy 2 r + f trains on side f of shard r and is judged on both."""

    model: Model
    rows: Tensor  # (R, h, columns)
    lengths: Tensor  # (R, h)
    labels: Tensor  # (R, h)
    train: Tensor  # (R, h, 2), what a row weighs in the mean gradient of which run
    judge: Tensor  # (R, h, 2), and in its loss: half for each side
    noise: Tensor  # (T, 2R, dimension)
    worth: float

    @classmethod
    def of(cls, model: Model, shards: ShardRows, horizon: int, worth: float) -> Halves:
        rows, labels, sides = (torch.tensor(part) for part in (shards.rows, shards.labels, shards.sides))
        sides = sides[:, :, None] == torch.arange(SIDES)
        shares = sides / sides.sum(1, keepdim=True).clamp(min=1)
        drawn = [
            torch.randn(horizon, SIDES, model.dimension, generator=torch.Generator().manual_seed(seed))
            for seed in shards.seeds
        ]
        lengths = torch.linalg.vector_norm(rows, dim=2)
        return cls(model, rows, lengths, labels, shares, (shares + shares.flip(2)) / 2, torch.cat(drawn, 1), worth)

    @property
    def copies(self) -> int:
        return SIDES * len(self.rows)

    def scores(self, thetas: Tensor) -> Tensor:
        """(R, h, 2, outputs)"""
        count, height, columns = self.rows.shape
        stacked = thetas.reshape(count, SIDES * self.model.outputs, columns)
        return torch.bmm(self.rows, stacked.transpose(1, 2)).view(count, height, SIDES, self.model.outputs)

    def values(self, scores: Tensor) -> Tensor:
        """The loss (R, h, 2) of every row in both runs of its shard."""
        labels = self.labels[:, :, None].expand(scores.shape[:3])
        if self.model.loss.task != "classes":
            return self.model.loss.value(scores[..., 0], labels)
        return self.model.loss.value(scores.reshape(-1, scores.shape[3]), labels.reshape(-1)).view(labels.shape)

    def clipped_means(self, thetas: Tensor, clip: Tensor) -> Tensor:
        """Mean gradients (2R, dimension) of the rows that are trained on, each clipped to norm ``clip`` (2R,)."""
        scores = self.scores(thetas)
        at = scores if scores.requires_grad else scores.detach().requires_grad_(True)
        (slopes,) = torch.autograd.grad(self.values(at).sum(), at, create_graph=scores.requires_grad)
        norms = torch.sqrt(slopes.square().sum(3) + 1e-30) * self.lengths[:, :, None]
        factors = (clip.view(-1, 1, SIDES) / norms.clamp(min=1e-20)).clamp(max=1)
        parts = (slopes * (factors * self.train)[..., None]).flatten(2)
        return torch.bmm(parts.transpose(1, 2), self.rows).reshape(self.copies, -1)

    def losses(self, thetas: Tensor) -> Tensor:
        """The mean loss (2R,) of the rows that judge."""
        return (self.values(self.scores(thetas)) * self.judge).sum(1).reshape(-1)

    def norm(self, run: ProtectorRuns, share: float) -> tuple[Tensor, Tensor]:
        raise TypeError("a protector that pays for norms is not trained on private rows")

    def gradient(self, run: ProtectorRuns, clip: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        spend = share * run.signal.remaining.clamp(min=0)
        std = 1 / (self.worth * spend.clamp(min=1e-9).sqrt())
        mean = self.clipped_means(run.thetas, clip) / clip[:, None]
        return mean + std[:, None] * self.noise[run.signal.step], std, clip, run.signal.remaining - spend


def judged(task: Halves, part: Protector) -> Tensor:
    """The loss (2R,) after a run of each half; of classifiers at the best scale of the scores, as accuracy would have it."""
    model, dimension = task.model, task.model.dimension
    clip = model.loss.typical_clip
    signal = first_signal(
        task.copies,
        dimension,
        horizon=len(task.noise),
        ratio=torch.full((task.copies,), task.worth / math.sqrt(dimension)),
        typical_clip=clip,
        longest_step=longest_step(model.loss.lipschitz, clip, len(model.groups)),
        groups=model.groups,
    )
    run = begin(part, torch.from_numpy(model.start()).repeat(task.copies, 1), signal)
    for _ in range(len(task.noise)):
        run = step(part, run, task)
    if model.loss.task == "regression":
        return task.losses(run.thetas)
    factors = torch.ones(task.copies)
    with torch.no_grad():
        for tried in (torch.logspace(-2, 1.5, 15), torch.logspace(-0.2, 0.2, 9)):
            scaled = [with_scores_scaled(run.thetas, one * factors, model.groups) for one in tried]
            factors = factors * tried[torch.stack([task.losses(thetas) for thetas in scaled]).argmin(0)]
    return task.losses(with_scores_scaled(run.thetas, factors, model.groups))
