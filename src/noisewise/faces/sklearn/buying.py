"""``bounds="buy"``: a part of the budget buys bounds that are not declared, and the rest trains.

Everything is first checked with imagined bounds, so that nothing is paid for rows that could not be trained on.

*Guarantee*: that of :mod:`noisewise.tables.bought`; what is left of the budget trains, and the statement has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from ...accounts.account import Account, account_of
from ...accounts.purse import Purse
from ...tables.bought import Purchase, purchase
from ...tables.encode import NOT_ENCODED, cells_of, numbers_of
from ...tables.files import Dialect, Paths, open_source
from ...tables.fit.build import DECLARED, Origin, budget_of, seed_of
from ...tables.fit.fit import Fit
from ...tables.refusal import our_words
from ...tables.resolve import Resolved, with_imagined_bounds
from ...tables.rows import interval
from ...tables.schema import Column, Schema, gaps
from ...train import refuse_every_rank
from ...trusted.stores.grid import NO_CLASS, NO_LABEL
from .checks import bare_table, private_labels, private_rows

Array = NDArray[Any]
BOUNDS_SHARE = 0.2  # of epsilon, by default
TARGET = "target"  # the name of y where no schema names it


def bought_ready(face: Any, X: Any, y: Any, public: Any, purse: Purse | Account | None) -> Fit:
    """The fit of ``fit``, once its bounds are bought."""
    _refuse_every_rank(face, purse)
    columns = _columns(face, X)
    deal = _deal(face, columns)
    imagined = _declared(face, with_imagined_bounds(columns)).ready(X, y, public)
    assert imagined.private is not None
    imagined.before(deal.budget.epsilon, deal.budget.delta).check(
        public=public is not None, records=len(imagined.private.y)
    )
    pieces = partial(_pieces, face, X, y, deal, imagined)
    schema, paid = deal.paid_for(pieces, purse, seed=seed_of(face.random_state))
    ready = _declared(face, schema).ready(X, y, public, counted=imagined.private.counted)
    return replace(ready, preparation=paid, assumed=_assumed(ready, deal))


def bought_files(face: Any, paths: Paths, purse: Purse | Account | None, reading: dict[str, Any]) -> Fit:
    """The fit of ``fit_files``, once its bounds are bought."""
    if not isinstance(face.schema, Schema):
        raise ValueError(
            "schema must be a Schema with a target to train on files; it may leave bounds out where they are bought"
        )
    _refuse_every_rank(face, purse)
    columns, public = _of_schema(face), reading.get("public") is not None  # whose rows they are may be said in both
    deal = _deal(face, columns)
    source = open_source(paths, separator=Dialect.of(reading.get("separator"), reading.get("decimal")))
    planned = _declared(face, with_imagined_bounds(columns)).planned()
    words = f"{Origin().words}; bounds bought where nothing declares them"
    records = Resolved(source, columns, words, "declared").look()
    planned.before(deal.budget.epsilon, deal.budget.delta).check(public=public, records=records)
    schema, paid = deal.bounds(source, purse, seed=seed_of(face.random_state))
    return _declared(face, schema).ready_files(paths, **{**reading, "origin": Origin(words, "declared", paid)})


def _refuse_every_rank(face: Any, purse: Purse | Account | None) -> None:
    """Refuse here what training refuses later, because bounds are paid for first."""
    if seed_of(face.random_state) is None:
        refuse_every_rank(account_of(purse) or purse)


def _columns(face: Any, X: Any) -> Schema:
    """The declared columns, of a schema or of an array of numbers; missing bounds are to be bought."""
    if isinstance(face.schema, Schema):
        return _of_schema(face)
    if face.schema is not None:
        raise ValueError(
            "bounds='buy' goes with a noisewise.Schema that leaves bounds out, or with none; not with a dict"
        )
    if not isinstance(face.bounds, str):
        raise ValueError("target_bounds='buy' goes with bounds='buy', or with a noisewise.Schema; pass one of them")
    names = bare_table(X)
    width = private_rows(_features(X, face.unit)).shape[1]
    known = [f"x{i}" for i in range(width)] if names is None else [str(n) for n in names.columns if str(n) != face.unit]
    made = [Column(name, "number") for name in known]
    if not isinstance(face, RegressorMixin):
        return Schema(tuple(made), None, face.unit, face.rows_per_unit)
    label = _target(face, Column(_fresh_name(known), "number"))
    return Schema((*made, label), label.name, face.unit, face.rows_per_unit)


def _of_schema(face: Any) -> Schema:
    schema = face.schema
    schema = replace(schema, unit=face.unit or schema.unit, rows_per_unit=face.rows_per_unit or schema.rows_per_unit)
    if not isinstance(face, RegressorMixin):
        return schema
    if schema.target is None:
        raise ValueError(
            "the schema names no target, whose bounds a regression needs; set target, with kind = 'number'"
        )
    label = schema[schema.target]
    said = label.low is not None or face.target_bounds is None or isinstance(face.target_bounds, str)
    return schema if said else schema.with_column(_target(face, label))


def _target(face: Any, label: Column) -> Column:
    """The target with its declared bounds, or without bounds if they are to be bought."""
    if isinstance(face.target_bounds, str):
        return label
    if face.target_bounds is None:
        raise ValueError("target_bounds is missing; pass (low, high), what y can be, or target_bounds='buy'")
    low, high = interval("target_bounds", face.target_bounds)
    return replace(label, low=low, high=high)


def _features(X: Any, unit: str | None) -> Any:
    return X if unit is None else X[[name for name in X.columns if str(name) != unit]]


def _fresh_name(names: list[str]) -> str:
    return next(name for name in (TARGET, *(f"{TARGET}_{i}" for i in range(len(names) + 1))) if name not in names)


def _deal(face: Any, columns: Schema) -> Purchase:
    budget, share = budget_of(face.get_params(deep=False)), face.bounds_epsilon
    deal = purchase(columns, epsilon=BOUNDS_SHARE * budget.epsilon if share is None else share, budget=budget)
    if not deal.columns:
        raise ValueError("every bound is declared already; leave bounds='buy' out, all of epsilon then trains")
    if other := [gap for gap in gaps(columns) if gap.what not in ("bounds", "target")]:
        raise ValueError(f"{other[0]}; only bounds of numbers can be bought")
    return deal


def _declared(face: Any, schema: Schema) -> Any:
    """The same estimator with these bounds declared."""
    own = {name: value for name, value in face.get_params(deep=False).items() if name != "bounds_epsilon"}
    label = None if schema.target is None else schema[schema.target]
    if "target_bounds" in own and label is not None:
        own["target_bounds"] = (label.low, label.high)
    if isinstance(face.schema, Schema):
        own |= {"schema": schema, "bounds": None, "unit": None, "rows_per_unit": None}
    else:
        own["bounds"] = [(column.low, column.high) for column in schema.features]
    return type(face)(**own).watch(getattr(face, "_progress", None))._of(face)


def _pieces(face: Any, X: Any, y: Any, deal: Purchase, ready: Fit) -> Iterator[Array]:
    """The columns whose bounds are bought, of rows that count. Records without a label have NaN, which is in no bin."""
    schema, unit = deal.schema, deal.schema.unit
    with our_words(NOT_ENCODED.format("a column")):
        if isinstance(face.schema, Schema):
            places = {str(name): place for place, name in enumerate(X.columns)}
            held = {
                column.name: numbers_of(cells_of(X, places[column.name], column), column)
                for column in deal.columns
                if column.name != schema.target
            }
        else:
            rows = private_rows(_features(X, unit))
            held = dict(zip([column.name for column in schema.features], rows.T, strict=True))
        if schema.target in [column.name for column in deal.columns]:
            held[str(schema.target)] = private_labels(y, numeric=True, dropped=True)
        matrix = np.column_stack([np.asarray(held[column.name], np.float64) for column in deal.columns])
        assert ready.private is not None
        matrix = matrix if ready.private.counted is None else matrix[ready.private.counted]
        numbers = ready.private.y
        matrix[numbers == (NO_CLASS if numbers.dtype.kind == "i" else NO_LABEL)] = np.nan
    yield matrix


def _assumed(ready: Fit, deal: Purchase) -> tuple[str, ...]:
    """The assumptions of the statement, from which bounds that were bought are taken out."""
    if ready.encoder is not None:
        words = Origin().words
        return tuple(
            f"{one}; bounds bought where nothing declares them" if one == words else one for one in ready.assumed
        )
    bought = {column.name for column in deal.columns}
    gone = {DECLARED.format("target")} if deal.schema.target in bought else set()
    gone |= {DECLARED.format("features")} if bought - {deal.schema.target} else set()
    return tuple(one for one in ready.assumed if one not in gone)
