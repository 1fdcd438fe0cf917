"""The one builder of fits, for estimators, tables and files: a :class:`Fit` from arguments and declarations, and its rows.

The arguments are those of an estimator, as a dict; commands make them of their options. A dry run checks the fit that a
run would have. None of this needs scikit-learn.
"""

from __future__ import annotations

import numbers
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...accounts.budget_warnings import EPSILON
from ...methods import RECOMMENDED, Method, method_named, registry
from ...remote.processes import Lead
from ...train import Records
from ...trusted.accountants.terms import Budget
from ...trusted.losses import USUAL, ClassWeighted, Loss, loss_named
from ...trusted.models import MLP, Additive, Linear, Model
from ...trusted.process import own_settings
from ...trusted.stores.grid import Allocator, Mapped, in_memory
from ..encode import Encoder
from ..file_pieces import Pinned
from ..files import Dialect, Paths, Share, find_files, open_source
from ..persons import Mask, persons_of
from ..rows import MAX_BYTES_IN_MEMORY, Cells, Floats, Scaling, columns_of, interval, number_columns, read_rows
from ..schema import Schema
from .fit import Fit
from .labels import (
    Array,
    Classes,
    ClassesOrTarget,
    Target,
    class_weights,
    classes_in,
    declared_classes,
    numbers_of_files,
)

AUTO = "auto"
TABLES = "additive"  # the method that "auto" takes for a table
MAX_TABLE_COLUMNS = 128  # of a table; more are taken for pixels or the like, whose values mean nothing one by one
SETTINGS = "settings, chosen without the private rows"
CHECKED = "files checked against the schema before training"
DECLARED = "bounds of the {}, declared"
UNSAID = ("bounds", "schema", "bounds_epsilon")  # not among settings: preprocessing and the statement have them
WIDER = 16  # bytes of features that one byte of cells becomes at most, typically


@dataclass(frozen=True)
class Origin:
    """Where bounds and categories come from, in words, and what was paid for them before training."""

    words: str = "bounds and categories, declared in a schema"
    classes: str = "declared"
    preparation: Mapping[str, Any] | None = None


def fit_of(
    asked: Mapping[str, Any],
    method: Method,
    scaling: Scaling,
    encoder: Encoder | None,
    columns: Sequence[str] | None,
    *,
    numeric: bool,
    labels: Array | None = None,
    origin: Origin | None = None,
) -> Fit:
    """The fit of a regression (``numeric``) or of classes.

    Args:
        asked: an estimator's arguments.
        labels: those of the records, where they are at hand; of files the schema says what they are.
        origin: where bounds and categories of files come from; None for a table or an array.
    """
    if not isinstance(asked["size_is_public"], bool | np.bool_):
        raise ValueError(f"size_is_public is {asked['size_is_public']!r}; pass True or False")
    known: Model
    made: ClassesOrTarget
    assumed: tuple[str, ...] = (Origin().words if origin is None else origin.words,)
    if encoder is None:
        assumed = (DECLARED.format("features"),)
    assumed += (SETTINGS,) if origin is None else (SETTINGS, CHECKED)
    if numeric:
        made = Target(*_target_bounds(asked["target_bounds"], encoder, labels))
        loss = loss_named(asked["loss"])
        if loss.task != "regression":
            raise ValueError(f"loss is {loss.name!r}; pass loss={USUAL['regression']!r} for a regression")
        assumed += (DECLARED.format("target"),) if origin is None else ()  # an origin says where all bounds come from
    else:
        values, whence = _classes(asked["classes"], encoder, labels, origin)
        loss = classifier_loss(asked["loss"], method, values, asked["class_weight"])
        made, assumed = classes_for(values, loss), (*assumed, f"the classes, {whence}")
    known = model_for(asked["model"], scaling, loss, made)
    unit = asked.get("unit"), asked.get("rows_per_unit")
    own = None if unit == (None, None) else persons_of(*unit)
    return Fit(
        budget_of(asked),
        method,
        known,
        scaling,
        made,
        encoder,
        None if columns is None else tuple(columns),
        bool(asked["size_is_public"]),
        seed_of(asked["random_state"]),
        assumed,
        None if origin is None else origin.preparation,
        plain_settings(asked, method),
        own if encoder is None else encoder.schema.persons,
    )


def fit_of_files(
    schema: Schema,
    budget: Budget,
    method: str | Method,
    *,
    loss: str | Loss,
    model: str | tuple[int, ...],
    size_is_public: bool,
    seed: int | None,
    max_grad_norm: float | None = None,
    origin: Origin | None = None,
    isolation: str = "sandbox",
) -> Fit:
    """A fit of classes where the target is a category, else of a number; ``schema`` is complete.

    What estimators take beyond that (classes, weights, bounds of a target) a schema says, or nobody.
    """
    encoder = Encoder(schema)
    numeric = encoder.classes is None
    asked: dict[str, Any] = {
        "adjacency": budget.adjacency, "delta": budget.delta, "epsilon": budget.epsilon, "isolation": isolation, "loss": loss,
        "max_grad_norm": max_grad_norm, "method": method, "model": model, "random_state": seed, "size_is_public": size_is_public,
    }  # fmt: skip
    asked |= {"target_bounds": None} if numeric else {"classes": None, "class_weight": None}
    chosen = method_for(method, model, len(schema.features), max_grad_norm, isolation)
    scaling = scaling_of(encoder, chosen, unit_rows=not numeric)
    settings = dict(sorted(asked.items()))
    return fit_of(settings, chosen, scaling, encoder, names_of(encoder), numeric=numeric, origin=origin or Origin())


def budget_of(asked: Mapping[str, Any]) -> Budget:
    """The requested budget."""
    return Budget(
        EPSILON if asked["epsilon"] is None else asked["epsilon"], asked["delta"], adjacency=asked["adjacency"]
    )


def method_for(
    method: str | Method,
    model: Any,
    columns: int | None,
    max_grad_norm: float | None = None,
    isolation: str = "sandbox",
) -> Method:
    """The requested method; "auto" takes effects of columns and pairs where the model is left open, else descent.

    ``max_grad_norm``: instead of the method's own. ``isolation``: where a method of another package runs.
    """
    if isinstance(method, str) and method == AUTO:
        open_model = isinstance(model, str) and model == AUTO
        method = TABLES if open_model and columns is not None and columns <= MAX_TABLE_COLUMNS else RECOMMENDED
    if not isinstance(method, str) or method in registry():
        chosen = method_named(method)
    else:
        from ...guest import method_named as named_elsewhere

        chosen = named_elsewhere(method, isolation)
    return chosen if max_grad_norm is None else chosen.with_settings(max_grad_norm=max_grad_norm)


def scaling_of(encoder: Encoder, method: Method, *, unit_rows: bool) -> Scaling:
    """How rows of a schema are made: scaled, or cells for a method that makes features of them."""
    if method.table:
        return Cells(encoder.low, encoder.high, unit_rows, columns_of(encoder.schema))
    return Scaling(encoder.low, encoder.high, unit_rows)


def scaling_of_array(
    low: Floats, high: Floats, names: Sequence[str] | None, method: Method, *, unit_rows: bool
) -> Scaling:
    """How rows of an array with declared bounds are made."""
    return (
        Cells(low, high, unit_rows, number_columns(low, high, names)) if method.table else Scaling(low, high, unit_rows)
    )


def names_of(encoder: Encoder) -> tuple[str, ...]:
    """The names of the columns that rows are made of."""
    return tuple(column.name for column in encoder.schema.features)


def _classes(declared: Any, encoder: Encoder | None, labels: Array | None, origin: Origin | None) -> tuple[Array, str]:
    """The classes, and where they come from in words."""
    seen = (
        None if labels is None else classes_in(labels)
    )  # also where classes are declared, because it refuses a continuous y
    if declared is not None:
        return declared_classes(declared), "declared"
    if encoder is not None and encoder.schema.target is not None and encoder.classes is not None:
        return encoder.classes, (origin or Origin()).classes
    if seen is None:
        raise ValueError("the target of the schema is a number; use PrivateRegressor, or pass classes=[...]")
    return seen, "taken from the labels"


def _target_bounds(declared: Any, encoder: Encoder | None, labels: Array | None) -> tuple[float, float]:
    """The declared bounds of the target."""
    if labels is not None and labels.dtype.kind not in "fiub":
        raise ValueError("y holds text; a regression needs numbers, or use PrivateClassifier")
    if declared is not None:
        return interval("target_bounds", declared)
    if encoder is not None and encoder.schema.target is not None:
        target = encoder.schema[encoder.schema.target]
        return interval("bounds of the target", (target.low, target.high))
    raise ValueError(
        "target_bounds is missing, and bounds are those of the features; pass target_bounds=(low, high), what y can be, "
        "never read from private rows"
    )


def classifier_loss(loss: str | Loss, method: Method, classes: Array, weights: Any = None) -> Loss:
    """The loss of a classifier. "auto": logistic for two classes, softmax for more, or what the method takes instead."""
    if len(classes) < 2:
        raise ValueError("y has one class only; a classifier needs at least two, pass classes=[...] to declare them")
    several = len(classes) > 2
    named = _usual(method, several) if isinstance(loss, str) and loss == "auto" else loss
    chosen = loss_named(named).as_classifier()
    if several and chosen.task != "classes":
        raise ValueError(f"loss is {chosen.name!r} but there are more than two classes; pass loss={USUAL['classes']!r}")
    return chosen if weights is None else ClassWeighted(chosen, class_weights(weights, classes))


def _usual(method: Method, several: bool) -> str:
    usual = USUAL["classes" if several else "binary"]
    if several or usual in method.losses or not method.private:
        return usual
    return next((name for name in method.losses if loss_named(name).task != "classes"), usual)


def model_for(asked: Any, scaling: Scaling, loss: Loss, labels: ClassesOrTarget) -> Model:
    """The requested model: "linear", "mlp" (one hidden layer of 20), or a tuple of hidden layer sizes."""
    outputs, features = len(labels.values) if isinstance(labels, Classes) and labels.numbered else 1, scaling.features
    if isinstance(scaling, Cells):
        if asked not in ("auto", "linear"):
            raise ValueError(
                f"model is {asked!r}; a method that makes features of columns has its own, leave model out"
            )
        return Additive(1, loss, outputs, columns=scaling.columns)
    if isinstance(asked, str) and asked in ("auto", "linear"):
        return Linear(features, loss, outputs)
    hidden = (20,) if isinstance(asked, str) and asked == "mlp" else asked
    sizes = hidden if isinstance(hidden, tuple | list) else ()
    if not sizes or not all(isinstance(units, numbers.Integral) and int(units) >= 1 for units in sizes):
        raise ValueError(f"model is {asked!r}; pass 'linear', 'mlp' or the hidden sizes, e.g. (64, 32)")
    return MLP((features, *(int(units) for units in sizes), outputs), loss)


def classes_for(values: Array, loss: Loss) -> Classes:
    """The classes as this loss takes them."""
    return Classes(values, loss.task == "classes", loss.has_probabilities)


def ready_files(
    asked: Fit,
    paths: Paths,
    *,
    public: Paths | None = None,
    separator: str | Dialect | None = None,
    cache: str | Path | None = None,
    reading: Share | None = None,
    counted: Mask | None = None,
    lead: Lead | None = None,
) -> Fit:
    """The fit with the rows of files: read, checked and scaled, with nothing paid.

    Rows that need more than 200 MB, or all when ``cache`` is a folder, are kept in a file without a name there and
    mapped into memory, so that they need not fit into it. ``counted``: which rows of persons count, where that was
    chosen before. ``lead``: the ranks that read the files, each its pieces, where there are several; this is then rank 0.
    """
    assert asked.encoder is not None
    if isinstance(asked.method, Method):
        asked.method.refuse_readable(place for place in find_files(paths) if isinstance(place, Path))
    given = None if public is None else public_rows(asked, public, separator=separator)
    pinned = None
    if asked.persons is not None and counted is None:
        source = open_source(paths, separator=separator)
        pinned = Pinned(source.paths)
        counted = asked.persons.in_files(source, seed=asked.seed)
    how: dict[str, Any] = {"separator": separator, "cache": cache, "progress": reading, "counted": counted}
    if lead is not None:
        from .across_processes import spread_files

        private = spread_files(lead, paths, asked, **how)
    else:
        rows = read_rows(paths, asked.encoder, asked.scaling, **how)
        store = store_for(rows.X.nbytes, cells=asked.scaling.cells, cache=cache)
        assert rows.y is not None
        with own_settings():
            y = numbers_of_files(asked.labels, asked.encoder.classes, rows.y, rows.there)
            private = Records(rows.X, y, store=store, counted=counted)
    if pinned is not None:
        pinned.check()
    return replace(asked, source="files" if lead is None else "ranks", private=private, public=given)


def public_rows(asked: Fit, public: Paths, *, separator: str | Dialect | None = None) -> Records:
    """Public rows as the fit takes them."""
    assert asked.encoder is not None
    known = read_rows(public, asked.encoder, asked.scaling, separator=separator).with_labels()
    assert known.y is not None
    return Records(known.X, numbers_of_files(asked.labels, asked.encoder.classes, known.y))


def store_for(size: int, *, cells: bool, cache: str | Path | None) -> Allocator:
    """Where to lay out rows that take ``size`` bytes: in memory, or in a mapped file if they are large."""
    large = cache is not None or size * (WIDER if cells else 1) > MAX_BYTES_IN_MEMORY
    return Mapped(Path(cache or tempfile.gettempdir())) if large else in_memory


def seed_of(random_state: Any) -> int | None:
    """The seed of a simulation, from an int or a numpy generator; None, for a private run, stays None."""
    if random_state is None:
        return None
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise ValueError(f"random_state is {random_state!r}; pass None for a private run or an integer for a simulation")


def plain_settings(asked: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """An estimator's arguments as plain data, with method and loss by name and without declarations of columns.

    ``method``: the one that runs, which "auto" may stand for.
    """
    settings = {name: value for name, value in asked.items() if name not in UNSAID}
    settings["method"] = method.name
    if isinstance(asked["method"], str) and asked["method"] == AUTO:
        settings["chosen_by"] = AUTO
    if asked["epsilon"] is None:
        settings |= {"epsilon": EPSILON, "epsilon_by": "default"}
    if not getattr(method, "elsewhere", False):
        settings.pop("isolation", None)
    for name in ("unit", "rows_per_unit"):
        if settings.get(name) is None:
            settings.pop(name, None)
    if not isinstance(settings["loss"], str):
        settings["loss"] = settings["loss"].name
    if isinstance(settings.get("class_weight"), Mapping):  # JSON has only texts as keys
        settings["class_weight"] = [list(pair) for pair in settings["class_weight"].items()]
    if settings.get("classes") is not None:
        settings["classes"] = np.asarray(settings["classes"]).tolist()
    if not isinstance(settings["random_state"], numbers.Integral | None):  # a generator, whose state is not kept
        settings["random_state"] = str(settings["random_state"])
    return settings


def plain_values(value: Any) -> Any:
    """Settings as plain data for JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain_values(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value
