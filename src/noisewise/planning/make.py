"""Making a plan: from a size, columns and a budget, with no data and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _validate
from ..accounting.plan import RATES, STEPS, in_words, persons_in_words, plan_rows, records_needed
from ..accounting.terms import Budget
from ..events import Adjacency
from ..fitting.auto import choice_for, outline_for
from ..fitting.why import TABLES, Choice, why
from ..prepare.columns import TableColumn
from .expected import expected
from .plans import Plan
from .tuning import CANDIDATES, tunings
from .words import recommendation

if TYPE_CHECKING:
    from ..data.schema import Schema


def plan(
    epsilon: float,
    delta: float,
    *,
    size: int,
    columns: int | None = None,
    schema: Schema | str | Path | None = None,
    classes: int | None = 2,
    adjacency: Adjacency = "add_remove",
    rows_per_unit: int | None = None,
    candidates: Sequence[int] = CANDIDATES,
    steps: Sequence[int] = STEPS,
    rates: Sequence[float] = RATES,
    clip: float = 1.0,
) -> Plan:
    """What (epsilon, delta) buys for ``size`` records of ``columns`` numbers, or of what a ``schema`` declares.

    ``classes`` of the target, None for a number; a schema with a target says it instead. ``rows_per_unit``: rows of a person
    that count, where a person is protected. ``candidates``: numbers of settings to price tuning for.

    >>> made = plan(1.0, 1e-6, size=20_000, columns=14, candidates=(1,), steps=(10,), rates=())
    >>> made.method, made.expected.low <= made.expected.mid <= made.expected.high
    ('additive', True)
    """
    budget = Budget(epsilon, delta, adjacency=adjacency)
    if (columns is None) == (schema is None):
        raise ValueError("pass columns, how many numbers a record has, or schema, what the columns are: one of the two")
    if classes is not None:
        _validate.whole(at_least=2, classes=classes)
    table, features, declared, target = _table_of(columns, schema)
    if target is not None:
        classes = target or None
    kept_rows = declared if rows_per_unit is None else rows_per_unit
    rows = plan_rows(budget, size=size, features=features, steps=steps, clip=clip, rates=rates, rows_per_unit=kept_rows)
    words = in_words(rows) if kept_rows is None else f"{in_words(rows)}\n{persons_in_words(rows, kept_rows)}"
    choice = choice_for(table, budget, size, rows_per_unit=kept_rows)
    clarity = size * choice.mu / (kept_rows or 1)
    simulated = choice.method == TABLES
    ways = tunings(budget, clarity, len(table) if simulated else None, classes, candidates)
    kept = expected(clarity, len(table), classes) if simulated else None
    return Plan(
        budget=budget,
        size=size,
        columns=len(table),
        parameters=features + 1,
        classes=classes,
        clip=clip,
        rows_per_unit=kept_rows,
        clarity=clarity,
        method=choice.method,
        features=_features(choice, table, budget, with_schema=schema is not None, rows_per_unit=kept_rows),
        why=why(choice),
        rows=tuple(rows),
        words=words,
        records_needed=tuple(records_needed(rows, size=size)),
        expected=kept,
        tuning=ways,
        recommendation=recommendation(budget, size, len(table), classes, clarity, kept, ways),
    )


def _table_of(
    columns: int | None, given: Schema | str | Path | None
) -> tuple[tuple[TableColumn, ...], int, int | None, int | None]:
    """The columns of a table (without a schema, all numbers), how many features a linear model of it has, rows of a person
    that count, and classes of the target (0 for a number), where a schema says so."""
    from ..data.encode import Encoder
    from ..data.resolve import with_imagined_bounds
    from ..data.schema import Schema, gaps, read_schema
    from ..data.tables import columns_of

    if given is None:
        assert columns is not None
        _validate.whole(columns=columns)
        return tuple(TableColumn(f"x{i}", (0.0, 1.0), (0.0, 1.0)) for i in range(columns)), columns, None, None
    schema = given if isinstance(given, Schema) else read_schema(Path(given))
    if left := [gap for gap in gaps(schema) if gap.what != "bounds"]:
        raise ValueError(f"{'the schema' if isinstance(given, Schema) else given}: {left[0]}")
    declared = with_imagined_bounds(schema)
    target = None if declared.target is None else len(declared[declared.target].categories or ())
    return columns_of(declared), len(Encoder(declared).low), declared.rows_per_unit, target


def _features(
    choice: Choice,
    table: tuple[TableColumn, ...],
    budget: Budget,
    *,
    with_schema: bool,
    rows_per_unit: int | None,
) -> dict[str, Any]:
    """What "auto" would make of such a table, by the rules that it follows."""
    assert choice.size is not None
    made = outline_for(table, budget, choice.size, rows_per_unit)
    told = {"knots": choice.knots, "pairs": choice.pairs or 0, "ranks": choice.ranks or 0.0}
    if with_schema and made is not None:
        told |= {"coordinates": made.coordinates, "pair_coordinates": made.pair_coordinates}
    return told
