"""A plan: everything that is known of a run before there are records, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...trusted.accountants.plan import Need, PlanRow
from ...trusted.accountants.terms import Budget
from ...trusted.units import Unit
from .expected import Expected
from .tuning import Tuning

if TYPE_CHECKING:
    import pandas as pd


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
