"""Test accuracy and final training loss over epsilon: a learned protector beside hand-tuned descent and the baselines.

add_remove, delta 1e-8, sizes public, fixed seeds. ``l2p`` is the rule's protector, untouched; it buys a basis, except on
public features, which are centred already. ``zero_weight`` is the same method with all weights zero. ``hand_*`` were
tuned per epsilon on public tasks, by public loss; ``hand_tuned`` is the one of them with the least public loss. The
other methods run with their defaults, the paper's baselines also from the minimiser of a public task where that has as
many columns (``start`` is "public"; of tables no two have). A method that refuses a budget or model is kept as refused.

Hong, Wang, Wang & Zhou 2021, Figure 3.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from numpy.typing import NDArray

from noisewise.accounts import Budget
from noisewise.asking import Facts, PublicCurator
from noisewise.methods import Method, registry
from noisewise.methods.l2p import L2P, State
from noisewise.methods.nonprivate import warm_start
from noisewise.protect.learned.zoo import OutsideRange
from noisewise.train import Records, train

from .datasets import Missing
from .hand_tuned import RULES, HandTuned, Tuned, at_an_edge, run_trial, trials, tuned_on
from .l2p_data import (
    FEATURES,
    PAPER_PAIR,
    accuracy,
    digit_pair,
    fingerprint,
    is_there,
    labelled,
    mean_loss,
    model_for,
    problem,
)
from .store import Report, Row, run_cells

DELTA = 1e-8
EPSILONS = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
QUICK_EPSILONS = (0.05, 0.4)
MAX_SMALL_EPSILON = 0.1  # budgets up to here are averaged in the differences
PLACES = {  # name: (private task, model)
    "ipums-br": ("ipums-br", "linear"), "mnist35": ("mnist35", "linear"),
    "mnist35-features": ("mnist35-features", "linear"), "mnist35-gradients": ("mnist35-gradients", "linear"),
    "ipums-br-mlp": ("ipums-br", "mlp"), "mnist35-mlp": ("mnist35", "mlp"),
}  # fmt: skip
BASELINES = ("sgd_adv", "sgd_ma", "output_perturbation", "objective_perturbation", "agd", "dynamic")
OTHERS = (*BASELINES, "descent")
RIVALS = ("hand_tuned", "zero_weight")


@dataclass(frozen=True)
class ZeroWeight(L2P):
    """``l2p`` with the same design and all weights zero: what is left when nothing was learned."""

    name: ClassVar[str] = "zero_weight"
    summary: ClassVar[str] = "the learned protector's design with weights zero"

    def init(self, theta: NDArray[Any], facts: Facts, public: PublicCurator | None) -> State:
        return super().init(theta, facts, public)._replace(protector=self.learned(facts).untrained())


@dataclass(frozen=True)
class Figure3Cell:
    """One run. ``settings`` says all that the method depends on, so that a changed one is run again."""

    place: str
    epsilon: float | None
    method: str
    start: str
    repeat: int
    settings: str


def methods_at(place: str, tuned: Tuned | None) -> dict[str, Method]:
    """The methods of a place; ``tuned`` holds what was tuned by hand for the budget."""
    deflate = FEATURES.get(place, "pixels") == "pixels"
    hand: dict[str, Method] = {f"hand_{rule}": method for rule, method in tuned.by_rule.items()} if tuned else {}
    rest: dict[str, Method] = {name: registry()[name]() for name in OTHERS}
    return {"l2p": L2P(deflate=deflate), "zero_weight": ZeroWeight(deflate=deflate), **hand, **rest}


def settings_of(method: Method) -> str:
    """Everything a method's results depend on: its settings, and the weights of the protectors."""
    learned = isinstance(method, L2P) and not isinstance(method, HandTuned)
    digest = fingerprint() if learned else ""
    return f"{method!r} {digest}".strip()


def plan(
    places: Sequence[str], tuned: dict[str, dict[float, Tuned]], repeats: int, baselines: Sequence[str] = OTHERS
) -> list[tuple[Figure3Cell, Method]]:
    """Every run: methods, budgets, starts, repeats; the first repeat of all comes first."""
    runs = []
    for place in places:
        starts = ("zero",) if place.startswith("ipums") else ("zero", "public")
        for epsilon, chosen in tuned[place].items():
            for name, method in methods_at(place, chosen).items():
                if name in OTHERS and name not in baselines:
                    continue
                for start in starts if name in BASELINES else ("zero",):
                    for repeat in range(repeats):
                        runs.append((Figure3Cell(place, epsilon, name, start, repeat, settings_of(method)), method))
        reference = registry()["nonprivate"]()
        for repeat in range(repeats if place.startswith("ipums") else 1):  # else the split is fixed, and so the result
            runs.append((Figure3Cell(place, None, "nonprivate", "zero", repeat, settings_of(reference)), reference))
    return sorted(runs, key=lambda run: run[0].repeat)


def run_cell(cell: Figure3Cell, folder: Path, methods: dict[str, Method]) -> Row:
    """Accuracy on the test rows and mean loss on the training rows; or why the method refused."""
    task, kind = PLACES[cell.place]
    started = time.perf_counter()
    rows = problem(task, folder, repeat=cell.repeat)
    model = model_for(rows.train, kind)
    X, y = labelled(rows.train, model)
    budget = Budget(1.0 if cell.epsilon is None else cell.epsilon, DELTA, adjacency="add_remove")
    theta = public_start(cell.place, folder) if cell.start == "public" else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OutsideRange)
        try:
            records = Records(X, y, float(len(X)), row_bound=1.0)
            run = train(methods[cell.settings], records, model=model, budget=budget, theta=theta, seed=cell.repeat)
        except ValueError as refusal:
            return {"accuracy": None, "loss": None, "refused": str(refusal), "outside": None, "seconds": 0.0}
    outside = next((str(warning.message) for warning in caught if warning.category is OutsideRange), None)
    return {
        "accuracy": accuracy(model, run.theta, rows.test), "loss": mean_loss(model, run.theta, rows.train),
        "refused": None, "outside": outside, "seconds": time.perf_counter() - started,
    }  # fmt: skip


@lru_cache(maxsize=4)
def public_start(place: str, folder: Path) -> NDArray[Any]:
    """The minimiser of the paper's public task, 4 against 6; tables have no such start."""
    task, kind = PLACES[place]
    rows = digit_pair(folder, PAPER_PAIR, features=FEATURES[task])
    model = model_for(rows, kind)
    public = PublicCurator(*labelled(rows, model), model=model, seed=0)
    return warm_start(model.start(), public)


def run_figure3(
    folder: Path, *, places: Sequence[str], epsilons: Sequence[float], repeats: int, jobs: int, out: Path,
    report: Report, quick: bool = False, baselines: Sequence[str] = OTHERS,
) -> tuple[list[Row], dict[str, dict[float, Tuned]]]:  # fmt: skip
    """Tune by hand on public tasks, then run every cell that is not in ``out`` yet; all results, and what was tuned."""
    there = [place for place in places if _readable(place, folder, report)]
    grids = {}
    for place in there:
        task, kind = PLACES[place]
        size = float(len(problem(task, folder).train.y))
        grids[place] = trials(task, kind, size, epsilons, DELTA, quick=quick)
    report("tuning by hand on public tasks")
    cells = [trial for grid in grids.values() for trial in grid]
    tried = iter(
        run_cells(cells, partial(run_trial, folder=folder), out=out / "tuning.jsonl", jobs=jobs, report=report)
    )
    tuned = {place: tuned_on(grid, [next(tried) for _ in grid]) for place, grid in grids.items()}
    runs = plan(there, tuned, repeats, baselines)
    report("private runs")
    work = partial(run_cell, folder=folder, methods={cell.settings: method for cell, method in runs})
    results = run_cells([cell for cell, _ in runs], work, out=out / "results.jsonl", jobs=jobs, report=report)
    return [*results, *best_by_hand(results, tuned)], tuned


def _readable(place: str, folder: Path, report: Report) -> bool:
    try:
        is_there(PLACES[place][0], folder)
    except Missing as missing:
        report(f"skipping {place}: {missing}")
        return False
    return True


def best_by_hand(results: Sequence[Row], tuned: dict[str, dict[float, Tuned]]) -> list[Row]:
    """The runs of the rule that public loss preferred, once more as ``hand_tuned``."""
    best = {(place, epsilon): f"hand_{t.best}" for place, by in tuned.items() for epsilon, t in by.items()}
    return [
        {**row, "method": "hand_tuned"} for row in results if row["method"] == best.get((row["place"], row["epsilon"]))
    ]


def tuned_rows(tuned: dict[str, dict[float, Tuned]]) -> list[Row]:
    """What was chosen on public tasks, as a table."""
    rows = []
    for place, by in tuned.items():
        for epsilon, chosen in by.items():
            for rule in RULES:
                method = chosen.by_rule[rule]
                rows.append(
                    {
                        "place": place, "epsilon": epsilon, "rule": rule, "learning_rate": method.learning_rate,
                        "steps": method.steps, "clip_factor": method.clip_factor, "public_loss": chosen.losses[rule],
                        "at_an_edge": at_an_edge(method), "best": rule == chosen.best,
                    }
                )  # fmt: skip
    return rows


def summary(results: Sequence[Row]) -> list[Row]:
    """A row per place, epsilon, method and start: means, standard deviations and standard errors; refusals have none."""
    rows = []
    frame = pd.DataFrame(results)
    for (place, epsilon, method, start), group in frame.groupby(
        ["place", "epsilon", "method", "start"], sort=False, dropna=False
    ):
        ran = group[group["refused"].isna()]
        row: Row = {
            "place": place, "epsilon": None if method == "nonprivate" else epsilon, "method": method, "start": start,
            "repeats": len(ran), "refused": len(group) - len(ran),
        }  # fmt: skip
        for name in ("accuracy", "loss"):
            row |= _moments(ran[name].astype(float), name)
        rows.append(row)
    return rows


def _moments(values: Any, name: str) -> Row:
    many = len(values)
    std = float(values.std(ddof=1)) if many > 1 else None
    return {
        name: float(values.mean()) if many else None, f"{name}_std": std,
        f"{name}_se": None if std is None else std / many**0.5,
    }  # fmt: skip


def differences(results: Sequence[Row]) -> list[Row]:
    """l2p minus its rivals in accuracy and loss, paired by repeat: per epsilon, and the mean over the small ones."""
    frame = pd.DataFrame(results)
    frame = frame[frame["method"].isin(["l2p", *RIVALS])]
    rows = []
    for place in frame["place"].drop_duplicates():
        for rival in RIVALS:
            gaps = {}
            for name in ("accuracy", "loss"):
                table = frame[frame["place"] == place].pivot_table(
                    index="repeat", columns=["method", "epsilon"], values=name, aggfunc="first"
                )
                gaps[name] = (table["l2p"] - table[rival]).astype(float)
            for epsilon in gaps["accuracy"].columns:
                rows.append({"place": place, "rival": rival, "epsilon": float(epsilon), **_gap(gaps, [epsilon])})
            small = [epsilon for epsilon in gaps["accuracy"].columns if epsilon <= MAX_SMALL_EPSILON]
            if small:
                rows.append(
                    {"place": place, "rival": rival, "epsilon": f"<= {MAX_SMALL_EPSILON:g}", **_gap(gaps, small)}
                )
    return rows


def _gap(gaps: dict[str, Any], epsilons: list[float]) -> Row:
    means: Row = {}
    for name, table in gaps.items():
        moments = _moments(table[epsilons].mean(axis=1).dropna(), name)
        means |= {name: moments[name], f"{name}_se": moments[f"{name}_se"]}
    return means
