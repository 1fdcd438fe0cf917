"""Ways of tuning beside no tuning at all: eight candidates over two methods, one budget that pays for everything.

For each seed a table is split anew: a quarter of the rows to test on, 1,000 to tell settings apart on in public (nobody
trains on them, whichever way is taken), and of the others as many as asked for as private ones. All ways of one seed see
the same rows, so that differences between them are paired. Every run is a simulation with a seed. What is finished is a
line of a file (one for each table); a line counts for the same data, candidates and source of noisewise only.

Candidates were written down once, before anything was run: the defaults of both methods, and what a person might try:
clip norms far too small and far too large, a step size and numbers of steps from elsewhere.
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from noisewise import PrivateClassifier, PrivateRegressor, PrivateSearchCV

from .store import Report, Row, run_cells
from .tables_bench import scored, source_digest
from .tables_split import Listed, Split, split

PUBLIC_ROWS = 1000
ADDITIVE = (
    {"method": "additive"},
    {"method": "additive", "max_grad_norm": 0.05},
    {"method": "additive", "max_grad_norm": 10.0},
    {"method": "additive", "steps": 15},
)
CANDIDATES: tuple[dict[str, Any], ...] = (
    {"method": "descent"},
    {"method": "descent", "max_grad_norm": 0.05},
    {"method": "descent", "max_grad_norm": 10.0},
    {"method": "descent", "learning_rate": 0.1},
    *ADDITIVE,
)
BAD: dict[str, Any] = {"method": "descent", "max_grad_norm": 100.0, "learning_rate": 0.001}
RESCUED = (BAD, *CANDIDATES[:3], *ADDITIVE)  # the bad start in place of another step size

AUTO = "auto"
EVERYWHERE = (AUTO, "public", "selection", "exponential", "online", "none")
BAD_START, RESCUE = "bad-start", "rescue"  # none and selection, with a bad setting as the first candidate
WAYS = (*EVERYWHERE, BAD_START, RESCUE)
SIGNS = (
    ("online", "selection"), ("online", "none"), ("public", "none"), ("selection", "none"), ("exponential", "none"),
    ("public", AUTO), ("selection", AUTO), ("exponential", AUTO),
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is to be run; ``rows`` is the largest number of private rows, None for all that are left."""

    tables: Sequence[Listed]
    epsilons: Sequence[float]
    seeds: int = 10
    rows: int | None = None
    delta: float = 1e-6
    only: Sequence[str] = WAYS

    def __post_init__(self) -> None:
        if unknown := [way for way in self.only if way not in WAYS]:
            raise ValueError(f"--ways has {unknown[0]!r}; pass some of {', '.join(WAYS)}")
        if bad := [epsilon for epsilon in self.epsilons if not 0 < epsilon < math.inf]:
            raise ValueError(f"--epsilons has {bad[0]:g}; pass positive numbers")
        if not self.epsilons:
            raise ValueError("--epsilons is empty; pass numbers such as 0.5,1")

    @property
    def ways(self) -> dict[str, Sequence[float]]:
        """Each way and the budgets that it is run with; a bad start with the largest alone."""
        return {way: self.epsilons if way in EVERYWHERE else (max(self.epsilons),) for way in WAYS if way in self.only}


@dataclass(frozen=True)
class TuningCell:
    """One search and training. ``data`` and ``code`` are digests: of the table, and of noisewise and the candidates."""

    table: str
    data: str
    way: str
    code: str
    epsilon: float
    delta: float
    seed: int
    rows: int | None


def code_digest() -> str:
    """Of everything that can change a score."""
    return hashlib.sha256(repr((source_digest(), CANDIDATES, RESCUED, PUBLIC_ROWS)).encode()).hexdigest()[:12]


def cells(asked: Asked, table: Listed, seed: int) -> list[TuningCell]:
    """All ways and budgets of one table and seed, which have their rows in common."""
    return [
        TuningCell(table.name, table.digest, way, code_digest(), epsilon, asked.delta, seed, asked.rows)
        for way, epsilons in asked.ways.items()
        for epsilon in epsilons
    ]


def run(asked: Asked, out: Path, *, report: Report) -> list[Row]:
    """Everything that is not in the folder ``out`` yet, seed by seed, so that what is there early can be looked at."""
    groups = [(table, seed) for seed in range(asked.seeds) for table in asked.tables]
    rows: list[Row] = []
    per_group = sum(len(epsilons) for epsilons in asked.ways.values())
    for number, (table, seed) in enumerate(groups):
        told = _part(report, number * per_group, len(groups) * per_group)
        file = out / f"{table.name}.jsonl"
        rows += run_cells(cells(asked, table, seed), work(table, seed, asked.rows), out=file, jobs=1, report=told)
    return rows


def _part(report: Report, before: int, total: int) -> Callable[[Any], None]:
    return lambda news: report((before + news[0], total))


@dataclass(frozen=True, eq=False)
class Dealt:
    """Private rows, public ones to compare settings on, and the split they are from, which has the rows to test on."""

    whole: Split
    private: tuple[Any, Any]
    public: tuple[Any, Any]


def dealt(table: Listed, seed: int, rows: int | None) -> Dealt:
    """The rows of one seed; those of a split come in random order."""
    whole = split(table, seed=seed)
    end = None if rows is None else PUBLIC_ROWS + rows
    labels = whole.labels
    if len(labels) < 2 * PUBLIC_ROWS:
        raise ValueError(f"{table.name} has {len(labels)} rows to train on; pass tables with {2 * PUBLIC_ROWS} or more")
    private = (whole.train.iloc[PUBLIC_ROWS:end], labels[PUBLIC_ROWS:end])
    return Dealt(whole, private, (whole.train.iloc[:PUBLIC_ROWS], labels[:PUBLIC_ROWS]))


def work(table: Listed, seed: int, rows: int | None) -> Callable[[TuningCell], Row]:
    """What does one cell; rows are dealt when the first one asks."""
    kept: list[Dealt] = []

    def one(cell: TuningCell) -> Row:
        if not kept:
            kept.append(dealt(table, seed, rows))
        return tuned(kept[0], cell)

    return one


def noise_seed(cell: TuningCell) -> int:
    """Of table, budget and seed, the same for all ways: else a selection would draw as many runs for every table."""
    return int.from_bytes(hashlib.sha256(repr((cell.table, cell.epsilon, cell.seed)).encode()).digest()[:4])


def tuned(rows: Dealt, cell: TuningCell) -> Row:
    """The score of one way on the rows to test on, which candidate it took, and seconds; or what it ``refused``."""
    face: Any = PrivateRegressor if rows.whole.classes is None else PrivateClassifier
    base = face(cell.epsilon, cell.delta, schema=rows.whole.schema, random_state=noise_seed(cell))
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = _fitted(base, rows, cell.way)
        except (ValueError, RuntimeError) as error:
            return {"refused": str(error)}
        seconds = time.process_time() - started
        answers = model.predict(rows.whole.test)
        if rows.whole.classes is None:
            found = scored(rows.whole, answers, answers)["r2"]
        else:
            places = rows.whole.classes.searchsorted(answers)
            found = scored(rows.whole, places, model.decision_function(rows.whole.test))["roc_auc"]
    return {"score": found, "best": getattr(model, "best_index_", None), "cpu_s": seconds}


def _fitted(base: Any, rows: Dealt, way: str) -> Any:
    X, y = rows.private
    if way == AUTO:
        return base.fit(X, y)
    candidates = RESCUED if way in (BAD_START, RESCUE) else CANDIDATES
    how = {BAD_START: "none", RESCUE: "selection"}.get(way, way)
    search = PrivateSearchCV(base, list(candidates), how=how, size=float(len(y)))
    return search.fit(X, y, task=rows.public if how == "public" else None)


def summary(results: Sequence[Row], asked: Asked) -> list[Row]:
    """A row for each table, budget and way: the mean score, its error, and the same of the difference to ``auto``."""
    found = {(row["table"], row["epsilon"], row["way"], row["seed"]): row for row in results if "refused" not in row}
    rows: list[Row] = []
    for table in asked.tables:
        for epsilon in asked.epsilons:
            for way, epsilons in asked.ways.items():
                if epsilon in epsilons:
                    these = [(s, found.get((table.name, epsilon, way, s))) for s in range(asked.seeds)]
                    ours = {s: row for s, row in these if row is not None}
                    base = {s: found.get((table.name, epsilon, AUTO, s)) for s in ours}
                    more = [row["score"] - auto["score"] for s, row in ours.items() if (auto := base[s]) is not None]
                    about = {"table": table.name, "measure": "r2" if table.regression else "roc_auc"}
                    rows.append(about | {"epsilon": epsilon, "way": way} | _means(list(ours.values()), more))
    return rows


def _means(ours: Sequence[Row], more: Sequence[float]) -> Row:
    scores = [row["score"] for row in ours]
    return {
        "score": mean(scores) if scores else None,
        "se": _error(scores),
        "over_auto": mean(more) if more else None,
        "over_auto_se": _error(more),
        "cpu_s": median(row["cpu_s"] for row in ours) if ours else None,
        "chosen": _counts(row["best"] for row in ours if row["best"] is not None),
        "seeds": len(scores),
    }


def _error(values: Sequence[float]) -> float | None:
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _counts(places: Iterable[int]) -> dict[str, int]:
    """How often each candidate was taken, by its place in the list."""
    found: dict[str, int] = {}
    for place in sorted(places):
        found[str(place)] = found.get(str(place), 0) + 1
    return found


def over_all(rows: Sequence[Row]) -> list[Row]:
    """By way and budget: the difference to ``auto``, averaged over tables, and the worst and best of them."""
    groups: dict[tuple[float, str], list[float]] = {}
    for row in rows:
        if row["over_auto"] is not None:
            groups.setdefault((row["epsilon"], row["way"]), []).append(row["over_auto"])
    return [
        {"epsilon": epsilon, "way": way, "over_auto": mean(found), "worst": min(found), "best": max(found)}
        for (epsilon, way), found in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def sign_tests(results: Sequence[Row]) -> list[Row]:
    """One way against another over all (table, budget, seed) that both have: two-sided, ties left out."""
    from scipy.stats import binomtest

    found = {(row["way"], row["table"], row["epsilon"], row["seed"]): row for row in results if "refused" not in row}
    tests = []
    for first, second in SIGNS:
        pairs = [
            (row["score"], found[second, *key[1:]]["score"])
            for key, row in found.items()
            if key[0] == first and (second, *key[1:]) in found
        ]
        above, below = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
        p = float(binomtest(above, above + below).pvalue) if above + below else None
        tests.append({"way": first, "against": second, "above": above, "below": below, "p": p})
    return tests
