"""Arguments of the public functions: numbers of every size and kind, where a budget, a plan or a price is asked for."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any

import numpy as np

import noisewise as nw
from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, PlanMeter, Terms, open_meter
from noisewise.trusted.accountants.choose import choose_terms
from noisewise.trusted.events import (
    ApproximateDP,
    AtOrder,
    BoundedRange,
    Composed,
    FixedBatch,
    Gaussian,
    Poisson,
    Repeated,
)

from .core import target
from .mutate import odd, reshaped
from .parsers import SCHEMA

EPSILONS = (0.01, 0.5, 1.0, 1, 8.0, 1e6, 1e-9, np.float64(1.0), np.float32(0.5), np.int64(2))
DELTAS = (1e-15, 1e-8, 1e-6, 1e-5, 0.1, 0.999, np.float64(1e-6))
RELATIONS = ("add_remove", "replace_one")
ACCOUNTANTS = ("auto", "gdp", "zcdp", "rdp", "pld", "tcdp", "ctcdp", "moments", "advanced", "basic")
SAMPLINGS = (("full",), ("poisson", 0.01), ("poisson", 1.0), ("fixed", 0.1), ("poisson", 2.0**-40))
NOISES = (1e-6, 0.5, 1.0, 4.0, 100.0, 1e6, 1e12)


def some(rng: Random, usual: tuple[Any, ...], strange: float = 0.25) -> Any:
    """A usual value, or with some probability anything."""
    return odd(rng) if rng.random() < strange else rng.choice(usual)


@target("Budget", lambda rng: (some(rng, EPSILONS), some(rng, DELTAS), some(rng, RELATIONS)), weight=2)
def budget(given: tuple[Any, ...]) -> None:
    Budget(*given)


@target(
    "Budget.from_gdp, from_zcdp", lambda rng: (some(rng, EPSILONS), some(rng, DELTAS), rng.random() < 0.5), weight=0.2
)
def budgets_from(given: tuple[Any, Any, bool]) -> None:
    (Budget.from_gdp if given[2] else Budget.from_zcdp)(given[0], given[1])


def event(rng: Random, depth: int = 0) -> Any:
    """An event, or an argument that makes none."""
    kind = rng.randrange(9 if depth < 2 else 6)
    if kind < 3:
        return lambda: Gaussian(some(rng, NOISES, 0.1))
    if kind == 3:
        return lambda: BoundedRange(some(rng, EPSILONS, 0.1))
    if kind == 4:
        return lambda: ApproximateDP(some(rng, EPSILONS, 0.1), some(rng, DELTAS, 0.1))
    if kind == 5:
        return lambda: AtOrder(some(rng, (2, 8, 1024), 0.1), some(rng, (0.1, 5.0), 0.1))
    inner = event(rng, depth + 1)
    if kind == 6:
        batch = rng.choice((Poisson, FixedBatch))
        return lambda: batch(some(rng, (1e-3, 0.5, 1.0, 2.0**-40), 0.1), inner())
    if kind == 7:
        return lambda: Repeated(inner(), some(rng, (0, 1, 3, 10**15), 0.1))
    return lambda: Composed((inner(), event(rng, depth + 1)()))


QUICK = ("gdp", "zcdp", "tcdp", "ctcdp", "advanced", "basic")


@target(
    "epsilon",
    lambda rng: (event(rng), some(rng, DELTAS), some(rng, RELATIONS, 0.05), some(rng, QUICK, 0.05)),
    weight=0.5,
)
def epsilon(given: tuple[Any, ...]) -> None:
    made = given[0]()
    price = nw.epsilon(made, delta=given[1], adjacency=given[2], accountant=given[3])
    assert price >= 0


@target(
    "epsilon, every accountant",
    lambda rng: (event(rng), some(rng, DELTAS), some(rng, RELATIONS, 0.05), some(rng, ACCOUNTANTS, 0.05)),
    weight=0.05,
)
def epsilon_by_all(given: tuple[Any, ...]) -> None:
    epsilon(given)


def run_asked(rng: Random) -> dict[str, Any]:
    return {
        "budget": (some(rng, (0.1, 1.0, 8.0), 0.1), some(rng, (1e-8, 1e-5), 0.1), some(rng, RELATIONS, 0.05)),
        "steps": some(rng, (1, 10, 300)),
        "sampling": some(rng, SAMPLINGS, 0.2),
        "accountant": some(rng, QUICK, 0.2),
        "shape": rng.choice((None, None, None, [1.0], [1, 2, 3], odd(rng))),
    }


@target("calibrate", run_asked, weight=0.5)
def calibrate(given: dict[str, Any]) -> None:
    rest = {name: value for name, value in given.items() if name != "budget"}
    nw.calibrate(Budget(*given["budget"]), **rest)


@target("explain", run_asked, weight=0.0005, seconds=60)  # it prices a run by every accountant
def explain(given: dict[str, Any]) -> None:
    str(nw.explain(Budget(*given["budget"]), steps=given["steps"], sampling=given["sampling"], size=given["shape"]))


def plan_asked(rng: Random) -> dict[str, Any]:
    return {
        "epsilon": some(rng, EPSILONS, 0.1), "delta": some(rng, DELTAS, 0.1), "size": some(rng, (10, 20_000, 10**9), 0.2),
        "columns": some(rng, (1, 14), 0.2), "classes": some(rng, (2, None), 0.2), "adjacency": some(rng, RELATIONS, 0.05),
        "rows_per_unit": some(rng, (None, 1, 3), 0.2), "candidates": some(rng, ((1,), (3,)), 0.1), "steps": some(rng, ((1,), (10,)), 0.1),
        "rates": some(rng, ((), ()), 0.1), "clip": some(rng, (1.0, 0.5), 0.1),
    }  # fmt: skip


@target("plan", plan_asked, weight=0.2)
def plan(given: dict[str, Any]) -> None:
    str(nw.plan(given.pop("epsilon"), given.pop("delta"), **given))


def terms_asked(rng: Random) -> tuple[Any, ...]:
    kind = some(rng, ("plan", "adaptive"), 0.1)
    events = rng.choice(((), (Gaussian(30.0),), (Repeated(Gaussian(30.0), 3),), odd(rng)))
    return kind, some(rng, QUICK, 0.1), events, some(rng, (None, 2, 20, 1024), 0.1), some(rng, (0.0, 0, 1e-7), 0.1)


@target("Terms, open_meter", terms_asked, also=(BudgetExhausted,))
def terms(given: tuple[Any, ...]) -> None:
    meter = open_meter(Budget(1.0, 1e-6), Terms(*given))
    assert type(meter) in (AdditiveMeter, PlanMeter)


def spent_on(rng: Random) -> tuple[Any, ...]:
    return (
        some(rng, ("gdp", "zcdp", "ctcdp"), 0.05),
        [event(rng) for _ in range(3)],
        some(rng, (0.5, 1.0, 1e-9)),
        some(rng, SAMPLINGS),
    )


@target("meter: spend, affords, noise_for", spent_on, also=(BudgetExhausted,), weight=0.5)
def meters(given: tuple[Any, ...]) -> None:
    meter = AdditiveMeter(Budget(1.0, 1e-6), given[0], one_shot_delta=1e-7)
    for make in given[1]:
        asked = make()
        if meter.affords(asked):
            meter.spend(asked)
        assert meter.spent_fraction <= 1
    meter.noise_for(given[2], given[3])


@target(
    "spending (account)",
    lambda rng: (
        some(rng, EPSILONS),
        some(rng, (None, *DELTAS)),
        some(rng, ("patients", "a\nb"), 0.3),
        some(rng, ("record", "person"), 0.2),
        some(rng, (None, "gdp", "rdp"), 0.2),
    ),
)
def accounts(given: tuple[Any, ...]) -> None:
    epsilon, delta, dataset, unit, own = given
    repr(nw.spending(epsilon, delta, dataset, unit=unit, terms=own))


@target(
    "choose_terms",
    lambda rng: (
        some(rng, (True, False)),
        some(rng, SAMPLINGS),
        some(rng, (None, 10)),
        some(rng, (None, "gdp", "zcdp", "pld")),
    ),
    weight=0.5,
)
def terms_chosen(given: tuple[Any, ...]) -> None:
    choose_terms(Budget(1.0, 1e-6), adaptive=given[0], sampling=given[1], steps=given[2], meter=given[3])


@target(
    "Schema, from keywords",
    lambda rng: (
        {
            f"c{i}": some(rng, ((0, 1), ["a", "b"], "ignore", {"kind": "number", "low": 0, "high": 1}), 0.5)
            for i in range(3)
        }
        | {"target": some(rng, ("c0", None), 0.3)}
    ),
    weight=2,
)
def schema_keywords(given: dict[str, Any]) -> None:
    nw.Schema(**given).to_toml()


def column_asked(rng: Random) -> Any:
    name, fields = rng.choice(list(SCHEMA["columns"].items()))
    return reshaped({"name": name, "note": "", **fields}, rng)


@target("Column", column_asked, weight=2)
def column(given: Any) -> None:
    if isinstance(given, dict) and set(given) <= {field.name for field in fields(nw.Column)} and "name" in given:
        nw.Column(**given)
