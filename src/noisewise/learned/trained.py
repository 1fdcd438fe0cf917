"""From a task file to a protector file: training that can be stopped and resumed, and is judged on held-out tasks.

While it trains, FILE.checkpoint (safetensors with a JSON header, like a protector) holds what is needed to continue to the
same weights; it is removed when FILE is written. The loss and budget curves are beside FILE as CSV and PNG.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .._version import __version__
from ..accounts.atomic import write_atomically
from ..protect.learned.weights import Design
from ..protect.learned.zoo import RANGES, Learned, digest, save_protector
from ..trusted.accountants.gdp import epsilon_of
from ..trusted.torch_extra import Tensor, torch
from .evaluate import ResultRows, best_horizon, evaluate_protector, on_one_thread
from .meta_training import PAPER_DESIGN, PAPER_HORIZON, PAPER_RECIPE, Epoch, Recipe, Training
from .plots import plot_curves
from .tasks import Tasks, load_tasks
from .unroll import PublicTask

CHECKPOINT_SECONDS = 20.0
JUDGED_ON, CHOSEN_ON = 16, 12  # held-out tasks for the results in the header, and for each horizon that is tried
LICENCES = {"digits": "CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits)"}  # of what comes with the package
PRESETS = {"default": (Recipe(), Design()), "paper": (PAPER_RECIPE, PAPER_DESIGN)}

News = Epoch | tuple[str, int, int]  # an epoch of training, or (what is being done, done, of how many)


def recipes() -> tuple[str, ...]:
    """The task files that come with the package."""
    folder = files("noisewise.learned").joinpath("recipes")
    return tuple(sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")))


def find_tasks(name: str, folder: Path | None = None) -> Tasks:
    """The tasks of a file, or of a task file in the package by its name."""
    if name in recipes():
        with as_file(files("noisewise.learned").joinpath(f"recipes/{name}.toml")) as path:
            return load_tasks(path, folder)
    if not Path(name).is_file():
        raise ValueError(f"{name}: no such file; pass a task file, or one of {', '.join(recipes())}")
    return load_tasks(Path(name), folder)


@dataclass(frozen=True)
class TrainingPlan:
    name: str
    tasks: Tasks
    design: Design
    recipe: Recipe
    command: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("the protector has no name; pass one with --name")

    def terms(self) -> dict[str, Any]:
        """Data, tasks, design and recipe, in which a resumed run must agree."""
        design = replace(self.design, form=self.recipe.form)
        plain = {"trained_on": sources(self.tasks), "tasks": plain_tasks(self.tasks)}
        plain |= {"design": design.to_dict(), "recipe": self.recipe.to_dict()}
        agreed: dict[str, Any] = json.loads(json.dumps(plain))  # as it will be read back: lists, not tuples
        return agreed


def paper_tasks(tasks: Tasks) -> Tasks:
    """The same tasks over the paper's horizon, which training may halve or double."""
    return replace(tasks, horizon=(PAPER_HORIZON // 2, PAPER_HORIZON * 2))


def plain_tasks(tasks: Tasks) -> dict[str, Any]:
    """A task distribution as ``tasks_from`` reads it: plain data, without the folder, which is private."""
    plain = asdict(tasks)
    del plain["folder"]
    plain["source"] = [dict(source) for source in plain.pop("sources")]
    return plain


def sources(tasks: Tasks) -> list[dict[str, Any]]:
    """What a protector is trained on: each source with its licence, and the SHA-256 of its file."""
    named = []
    for source in tasks.sources:
        licence = source.licence or ("not stated" if source.file else LICENCES.get(source.data, "generated"))
        entry = {"data": source.name, "licence": licence}
        if source.file:
            entry["sha256"] = hashlib.sha256((tasks.folder / source.file).read_bytes()).hexdigest()
        named.append(entry)
    return named


class WatchedTraining(Training):
    """Training that records the ranges of its tasks."""

    def __init__(self, tasks: Tasks, design: Design, recipe: Recipe) -> None:
        super().__init__(tasks, design, recipe)
        self.seen: dict[str, list[float]] = {name: [math.inf, 0.0] for name in ("size", "dimension", "mu", "horizon")}

    def draw(self) -> PublicTask:
        task = super().draw()
        self._widen("size", task.size)
        self._widen("dimension", task.rows.model.dimension)
        self._widen("horizon", task.horizon)
        self._widen("mu", float(task.mu.min()), float(task.mu.max()))
        return task

    def _widen(self, name: str, *values: float) -> None:
        low, high = self.seen[name]
        self.seen[name] = [min(low, *values), max(high, *values)]

    def ranges(self) -> dict[str, list[float]]:
        """Size, dimension, epsilon and horizon of the tasks seen; size and epsilon rounded outwards, within the task file."""
        epsilons = [epsilon_of(mu, self.tasks.delta) for mu in self.seen["mu"]]
        ranges: dict[str, list[float]] = {name: self.seen[name] for name in ("dimension", "horizon")}
        ranges["size"] = _outwards(self.seen["size"], self.tasks.size)
        ranges["epsilon"] = _outwards(epsilons, self.tasks.epsilon)
        return {name: ranges[name] for name in RANGES}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, plain = super().state()
        return tensors, {**plain, "seen": self.seen}

    def take_up(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        super().take_up(tensors, plain)
        self.seen = {name: list(plain["seen"][name]) for name in self.seen}


def _outwards(seen: list[float], allowed: tuple[float, float]) -> list[float]:
    """Two significant digits, the lower end down and the upper end up, within what is allowed.

    >>> _outwards([3012.3, 59812.0], (3000, 60000))
    [3000.0, 60000.0]
    """
    grains = [10.0 ** (math.floor(math.log10(value)) - 1) for value in seen]
    low, high = math.floor(seen[0] / grains[0]) * grains[0], math.ceil(seen[1] / grains[1]) * grains[1]
    return [float(f"{max(low, allowed[0]):.6g}"), float(f"{min(high, allowed[1]):.6g}")]


def checkpoint_of(out: Path) -> Path:
    return out.with_name(out.name + ".checkpoint")


def curves_of(out: Path) -> tuple[Path, Path]:
    stem = out.name.removesuffix(".safetensors")
    return out.with_name(stem + ".curves.csv"), out.with_name(stem + ".curves.png")


def write_checkpoint(path: Path, terms: dict[str, Any], state: tuple[dict[str, Tensor], dict[str, Any]]) -> None:
    """Write the state of training; the file appears whole or not at all."""
    from safetensors.torch import save as to_bytes  # imports torch itself: not before torch_extra has

    tensors, plain = state
    document = {"terms": terms, "plain": plain, "sha256": digest(_weights(tensors))}
    write_atomically(path, to_bytes(tensors, {"noisewise": json.dumps(document)}))


def read_checkpoint(path: Path, terms: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of training; a checkpoint of other terms is refused by the name of what differs."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file, so there is nothing to resume; leave out --resume to start")
    try:
        with safe_open(path, "pt") as file:
            document = json.loads((file.metadata() or {})["noisewise"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  not a dict
        if document["sha256"] != digest(_weights(tensors)):
            raise ValueError("the weights do not match their hash")
        kept, plain = dict(document["terms"]), document["plain"]
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: not a checkpoint ({error})") from None
    for part, wanted in terms.items():
        if kept.get(part) != wanted:
            what = _difference(kept.get(part), wanted)
            raise ValueError(f"{path}: a checkpoint of another run: not the same {part}{what}; delete it to start anew")
    return tensors, plain


def _weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith("weight.")}


def _difference(kept: Any, wanted: Any) -> str:
    """The first setting in which two plain dictionaries differ, in words."""
    if isinstance(kept, dict) and isinstance(wanted, dict):
        for key in wanted:
            if kept.get(key) != wanted[key]:
                changed = "" if isinstance(wanted[key], list) else f" was {kept.get(key)!r}, now {wanted[key]!r}"
                return f" ({key}{changed})"
    return ""


def train_protector(
    plan: TrainingPlan, out: Path, *, resume: bool = False, report: Callable[[News], None] = lambda news: None
) -> Learned:
    """Train, judge on held-out tasks, and write the protector, its curves and, until then, its checkpoints."""
    checkpoint, terms = checkpoint_of(out), plan.terms()
    out.parent.mkdir(parents=True, exist_ok=True)
    training = WatchedTraining(plan.tasks, plan.design, plan.recipe)
    if resume:
        training.take_up(*read_checkpoint(checkpoint, terms))
    elif checkpoint.exists():
        raise ValueError(
            f"{checkpoint}: an earlier run was stopped; pass --resume to go on, or delete it to start anew"
        )
    # A run may be interrupted in the middle of an epoch, when weights and random numbers do not belong together.
    state, written = training.state(), time.monotonic()
    try:
        with on_one_thread():
            for epoch in training:
                state = training.state()
                report(epoch)
                if time.monotonic() - written > CHECKPOINT_SECONDS:
                    write_checkpoint(checkpoint, terms, state)
                    written = time.monotonic()
            learned = conclude(plan, training, out, report)
    except KeyboardInterrupt:
        write_checkpoint(checkpoint, terms, state)
        raise
    checkpoint.unlink(missing_ok=True)
    return learned


def conclude(plan: TrainingPlan, training: WatchedTraining, out: Path, report: Callable[[News], None]) -> Learned:
    """Choose the horizon, judge, and write the protector and its curves."""
    ranges, horizon = training.ranges(), training.horizon
    tried: dict[int, float] = {}
    low, high = (int(bound) for bound in ranges["horizon"])
    if training.design.form == "exact":
        within = replace(plan.tasks, horizon=(low, high))
        horizon, tried = best_horizon(
            training.weights,
            training.design,
            within,
            many=CHOSEN_ON,
            report=lambda done, total: report(("choosing the horizon", done, total)),
        )
    else:  # trained for one horizon, or for the one that training moved it to
        ranges["horizon"] = [float(min(low, horizon)), float(max(high, horizon))]
    header = {
        "name": plan.name,
        "horizon": horizon,
        "ranges": ranges,
        **{name: value for name, value in plan.terms().items() if name != "design"},
        "horizons_tried": {str(steps): round(loss, 5) for steps, loss in tried.items()},
        "held_out": [],
        "version": __version__,
        "torch": str(torch.__version__),
        "command": plan.command,
        "seconds": round(sum(epoch.seconds for epoch in training.curve), 1),
    }
    learned = Learned(training.weights, training.design, header)
    held_out = evaluate_protector(
        learned,
        plan.tasks,
        many=JUDGED_ON,
        report=lambda done, total: report(("judging on held-out tasks", done, total)),
    )
    table, picture = curves_of(out)
    write_curves(training.curve, table)
    plot_curves(training.curve, picture, title=f"Training of {plan.name}")
    return save_protector(out, training.weights, training.design, {**header, "held_out": five_digits(held_out)})


def five_digits(rows: ResultRows) -> ResultRows:
    """Rows with numbers of five significant digits, to keep the header small."""
    return [{k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def write_curves(curve: list[Epoch], path: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("epoch", *Epoch._fields[1:]))
    writer.writerows(curve)
    write_atomically(path, text.getvalue().encode())
