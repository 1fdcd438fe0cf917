"""A private run, simulated on public rows: parts of them stand for the private table, the handed-over rows and new ones.

Noise on a mean over n records goes with 1 / (n mu), mu being what the budget is worth in Gaussian DP. So a table of n
records under mu is simulated by one of n' < n under mu' = mu n / n': gradients, counts and moments then have the noise
that they will have. What differs is how much n records teach beyond n', which no simulation on fewer rows can tell, and
what a method reads off n alone. For Poisson batches of rate q the same holds in the limit of many steps, where a run is
mu-GDP with mu = q (T (exp(1/sigma^2) - 1))^(1/2), about q T^(1/2) / sigma, and the noise goes with sigma / (q n); where
n' is far below n, sigma falls below 1 and the simulation has a little more noise than the run will have.

Too few rows for a table are filled up by a balanced smoothed bootstrap: every row once as it is, then copies, each row as
often as the others, whose numbers are moved by a tenth of the spread of their column (from the quartiles, so that one far value
does not count). Codes and numbers with few values are copied as they are, and so are labels.

*Guarantee*: none is needed, as no private record is read.

Davison, Hinkley & Schechtman 1986, Efficient bootstrap simulation; Dong, Roth & Su 2022, Gaussian differential privacy.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..tables.fit.fit import Fit
from ..tables.fit.fitted import Fitted
from ..tables.fit.labels import ClassesOrTarget, Target
from ..tables.rows import Cells, Scaling
from ..train import Records
from ..trusted.accountants.gdp import mu_of

Array = NDArray[Any]
MAX_RECORDS = 20_000  # of a simulated table, unless there are more real rows
VALIDATION, HANDED = 0.25, 0.25  # of the public rows
MIN_PUBLIC_ROWS = 20  # that can be split at all
MAX_CODES = 10  # a column with no more values than this is taken for codes
JITTER = 0.1  # of the spread of a column
MAX_MU = 1000.0  # beyond, there is no noise to speak of, and epsilon passes what a budget may be


class SplitRows(NamedTuple):
    """Row numbers of one split."""

    training: Array
    handed: Array
    validation: Array


@dataclass(frozen=True)
class Shape:
    """The sizes of a simulation; ``records`` of the simulated table stand for ``size`` private ones."""

    rows: int
    training: int
    validation: int
    records: int
    size: float

    @property
    def filled_up(self) -> bool:
        """Whether rows had to be made from others."""
        return self.records > self.training

    @property
    def weight(self) -> float:
        """How many private records one simulated record stands for."""
        return max(self.size / self.records, 1.0)


def shape_of(rows: int, size: float | None, *, handed: bool) -> Shape:
    """The sizes of a simulation of ``size`` private records on public rows."""
    if rows < MIN_PUBLIC_ROWS:
        raise ValueError(f"there are {rows} public rows; pass at least {MIN_PUBLIC_ROWS}, or tune with a price")
    wanted = float(rows) if size is None else float(size)
    validation = round(VALIDATION * rows)
    training = rows - validation - (round(HANDED * rows) if handed else 0)
    records = int(min(max(wanted, 1.0), max(MAX_RECORDS, training)))
    return Shape(rows, training, validation, records, wanted)


def parts_of(shape: Shape, seed: int, repeat: int) -> SplitRows:
    """One random split, the same for all candidates."""
    order = np.random.default_rng([seed, repeat, 0]).permutation(shape.rows)
    training, rest = order[: shape.training], order[shape.training :]
    return SplitRows(training, rest[: len(rest) - shape.validation], rest[len(rest) - shape.validation :])


def table_of(rows: Records, scaling: Scaling, parts: SplitRows, shape: Shape, seed: int, repeat: int) -> Records:
    """The simulated private table: part of the training rows, or all of them and jittered copies."""
    rng = np.random.default_rng([seed, repeat, 1])
    copies = [parts.training]
    while sum(map(len, copies)) < shape.records:
        copies.append(rng.permutation(parts.training))
    taken = np.concatenate(copies)[: shape.records]
    real = min(len(parts.training), shape.records)
    X = rows.X[taken]
    if len(taken) > real:
        X[real:] = moved(X[real:], scaling, widths(rows.X[parts.training], scaling), rng)
    return Records(X, rows.y[taken])


def widths(X: Array, scaling: Scaling) -> Array:
    """The deviation of the noise on each column; 0 for codes."""
    table = _cells(X, scaling)
    found = np.zeros(table.shape[1])
    for place in range(table.shape[1]):
        known = table[:, place][np.isfinite(table[:, place])]
        number = not isinstance(scaling, Cells) or scaling.columns[place].number
        if number and len(np.unique(known)) > MAX_CODES:
            low, high = np.percentile(known, [25, 75])
            found[place] = JITTER * (high - low) / 1.349  # of a normal column: a tenth of its deviation
    return found


def moved(X: Array, scaling: Scaling, width: Array, rng: np.random.Generator) -> Array:
    """Rows whose numbers have noise of these deviations, and stay within the bounds of their scaling."""
    table = _cells(X, scaling)
    table = table + rng.normal(size=table.shape) * width
    if isinstance(scaling, Cells):
        return table.astype(X.dtype)
    table = np.clip(table, np.where(scaling.low == 0, 0.0, -1.0), 1.0)
    rows = np.column_stack([table, np.ones(len(table))])
    rows /= np.linalg.norm(rows, axis=1)[:, None] if scaling.unit_rows else math.sqrt(scaling.features)
    return rows.astype(X.dtype)


def _cells(X: Array, scaling: Scaling) -> Array:
    """A table's cells, or columns in [-1, 1] before rows were shortened, which the intercept shows."""
    table: Array = np.asarray(X if isinstance(scaling, Cells) else X[:, :-1] / X[:, -1:], dtype=np.float64)
    # what was divided by a row's own norm comes back but for rounding, which would make codes look like numbers
    return table if isinstance(scaling, Cells) else table.round(5)


def budget_for(fit: Fit, shape: Shape) -> Budget:
    """The training budget of a fit, worth as much on the simulated table as it will be on the private one."""
    budget = fit.training_budget()
    if shape.weight == 1.0:
        return budget
    mu = min(mu_of(budget.epsilon, budget.delta) * shape.weight, MAX_MU)
    return Budget.from_gdp(mu, budget.delta, budget.adjacency)


def simulated(fit: Fit, table: Records, handed: Records | None, shape: Shape, seed: int) -> Fitted:
    """The run of this fit on a public table, with a seed."""
    asked = replace(fit, budget=budget_for(fit, shape), preparation=None, seed=seed).on(table, handed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the simulated size and budget, which the user did not choose
        return asked.run()


def as_given(labels: ClassesOrTarget, numbers: Array) -> Array:
    """Labels as the user has them, from those that a loss takes."""
    if isinstance(labels, Target):
        return labels.low + (np.asarray(numbers, dtype=float) + 1) / 2 * (labels.high - labels.low)
    positions = numbers if labels.numbered else (np.asarray(numbers) + 1) // 2
    return labels.values[np.asarray(positions).astype(np.int64)]
