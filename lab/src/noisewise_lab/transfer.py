"""Transfer: protectors trained on one kind of public task, applied to other data, losses, dimensions, horizons, budgets.

Every protector has the same recipe. Private tasks are simulated side by side as ``learned.unroll`` does, in the basis
that a private run would buy; sizes are public, delta is 1e-8, add_remove. All protectors meet the same splits, bases and
noise, so differences are paired. The references are the zero-weight protector and momentum with one fixed rate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisewise.learned.meta_training import Recipe, Training
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.learned.unroll import PublicTask, TaskRows, advance, start, starts
from noisewise.methods.preparation.basis import BASIS_SHARE, LENGTH_SHARE, deflating
from noisewise.protect.learned import zoo
from noisewise.protect.learned.parts import protector
from noisewise.protect.learned.weights import Design, zero_weights
from noisewise.protect.optimizers import DebiasedMomentum
from noisewise.protect.protector import Protector, by_hand, finished
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.losses import loss_named
from noisewise.trusted.models import Linear

from .l2p_data import PRIVATE_PAIR, problem
from .store import Report, Row, run_cells

DELTA = 1e-8
HORIZON = 40
EPSILONS = (0.05, 0.1, 0.4)
BUDGETS = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
HORIZONS = (15, 30, 60, 120)
NARROW = (0.03, 0.3)  # the budgets of a protector that has to reach beyond them
COPIES = 4  # runs of a repeat, which share its split and basis
MOMENTUM_RATE = 5.0  # of 0.6, 1.25, .. 10 the most accurate on the public tables, and on the public digits
PROTECTORS = ("tables", "digits", "generated", "quadratics", "svm")
REFERENCES = ("zero", "momentum")
TARGETS = ("ipums-br logistic", "ipums-br hinge", "3-vs-5 pixels", "3-vs-5 PCA", "quadratic")
FEWER_COLUMNS = ("ipums-br d/4", "3-vs-5 d/4")
FILES = ("a9a.parquet", "bank_lee_kifer.parquet", "mnist.npz", "ipums_br.parquet")


@dataclass(frozen=True)
class Lesson:
    """A protector to be trained."""

    name: str
    epochs: int
    seed: int = 0

    @property
    def file(self) -> str:
        return f"{self.name.replace(' ', '-')}-{self.epochs}-{self.seed}.safetensors"


@dataclass(frozen=True)
class TransferCell:
    """One protector on one private task; ``epochs`` says how long it was trained, 0 for a reference."""

    study: str
    protector: str
    target: str
    epsilon: float
    horizon: int
    repeat: int
    epochs: int


def distributions(folder: Path, rows: int = 1000) -> dict[str, Tasks]:
    """What each protector learns from, by its name."""
    adult = TaskSource(
        "table", "a9a.parquet", where={"split": "train"}, columns=(10, 123), rescale=(0.3, 1.0), basis=1.0
    )
    bank = TaskSource("table", "bank_lee_kifer.parquet", columns=(8, 32), rescale=(0.3, 1.0), basis=1.0)
    images = TaskSource("images", "mnist.npz", without=PRIVATE_PAIR, columns=(60, 300), basis=1.0)
    made, census = TaskSource("gaussian", basis=1.0), TaskSource("census", basis=1.0)
    hinge = tuple(replace(source, losses=("hinge",)) for source in (adult, bank, made))
    all_of = partial(Tasks, rows=rows, folder=folder, delta=DELTA)
    return {
        "tables": all_of("tables", (adult, bank)),
        "digits": all_of("digits", (images,)),
        "generated": all_of("generated", (made, census)),
        "quadratics": all_of("quadratics", (TaskSource("quadratic", losses=("squared",), basis=1.0),)),
        "svm": all_of("svm", hinge),
        "narrow": all_of("narrow", (adult, bank), epsilon=NARROW),
    }


def there(folder: Path, files: Iterable[str] = FILES) -> None:
    """Refuse a folder that lacks a file, by name."""
    for file in files:
        if not (folder / file).is_file():
            raise ValueError(f"{folder / file} is not there; pass the folder that holds {', '.join(files)} with --data")


def learn(path: Path, tasks: Tasks, design: Design, recipe: Recipe) -> Row:
    """Train a protector and write it to ``path``."""
    started = time.perf_counter()
    training = Training(tasks, design, recipe)
    last = [epoch.objective for epoch in training][-20:]
    ranges = {"size": tasks.size, "dimension": (1, 1e6), "epsilon": tasks.epsilon, "horizon": tasks.horizon}
    header = {"name": path.stem, "horizon": training.horizon, "ranges": {k: list(v) for k, v in ranges.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    zoo.save_protector(path, training.weights, training.design, header)
    return {"objective": float(np.mean(last)), "seconds": time.perf_counter() - started}


def lesson_learned(lesson: Lesson, folder: Path, shelf: Path) -> Row:
    """Train one protector of this study."""
    recipe = Recipe(epochs=lesson.epochs, warm_up=warm_up_for(lesson.epochs), seed=lesson.seed)
    return learn(shelf / lesson.file, distributions(folder)[lesson.name], Design(), recipe)


def warm_up_for(epochs: int) -> int:
    """The default recipe's, or a fifth of a shorter training."""
    return max(1, min(Recipe().warm_up, epochs // 5))


def run_lessons(lessons: Sequence[Lesson], work: Any, *, shelf: Path, jobs: int, report: Report) -> list[Row]:
    """Train what is not on the shelf yet; a file that was deleted is trained again."""
    rows = run_cells(lessons, work, out=shelf / "training.jsonl", jobs=jobs, report=report)
    for lesson in lessons:
        if not (shelf / lesson.file).is_file():
            work(lesson)
    return rows


def part_named(name: str, epochs: int, shelf: Path) -> Protector:
    """A trained protector or a reference."""
    if name == "zero":
        return protector(zero_weights(Design()), Design())
    if name == "momentum":
        return by_hand(DebiasedMomentum(MOMENTUM_RATE))
    learned = zoo.load_protector(shelf / Lesson(name, epochs).file)
    return protector(learned.weights, learned.design)


@lru_cache(maxsize=3)
def private_task(
    target: str, folder: Path, epsilon: float, horizon: int, repeat: int
) -> tuple[PublicTask, tuple[Tensor, Tensor] | None]:
    """A private task as its own run would meet it, and rows to test on; where there are none, the loss counts."""
    rng = np.random.default_rng([repeat, 7])
    if target == "quadratic":
        made = Tasks("quadratic", (TaskSource("quadratic", losses=("squared",), columns=(60, 60), basis=1.0),),
                     epsilon=(epsilon, epsilon), size=(30000, 30000), delta=DELTA, rows=4000)  # fmt: skip
        task = made.draw(rng, horizon=horizon)
        return task._replace(mu=_budgets(epsilon)), None
    name = "ipums-br" if target.startswith("ipums") else "mnist35-features" if "PCA" in target else "mnist35"
    drawn = problem(name, folder, repeat=repeat)
    X, X_test = drawn.train.X, drawn.test.X
    if target.endswith("d/4"):
        chosen = [*rng.choice(X.shape[1] - 1, X.shape[1] // 4, replace=False), X.shape[1] - 1]
        X, X_test = _unit(X[:, chosen]), _unit(X_test[:, chosen])
    std = 1 / (mu_of(epsilon, DELTA) * math.sqrt(BASIS_SHARE) * len(X))
    mean = X.mean(0) + std * rng.standard_normal(X.shape[1])
    basis = deflating(mean, float(np.square(X).sum(1).mean()), X.shape[1] * std**2).astype(np.float32)
    model = Linear(X.shape[1], loss_named("hinge" if target.endswith("hinge") else "logistic"))
    task = PublicTask(target, TaskRows.of(model, X @ basis, drawn.train.y), float(len(X)), _budgets(epsilon), horizon)
    return task, (torch.from_numpy(X_test @ basis), torch.from_numpy(drawn.test.y))


def _budgets(epsilon: float) -> Tensor:
    """What the copies have left for training when the basis is paid."""
    return torch.full((COPIES,), mu_of(epsilon, DELTA) * math.sqrt(1 - BASIS_SHARE - LENGTH_SHARE))


def _unit(X: NDArray[np.float32]) -> NDArray[np.float32]:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def apply(cell: TransferCell, folder: Path, shelf: Path) -> Row:
    """Test accuracy and final training loss, means of the copies; ``score`` is what a study compares.

    The score is in points of 100: accuracy, or for a regression the share of the starting loss that was removed.
    """
    started = time.perf_counter()
    task, test = private_task(cell.target, folder, cell.epsilon, cell.horizon, cell.repeat)
    part = part_named(cell.protector, cell.epochs, shelf)
    generator = torch.Generator().manual_seed(cell.repeat)
    with torch.no_grad():
        run, _ = advance(part, task, start(part, task), cell.horizon, generator)
        thetas = finished(part, run)
        first = float(task.rows.mean_losses(starts(task.rows.model)))
        loss = float(task.rows.mean_losses(thetas).mean())
        right = None if test is None else float(((test[0] @ thetas.T > 0) == (test[1] > 0)[:, None]).float().mean())
    score = 100 * (1 - loss / first) if right is None else 100 * right
    return {"accuracy": right, "loss": loss, "score": score, "seconds": time.perf_counter() - started}


def cells(epochs: int, repeats: int, *, quick: bool = False) -> list[TransferCell]:
    """The matrix, then fewer columns, other horizons, other budgets; cells that share a task stand together."""
    everyone, some = (*PROTECTORS, *REFERENCES), ("tables", "narrow", *REFERENCES)
    epsilons = EPSILONS[1:2] if quick else EPSILONS
    budgets, horizons = (BUDGETS[::3], HORIZONS[::3]) if quick else (BUDGETS, HORIZONS)
    wanted: list[tuple[str, tuple[str, ...], str, float, int]]
    wanted = [("matrix", everyone, target, e, HORIZON) for target in TARGETS for e in epsilons]
    wanted += [("dimension", everyone, target, e, HORIZON) for target in FEWER_COLUMNS for e in epsilons]
    wanted += [("horizon", everyone, target, 0.1, T) for target in (TARGETS[0], TARGETS[3]) for T in horizons]
    wanted += [("budget", some, target, e, HORIZON) for target in (TARGETS[0], TARGETS[3]) for e in budgets]
    return [
        TransferCell(study, name, target, epsilon, horizon, repeat, 0 if name in REFERENCES else epochs)
        for study, names, target, epsilon, horizon in wanted
        for repeat in range(repeats)
        for name in names
    ]


def summary(results: Iterable[Row]) -> list[Row]:
    """A row per protector and task: mean score with its standard error, and paired gains over the references."""
    scores: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    losses: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for row in results:
        place = (row["study"], row["target"], row["epsilon"], row["horizon"])
        scores.setdefault(place, {}).setdefault(row["protector"], []).append(row["score"])
        losses.setdefault(place, {}).setdefault(row["protector"], []).append(row["loss"])
    rows = []
    for place, by_name in scores.items():
        for name, values in by_name.items():
            row = dict(zip(("study", "target", "epsilon", "horizon"), place, strict=True))
            row |= {"protector": name, "score": float(np.mean(values)), "error": standard_error(values)}
            row |= {"loss": float(np.mean(losses[place][name])), "repeats": len(values)}
            for reference in REFERENCES:
                gains = np.subtract(values, by_name[reference])
                row |= {f"over_{reference}": float(gains.mean()), f"over_{reference}_error": standard_error(gains)}
            rows.append(row)
    return rows


def standard_error(values: Any) -> float:
    """Of the mean; 0 for a single value."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def run_transfer(
    folder: Path, *, out: Path, repeats: int, jobs: int, report: Report, quick: bool = False, epochs: int | None = None
) -> tuple[list[Row], list[Row]]:
    """Train what is missing, run what is missing; summary rows, and a row per training."""
    there(folder)
    epochs, shelf = epochs or (30 if quick else 150), out / "protectors"
    lessons = [Lesson(name, epochs) for name in (*PROTECTORS, "narrow")]
    report("training")
    trained = run_lessons(lessons, partial(lesson_learned, folder=folder, shelf=shelf), shelf=shelf, jobs=jobs,
                          report=report)  # fmt: skip
    report("applying")
    wanted = cells(epochs, repeats, quick=quick)
    work = partial(apply, folder=folder, shelf=shelf)
    return summary(run_cells(wanted, work, out=out / "results.jsonl", jobs=jobs, report=report)), trained
