"""What a budget buys, with no data: noise, its price and its size beside the signal, for each way of sampling.

A step releases the mean of clipped gradients with noise of standard deviation sigma C / (q N) on each of p parameters
(rate q, N records, clip norm C). No mean gradient is longer than C, so the noise-to-signal ratio of a step is at least

    sqrt(p) sigma / (q N),

and that of the average of all T answers is 1 / sqrt(T) of it. Noise from sampling itself is not counted.

Where a person may have k rows that count, C is a person's and a row is clipped to C / k: no mean gradient is longer than
that, so both ratios are k times as large. Batches are of rows, so there is the full batch only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .. import validate
from ..events import FULL, MAX_COUNT, Event, Gaussian, Repeated, Sampling, leaves, sampled
from ..units import RECORD, Unit
from .base import accountant_named, names
from .calibrate import least_noise
from .terms import Budget

STEPS = (10, 50, 100, 500, 1000)
RATES = (0.01, 0.1)
RATIOS = (1.0, 0.1, 0.01)
SIZE, FEATURES = 10_000, 20  # examples


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A run of ``steps`` equal Gaussian steps that spends the budget, and how noisy its answers are."""

    sampling: Sampling
    steps: int
    noise_multiplier: float
    accountant: str
    alternatives: tuple[tuple[str, float | None], ...]  # what other accountants ask for; None: no price
    batch: float  # expected records a step
    passes: float  # expected times a record is read in the whole run
    noise_std: float  # of every coordinate of one released mean gradient
    step_ratio: float  # noise norm of a step / clip norm (of a row)
    run_ratio: float  # the same for the average of all steps


@dataclass(frozen=True, slots=True)
class Need:
    """How many records bring the noise of a whole run down to ``ratio`` times the clip norm."""

    sampling: Sampling
    steps: int
    ratio: float
    records: int


def plan_rows(
    budget: Budget,
    *,
    size: int = SIZE,
    features: int = FEATURES,
    steps: Sequence[int] = STEPS,
    clip: float = 1.0,
    rates: Sequence[float] = RATES,
    unit: Unit = RECORD,
) -> list[PlanRow]:
    """One row for each way of sampling and number of steps; a linear model with ``features`` and an intercept.

    >>> rows = plan_rows(Budget(1.0, 1e-6), size=1000, features=15, steps=[100], rates=[])
    >>> rows[0].accountant, round(rows[0].noise_multiplier, 2), round(rows[0].step_ratio, 3)
    ('gdp', 42.25, 0.169)
    """
    validate.whole(size=size, features=features)
    if size > MAX_COUNT:
        raise ValueError("size is more than 10^15; pass how many records there are")
    validate.positive(clip=clip)
    lists: dict[str, Any] = {"steps": steps, "rates": rates}
    for name, several in lists.items():
        if isinstance(several, str) or not isinstance(several, Iterable):
            raise ValueError(f"{name} is {several!r}; pass a list of numbers")
    if not steps:
        raise ValueError("steps is empty; pass numbers of steps, e.g. 10,100,1000")
    for count in steps:
        validate.whole(steps=count)
    for rate in rates:
        validate.open_unit(rate=rate)
    rows = []
    persons = unit.counted()
    for sampling in samplings(budget.adjacency, () if persons > 1 else rates):
        share = 1.0 if len(sampling) == 1 else sampling[1]
        for count in sorted(set(steps)):
            accountant, noises = _noises(budget, sampling, count)
            noise = noises[accountant]
            assert noise is not None
            batch = share * size
            ratio = persons * math.sqrt(features + 1) * noise / batch
            others = tuple((name, value) for name, value in noises.items() if name != accountant)
            priced = sampling, count, noise, accountant, others
            rows.append(PlanRow(*priced, batch, share * count, noise * clip / batch, ratio, ratio / math.sqrt(count)))
    return rows


def samplings(adjacency: str, rates: Sequence[float]) -> list[Sampling]:
    """Full batch, Poisson batches and, where they have a price, batches of fixed size."""
    kept = sorted(set(rates))
    fixed: list[Sampling] = [("fixed", rate) for rate in kept] if adjacency == "replace_one" else []
    return [FULL, *(("poisson", rate) for rate in kept), *fixed]


def sampling_name(sampling: Sampling) -> str:
    """In words.

    >>> sampling_name(("poisson", 0.01))
    'Poisson 1 %'
    """
    match sampling:
        case ("poisson", rate):
            return f"Poisson {100 * rate:g} %"
        case ("fixed", rate):
            return f"fixed {100 * rate:g} %"
    return "full batch"


def records_needed(rows: Sequence[PlanRow], *, size: int, ratios: Sequence[float] = RATIOS) -> list[Need]:
    """For each way of sampling, at its least noisy number of steps: the records that give each ratio."""
    best = _least_noisy(rows)
    return [
        Need(row.sampling, row.steps, ratio, math.ceil(row.run_ratio * size / ratio * (1 - 1e-12)))
        for row in best.values()
        for ratio in ratios
    ]


def in_words(rows: Sequence[PlanRow]) -> str:
    """Which choice has the least noise for the same budget, and what the others cost."""
    best = _least_noisy(rows)
    least = min(best.values(), key=lambda row: row.run_ratio)
    if least.run_ratio > 0.99 * best[FULL].run_ratio:
        least = best[FULL]  # a tie goes to the simpler choice
    where = "whatever the number of steps" if least.sampling == FULL else f"with {least.steps:,} steps"
    lines = [
        f"{_capital(sampling_name(least.sampling))} has the least noise for this budget: averaged over a run, it is "
        f"{least.run_ratio:.3g} times the clip norm, {where}."
    ]
    for sampling in best:
        if sampling != least.sampling:
            of_kind = [row for row in rows if row.sampling == sampling]
            costs = " and ".join(
                f"{row.run_ratio / least.run_ratio:.2f} times as much with {row.steps:,} steps"
                for row in dict.fromkeys((of_kind[0], of_kind[-1]))
            )
            share = 100 * sampling[1] if len(sampling) == 2 else 100
            lines.append(f"{_capital(sampling_name(sampling))}: {costs}; a step reads {share:g} % of the records.")
    if least.run_ratio > 1:
        lines.append("The noise is longer than any mean gradient can be: have more records or a larger budget.")
    else:
        lines.append(
            "A mean gradient is never longer than the clip norm, and shorter near the optimum: aim well below 1."
        )
    return "\n".join(lines)


def persons_in_words(rows: Sequence[PlanRow], unit: Unit) -> str:
    """What it costs that several rows of a person count.

    >>> persons_in_words(plan_rows(Budget(1.0, 1e-6), steps=[10], rates=[], unit=Unit(3)), Unit(3))[:58]
    'That 3 rows of a person count costs 3 times the noise: bes'
    """
    noise, k = _least_noisy(rows)[FULL].run_ratio, unit.most
    if k == 1:
        return "A person with one row that counts costs what a record costs."
    return (
        f"That {k} rows of a person count costs {k} times the noise: beside a row's clip norm, 1/{k} of a person's, it is "
        f"{noise:.3g} instead of {noise / k:.3g}, and it takes {k} times the records to make up for it. Batches are drawn "
        "of rows and have no price for persons."
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _least_noisy(rows: Sequence[PlanRow]) -> dict[Sampling, PlanRow]:
    """The row with the least noise over a run for each way of sampling; the fewest steps among equals."""
    best: dict[Sampling, PlanRow] = {}
    for row in rows:
        if row.sampling not in best or row.run_ratio < best[row.sampling].run_ratio * (1 - 1e-3):
            best[row.sampling] = row
    return best


@lru_cache(maxsize=256)
def _noises(budget: Budget, sampling: Sampling, steps: int) -> tuple[str, dict[str, float | None]]:
    """The accountant that asks for the least noise, and what each asks for that ``auto`` would ask."""

    def plan(noise: float) -> list[Event]:
        return [Repeated(sampled(sampling, Gaussian(noise)), steps)]

    noises: dict[str, float | None] = {}
    counts = leaves(plan(1.0))
    for name in names(lambda known: known.turn(counts) is not None and not (known.slow and sampling == FULL)):
        enough = min((noise for noise in noises.values() if noise is not None), default=None)
        try:
            if not accountant_named(name).slow:
                noises[name] = least_noise(plan, budget, name)
            else:
                noises[name] = None if enough is None else accountant_named(name).rough_scale(plan, budget, enough)
        except ValueError:
            noises[name] = None
    known = {name: noise for name, noise in noises.items() if noise is not None}
    if not known:
        raise ValueError(
            f"epsilon={budget.epsilon}, delta={budget.delta} cannot be met by any noise; pass a larger budget"
        )
    return min(known, key=known.__getitem__), noises
