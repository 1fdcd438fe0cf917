"""Hand-tuned private descent: SGD, momentum and Adam with equal noise, tuned on public tasks before the private run.

For each rule and epsilon, the learning rate, horizon and clip norm with the least final training loss on the public
tasks, whose gradients get the noise that the private task's size and budget would bring. The public loss also says
which of the three rules is taken when only one may be. Nothing is chosen by looking at the private task.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray

from noisewise.accounts import Terms
from noisewise.asking import Facts, PublicCurator
from noisewise.learned.unroll import PublicTask, TaskRows, advance, start, starts
from noisewise.methods.l2p import L2P, State
from noisewise.protect.optimizers import Adam, DebiasedMomentum, Optimizer, Sgd
from noisewise.protect.protector import Protector, by_hand
from noisewise.trusted.accountants.choose import choose_terms
from noisewise.trusted.accountants.gdp import mu_of

from .l2p_data import auxiliary, how_many_auxiliaries, labelled, model_for
from .store import Row

RULES: dict[str, type[Optimizer[Any]]] = {"sgd": Sgd, "momentum": DebiasedMomentum, "adam": Adam}
ALONG = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # learning rates at 50 steps, in units of gradient / clip norm
PER_COORDINATE = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # Adam's steps have about its rate in each coordinate
RATES = {"sgd": ALONG, "momentum": ALONG, "adam": PER_COORDINATE}
HORIZONS = (25, 50, 100)
CLIP_FACTORS = (1.0, 0.4, 0.1)
ROWS = {"linear": 2000, "mlp": 1000}  # of each public task; a perceptron's gradients are dear
DRAWS = 4  # of the noise, over all public tasks, and at least one on each
EVERY = {"linear": 4, "mlp": 7}  # of many public tasks, every fourth or seventh: all of them would take too long


@dataclass(frozen=True)
class HandTuned(L2P):
    """The loop of ``l2p`` with a designed protector: an ordinary optimiser, equal noise, a fixed clip norm."""

    steps: int | None = 50
    deflate: bool = False
    rule: str = "momentum"
    learning_rate: float = 1.0
    clip_factor: float = 1.0

    name: ClassVar[str] = "hand_tuned"
    summary: ClassVar[str] = "an ordinary optimiser with equal noise"

    def designed(self) -> Protector:
        return hand_protector(self.rule, self.learning_rate, self.clip_factor)

    def terms(self, facts: Facts) -> Terms:
        return choose_terms(facts.budget, adaptive=True)

    def init(self, theta: NDArray[Any], facts: Facts, public: PublicCurator | None) -> State:
        return State(self.designed(), self.steps or 50, None, theta, 0.0)


def hand_protector(rule: str, learning_rate: float, clip_factor: float) -> Protector:
    """A protector by one of the rules; the learning rate is for gradients in units of the clip norm."""
    kinds: dict[str, Any] = RULES
    return by_hand(kinds[rule](learning_rate), clip_factor=clip_factor)


@dataclass(frozen=True)
class Trial:
    """One rule at one horizon and clip norm on one public task, at all learning rates and budgets."""

    task: str
    kind: str
    auxiliary: int
    size: float
    epsilons: tuple[float, ...]
    delta: float
    rule: str
    horizon: int
    clip_factor: float
    rates: tuple[float, ...]
    rows: int
    draws: int


@dataclass(frozen=True)
class Tuned:
    """What public tasks chose for one budget: the best of each rule, and which rule has the least public loss."""

    by_rule: dict[str, HandTuned]
    losses: dict[str, float]  # of these, relative to the loss at the start

    @property
    def best(self) -> str:
        return min(self.losses, key=self.losses.__getitem__)


def trials(
    task: str, kind: str, size: float, epsilons: Sequence[float], delta: float, *, quick: bool = False
) -> list[Trial]:
    """The grid on the public tasks: both tables, or evenly spaced pairs of digits, fewer for a perceptron.

    ``quick`` also leaves out the longest horizon and every other rate, which makes for a weaker rival.
    """
    horizons, many = HORIZONS[:2] if quick else HORIZONS, how_many_auxiliaries(task)
    numbers = range(0, many, EVERY["mlp" if quick else kind] if many > max(EVERY.values()) else 1)
    draws = max(DRAWS // len(numbers), 1)
    return [
        Trial(task, kind, number, size, tuple(epsilons), delta, rule, horizon, clip_factor,
              tuple(rate * 50 / horizon for rate in (rates[1::2] if quick else rates)), ROWS[kind], draws)
        for number in numbers
        for rule, rates in RATES.items()
        for horizon in horizons
        for clip_factor in CLIP_FACTORS
    ]  # fmt: skip


def run_trial(trial: Trial, folder: Path) -> Row:
    """Final public training losses over the loss at the start, a row for each rate and a column for each epsilon."""
    rows = auxiliary(trial.task, folder, trial.auxiliary)
    model = model_for(rows, trial.kind)
    X, y = labelled(rows, model)
    some = torch.randperm(len(X), generator=torch.Generator().manual_seed(0)).numpy()[: trial.rows]
    of_task = TaskRows.of(model, X[some], y[some])
    mu = torch.tensor([mu_of(epsilon, trial.delta) for epsilon in trial.epsilons for _ in range(trial.draws)])
    task = PublicTask(rows.name, of_task, trial.size, mu.float(), trial.horizon)
    first = float(of_task.mean_losses(starts(model)))
    table, started = [], time.perf_counter()
    for rate in trial.rates:
        protector, generator = hand_protector(trial.rule, rate, trial.clip_factor), torch.Generator().manual_seed(1)
        with torch.no_grad():
            _, track = advance(protector, task, start(protector, task), trial.horizon, generator)
        losses = track.losses[-1].view(-1, trial.draws).mean(1) / first
        table.append([loss if math.isfinite(loss) else 1e9 for loss in losses.tolist()])
    return {"losses": table, "seconds": time.perf_counter() - started}


def tuned_on(cells: Sequence[Trial], results: Sequence[Row]) -> dict[float, Tuned]:
    """What the trials of one private task choose for each epsilon."""
    return {epsilon: chosen(cells, results, column) for column, epsilon in enumerate(cells[0].epsilons)}


def chosen(cells: Sequence[Trial], results: Sequence[Row], column: int) -> Tuned:
    """The settings of each rule with the least public loss, averaged over the public tasks, for one budget."""
    sums: dict[HandTuned, float] = {}
    for cell, result in zip(cells, results, strict=True):
        for rate, losses in zip(cell.rates, result["losses"], strict=True):
            method = HandTuned(
                steps=cell.horizon, rule=cell.rule, learning_rate=rate, clip_factor=cell.clip_factor
            )  # fmt: skip
            sums[method] = sums.get(method, 0.0) + losses[column]
    many = len({cell.auxiliary for cell in cells})
    by_rule = {rule: min((m for m in sums if m.rule == rule), key=sums.__getitem__) for rule in RULES}
    return Tuned(by_rule, {rule: sums[method] / many for rule, method in by_rule.items()})


def at_an_edge(method: HandTuned) -> bool:
    """Whether the chosen learning rate is the least or largest of the whole grid."""
    rates = [rate * 50 / (method.steps or 50) for rate in RATES[method.rule]]
    return not min(rates) < method.learning_rate < max(rates)
