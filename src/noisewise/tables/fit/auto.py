"""What ``method="auto"`` does with a table, by one rule for all tables, and why, from public and released facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...accounts import Budget
from ...methods.additive import AdditiveDescent
from ...methods.preparation.choices import KNOTS, MAX_HATS, MIN_CLARITY_FOR_PAIRS, Outline
from ...statements.statement import training_budget
from ...trusted.accountants.gdp import mu_of
from ...trusted.features import TableColumn
from ...trusted.questions.columns import ColumnLevels
from ...trusted.units import RECORD, Unit
from .build import AUTO, MAX_TABLE_COLUMNS, TABLES, method_for

BOUGHT, PUBLIC = "bought", "public"  # sizes
RANKS = ColumnLevels.name  # the question that buys ranks


@dataclass(frozen=True)
class AutoChoice:
    """A choice of "auto" and the facts that it was made of; ``knots``, ``pairs`` and ``ranks`` are None while open.

    ``scaled`` columns have a declared scale other than linear, ``declared`` ones knots of their own. ``known``: where
    the size is from. ``ranks`` is a share of the budget, ``pairs`` a number of columns.
    """

    method: str
    model: Any
    columns: int
    numbers: int
    scaled: int
    declared: int
    epsilon: float
    delta: float
    adjacency: str
    size: float | None
    known: str
    knots: int | None = None
    pairs: int | None = None
    ranks: float | None = None

    @property
    def mu(self) -> float:
        """What the budget is worth in Gaussian DP."""
        return mu_of(self.epsilon, self.delta) / (2 if self.adjacency == "replace_one" else 1)


def outline_for(columns: tuple[TableColumn, ...], budget: Budget, size: float, unit: Unit = RECORD) -> Outline | None:
    """What such a table becomes where "auto" makes features of its columns; None where it does not."""
    return AdditiveDescent().outline(columns, size, budget, unit) if len(columns) <= MAX_TABLE_COLUMNS else None


def choice_for(
    columns: tuple[TableColumn, ...],
    budget: Budget,
    size: float | None,
    model: Any = AUTO,
    known: str = "given",
    unit: Unit = RECORD,
) -> AutoChoice:
    """What "auto" does with such a table; ``size`` is None while nobody has said it, ``known`` says where it is from."""
    method = method_for(AUTO, model, len(columns))
    made = None if size is None or method.name != TABLES else outline_for(columns, budget, size, unit)
    numbers = [column for column in columns if column.number]
    return AutoChoice(
        method=method.name,
        model=model if isinstance(model, str) else list(model),
        columns=len(columns),
        numbers=len(numbers),
        scaled=sum(len(column.points) > 2 and column.knots is None for column in numbers),
        declared=sum(column.knots is not None for column in numbers),
        epsilon=budget.epsilon,
        delta=budget.delta,
        adjacency=budget.adjacency,
        size=size,
        known=known,
        knots=None if made is None else made.knots,
        pairs=None if made is None else made.pairs,
        ranks=None if made is None else made.ranks,
    )


def why(choice: AutoChoice) -> str:
    """The choice and its reasons, in one paragraph."""
    if choice.method != TABLES:
        if choice.model != AUTO:
            return f"auto takes {choice.method}: the model was asked for as {choice.model!r}, and this trains it."
        return (
            f"auto takes {choice.method} and a linear model: {_many(choice.columns, 'column')} are more than "
            f"{MAX_TABLE_COLUMNS}, so that values hardly mean something one by one."
        )
    return " ".join([_taken(choice), *(_open(choice) if choice.size is None else _made(choice, choice.size))])


def _taken(choice: AutoChoice) -> str:
    counts = ((choice.numbers, "number", "numbers"), (choice.columns - choice.numbers, "category", "categories"))
    kinds = " and ".join(_many(*one) for one in counts if one[0])
    return (
        f"auto takes {choice.method}, effects of columns and of pairs of them: the model was left open, and the table has "
        f"{_many(choice.columns, 'column')} ({kinds}), not more than {MAX_TABLE_COLUMNS}."
    )


def _open(choice: AutoChoice) -> list[str]:
    follows = (
        f"How many hats a number gets, what ranks cost and whether columns are paired follows from the number of records, "
        f"which is not known yet, and from the budget: {_budget(choice)}."
    )
    return [follows, *_scales(choice)]


def _made(choice: AutoChoice, size: float) -> list[str]:
    clarity = size * choice.mu
    told = [f"n mu is {clarity:,.0f}: {size:,.0f} records ({choice.known}), and {_budget(choice)}."]
    if choice.knots is not None and choice.numbers > choice.declared:
        told.append(
            f"So a number has {choice.knots} hats ({KNOTS:g} n mu / columns, from 3 to {MAX_HATS}) where no knots are declared."
        )
    told += _scales(choice)
    if choice.ranks:
        told.append(f"{_percent(choice.ranks)} of the budget is for ranks, quantiles of numbers: bounds may be loose.")
    enough = f"n mu {'reaches' if clarity >= MIN_CLARITY_FOR_PAIRS else 'is below'} {MIN_CLARITY_FOR_PAIRS:,.0f}"
    if choice.pairs:
        told.append(f"The {choice.pairs} columns with the largest effects are paired with each other ({enough}).")
    else:
        told.append(f"No columns are paired ({enough}).")
    return told


def _scales(choice: AutoChoice) -> list[str]:
    kinds = ((choice.scaled, "a log scale"), (choice.declared, "declared knots"))
    said = [f"{_many(count, 'number')} {'has' if count == 1 else 'have'} {what}" for count, what in kinds if count]
    return [f"{', '.join(said)}."] if said else []


def _budget(choice: AutoChoice) -> str:
    halved = ", halved by replace_one" if choice.adjacency == "replace_one" else ""
    return f"({choice.epsilon:g}, {choice.delta:g}) is worth mu = {choice.mu:.3g}{halved}"


def _many(count: int, word: str, several: str | None = None) -> str:
    return f"{count:,} {word if count == 1 else several or f'{word}s'}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def choice_of_run(
    run: Mapping[str, Any], statement: Mapping[str, Any], trace: Sequence[Mapping[str, Any]]
) -> AutoChoice | None:
    """The choice of a finished run, from what its folder holds; None where "auto" did not choose."""
    settings, prepared = run["settings"], run["preprocessing"]
    if settings.get("chosen_by") != AUTO:
        return None
    columns = _columns(prepared)
    blocks = (prepared.get("features") or {}).get("blocks", [])
    own = {number for number, column in enumerate(columns) if column.get("knots")}
    hats = [block["knots"] for block in blocks if "hats" in block and block["hats"] not in own]
    sides = [side for block in blocks for side in block.get("product", ())]
    method = statement["method"]["name"]
    budget = _trained(statement)
    return AutoChoice(
        method=method,
        model=settings["model"],
        columns=len(columns),
        numbers=sum(column["kind"] == "number" for column in columns),
        scaled=sum(column.get("scale") == "log" for column in columns),
        declared=len(own),
        epsilon=budget.epsilon,
        delta=budget.delta,
        adjacency=budget.adjacency,
        size=run.get("size"),
        known=statement["size"],
        knots=max(hats, default=None),
        pairs=len({side.get("hats", side.get("codes")) for side in sides}),
        ranks=_share(trace),
    )


def _columns(prepared: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The features: as the schema declares them, or numbers where bounds were given alone."""
    schema = prepared["schema"]
    if schema is None:
        return [{"kind": "number"} for _ in prepared["low"]]
    return [column for column in schema["columns"] if column["kind"] != "ignore" and column["name"] != schema["target"]]


def _trained(statement: Mapping[str, Any]) -> Budget:
    """The budget of the training: the promise without what was paid before."""
    promise, before = statement["promise"], statement["preparation"]
    whole = Budget(promise["epsilon"], promise["delta"], adjacency=promise["adjacency"])
    return whole if before is None else training_budget(whole, before)


def _share(trace: Sequence[Mapping[str, Any]]) -> float:
    """What ranks took of the budget."""
    before = [0.0, *(row["spent"] for row in trace)]
    return float(
        sum(row["spent"] - earlier for row, earlier in zip(trace, before, strict=False) if row["question"] == RANKS)
    )
