"""How good a protector is on held-out public tasks: learned, zero-weight and designed, on the same tasks and noise.

Runs end as private ones do: a schedule that wants more than is left gets what is left, and a copy that has nothing left
stops there. All protectors see the same rows, sizes, budgets and noise, so that differences between them are paired;
standard errors are over tasks. Nothing here touches private data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..protect.learned.parts import LearnedSchedule, protector
from ..protect.learned.weights import Design, Weights, zero_weights
from ..protect.learned.zoo import Learned
from ..protect.optimizers import Momentum
from ..protect.protector import Protector, by_hand, finished
from ..trusted import validate
from ..trusted.torch_extra import Tensor, torch
from .tasks import Tasks, TaskSource
from .unroll import PublicTask, advance, start, starts

EPSILONS = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
NOTHING_LEFT = 1e-6  # of the budget: where a private run stops
WORST = 2.0  # times the loss at the start: runs that end worse count as that, so that one of them does not decide
KAPPA = 12.0  # a typical ||theta|| at the end of a good run, which sets the designed step size
EVALUATION, SELECTION = 20_000, 30_000  # seeds of the tasks: a horizon is not chosen on the tasks it is judged by

Report = Callable[[int, int], None]
ResultRows = list[dict[str, Any]]


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Torch on one thread: the matrices are too small to share, and sums then do not depend on the number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class TaskEnd(NamedTuple):
    """Where the copies of a task ended (R, ...): ``wanted`` is what the schedule would have spent without a limit."""

    thetas: Tensor
    losses: Tensor
    spent: Tensor
    wanted: Tensor
    steps: Tensor


def ended(part: Protector, task: PublicTask, seed: int) -> TaskEnd:
    """Run every copy of a task until its horizon or the end of its budget."""
    with torch.no_grad():
        generator, run = torch.Generator().manual_seed(seed), start(part, task)
        thetas, steps = run.thetas, torch.zeros(task.copies)
        going = torch.ones(task.copies, dtype=torch.bool)
        while bool(going.any()) and run.signal.step < task.horizon:
            before = run.thetas
            run, _ = advance(part, task, run, 1, generator, limited=True)
            thetas = torch.where(going[:, None], finished(part, run, before), thetas)
            steps = steps + going
            going = going & (run.signal.remaining > NOTHING_LEFT)
        spent = wanted = 1 - run.signal.remaining
        if isinstance(part.schedule, LearnedSchedule) and part.schedule.design.form == "open":
            free, _ = advance(part, task, start(part, task), task.horizon, torch.Generator().manual_seed(seed))
            wanted = 1 - free.signal.remaining
        return TaskEnd(thetas, task.rows.mean_losses(thetas), spent, wanted, steps)


def held_out_task(
    tasks: Tasks, number: int, many: int, *, epsilon: float, horizon: int, copies: int = 4, seed: int = EVALUATION
) -> PublicTask:
    """PublicTask ``number`` of ``many``: the same rows and size for every epsilon, and the same budget for all copies.

    Sources take turns in proportion to their weights, so that few tasks represent them well.
    """
    rng = np.random.default_rng([seed, number])
    heights = np.cumsum([source.weight for source in tasks.sources])
    source = tasks.sources[int(np.searchsorted(heights, (number + 0.5) / many * heights[-1]))]
    one: TaskSource = replace(source, basis=float(rng.random() < source.basis))
    drawn = replace(tasks, sources=(one,), epsilon=(epsilon, epsilon), copies=copies)
    return drawn.draw(rng, held_out=True, horizon=horizon, spread=1.0)


def designed(task: PublicTask) -> Protector:
    """Momentum descent by hand: heavy ball with equal noise, eta = kappa r / (10 T), r = n mu / sqrt(d), if stable.

    Noise then moves theta by about kappa, a typical ||theta|| at the end. In units of the clip norm C; at most 4 C, and
    at most 2 C / M for the curvature M of a smooth loss on unit rows.
    """
    model = task.rows.model
    clip = model.loss.typical_clip
    ratio = task.size * float(task.mu.mean()) / math.sqrt(model.dimension)
    curvature = model.loss.smoothness
    stable = min(4.0, 2 / curvature) if math.isfinite(curvature) else 4.0
    return by_hand(Momentum(min(KAPPA * ratio / (10 * task.horizon), stable * clip)))


def accuracy(task: PublicTask, thetas: Tensor) -> float:
    """Share of the task's rows that are classified rightly, over all copies; NaN for regression."""
    loss, y = task.rows.model.loss, task.rows.y
    if loss.task == "regression":
        return math.nan
    scores = task.rows.scores(thetas)
    right = scores.argmax(2) == y if loss.task == "classes" else (scores > 0) == (y > 0)
    return float(right.double().mean())


def default_epsilons(tasks: Tasks) -> tuple[float, ...]:
    """The usual epsilons that lie in the range of the tasks, or the middle of a narrow range."""
    low, high = tasks.epsilon
    return tuple(e for e in EPSILONS if low <= e <= high) or (math.sqrt(low * high),)


def evaluate_protector(
    learned: Learned,
    tasks: Tasks,
    *,
    epsilons: Sequence[float] | None = None,
    horizon: int | None = None,
    many: int = 16,
    copies: int = 4,
    parts: bool = False,
    report: Report | None = None,
) -> ResultRows:
    """A row for each epsilon and protector: means and standard errors over ``many`` held-out tasks.

    ``parts``: also the same weights with equal noise, and with a fixed clip norm, to see what each part is worth.

    ``loss_gain`` and ``accuracy_gain``: how much better the learned protector did than the one of the row, paired by task.
    """
    epsilons = tuple(epsilons or default_epsilons(tasks))
    validate.whole(many=many, copies=copies)
    for epsilon in epsilons:
        validate.positive(epsilons=epsilon)
    rows: ResultRows = []
    weights, design = learned.weights, learned.design
    untrained, without = protector(zero_weights(design), design), _without(learned) if parts else {}
    names = ("learned", "zero-weight", "momentum", *without)
    done, total = 0, len(names) * many * len(epsilons)
    for epsilon in epsilons:
        measured: dict[str, list[list[float]]] = {name: [] for name in names}
        for number in range(many):
            task = held_out_task(
                tasks, number, many, epsilon=epsilon, horizon=horizon or learned.horizon, copies=copies
            )
            tried = (protector(weights, design), untrained, designed(task), *without.values())
            for name, part in zip(measured, tried, strict=True):
                end = ended(part, task, seed=number)
                means = [float(part.mean()) for part in (end.losses, end.spent, end.wanted, end.steps)]
                measured[name].append([means[0], accuracy(task, end.thetas), *means[1:]])
                done += 1
                if report:
                    report(done, total)
        rows += _summary(epsilon, {name: np.array(values) for name, values in measured.items()})
    return rows


def _without(learned: Learned) -> dict[str, Protector]:
    """The same weights with one part put out of action."""
    weights, design = learned.weights, learned.design
    return {
        "equal noise": protector(weights, replace(design, scheduler=False)),
        "fixed clip": protector(weights, replace(design, clip=False)),
    }


def _summary(epsilon: float, measured: dict[str, NDArray[np.float64]]) -> ResultRows:
    """The rows of one epsilon, from (tasks, measures) of each protector."""
    rows: ResultRows = []
    best = measured["learned"]
    for name, values in measured.items():
        row: dict[str, Any] = {"epsilon": epsilon, "protector": name}
        for column, measure in enumerate(("loss", "accuracy", "spent")):
            row |= _mean_and_error(measure, values[:, column])
        row |= {"wanted": float(values[:, 3].mean()), "steps": float(values[:, 4].mean())}
        own = name == "learned"
        row |= _mean_and_error("loss_gain", values[:0, 0] if own else values[:, 0] - best[:, 0])
        row |= _mean_and_error("accuracy_gain", values[:0, 1] if own else best[:, 1] - values[:, 1])
        rows.append(row)
    return rows


def _mean_and_error(name: str, values: NDArray[np.float64]) -> dict[str, float | None]:
    """Mean and standard error of what is known; None where nothing is, or where one task gives no error."""
    known = values[~np.isnan(values)]
    error = float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else None
    return {name: float(known.mean()) if len(known) else None, f"{name}_se": error}


class Horizon(NamedTuple):
    """The recommended number of steps, and the mean relative loss of each that was tried."""

    best: int
    losses: dict[int, float]


def best_horizon(
    weights: Weights,
    design: Design,
    tasks: Tasks,
    *,
    tried: int = 5,
    many: int = 12,
    copies: int = 4,
    report: Report | None = None,
) -> Horizon:
    """The horizon in the tasks' range with the least held-out public loss, relative to the loss at the start.

    Every horizon is tried on the same tasks, whose budgets are spread over the range; a tie goes to the shorter one.
    """
    low, high = tasks.horizon
    horizons = sorted({round(h) for h in np.geomspace(low, high, tried)})
    epsilons = np.geomspace(*tasks.epsilon, many)[np.random.default_rng(SELECTION).permutation(many)]
    part, losses = protector(weights, design), {}
    for index, horizon in enumerate(horizons):
        relative = []
        for number, epsilon in enumerate(epsilons):
            task = held_out_task(
                tasks, number, many, epsilon=float(epsilon), horizon=horizon, copies=copies, seed=SELECTION
            )
            with torch.no_grad():
                first = float(task.rows.mean_losses(starts(task.rows.model)))
            relative.append(float((ended(part, task, seed=number).losses / first).clamp(max=WORST).mean()))
            if report:
                report(index * many + number + 1, len(horizons) * many)
        losses[horizon] = float(np.mean(relative))
    return Horizon(min(losses, key=losses.__getitem__), losses)
