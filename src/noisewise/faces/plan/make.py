"""Making a plan: from a size, columns and a budget, with no data and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...accounts.paying import planned_budget
from ...tables.fit.auto import choice_for, outline_for
from ...tables.fit.why_auto import TABLES, AutoChoice, why
from ...trusted import validate
from ...trusted.accountants.plan import RATES, STEPS, in_words, persons_in_words, plan_rows, records_needed
from ...trusted.accountants.terms import Budget
from ...trusted.events import Adjacency
from ...trusted.features import TableColumn
from ...trusted.units import RECORD, Unit
from .expected import expected
from .plans import CANDIDATES, Plan, recommendation, tunings

if TYPE_CHECKING:
    from ...accounts.ledger import Ledger
    from ...tables.schema import Schema

MAX_COLUMNS = 1_000_000


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

    ``classes`` of the target, None for a number; a schema with a target says it instead. ``rows_per_unit``: rows of a person
    that count, where a person is protected. ``candidates``: numbers of settings to price tuning for. ``ledger`` and
    ``dataset``: plan from what that account has left; epsilon and delta are then the largest that fit, unless they are said.

    >>> made = plan(1.0, 1e-6, size=20_000, columns=14, candidates=(1,), steps=(10,), rates=())
    >>> made.method, made.expected.low <= made.expected.mid <= made.expected.high
    ('additive', True)
    """
    if epsilon is not None and delta is not None:
        Budget(epsilon, delta, adjacency or "add_remove")  # refused before the rest is looked at
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
        budget=budget,
        size=size,
        columns=width,
        parameters=table.features + 1,
        classes=classes,
        clip=clip,
        unit=unit,
        clarity=clarity,
        method=choice.method,
        features=_features(choice, table, budget, unit),
        why=why(choice),
        rows=tuple(rows),
        words=words,
        records_needed=tuple(records_needed(rows, size=size)),
        expected=kept,
        tuning=ways,
        recommendation=recommendation(budget, size, width, classes, clarity, kept, ways),
    )


@dataclass(frozen=True)
class _Table:
    """Columns (without a schema, all numbers), how many ``features`` a linear model of them has, rows of a person that
    count, and classes of the target, 0 for a number and None where no schema says it."""

    columns: tuple[TableColumn, ...]
    features: int
    unit: Unit = RECORD
    classes: int | None = None
    declared: bool = False


def _table_of(columns: int | None, given: Schema | str | Path | None) -> _Table:
    from ...tables.encode import Encoder
    from ...tables.resolve import with_imagined_bounds
    from ...tables.schema import Schema, gaps, read_schema
    from ...tables.table_columns import columns_of

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
    """What "auto" would make of such a table, by the rules that it follows."""
    assert choice.size is not None
    made = outline_for(table.columns, budget, choice.size, unit)
    told = {"knots": choice.knots, "pairs": choice.pairs or 0, "ranks": choice.ranks or 0.0}
    if table.declared and made is not None:
        told |= {"coordinates": made.coordinates, "pair_coordinates": made.pair_coordinates}
    return told
