"""The public facts of a run, and the answers that a curator returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from .accountants.terms import Budget
from .events import rebuilt
from .features import TableColumn
from .models import Additive, Model
from .units import RECORD, Unit
from .units import Released as Released

OF_MODEL = ("dimension", "features", "outputs", "groups", "linear", "coordinates", "tensors")
OF_LOSS = ("task", "lipschitz", "smoothness", "typical_clip", "typical_norm", "learning", "effect_clip")


@dataclass(frozen=True)
class Facts:
    """What anyone may know: declared, public or released. ``size`` is None until it is declared or bought."""

    size: float | None
    size_is_public: bool
    dimension: int
    features: int
    outputs: int
    row_bound: float
    loss: str
    task: str
    lipschitz: float
    smoothness: float
    budget: Budget
    groups: tuple[int, ...] = ()
    linear: bool = False  # what the model can do, and what its loss says of itself
    coordinates: bool = False
    tensors: bool = False
    typical_clip: float = 1.0
    typical_norm: float = 1.0
    learning: float = 1.0
    effect_clip: float = 0.5
    table: tuple[TableColumn, ...] = ()  # what is declared of a table's columns
    unit: Unit = RECORD  # what is protected
    rows_per_unit = property(lambda self: self.unit.rows)  # for methods, by its first name; None: of a record


def facts_of(model: Model, budget: Budget, *, size: float | None, row_bound: float, unit: Unit = RECORD) -> Facts:
    """The facts of a run before the first answer."""
    known: dict[str, Any] = {name: getattr(model, name) for name in OF_MODEL}
    return Facts(
        size=None if size is None else float(size),
        size_is_public=size is not None,
        row_bound=row_bound,
        loss=model.loss.name,
        budget=replace(budget),  # code that gets the facts could write into it
        table=tuple(map(replace, model.columns)) if isinstance(model, Additive) else (),
        unit=unit,
        **known,
        **{name: getattr(model.loss, name) for name in OF_LOSS},
    )


def facts_of_columns(budget: Budget, columns: int) -> Facts:
    """What is known before there is a model: the columns, and what may be spent on them."""
    return Facts(None, False, 0, columns, 0, math.inf, "", "", math.inf, math.inf, replace(budget))


def resized(facts: Facts, model: Model, *, row_bound: float) -> Facts:
    """The facts when rows are those of another model."""
    return replace(facts, features=model.features, dimension=model.dimension, groups=model.groups, row_bound=row_bound)


def shown(facts: Facts) -> Facts:
    """A copy to hand out: writing into it changes no price and no check."""
    return replace(facts, budget=replace(facts.budget), table=tuple(map(replace, facts.table)))


def shown_trace(trace: Sequence[Released]) -> tuple[Released, ...]:
    """A copy of the trace with its own events: changing one changes nothing here."""
    return tuple(line._replace(event=rebuilt(line.event)) for line in trace)


class Answer(NamedTuple):
    """What was released, and the standard deviation of the noise known to be on each coordinate of it.

    For a gradient in other coordinates: of each coordinate in which records were clipped.
    """

    value: NDArray[Any]
    noise_std: float
    below: float | None = None  # a gradient with a count: the released share of records whose gradient is short
