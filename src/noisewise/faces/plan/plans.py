"""A plan: all that is known of a run before there are records, the price of tuning, and a recommendation in words.

Ways to tune k settings, against one run with the whole budget, worth mu in Gaussian DP:

- selection: a secret random number of runs, each with a setting drawn at random; only the best is released (Liu & Talwar
  2019, Papernot & Steinke 2022). Priced by Renyi DP for a geometric number of runs with mean 4 (k - 1), which tries a given
  setting with probability 0.8: P(not tried) = E[(1 - 1/k)^K] = 0.2. Among the laws that ``choose_repetitions`` compares it
  is the best or within a few hundredths of it, and one law takes a third of the time. Renyi DP has no price for some
  budgets (epsilon 0.001, say); they have no selection.
- exponential: every setting is trained, and the exponential mechanism chooses; the k runs share the budget, mu / sqrt(k).
- public: settings are compared on public rows, so that the private run has the whole budget.

Both private ways must score a model on private rows: that takes ``SCORING`` of mu^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...accounts.paying import planned_budget
from ...tables.fit.auto import AutoChoice, choice_for, outline_for, why
from ...tables.fit.build import TABLES
from ...trusted import validate
from ...trusted.accountants import gdp
from ...trusted.accountants.plan import (
    RATES,
    STEPS,
    Need,
    PlanRow,
    in_words,
    persons_in_words,
    plan_rows,
    records_needed,
)  # fmt: skip
from ...trusted.accountants.selection import candidate_budget
from ...trusted.accountants.terms import Budget
from ...trusted.events import Adjacency, TruncatedNegativeBinomial
from ...trusted.features import TableColumn
from ...trusted.units import RECORD, Unit
from .expected import Expected, clarity_for, expected

if TYPE_CHECKING:
    import pandas as pd

    from ...accounts.ledger import Ledger
    from ...tables.schema import Schema

CANDIDATES = (1, 4, 8, 16, 64)
SCORING = 0.05
MIN_KEPT_SHARE = 0.8  # of the middle of simulations: with less, the recommendation says what would be enough
MIN_LOSS = 0.01  # of the share kept: a smaller price of tuning is lost in the noise of a test
MAX_COLUMNS = 1_000_000
USUAL_SETTINGS = 8  # that the recommendation prices, if the plan has them
NONE, SELECTION, EXPONENTIAL, PUBLIC = "none", "selection", "exponential", "public"
WORDS = {
    NONE: "no tuning",
    SELECTION: "private selection",
    EXPONENTIAL: "the exponential mechanism",
    PUBLIC: "public rows",
}


@dataclass(frozen=True, slots=True)
class Tuning:
    """A way to choose among ``candidates`` settings.

    ``mu``: what the training of one setting may spend; ``factor``: its noise, relative to a run with the whole budget;
    ``kept``: what to expect of a model with that noise, if there are simulations.
    """

    candidates: int
    how: str
    mu: float
    factor: float
    kept: Expected | None


def tunings(
    budget: Budget, clarity: float, columns: int | None, classes: int | None, candidates: Sequence[int] = CANDIDATES
) -> tuple[Tuning, ...]:
    """Each way for each number of settings; ``clarity``: n mu of the whole budget; ``columns``: None without simulations."""
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        raise ValueError(f"candidates is {candidates!r}; pass numbers of settings to tune, e.g. 1,8")
    if not candidates:
        raise ValueError("candidates is empty; pass numbers of settings to tune, e.g. 1,8")
    for count in candidates:
        validate.whole(candidates=count)
    whole = gdp.mu_of(budget.epsilon, budget.delta)
    found = []
    for count in sorted(set(candidates)):
        for how, mu in _ways(budget, whole, count):
            kept = None if columns is None else expected(clarity * (mu / whole), columns, classes)
            found.append(Tuning(count, how, mu, whole / mu, kept))
    return tuple(found)


def _ways(budget: Budget, whole: float, count: int) -> list[tuple[str, float]]:
    if count == 1:
        return [(NONE, whole)]
    training, selected = math.sqrt(1 - SCORING), _selected(budget, count)
    private = [] if selected is None else [(SELECTION, training * selected)]
    return [*private, (EXPONENTIAL, training * whole / math.sqrt(count)), (PUBLIC, whole)]


@lru_cache(maxsize=256)
def _selected(budget: Budget, count: int) -> float | None:
    """What each run of a selection among ``count`` settings may spend; None if no noise keeps it within the budget."""
    try:
        return candidate_budget(budget, TruncatedNegativeBinomial(1.0, 0.25 / (count - 1))).mu
    except ValueError:
        return None


def cheapest(ways: Sequence[Tuning], count: int) -> Tuning:
    """The private way with the least noise for ``count`` settings."""
    private = [way for way in ways if way.candidates == count and way.how in (SELECTION, EXPONENTIAL)]
    return min(private, key=lambda way: way.factor)


@dataclass(frozen=True)
class Plan:
    """What a budget buys for a table of ``size`` records and ``columns``.

    ``rows``: noise for each way of sampling and number of steps, in ``words``, too; ``records_needed`` for less of it.
    ``method``, ``features`` and ``why``: what "auto" would do. ``expected``: the share to keep of what a model without
    privacy gains over one answer for all, None if no simulation is like such a table. ``tuning``: the price of choosing
    among several settings. ``recommendation``: what to do. ``classes`` is None for a number.
    """

    budget: Budget
    size: int
    columns: int
    parameters: int
    classes: int | None
    clip: float
    unit: Unit
    clarity: float  # n mu
    method: str
    features: Mapping[str, Any]
    why: str
    rows: tuple[PlanRow, ...]
    words: str
    records_needed: tuple[Need, ...]
    expected: Expected | None
    tuning: tuple[Tuning, ...]
    recommendation: str

    @property
    def rows_per_unit(self) -> int | None:
        """How many rows of a person count; None where a record is protected."""
        return self.unit.rows

    @property
    def title(self) -> str:
        """The question, in one line."""
        budget = f"epsilon {self.budget.epsilon:g}, delta {self.budget.delta:g}, {self.budget.adjacency}"
        title = f"{budget}; {self.size:,} records, {self.parameters} parameters"
        return f"{title}; the unit is {self.unit.words}" if self.unit.persons else title

    def __str__(self) -> str:
        return "\n".join([f"What a budget buys: {self.title}", self.words, self.why, self.recommendation])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``noisewise plan --json`` prints it."""
        budget = self.budget
        known: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta, "adjacency": budget.adjacency}
        known |= {name: getattr(self, name) for name in ("size", "columns", "parameters", "clip")}
        known |= {name: [_plain(row) for row in getattr(self, name)] for name in ("rows", "records_needed")}
        known |= {"words": self.words, "method": self.method, "features": dict(self.features), "why": self.why}
        known |= {
            "classes": self.classes,
            "clarity": self.clarity,
            "expected": None if self.expected is None else {"kept": _kept(self.expected), "by": self.expected.by},
            "tuning": [{**asdict(way), "kept": None if way.kept is None else _kept(way.kept)} for way in self.tuning],
            "recommendation": self.recommendation,
        }
        if self.unit.persons:
            k = self.unit.most
            known |= {"unit": self.unit.words, "rows_per_unit": k, "row_clip": self.clip / k}
        return known

    def to_frame(self, what: str = "rows") -> pd.DataFrame:
        """``rows`` (noise) or ``tuning`` (its price) as a data frame."""
        import pandas as pd

        if what not in ("rows", "tuning"):
            raise ValueError(f"what is {what!r}; pass 'rows' or 'tuning'")
        found = self.to_dict()[what]
        if what == "tuning":
            for row in found:
                kept = row.pop("kept") or dict.fromkeys(("low", "mid", "high"))
                row |= {f"kept_{name}": value for name, value in kept.items()}
        return pd.DataFrame(found)

    def plot(self, path: str | Path) -> None:
        """Write a picture: noise against steps, and what tuning costs against the number of settings."""
        from .plots import plot_plan

        plot_plan(self.rows, Path(path), title=self.title, tuning=self.tuning, expected=self.expected)


def plan(
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    size: int,
    columns: int | None = None,
    schema: Schema | str | Path | None = None,
    classes: int | None = 2,
    adjacency: Adjacency | None = None,
    rows_per_unit: int | None = None,
    candidates: Sequence[int] = CANDIDATES,
    steps: Sequence[int] = STEPS,
    rates: Sequence[float] = RATES,
    clip: float = 1.0,
    ledger: Ledger | str | Path | None = None,
    dataset: str | None = None,
) -> Plan:
    """What (epsilon, delta) buys for ``size`` records of ``columns`` numbers, or of what a ``schema`` declares.

    ``classes`` of the target, None for a number; a schema with a target overrides it. ``rows_per_unit``: rows of a person
    that count, if a person is protected. ``candidates``: numbers of settings to price tuning for. ``ledger`` and
    ``dataset``: plan from what that account has left; epsilon and delta are the largest that fit, unless passed.

    >>> made = plan(1.0, 1e-6, size=20_000, columns=14, candidates=(1,), steps=(10,), rates=())
    >>> made.method, made.expected.low <= made.expected.mid <= made.expected.high
    ('additive', True)
    """
    if epsilon is not None and delta is not None:
        Budget(epsilon, delta, adjacency or "add_remove")  # a wrong budget is refused first
    if (columns is None) == (schema is None):
        raise ValueError("pass columns, how many numbers a record has, or schema, what the columns are: one of the two")
    if classes is not None:
        validate.whole(at_least=2, classes=classes)
    table = _table_of(columns, schema)
    unit = table.unit if rows_per_unit is None else Unit(rows_per_unit)
    budget = planned_budget(epsilon, delta, adjacency, ledger, dataset, persons=unit.persons)
    rows = plan_rows(budget, size=size, features=table.features, unit=unit, steps=steps, rates=rates, clip=clip)
    words = f"{in_words(rows)}\n{persons_in_words(rows, unit)}" if unit.persons else in_words(rows)
    choice = choice_for(table.columns, budget, size, unit=unit)
    classes = (classes if table.classes is None else table.classes) or None
    clarity, width = size * choice.mu / unit.most, len(table.columns)
    simulated = choice.method == TABLES
    ways = tunings(budget, clarity, width if simulated else None, classes, candidates)
    kept = expected(clarity, width, classes) if simulated else None
    return Plan(
        budget, size, width, table.features + 1, classes, clip, unit, clarity, choice.method,
        features=_features(choice, table, budget, unit), why=why(choice), rows=tuple(rows), words=words,
        records_needed=tuple(records_needed(rows, size=size)), expected=kept, tuning=ways,
        recommendation=recommendation(budget, size, width, classes, clarity, kept, ways),
    )  # fmt: skip


class _Table(NamedTuple):
    """Columns, ``features`` of a linear model of them, the unit, and classes of the target: 0 for a number, None if unknown."""

    columns: tuple[TableColumn, ...]
    features: int
    unit: Unit = RECORD
    classes: int | None = None
    declared: bool = False  # by a schema; else all columns are numbers


def _table_of(columns: int | None, given: Schema | str | Path | None) -> _Table:
    from ...tables.encode import Encoder
    from ...tables.resolve import with_imagined_bounds
    from ...tables.rows import columns_of
    from ...tables.schema import Schema, gaps, read_schema

    if given is None:
        assert columns is not None
        validate.whole(columns=columns)
        if columns > MAX_COLUMNS:
            raise ValueError(f"columns is more than {MAX_COLUMNS}; pass as many as a table has")
        return _Table(tuple(TableColumn(f"x{i}", (0.0, 1.0), (0.0, 1.0)) for i in range(columns)), columns)
    schema = given if isinstance(given, Schema) else read_schema(Path(given))
    if left := [gap for gap in gaps(schema) if gap.what != "bounds"]:
        raise ValueError(f"{'the schema' if isinstance(given, Schema) else given}: {left[0]}")
    known = with_imagined_bounds(schema)
    target = None if known.target is None else len(known[known.target].categories or ())
    return _Table(columns_of(known), len(Encoder(known).low), known.protects, target, declared=True)


def _features(choice: AutoChoice, table: _Table, budget: Budget, unit: Unit) -> dict[str, Any]:
    """The features that "auto" would make of such a table."""
    assert choice.size is not None
    made = outline_for(table.columns, budget, choice.size, unit)
    features = {"knots": choice.knots, "pairs": choice.pairs or 0, "ranks": choice.ranks or 0.0}
    if table.declared and made is not None:
        features |= {"coordinates": made.coordinates, "pair_coordinates": made.pair_coordinates}
    return features


def _kept(expected: Expected) -> dict[str, float]:
    return {"low": expected.low, "mid": expected.mid, "high": expected.high}


def _plain(row: PlanRow | Need) -> dict[str, Any]:
    data = asdict(row)
    sampling = data.pop("sampling")
    if "alternatives" in data:
        data["alternatives"] = dict(data["alternatives"])
    return {"sampling": sampling[0], "rate": sampling[1] if len(sampling) > 1 else 1.0, **data}


def recommendation(
    budget: Budget,
    size: int,
    columns: int,
    classes: int | None,
    clarity: float,
    kept: Expected | None,
    ways: Sequence[Tuning],
) -> str:
    """What to do: whether the budget is enough, and whether to spend a part of it on tuning."""
    words = ["Use auto with the whole budget."]
    if kept is None:
        words.append("No simulations stand for a table that wide: what to expect is not known.")
    else:
        words = [f"Use auto with the whole budget: {kept_in_words(kept)}."]
        if kept.mid < MIN_KEPT_SHARE:
            times = clarity_for(MIN_KEPT_SHARE, columns, classes) / clarity
            epsilon = gdp.epsilon_of(times * gdp.mu_of(budget.epsilon, budget.delta), budget.delta)
            words.append(
                f"It takes about {_rounded(times * size)} records, or an epsilon of about {epsilon:.2g}, to keep "
                f"{MIN_KEPT_SHARE:g}; fewer columns help as well."
            )
    return " ".join([*words, *_tuning(ways, kept)])


def kept_in_words(kept: Expected) -> str:
    """What to expect, with its range."""
    share = f"{kept.mid:.2f} ({kept.low:.2f} to {kept.high:.2f})"
    if kept.mid <= 0:
        return f"expect no more than always giving one answer gives; of what a model without privacy gains, {share} is kept"
    return f"expect to keep {share} of what a model without privacy gains over always giving one answer"


def _tuning(ways: Sequence[Tuning], kept: Expected | None) -> list[str]:
    counts = sorted({way.candidates for way in ways if way.candidates > 1})
    if not counts:
        return []
    count = USUAL_SETTINGS if USUAL_SETTINGS in counts else counts[0]
    way = cheapest(ways, count)
    price = f"Tuning {count} settings by {WORDS[way.how]} costs a factor {way.factor:.2f} in noise"
    if kept is None or way.kept is None:
        verdict = f"{price}; it pays only if the default setting is worse than that much noise."
    elif kept.mid - way.kept.mid < MIN_LOSS:
        verdict = f"{price}, which hardly matters here ({way.kept.mid:.2f} instead of {kept.mid:.2f} kept)."
    else:
        verdict = (
            f"{price}: expect {way.kept.mid:.2f} instead of {kept.mid:.2f} kept; it pays only if the default setting "
            "loses more than that."
        )
    return [verdict, "Tune on public rows if you have any: that costs no privacy."]


def _rounded(count: float) -> str:
    """A count with two digits.

    >>> _rounded(12_345.0)
    '12,000'
    """
    return f"{float(f'{count:.2g}'):,.0f}"
