"""Meta-training: gradient descent on the weights of a protector, through unrolled private training of public tasks.

    min over projector, scheduler, T of E[F],  F = w f_T + (1-w) mean_t f_t,   subject to the budget             (Eq. 1)

The budget is held in one of five ways (``Recipe.constraint``); h = (what was spent) - 1, in shares of the budget.
``exact``             the schedule spends a share of what is left, so h = 0 whatever the weights: plain descent on F.
``lagrangian``        F - z h + h^2/(2 mu), then z <- z - h/mu                                                   (Eq. 2)
``tent``              sum_t I_t f_t / sum_t I_t, I_t = max(1 - |h_t|, 0) near the step where the budget ends     (Eq. 3)
``batch_lagrangian``  spans of steps trained one by one, each with its own constraint h_b = spent_b - r_b; the r_b
                      minimise sum_b (rho_b - r_b)^2/(2 mu) - z_r h_r + h_r^2/(2 mu), rho_b = spent_b - z_b mu (Eqs. 4, 5)
``batch_tent``        the same, the r_b minimising sum_b (rho_b - r_b)^2/(2 mu) + the tent average of the F_b (Eqs. 6, 7)
Batches keep only their own steps in memory; the loss before them is a constant.

``scheduler_updates`` and ``projector_updates`` alternate within an epoch as in the paper; both 0: all weights together.
The horizon T is drawn from the task file's range (one protector for all), or with ``learn_horizon`` moved in alternation
with the rest, by trying longer and shorter runs on the same tasks. The tent forms find their own T, where the budget ends:
they like fewer and clearer steps, so T follows what was asked for, in alternation with the rest.

*Guarantee*: none needed. Only public rows are touched, and what is learned is read by a protector that cannot overspend.

Hong, Wang, Wang & Zhou 2021; Andrychowicz et al. 2016, Learning to learn by gradient descent by gradient descent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..protect.learned.parts import new_weights, protector
from ..protect.learned.weights import Design, Weights, weights_from
from ..protect.protector import ProtectorRuns, with_scores_scaled
from ..trusted import validate
from ..trusted.torch_extra import Tensor, torch
from .tasks import Tasks
from .unroll import PublicTask, Track, advance, calibrated_losses, detached, start, starts

CONSTRAINTS = ("exact", "lagrangian", "tent", "batch_lagrangian", "batch_tent")
OVERTIME = 1.5  # the tent looks past the horizon, to see whether the budget should have lasted longer
TENT = 0.25  # half the width of the window around the step where the budget ends, as a share of the horizon
STARTS = {"start_rate": (0.003, 400.0), "start_clip": (0.019, 2.7)}  # beyond, what is learned is clamped
TRIAL = 1.15  # a trial horizon is that factor longer or shorter


@dataclass(frozen=True)
class Recipe:
    """How a protector is trained: all but the tasks and the design."""

    constraint: str = "exact"
    epochs: int = 300
    learning_rate: float = 3e-3
    warm_up: int = 20
    gradient_clip: float = 1.0
    final_weight: float = 1.0
    calibrated: bool = True
    constants: bool = False
    scheduler_updates: int = 0
    projector_updates: int = 0
    batch: int = 20
    learn_horizon: bool = False
    penalty: float = 0.05
    multiplier_rate: float = 0.2
    start_rate: float = 1.6
    start_clip: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        validate.one_of(CONSTRAINTS, constraint=self.constraint)
        validate.whole(epochs=self.epochs, batch=self.batch)
        validate.positive(learning_rate=self.learning_rate, gradient_clip=self.gradient_clip, penalty=self.penalty)
        for name, (low, high) in STARTS.items():
            if not low < (value := getattr(self, name)) < high:
                raise ValueError(f"{name} is {value!r}; pass a number between {low} and {high}")
        validate.share(final_weight=self.final_weight)
        if (self.scheduler_updates == 0) != (self.projector_updates == 0):
            raise ValueError("scheduler_updates and projector_updates are both 0 (all together) or both at least 1")

    @property
    def in_batches(self) -> bool:
        return self.constraint.startswith("batch")

    @property
    def tent(self) -> bool:
        return self.constraint.endswith("tent")

    @property
    def form(self) -> str:
        """What the schedule's output means under this constraint."""
        return "exact" if self.constraint == "exact" else "open"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# The paper's preset: 50 batches of 20 steps, 100 epochs of 1 scheduler and 5 projector updates, its own inputs and norm query.
PAPER_RECIPE = Recipe(
    constraint="batch_tent",
    epochs=100,
    constants=True,
    scheduler_updates=1,
    projector_updates=5,
    batch=20,
    learn_horizon=True,
    calibrated=False,
)
PAPER_DESIGN = Design(form="open", inputs="paper", clip=False, norm_share=0.1, squared_norm=True)
PAPER_HORIZON = 50 * 20


def starting(weights: Weights, recipe: Recipe) -> Weights:
    """Weights whose first steps and clip norms are those of zero weights times the factors of the recipe."""
    bias = weights.clip.bias.clone()
    bias[0] += math.log(recipe.start_clip) / 2
    return weights._replace(rate=weights.rate + math.log(recipe.start_rate) / 2, clip=weights.clip._replace(bias=bias))


class Multipliers(NamedTuple):
    """z and r of the augmented Lagrangian: one of each, or one for every batch of steps."""

    z: Tensor
    r: Tensor
    z_r: float


class Epoch(NamedTuple):
    """One line of the training curves: the objective, the spent share of the budget, the horizon, seconds."""

    number: int
    objective: float
    spent: float
    horizon: int
    seconds: float


class Training:
    """A training run that can be stopped after any epoch and resumed from :meth:`state`."""

    def __init__(self, tasks: Tasks, design: Design, recipe: Recipe) -> None:
        self.tasks, self.design, self.recipe = tasks, replace(design, form=recipe.form), recipe
        fresh = starting(new_weights(self.design, recipe.seed), recipe).tensors()
        self.weights = weights_from({name: w.detach().clone().requires_grad_(True) for name, w in fresh.items()})
        self.optimizer = torch.optim.Adam(list(self.weights.tensors().values()), lr=recipe.learning_rate)
        self.rng = np.random.default_rng([recipe.seed, 2021])
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.horizon = round(math.sqrt(tasks.horizon[0] * tasks.horizon[1]))
        batches = max(1, math.ceil(self.horizon / recipe.batch)) if recipe.in_batches else 1
        self.multipliers = Multipliers(torch.zeros(batches), torch.full((batches,), 1 / batches), 0.0)
        self.curve: list[Epoch] = []
        self.asked: list[float] = []  # shares of the budget since T was last moved

    def __iter__(self) -> Iterator[Epoch]:
        while len(self.curve) < self.recipe.epochs:
            yield self.epoch()

    def epoch(self) -> Epoch:
        """One epoch: a random task, its updates, and in alternation the horizon."""
        started = time.perf_counter()
        recipe, number = self.recipe, len(self.curve)
        warm = min(1.0, (number + 1) / max(recipe.warm_up, 1))
        cooled = 0.5 + 0.5 * math.cos(math.pi * number / recipe.epochs)
        self.optimizer.param_groups[0]["lr"] = recipe.learning_rate * warm * cooled
        turns = ["scheduler"] * recipe.scheduler_updates + ["projector"] * recipe.projector_updates or ["all"]
        for turn in turns:
            task = self.draw()
            objective, spent = self._batches(task, turn) if recipe.in_batches else self._whole(task, turn)
        if number % 5 == 4 and recipe.tent:
            self._end_with_the_budget()
        elif number % 5 == 4 and recipe.learn_horizon and recipe.constraint != "exact":
            self._try_horizons()
        self.curve.append(Epoch(number, objective, spent, task.horizon, time.perf_counter() - started))
        return self.curve[-1]

    def draw(self) -> PublicTask:
        """A task; the open forms train for one horizon, the exact form for all in the range."""
        return self.tasks.draw(self.rng, horizon=None if self.recipe.form == "exact" else self.horizon)

    def _whole(self, task: PublicTask, turn: str) -> tuple[float, float]:
        """One update through a whole unrolled run."""
        recipe, part = self.recipe, protector(self.weights, self.design)
        longer = recipe.constraint == "tent" and turn != "projector"
        run, track = advance(part, task, start(part, task), task.horizon, self.generator, constants=recipe.constants)
        self._note(run)
        if longer:
            more = math.ceil(OVERTIME * task.horizon) - task.horizon
            run, after = advance(part, task, run, more, self.generator, constants=recipe.constants)
            track = Track(*(torch.cat(both) for both in zip(track, after, strict=True)))
        spent = track.spent.sum(0)
        first = task.rows.mean_losses(starts(task.rows.model)).detach()
        if longer:
            loss = (tent_average(track, task.horizon) / first).mean()
            spent = spent.clamp(max=1.0)
        else:
            loss = (self._objective(task, run, track) / first).mean()
        h = (spent - 1).mean()
        if recipe.constraint == "lagrangian" and turn != "projector":
            augmented = loss - self.multipliers.z[0] * h + (spent - 1).square().mean() / (2 * recipe.penalty)
            z = self.multipliers.z - recipe.multiplier_rate * h.detach() / recipe.penalty
            self.multipliers = self.multipliers._replace(z=z)
        else:
            augmented = loss
        self._update(augmented, turn)
        return float(loss.detach()), float(spent.mean().detach())

    def _objective(self, task: PublicTask, run: ProtectorRuns, track: Track) -> Tensor:
        """F of each copy. For classifiers f_T is taken at the best scale of the scores, as accuracy would, and
        the scale of the released theta learns from the plain loss, which leaves the path alone."""
        recipe, final, model = self.recipe, track.losses[-1], task.rows.model
        scale = protector(self.weights, self.design).scale
        if recipe.calibrated and model.loss.task != "regression":
            final = calibrated_losses(task, run.thetas)
        if scale is not None:
            ended = with_scores_scaled(run.thetas.detach(), scale(run.signal, run.clip_memory), model.groups)
            final = (final + task.rows.mean_losses(ended)) / 2
        return recipe.final_weight * final + (1 - recipe.final_weight) * track.losses.mean(0)

    def _batches(self, task: PublicTask, turn: str) -> tuple[float, float]:
        """One update per batch of steps; only the batch's own steps are in memory."""
        recipe, means, spents = self.recipe, [], []
        part = protector(self.weights, self.design)
        run = start(part, task)
        first = task.rows.mean_losses(starts(task.rows.model)).detach()
        for b in range(len(self.multipliers.z)):
            steps = min(recipe.batch, task.horizon - b * recipe.batch)
            run, track = advance(part, task, detached(run), steps, self.generator, constants=recipe.constants)
            mean, spent = (track.losses.mean(0) / first).mean(), track.spent.sum(0).mean()
            h = spent - self.multipliers.r[b]
            augmented = mean
            if turn != "projector":
                augmented = mean - self.multipliers.z[b] * h + h.square() / (2 * recipe.penalty * self._penalty_scale())
            self._update(augmented, turn)
            means.append(float(mean.detach()))
            spents.append(float(spent.detach()))
        self._note(run)
        if turn != "projector":
            self._share_out(torch.tensor(spents), torch.tensor(means))
        return means[-1], sum(spents)

    def _penalty_scale(self) -> float:
        """Each batch has a share of the budget, so its constraint is held that much tighter."""
        return 1 / len(self.multipliers.z)

    def _share_out(self, spent: Tensor, means: Tensor) -> None:
        """Update the multipliers of the batches, then what each of them may spend (Eq. 5 or 6)."""
        z, r, z_r = self.multipliers
        mu = self.recipe.penalty * self._penalty_scale()
        z = z - self.recipe.multiplier_rate * (spent - r) / mu
        wanted = spent - z * mu
        if self.recipe.constraint == "batch_lagrangian":
            r, h_r = shared_out(wanted, mu, z_r, mu)
            z_r = z_r - self.recipe.multiplier_rate * h_r / mu
        else:
            r = soft_shares(wanted, means, mu)
        self.multipliers = Multipliers(z.clamp(-20, 20), r.clamp(min=1e-4), z_r)

    def _update(self, loss: Tensor, turn: str) -> None:
        weights = self.weights.tensors()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for name, weight in weights.items():
            if turn != "all" and (name.startswith("scheduler.") != (turn == "scheduler")):
                weight.grad = None
        moved = [weight for weight in weights.values() if weight.grad is not None]
        torch.nn.utils.clip_grad_norm_(moved, self.recipe.gradient_clip)
        if all(bool(torch.isfinite(weight.grad).all()) for weight in moved if weight.grad is not None):
            self.optimizer.step()

    def _note(self, run: ProtectorRuns) -> None:
        """Record the share of the budget that a whole run has asked for, paid norms included."""
        if self.recipe.tent:
            self.asked.append(1 - float(run.signal.remaining.detach().mean()))

    def _end_with_the_budget(self) -> None:
        """Move T to where the budget ends, and the scheduler's bias with it.

        A step costs e^{2u}/T, so with u lower by log(asked)/2 and T by the factor asked it costs what it did before, and
        the steps of a run cost the budget. Beyond the range of T, only u moves.
        """
        asked, (low, high) = max(float(np.mean(self.asked)), 1e-3), self.tasks.horizon
        self.asked = []
        with torch.no_grad():
            self.weights.scheduler.bias.sub_(math.log(asked) / 2)
        self._set_horizon(min(max(round(self.horizon / asked), low), high))

    def _set_horizon(self, horizon: int) -> None:
        self.horizon = horizon
        if self.recipe.in_batches:
            self.multipliers = _resized(self.multipliers, max(1, math.ceil(horizon / self.recipe.batch)))

    def _try_horizons(self) -> None:
        """Move T to a longer or shorter horizon if that does better on the same task with the same noise."""
        low, high = self.tasks.horizon
        here = self.horizon
        state = self.rng.bit_generator.state
        tried: dict[int, float] = {}
        for horizon in {here, round(here * TRIAL), round(here / TRIAL)}:
            if not low <= horizon <= high:
                continue
            self.rng.bit_generator.state = state
            task = self.tasks.draw(self.rng, horizon=horizon)
            part = protector(self.weights, self.design)
            with torch.no_grad():
                tried[horizon] = stopped_loss(part, task, torch.Generator().manual_seed(len(self.curve)))
        self._set_horizon(min(tried, key=tried.__getitem__) if tried else here)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What :meth:`take_up` needs to continue: tensors, and plain data."""
        tensors = {f"weight.{name}": weight.detach().clone() for name, weight in self.weights.tensors().items()}
        for name, weight in self.weights.tensors().items():
            for key, value in self.optimizer.state.get(weight, {}).items():
                tensors[f"adam.{key}.{name}"] = torch.as_tensor(value).clone()
        tensors |= {"z": self.multipliers.z, "r": self.multipliers.r, "generator": self.generator.get_state()}
        plain = {"rng": self.rng.bit_generator.state, "horizon": self.horizon, "z_r": self.multipliers.z_r}
        plain |= {"asked": self.asked, "curve": [list(epoch) for epoch in self.curve]}
        return tensors, plain

    def take_up(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        own = self.weights.tensors()
        for name, weight in own.items():
            weight.data.copy_(tensors[f"weight.{name}"])
            kept = {
                key: tensors[f"adam.{key}.{name}"].clone()
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}.{name}" in tensors
            }
            if kept:
                self.optimizer.state[weight] = kept
        self.generator.set_state(tensors["generator"])
        self.rng.bit_generator.state = plain["rng"]
        self.horizon = int(plain["horizon"])
        self.multipliers = Multipliers(tensors["z"], tensors["r"], float(plain["z_r"]))
        self.asked = [float(share) for share in plain["asked"]]
        self.curve = [Epoch(int(n), float(o), float(s), int(t), float(sec)) for n, o, s, t, sec in plain["curve"]]


def tent_average(track: Track, horizon: int) -> Tensor:
    """Eq. 3: the loss around the step where the budget ends, differentiable in what was spent (R,)."""
    h = torch.cumsum(track.spent, 0) - 1
    steps = torch.arange(len(h))[:, None]
    end = (h < 0).sum(0).clamp(max=len(h) - 1)
    near = (steps - end).abs() <= max(1, round(TENT * horizon))
    tent = torch.where(near, (1 - h.abs()).clamp(min=0), 0.0) + 1e-6
    return (tent * track.losses).sum(0) / tent.sum(0)


def shared_out(wanted: Tensor, mu: float, z_r: float, mu_r: float) -> tuple[Tensor, float]:
    """Eq. 5, solved: r_b = wanted_b + mu (z_r - h_r/mu_r), and the h_r = sum r_b - 1 that it leaves."""
    many = len(wanted)
    h_r = (float(wanted.sum()) - 1 + many * mu * z_r) / (1 + many * mu / mu_r)
    return wanted + mu * (z_r - h_r / mu_r), h_r


def soft_shares(wanted: Tensor, means: Tensor, mu: float, steps: int = 50) -> Tensor:
    """Eq. 6: r that stays near ``wanted`` and ends the budget where the loss of the batches no longer falls (Eq. 7)."""
    r = wanted.clone().requires_grad_(True)
    for _ in range(steps):
        h = torch.cumsum(r, 0) - 1
        end = min(int((h.detach() <= 0).sum()), len(r) - 1)
        near = (torch.arange(len(r)) - end).abs() <= 1
        tent = torch.where(near, (1 - h.abs()).clamp(min=0), 0.0) + 1e-6
        loss = (wanted - r).square().sum() / (2 * mu) + (tent * means).sum() / tent.sum()
        (gradient,) = torch.autograd.grad(loss, r)
        r = (r - 0.5 * mu * gradient).detach().requires_grad_(True)
    return r.detach()


def stopped_loss(part: Any, task: PublicTask, generator: torch.Generator) -> float:
    """Mean final loss of a run that stops when its budget is used up, as a private one would."""
    _, track = advance(part, task, start(part, task), task.horizon, generator)
    over = torch.cumsum(track.spent, 0) > 1 + 1e-6
    last = torch.where(over.any(0), over.float().argmax(0) - 1, len(over) - 1).clamp(min=0)
    return float(track.losses.gather(0, last[None])[0].mean())


def _resized(multipliers: Multipliers, many: int) -> Multipliers:
    z, r, z_r = multipliers
    if many == len(z):
        return multipliers
    kept = torch.cat([r[:many], r.new_full((max(0, many - len(r)),), float(r.mean()))])
    zs = torch.cat([z[:many], z.new_zeros(max(0, many - len(z)))])
    return Multipliers(zs, kept / kept.sum(), z_r)
