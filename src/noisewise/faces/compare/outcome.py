"""The outcome of a comparison: one row per method, in order, in a unit that is easy to read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

METRICS = {"classification": "accuracy", "regression": "mean squared error"}
MIN_REPEATS = 3  # that tell how far scores scatter: two can agree by chance


@dataclass(frozen=True, slots=True)
class Row:
    """One method: mean score over the repeats and its standard error (of three or more), or why it was refused.

    ``worse`` is how much worse it is than training without privacy, on the same rows of each repeat, which cancels what
    the splits have in common; None when nothing was trained without privacy. ``public`` says that the method needs
    public rows, ``private`` that it makes a promise at all; ``seconds`` is the median time of one training. ``metrics`` are
    the other figures, each a mean (``value``) with a 95 % ``interval`` over the repeats.
    """

    method: str
    mean: float | None
    standard_error: float | None
    refused: str | None
    public: bool
    private: bool
    seconds: float
    scores: tuple[float, ...]
    worse: float | None = None
    worse_error: float | None = None
    warnings: tuple[str, ...] = ()
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def ranked(rows: Iterable[Row], task: str) -> list[Row]:
    """Without privacy first, then the best score first, then what was refused."""
    sign = -1.0 if task == "classification" else 1.0

    def place(row: Row) -> tuple[bool, bool, float]:
        return row.private, row.mean is None, 0.0 if row.mean is None else sign * row.mean

    return sorted(rows, key=place)


def no_better(row: Row) -> bool:
    """Whether one answer for all does as well: the most frequent class, or the mean."""
    found = {
        name: row.metrics[name]["value"] for name in ("accuracy", "baseline_accuracy", "r2") if name in row.metrics
    }
    return bool(found.get("r2", 1.0) <= 0 or found.get("accuracy", 1.0) <= found.get("baseline_accuracy", 0.0))


def in_unit(value: float, error: float | None, unit: float) -> str:
    """A number and its standard error, if that is known, in a unit; an error is never shown as zero.

    >>> in_unit(0.8123, 0.0051, 0.01), in_unit(0.8123, 1e-6, 0.01), in_unit(0.8123, None, 0.01)
    ('81.23 ± 0.51', '81.23 ± <0.01', '81.23')
    """
    if error is None:
        return f"{value / unit:.2f}"
    shown = f"{error / unit:.2f}"
    return f"{value / unit:.2f} ± {'<0.01' if shown == '0.00' else shown}"


def against(worse: float, error: float | None, unit: float) -> str:
    """In words, how a score compares with the one without privacy; ``worse`` as a row has it.

    >>> against(0.0113, None, 0.01), against(-0.0113, 0.004, 0.01), against(1e-5, 0.004, 0.01)
    ('worse by 1.13', 'better by 1.13 ± 0.40', 'as good')
    """
    if round(abs(worse) / unit, 2) == 0:
        return "as good"
    return f"{'worse' if worse > 0 else 'better'} by {in_unit(abs(worse), error, unit)}"


def scatter(repeats: int) -> str:
    """In words, what is known of how far repeats lie apart."""
    if repeats >= MIN_REPEATS:
        return f"mean of {repeats} repeats ± its standard error"
    return "one training each: spread unknown" if repeats == 1 else f"mean of {repeats} repeats: spread unknown"


def unit_of(rows: Sequence[Row], metric: str) -> tuple[float, str]:
    """What to divide scores by so that they are easy to read, and the name of the score in that unit.

    >>> unit_of([], "accuracy")
    (0.01, 'accuracy, %')
    """
    if metric == "accuracy":
        return 0.01, "accuracy, %"
    least = min((row.mean for row in rows if row.mean), default=1.0)
    if 0.1 <= least < 10_000:
        return 1.0, metric
    unit = 10.0 ** (3 * math.floor(math.log10(least) / 3))
    return unit, f"{metric} / {unit:.0e}"
