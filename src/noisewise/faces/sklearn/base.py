"""What both scikit-learn faces share: checks at the data holder, one private run, and what is kept of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ...accounts import Budget
from ...accounts.account import Account, Sent, refuse_elsewhere, sent_from
from ...accounts.concerns import EPSILON
from ...accounts.paying import payer
from ...accounts.purse import Purse
from ...methods import Method, makes_a_promise
from ...statements.statement import Statement
from ...tables.checks import names_of, private_labels, private_rows, public_pair, with_label
from ...tables.encode import Encoder
from ...tables.files import Dialect, Paths
from ...tables.fit.across_processes import elsewhere
from ...tables.fit.auto import method_for
from ...tables.fit.fit import Fit, Labelled, seed_of
from ...tables.fit.fitted import Fitted
from ...tables.fit.from_files import SETTINGS, Origin, ready_files, scaling_of
from ...tables.fit.from_files import names_of as columns_in
from ...tables.fit.labels import Labels, numbers_with, same_length
from ...tables.fit.ready import Ready
from ...tables.fit.settings import plain_settings
from ...tables.persons import Mask, Persons, persons_of
from ...tables.refusal import our_words
from ...tables.rows import Cells, Scaling, declared_bounds, number_columns
from ...tables.schema import Schema
from ...train import Progress
from ...trusted.models import Model
from ...trusted.own_settings import own_settings
from .buying import bought_files, bought_ready, buys, refuse_to_buy
from .pipelines import refuse_others, warn_in_pipeline
from .prepared import Prepared
from .shown import Shown

if TYPE_CHECKING:
    from ...accounts.ledger import Ledger

Array = NDArray[Any]
DECLARED = "bounds of the features, declared"


class PrivateEstimator(Shown, BaseEstimator, ABC):
    """What both faces share: validation at the data holder, then one private run."""

    _unit_rows: bool
    _sent: Sent | None = None  # the account inside of which it was pickled, if it was

    def watch(self, progress: Progress | None) -> Self:
        """Call ``progress(step, steps, spent share of the budget)`` after every step of the next fits."""
        self._progress = progress
        return self

    def fit(
        self,
        X: Any,
        y: Any,
        public: Any = None,
        *,
        purse: Purse | Account | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        **others: Any,
    ) -> Self:
        """Train on private rows ``X`` with labels ``y``; ``public`` is a pair (X, y) of public rows, if there are any.

        ``purse``: where the budget comes from, if several runs share one (``noisewise.accounts.purse``); or the account of
        ``dataset`` in a ``ledger``, a URL or a :class:`noisewise.Ledger`. Without either, from the account that is open
        (:func:`noisewise.spending`), if there is any.
        What was fitted before stays as it was when this fails.
        """
        refuse_others(others, weighs=hasattr(self, "class_weight"))
        warn_in_pipeline(self)
        purse = payer(purse, ledger, dataset)
        ready = bought_ready(self, X, y, public, purse) if buys(self) else self.ready(X, y, public)
        return self._run(ready, purse)

    def _run(self, ready: Ready, purse: Purse | Account | None) -> Self:
        return self.become(ready, ready.run(progress=getattr(self, "_progress", None), purse=purse))

    def ready(self, X: Any, y: Any, public: Any = None, *, counted: Mask | None = None) -> Ready:
        """What :meth:`fit` would run, checked and scaled, with nothing paid and nothing of this object changed.

        ``counted``: which rows of persons count, where that was chosen before.
        """
        refuse_to_buy(self)
        self._budget()
        fresh = self._fresh()
        encoder, persons = self._encoder(), self._persons()
        if persons is not None and counted is None:
            counted = persons.in_table(X, seed=seed_of(self.random_state))
        if encoder is None and persons is not None:
            X = persons.without(X)
        cells = X
        if encoder is not None:
            table = self._method(len(encoder.schema.features)).table
            cells = encoder.table(X) if table else encoder(X)
        dropped = encoder is not None and encoder.schema.target_missing == "drop"
        rows, y = fresh._checked(cells, y, dropped)
        there = None
        if dropped:
            y, there = with_label(y, declared_labels(encoder))
        prepared = fresh._prepared(rows.shape[1], encoder)
        known = None
        if public is not None:
            if encoder is not None and isinstance(public, tuple | list) and len(public) == 2:
                cells = encoder.table(public[0]) if prepared.scaling.cells else encoder(public[0])
                public = (cells, public[1])
            known = public_pair(public, None if prepared.columns is None else list(prepared.columns), rows.shape[1])
        with own_settings():
            asked = fresh._asked(prepared, y if there is None else y[there])
            numbers = numbers_with(asked.labels, y, there)
            if counted is None:
                private = Labelled(_scaled(prepared.scaling, rows), numbers)
            else:
                private = Labelled(_scaled(prepared.scaling, rows[counted]), numbers[counted], len(counted))
        given = None
        if known is not None:
            given = Labelled(_scaled(prepared.scaling, known[0]), asked.labels.numbers(known[1], who="public"))
        return Ready(asked, private, given, fresh, counted=counted)

    def become(self, ready: Ready, fitted: Fitted) -> Self:
        """Become the face of what came of :meth:`ready`."""
        return self._become(ready.face, fitted)

    def fit_files(
        self,
        paths: Paths,
        *,
        purse: Purse | Account | None = None,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        records: str | None = None,
        ray_workers: int | None = None,
        ray_address: str | None = None,
        **reading: Any,
    ) -> Self:
        """Train on CSV or Parquet files by ``schema``, a :class:`Schema` with a target; see docs/schema.md.

        ``purse``, or ``ledger`` and ``dataset``: as in :meth:`fit`. ``reading`` is what :meth:`ready_files` takes.
        ``records``: "ray" when workers on Ray shall hold the records, each its pieces, as many as ``ray_workers`` says (one for each
        processor when left out), in a cluster of their own or in the one at ``ray_address``; see docs/past-one-machine.md.
        """
        purse = payer(purse, ledger, dataset)
        with elsewhere(records, ray_workers, ray_address) as lead:
            reading = reading if lead is None else {**reading, "lead": lead}
            ready = bought_files(self, paths, purse, reading) if buys(self) else self.ready_files(paths, **reading)
            return self._run(ready, purse)

    def ready_files(
        self,
        paths: Paths,
        *,
        separator: str | Dialect | None = None,
        decimal: str | None = None,
        origin: Origin | None = None,
        **others: Any,
    ) -> Ready:
        """What :meth:`fit_files` would run, read and scaled, with nothing paid and nothing of this object changed.

        ``others``: ``public``, ``cache``, ``reading``, ``counted`` and ``lead``, as :func:`noisewise.tables.fit.from_files.ready_files`
        takes them.
        """
        refuse_to_buy(self)
        asked = self.planned(origin)
        ready = ready_files(asked, paths, separator=Dialect.of(separator, decimal), **others)
        fresh = self._fresh()
        fresh.feature_names_in_ = np.array(asked.columns, dtype=object)
        fresh.n_features_in_ = len(fresh.feature_names_in_)
        return ready._replace(face=fresh)

    def planned(self, origin: Origin | None = None) -> Fit:
        """The fit that files of ``schema`` get: everything that can be checked before they are read."""
        self._budget()
        encoder = self._encoder()
        if encoder is None or encoder.schema.target is None:
            raise ValueError(
                "schema must be a Schema with a target to train on files; see noisewise schema init --help"
            )
        origin = origin or Origin()
        return self._asked(Prepared(self._scaling(encoder), encoder, columns_in(encoder), origin.assumed, origin), None)

    def _scaling(self, encoder: Encoder) -> Scaling:
        return scaling_of(encoder, self._method(len(encoder.schema.features)), unit_rows=self._unit_rows)

    def _encoder(self) -> Encoder | None:
        """By the schema, if there is one, and whose rows these are as said here or there."""
        schema = self._schema()
        return None if schema is None else Encoder(schema)

    def _schema(self) -> Schema | None:
        if not isinstance(self.schema, Schema):
            return None
        said, here = self.schema.persons, persons_of(self.unit, self.rows_per_unit)
        if said is not None and here is not None and said != here:
            raise ValueError("unit or rows_per_unit differ from what the schema declares; say it in one place")
        if said is not None or here is None:
            return self.schema
        return replace(self.schema, unit=here.column, rows_per_unit=here.rows)

    def _persons(self) -> Persons | None:
        schema = self._schema()
        return persons_of(self.unit, self.rows_per_unit) if schema is None else schema.persons

    def _fresh(self) -> Self:
        return type(self)(**self.get_params(deep=False)).watch(getattr(self, "_progress", None))._of(self)

    def _become(self, fresh: Self, fitted: Fitted) -> Self:
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # nothing of an earlier fit may survive beside the new one
        self.__dict__.update(fresh.__dict__)
        return self._hold(fitted)

    def _hold(self, fitted: Fitted) -> Self:
        """Become the face of a fitted thing."""
        self.fitted_: Fitted = fitted
        self.statement_: Statement = fitted.statement
        self.trace_, self.n_iter_ = fitted.trace, fitted.steps
        if fitted.classes is not None:
            self.classes_ = fitted.classes
        return self

    def _prepared(self, columns: int, encoder: Encoder | None) -> Prepared:
        """How rows of an array or a table are made."""
        if encoder is not None:
            names = columns_in(encoder)
            self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, dtype=object)
            return Prepared(self._scaling(encoder), encoder, names, (Origin().words, SETTINGS))
        known = getattr(self, "feature_names_in_", None)
        low, high = declared_bounds(columns, known, bounds=self.bounds, schema=self.schema)
        named = None if known is None else tuple(known)
        scaling = Scaling(low, high, self._unit_rows)
        if self._method(columns).table:
            scaling = Cells(low, high, self._unit_rows, number_columns(low, high, named))
        return Prepared(scaling, None, named, (DECLARED, SETTINGS))

    @abstractmethod
    def _asked(self, prepared: Prepared, y: Array | None) -> Fit:
        """The fit; each face knows its own labels. ``y`` is None when a schema says what they are."""

    def _fit_of(self, prepared: Prepared, method: Method, model: Model, labels: Labels, assumed: str | None) -> Fit:
        if not isinstance(self.size_is_public, bool | np.bool_):
            raise ValueError(f"size_is_public is {self.size_is_public!r}; pass True or False")
        if makes_a_promise(method) and self.random_state is None:
            refuse_elsewhere(self._sent)
        return Fit(
            self._budget(),
            method,
            model,
            prepared.scaling,
            labels,
            prepared.encoder,
            prepared.columns,
            bool(self.size_is_public),
            seed_of(self.random_state),
            (*prepared.assumed, *(() if assumed is None else (assumed,))),
            None if prepared.origin is None else prepared.origin.preparation,
            plain_settings(self.get_params(deep=False), method),
            self._persons(),
        )

    def _budget(self) -> Budget:
        return Budget(EPSILON if self.epsilon is None else self.epsilon, self.delta, adjacency=self.adjacency)

    def _method(self, columns: int) -> Method:
        return method_for(self.method, self.model, columns, self.max_grad_norm, self.isolation)

    def _checked(self, X: Any, y: Any, dropped: bool) -> tuple[Array, Array]:
        """X and y as arrays; missing labels are refused unless a schema drops their records, features never (a bad feature
        is the curator's matter)."""
        rows, numeric = self._rows(X, reset=True), isinstance(self, RegressorMixin)
        labels = private_labels(y, numeric=numeric, dropped=dropped)
        same_length(rows, labels)
        return rows, labels

    def _rows(self, X: Any, *, reset: bool) -> Array:
        """Rows as a matrix; scikit-learn is shown the names of the columns only, and ``reset`` remembers them."""
        rows = private_rows(X)
        names = names_of(X)
        bare = np.empty((0, rows.shape[1])) if names is None else names
        validate_data(self, bare, "no_validation", skip_check_array=True, reset=reset)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        state = {name: v for name, v in super().__getstate__().items() if name not in ("_progress", "_sent")}
        if not hasattr(self, "fitted_") and (sent := sent_from(self._sent)):
            state["_sent"] = sent
        return state

    def __sklearn_clone__(self) -> Self:
        return super().__sklearn_clone__()._of(self)

    def _of(self, other: Self) -> Self:
        """Remember where the other one came from."""
        if other._sent is not None:
            self._sent = other._sent
        return self

    def _scaled_rows(self, X: Any) -> Array:
        """Rows to predict, scaled."""
        check_is_fitted(self, "fitted_")
        fitted, persons = self.fitted_, self._persons()
        if fitted.encoder is None:
            X = X if persons is None else persons.without(X)
            return _scaled(fitted.scaling, self._rows(X, reset=False))
        if fitted.scaling.cells:
            return fitted.encoder.table(X, predict=True)
        return _scaled(fitted.scaling, fitted.encoder(X, predict=True))

    def _scores(self, X: Any) -> Array:
        rows = self._scaled_rows(X)
        return self.fitted_.scores(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing feature of a private record may not stop anything
        return tags


def declared_labels(encoder: Encoder | None) -> Array | None:
    """The classes that a schema declares, if it declares any."""
    return None if encoder is None or encoder.schema.target is None else encoder.classes


def _scaled(scaling: Scaling, X: Array) -> Array:
    with our_words("X cannot be scaled by its bounds; pass bounds that its columns can have"):
        return scaling(X)
