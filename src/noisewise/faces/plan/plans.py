"""A plan: everything that is known of a run before there are records, as frozen data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...trusted import validate
from ...trusted.accountants import gdp
from ...trusted.accountants.plan import Need, PlanRow
from ...trusted.accountants.selection import candidate_budget
from ...trusted.accountants.terms import Budget
from ...trusted.events import TruncatedNegativeBinomial
from ...trusted.units import Unit
from .expected import Expected, clarity_for, expected

if TYPE_CHECKING:
    import pandas as pd


# What it costs to tune k settings, against one run with the whole budget, worth mu in Gaussian DP.
#
# - selection: a secret random number of runs, each with a setting drawn at random; only the best gets out (Liu & Talwar 2019,
# Papernot & Steinke 2022). Priced by Renyi DP for a geometric number of runs with mean 4 (k - 1), which tries a given setting
# with probability 0.8: P(not tried) = E[(1 - 1/k)^K] = 0.2. Among the laws that ``choose_repetitions`` compares it is the
# best or within a few hundredths of it, and one law has a price in a third of the time.
# - exponential: every setting is trained, and the exponential mechanism chooses; the k runs share the budget, mu / sqrt(k).
# - public: settings are compared on public rows, so that the private run has the whole budget.
#
# A budget for which Renyi DP has no price (epsilon 0.001, say) has no selection. Both private ways must score a model on private rows: that takes ``SCORING`` of mu^2.


CANDIDATES = (1, 4, 8, 16, 64)
SCORING = 0.05
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

    ``mu``: what the training of one setting may spend; ``factor``: how many times as much noise that is; ``kept``: what to
    expect of a model with that noise, where simulations say so.
    """

    candidates: int
    how: str
    mu: float
    factor: float
    kept: Expected | None


def tunings(
    budget: Budget, clarity: float, columns: int | None, classes: int | None, candidates: Sequence[int] = CANDIDATES
) -> tuple[Tuning, ...]:
    """Each way for each number of settings; one setting is no tuning.

    ``clarity`` is n mu of the whole budget; ``columns`` is None where simulations say nothing.
    """
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
    """What every run of a selection among so many settings may spend; None where no noise keeps it within the budget."""
    try:
        return candidate_budget(budget, TruncatedNegativeBinomial(1.0, 0.25 / (count - 1))).mu
    except ValueError:
        return None


def cheapest(ways: Sequence[Tuning], count: int) -> Tuning:
    """The private way with the least noise for so many settings."""
    private = [way for way in ways if way.candidates == count and way.how in (SELECTION, EXPONENTIAL)]
    return min(private, key=lambda way: way.factor)


@dataclass(frozen=True)
class Plan:
    """What a budget buys for a table of so many records and columns.

    ``rows``: noise for each way of sampling and number of steps, told in ``words``; ``records_needed`` for less of it.
    ``method``, ``features`` and ``why``: what "auto" would do. ``expected``: the share to keep of what a model without
    privacy gains over one answer for all, None where no simulation stands for such a table. ``tuning``: the price of
    choosing among several settings. ``recommendation``: what to do, in plain words. ``classes`` is None for a number.
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
        told = (
            f"epsilon {self.budget.epsilon:g}, delta {self.budget.delta:g}, {self.budget.adjacency}; "
            f"{self.size:,} records, {self.parameters} parameters"
        )
        return f"{told}; the unit is {self.unit.words}" if self.unit.persons else told

    def __str__(self) -> str:
        return "\n".join([f"What a budget buys: {self.title}", self.words, self.why, self.recommendation])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``noisewise plan --json`` prints it."""
        told = {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "adjacency": self.budget.adjacency,
            "size": self.size,
            "columns": self.columns,
            "parameters": self.parameters,
            "clip": self.clip,
            "rows": [_plain(row) for row in self.rows],
            "records_needed": [_plain(need) for need in self.records_needed],
            "words": self.words,
            "method": self.method,
            "features": dict(self.features),
            "why": self.why,
            "classes": self.classes,
            "clarity": self.clarity,
            "expected": None if self.expected is None else {"kept": _kept(self.expected), "by": self.expected.by},
            "tuning": [{**asdict(way), "kept": None if way.kept is None else _kept(way.kept)} for way in self.tuning],
            "recommendation": self.recommendation,
        }
        if self.unit.persons:
            k = self.unit.most
            told |= {"unit": self.unit.words, "rows_per_unit": k, "row_clip": self.clip / k}
        return told

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


def _kept(expected: Expected) -> dict[str, float]:
    return {"low": expected.low, "mid": expected.mid, "high": expected.high}


def _plain(row: PlanRow | Need) -> dict[str, Any]:
    data = asdict(row)
    sampling = data.pop("sampling")
    if "alternatives" in data:
        data["alternatives"] = dict(data["alternatives"])
    return {"sampling": sampling[0], "rate": sampling[1] if len(sampling) > 1 else 1.0, **data}


# A recommendation in plain words, made of the numbers of a plan.


MIN_KEPT_SHARE = 0.8  # kept by the middle of simulations: below this, say what would be enough
LITTLE = 0.01  # of what is kept: what tuning costs is lost in the noise of a test
USUAL = 8  # settings: what the recommendation speaks of, if the plan has it


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
    told = ["Use auto with the whole budget."]
    if kept is not None:
        told = [f"Use auto with the whole budget: {kept_in_words(kept)}."]
        if kept.mid < MIN_KEPT_SHARE:
            told.append(_more(budget, size, columns, classes, clarity))
    else:
        told.append("No simulations stand for a table that wide: what to expect is not known.")
    return " ".join([*told, *_tuning(ways, kept)])


def kept_in_words(kept: Expected) -> str:
    """What to expect, with its range."""
    share = f"{kept.mid:.2f} ({kept.low:.2f} to {kept.high:.2f})"
    if kept.mid <= 0:
        return f"expect no more than always giving one answer gives; of what a model without privacy gains, {share} is kept"
    return f"expect to keep {share} of what a model without privacy gains over always giving one answer"


def _more(budget: Budget, size: int, columns: int, classes: int | None, clarity: float) -> str:
    """Records, or an epsilon, that would be enough."""
    times = clarity_for(MIN_KEPT_SHARE, columns, classes) / clarity
    epsilon = gdp.epsilon_of(times * gdp.mu_of(budget.epsilon, budget.delta), budget.delta)
    return (
        f"It takes about {_rounded(times * size)} records, or an epsilon of about {epsilon:.2g}, to keep {MIN_KEPT_SHARE:g}; fewer "
        "columns help as well."
    )


def _tuning(ways: Sequence[Tuning], kept: Expected | None) -> list[str]:
    counts = sorted({way.candidates for way in ways if way.candidates > 1})
    if not counts:
        return []
    count = USUAL if USUAL in counts else counts[0]
    way = cheapest(ways, count)
    price = f"Tuning {count} settings by {WORDS[way.how]} costs a factor {way.factor:.2f} in noise"
    if kept is None or way.kept is None:
        told = f"{price}; it pays only if the default setting is worse than that much noise."
    elif kept.mid - way.kept.mid < LITTLE:
        told = f"{price}, which hardly matters here ({way.kept.mid:.2f} instead of {kept.mid:.2f} kept)."
    else:
        told = (
            f"{price}: expect {way.kept.mid:.2f} instead of {kept.mid:.2f} kept; it pays only if the default setting "
            "loses more than that."
        )
    return [told, "Tune on public rows if you have any: that costs no privacy."]


def _rounded(count: float) -> str:
    """Two digits are enough.

    >>> _rounded(12_345.0)
    '12,000'
    """
    return f"{float(f'{count:.2g}'):,.0f}"
