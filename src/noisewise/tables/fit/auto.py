"""What ``method="auto"`` stands for: one rule for all tables, from declared facts alone."""

from __future__ import annotations

from typing import Any

from ...accounts import Budget
from ...guest import method_named
from ...methods import RECOMMENDED, Method
from ...methods.additive import AdditiveDescent
from ...methods.preparation.choices import Outline
from ...trusted.features import TableColumn
from ...trusted.units import RECORD, Unit
from .why_auto import AUTO, MAX_TABLE_COLUMNS, TABLES, AutoChoice


def method_for(
    method: str | Method,
    model: Any,
    columns: int | None,
    max_grad_norm: float | None = None,
    isolation: str = "sandbox",
) -> Method:
    """The method asked for; "auto" takes effects of columns and pairs where the model is left open, else descent.

    ``max_grad_norm``: instead of the method's own. ``isolation``: where a method of another package runs.
    """
    named = _auto(model, columns) if isinstance(method, str) and method == AUTO else method
    chosen = method_named(named, isolation)
    return chosen if max_grad_norm is None else chosen.with_settings(max_grad_norm=max_grad_norm)


def _auto(model: Any, columns: int | None) -> str:
    open_model = isinstance(model, str) and model == AUTO
    return TABLES if open_model and columns is not None and columns <= MAX_TABLE_COLUMNS else RECOMMENDED


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
