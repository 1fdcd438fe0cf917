"""Ablation: protectors trained with one part changed, on the same tasks with the same seed, tried on held-out tasks.

Each held-out task is drawn from rows that no training saw; half of them train a model, half test it. A private run stops
when its budget is used up, and so do the runs here; ``asked`` is what the schedule would have spent had nothing stopped
it, which the constrained objectives have to bring to 1. All variants meet the same tasks and noise: differences are
paired.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from noisewise.learned.meta_training import Recipe
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.learned.unroll import PublicTask, TaskRows, advance, start, starts
from noisewise.protect.learned import zoo
from noisewise.protect.learned.parts import LearnedSchedule, protector
from noisewise.protect.learned.weights import Design, zero_weights
from noisewise.protect.protector import Protector, finished

from .dissect import Look, dissect
from .dissect import summary as dissected
from .l2p_data import PRIVATE_PAIR
from .protector_speed import Peak, memory_peak
from .store import Report, Row, run_cells
from .transfer import DELTA, EPSILONS, HORIZON, Lesson, learn, run_lessons, standard_error, there, warm_up_for

FILES = ("a9a.parquet", "bank_lee_kifer.parquet", "mnist.npz")
NOTHING_LEFT = 1e-6  # of the budget: where a private run stops
MEMORY_STEPS = (50, 100, 200, 500, 1000)
DESIGN, RECIPE = Design(), Recipe()


@dataclass(frozen=True)
class Variant:
    """What is different, and in which group of variants it stands; the rest is the default."""

    name: str
    group: str
    design: Design = DESIGN
    recipe: Recipe = RECIPE
    unroll: int | None = None

    @property
    def updates(self) -> int:
        """Updates of an epoch, so that all variants make as many."""
        return max(1, self.recipe.scheduler_updates + self.recipe.projector_updates)


VARIANTS = (
    Variant("full", "full"),
    Variant("scheduler off", "parts", Design(scheduler=False)),
    Variant("projector off", "parts", Design(projector=False)),
    Variant("clip off", "parts", Design(clip=False)),
    Variant("scheduler, clip off", "parts", Design(scheduler=False, clip=False)),
    Variant("norm query", "norm query", Design(norm_share=0.1)),
    Variant("squared norm query", "norm query", Design(norm_share=0.1, squared_norm=True)),
    Variant("paper inputs", "inputs", Design(inputs="paper")),
    Variant("paper inputs and query", "inputs", Design(inputs="paper", norm_share=0.1, squared_norm=True)),
    Variant("lagrangian", "constraint", recipe=Recipe(constraint="lagrangian")),
    Variant("tent", "constraint", recipe=Recipe(constraint="tent")),
    Variant("batch lagrangian", "constraint", recipe=Recipe(constraint="batch_lagrangian")),
    Variant("batch tent", "constraint", recipe=Recipe(constraint="batch_tent")),
    Variant("constants", "gradients", recipe=Recipe(constants=True)),
    Variant("alternation", "updates", recipe=Recipe(scheduler_updates=1, projector_updates=5)),
    *(Variant(f"unroll {steps}", "unroll", unroll=steps) for steps in (10, 20, 40, 80)),
)
BY_NAME = {variant.name: variant for variant in VARIANTS}


@dataclass(frozen=True)
class AblationCell:
    """A variant on one held-out task; ``epochs`` says how long it was trained, 0 for the zero-weight protector."""

    variant: str
    epsilon: float
    task: int
    epochs: int
    seed: int = 0


def public_tasks(folder: Path, rows: int = 1000) -> Tasks:
    """Tables, digits other than 3 and 5, and generated tables."""
    return Tasks(
        "ablation",
        (
            TaskSource(
                "table", "a9a.parquet", where={"split": "train"}, columns=(10, 123), rescale=(0.3, 1.0), basis=1.0
            ),
            TaskSource("table", "bank_lee_kifer.parquet", columns=(8, 32), rescale=(0.3, 1.0), basis=1.0),
            TaskSource("images", "mnist.npz", without=PRIVATE_PAIR, columns=(60, 300), basis=1.0),
            TaskSource("gaussian", basis=1.0),
        ),
        rows=rows,
        folder=folder,
        delta=DELTA,
    )


def lesson_learned(lesson: Lesson, folder: Path, shelf: Path) -> Row:
    """Train one variant."""
    variant, tasks = BY_NAME[lesson.name], public_tasks(folder)
    if variant.unroll:
        tasks = replace(tasks, horizon=(variant.unroll, variant.unroll))
    epochs = max(1, round(lesson.epochs / variant.updates))
    warm_up = max(1, round(warm_up_for(lesson.epochs) / variant.updates))
    recipe = replace(variant.recipe, epochs=epochs, warm_up=warm_up, seed=lesson.seed)
    return learn(shelf / lesson.file, tasks, variant.design, recipe)


@lru_cache(maxsize=3)
def held_out_task(folder: Path, epsilon: float, number: int) -> tuple[PublicTask, tuple[Tensor, Tensor]]:
    """The task of that number at a budget, and rows to test on; at another budget it has the same rows."""
    tasks = replace(public_tasks(folder, rows=3000), epsilon=(epsilon, epsilon))
    task = tasks.draw(np.random.default_rng([number, 11]), held_out=True, horizon=HORIZON)
    rows, half = task.rows, len(task.rows) // 2
    X = rows.X * rows.lengths[:, None]
    return task._replace(rows=TaskRows.of(rows.model, X[:half], rows.y[:half])), (X[half:], rows.y[half:])


def variant_protector(name: str, epochs: int, seed: int, shelf: Path) -> tuple[Protector, int]:
    """A trained variant, or "zero", and its horizon: that of all, except where training has moved it."""
    if name == "zero":
        return protector(zero_weights(Design()), Design()), HORIZON
    learned = zoo.load_protector(shelf / Lesson(name, epochs, seed).file)
    return protector(learned.weights, learned.design), learned.horizon if BY_NAME[name].recipe.tent else HORIZON


def stopped_run(part: Protector, task: PublicTask, seed: int) -> tuple[Tensor, Tensor]:
    """What each copy releases where it stops, and the share of the budget that its schedule asked for."""

    def noise() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    run, _ = advance(part, task, start(part, task), task.horizon, noise())
    asked = 1 - run.signal.remaining
    if not (isinstance(part.schedule, LearnedSchedule) and part.schedule.design.form == "open"):
        return finished(part, run), asked
    run, generator = start(part, task), noise()
    thetas = run.thetas
    for _ in range(task.horizon):
        going = run.signal.remaining > NOTHING_LEFT
        run, _ = advance(part, task, run, 1, generator, limited=True)
        thetas = torch.where(going[:, None], finished(part, run), thetas)
    return thetas, asked


def measure(cell: AblationCell, folder: Path, shelf: Path) -> Row:
    """Loss relative to the start and accuracy, both on test rows, and what was asked of the budget."""
    started = time.perf_counter()
    task, (X, y) = held_out_task(folder, cell.epsilon, cell.task)
    part, horizon = variant_protector(cell.variant, cell.epochs, cell.seed, shelf)
    task = task._replace(horizon=horizon)
    model = task.rows.model
    with torch.no_grad():
        thetas, asked = stopped_run(part, task, cell.task)
        test = TaskRows.of(model, X, y)
        loss = test.mean_losses(thetas) / test.mean_losses(starts(model))
        right = ((X @ thetas.T > 0) == (y > 0)[:, None]).float().mean()
    return {"name": task.name, "loss": float(loss.mean()), "accuracy": 100 * float(right), "asked": float(asked.mean()),
            "seconds": time.perf_counter() - started}  # fmt: skip


def summary(results: Iterable[Row]) -> list[Row]:
    """A row per variant and epsilon: means over tasks, and paired differences from ``full`` with standard errors.

    Several seeds of a training are averaged first; ``seeds_error`` is how much they differ.
    """
    by: dict[tuple[str, float], dict[int, dict[int, Row]]] = {}
    for cell in results:
        by.setdefault((cell["variant"], cell["epsilon"]), {}).setdefault(cell["seed"], {})[cell["task"]] = cell
    rows = []
    for (variant, epsilon), seeds in by.items():
        full = _table(by["full", epsilon])
        here = _table(seeds)
        row: Row = {"variant": variant, "group": BY_NAME[variant].group if variant in BY_NAME else "reference"}
        row |= {"epsilon": epsilon}
        for name in ("loss", "accuracy", "asked"):
            row |= {name: float(here[name].mean()), f"{name}_error": standard_error(here[name].mean(0))}
        for name in ("loss", "accuracy"):
            difference = here[name].mean(0) - full[name].mean(0)
            row |= {f"{name}_change": float(difference.mean()), f"{name}_change_error": standard_error(difference)}
        row |= {"seeds_error": standard_error(here["accuracy"].mean(1)), "tasks": here["loss"].shape[1]}
        rows.append(row)
    return rows


def _table(seeds: dict[int, dict[int, Row]]) -> dict[str, Any]:
    """(seeds, tasks) of each number."""
    return {
        name: np.array([[row[name] for _, row in sorted(tasks.items())] for tasks in seeds.values()])
        for name in ("loss", "accuracy", "asked")
    }


def run_ablation(
    folder: Path, *, out: Path, repeats: int, jobs: int, report: Report, quick: bool = False, epochs: int | None = None,
    seeds: int | None = None, memory_steps: tuple[int, ...] | None = None,
) -> dict[str, list[Row]]:  # fmt: skip
    """Train and try every variant, look into the full one, and measure memory: rows of each table by its name."""
    there(folder, FILES)
    epochs, seeds, shelf = epochs or (20 if quick else 150), seeds or (1 if quick else 2), out / "protectors"
    epsilons = EPSILONS[1:2] if quick else EPSILONS
    lessons = [Lesson(variant.name, epochs, seed) for seed in range(seeds) for variant in VARIANTS]
    report("training variants")
    trained = run_lessons(lessons, partial(lesson_learned, folder=folder, shelf=shelf), shelf=shelf, jobs=jobs,
                          report=report)  # fmt: skip
    report("held-out tasks")
    wanted = [
        AblationCell(name, epsilon, task, 0 if name == "zero" else epochs, seed)
        for epsilon in epsilons
        for task in range(repeats)
        for name in (*BY_NAME, "zero")
        for seed in range(1 if name == "zero" else seeds)
    ]
    results = run_cells(wanted, partial(measure, folder=folder, shelf=shelf), out=out / "results.jsonl", jobs=jobs,
                        report=report)  # fmt: skip
    report("denoising and influence")
    looks = [
        Look(name, epsilon, task, 0 if name == "zero" else epochs)
        for epsilon in epsilons
        for task in range(repeats)
        for name in ("full", "zero")
    ]
    seen = run_cells(looks, partial(_look, folder=folder, shelf=shelf), out=out / "looks.jsonl", jobs=jobs,
                     report=report)  # fmt: skip
    report("memory")
    steps = memory_steps or (MEMORY_STEPS[:3] if quick else MEMORY_STEPS)
    peaks = [Peak(form, many) for many in steps for form in ("lagrangian", "batch_lagrangian")]
    memory = run_cells(peaks, memory_peak, out=out / "memory.jsonl", jobs=jobs, report=report)
    return {"variants": summary(results), "training": trained, "steps": dissected(seen), "memory": memory}


def _look(look: Look, folder: Path, shelf: Path) -> Row:
    task, _ = held_out_task(folder, look.epsilon, look.task)
    return dissect(variant_protector(look.protector, look.epochs, 0, shelf)[0], task, look.task)
