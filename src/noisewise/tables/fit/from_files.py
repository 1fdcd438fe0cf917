"""Training on files of a schema, for every face: the fit they get before a row is read, and their rows.

What a dry run checks is the fit that a run has; neither needs scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...accounts import Budget
from ...methods import Method
from ...remote.processes import Lead
from ...trusted.losses import Loss
from ...trusted.own_settings import own_settings
from ...trusted.stores.grid import Store, in_memory
from ..encode import Encoder
from ..file_pieces import Pinned
from ..files import Dialect, Paths, Share, find_files, open_source
from ..persons import Mask
from ..rows import Cells, Scaling, columns_of, interval, read_rows
from ..schema import Schema
from .across_processes import spread_files, store_for
from .auto import method_for
from .fit import Fit, Labelled, for_classes, for_numbers
from .labels import Array, Labels, numbers_of_files
from .ready import Ready
from .settings import plain_settings

SETTINGS = "settings, chosen without the private rows"
CHECKED = "files checked against the schema before training"


@dataclass(frozen=True)
class Origin:
    """Where bounds and categories come from, in words, and what was paid for them before training."""

    words: str = "bounds and categories, declared in a schema"
    classes: str = "declared"
    preparation: Mapping[str, Any] | None = None

    @property
    def assumed(self) -> tuple[str, ...]:
        """What a statement lists as assumed public of files."""
        return (self.words, SETTINGS, CHECKED)

    @property
    def assumed_classes(self) -> str:
        """The same of the classes of a target."""
        return f"the classes, {self.classes}"


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
    encoder, origin = Encoder(schema), origin or Origin()
    chosen = method_for(method, model, len(schema.features), max_grad_norm, isolation)
    classes = encoder.classes
    scaling = scaling_of(encoder, chosen, unit_rows=classes is not None)
    asked: dict[str, Any] = {
        "adjacency": budget.adjacency, "delta": budget.delta, "epsilon": budget.epsilon, "loss": loss,
        "max_grad_norm": max_grad_norm, "method": method, "model": model, "random_state": seed,
        "size_is_public": size_is_public, "isolation": isolation,
    }  # fmt: skip
    assumed = origin.assumed
    labels: Labels
    if classes is not None:
        network, labels = for_classes(classes, method=chosen, loss=loss, model=model, scaling=scaling)
        assumed, asked = (*assumed, origin.assumed_classes), {**asked, "classes": None, "class_weight": None}
    else:
        network, labels = for_numbers(target_bounds(schema), loss=loss, model=model, scaling=scaling)
        asked = {**asked, "target_bounds": None}
    return Fit(
        budget, chosen, network, scaling, labels, encoder, names_of(encoder), size_is_public, seed, assumed,
        origin.preparation, plain_settings(dict(sorted(asked.items())), chosen), schema.persons,
    )  # fmt: skip


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
) -> Ready:
    """What ``asked`` runs on files: read, checked and scaled, with nothing paid.

    Rows that need more than 200 MB, or all when ``cache`` is a folder, are kept in a file without a name there and
    mapped into memory, so that they need not fit into it. ``counted``: which rows of persons count, where that was
    chosen before. ``lead``: the ranks that read the files, each its pieces, where there are several; this is then rank 0.
    """
    assert asked.encoder is not None
    if isinstance(asked.method, Method):
        asked.method.refuse_readable(place for place in find_files(paths) if isinstance(place, Path))
    given = public_rows(asked, public, separator=separator)
    pinned = None
    if asked.persons is not None and counted is None:
        source = open_source(paths, separator=separator)
        pinned = Pinned(source.paths)
        counted = asked.persons.in_files(source, seed=asked.seed)
    how: dict[str, Any] = {"separator": separator, "cache": cache, "progress": reading, "counted": counted}
    store: Store = in_memory
    if lead is not None:
        private = spread_files(lead, paths, asked, **how)
    else:
        rows = read_rows(paths, asked.encoder, asked.scaling, **how)
        store = store_for(rows.X.nbytes, cells=asked.scaling.cells, cache=cache)
        with own_settings():
            private = Labelled(rows.X, _numbers(asked, rows.y, rows.there), None if counted is None else len(counted))
    if pinned is not None:
        pinned.check()
    asked = replace(asked, source="files" if lead is None else "ranks")
    return Ready(asked, private, given, store=store, counted=counted)


def public_rows(asked: Fit, public: Paths | None, *, separator: str | Dialect | None = None) -> Labelled | None:
    """Public rows as the fit takes them; None where there are none."""
    if public is None:
        return None
    assert asked.encoder is not None
    known = read_rows(public, asked.encoder, asked.scaling, separator=separator).with_labels()
    return Labelled(known.X, _numbers(asked, known.y))


def scaling_of(encoder: Encoder, method: Method, *, unit_rows: bool) -> Scaling:
    """How rows of a schema are made: scaled, or cells for a method that makes features of them."""
    if method.table:
        return Cells(encoder.low, encoder.high, unit_rows, columns_of(encoder.schema))
    return Scaling(encoder.low, encoder.high, unit_rows)


def names_of(encoder: Encoder) -> tuple[str, ...]:
    """Names of the columns that rows are made of."""
    return tuple(column.name for column in encoder.schema.features)


def target_bounds(schema: Schema) -> tuple[float, float]:
    """What the target can be, as the schema declares it."""
    assert schema.target is not None
    target = schema[schema.target]
    return interval("bounds of the target", (target.low, target.high))


def _numbers(asked: Fit, y: Array | None, there: Mask | None = None) -> Array:
    assert y is not None and asked.encoder is not None
    return numbers_of_files(asked.labels, asked.encoder.classes, y, there)
