"""What both estimators share: checks of their input, one private run, and attributes that show its result."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ...accounts.account import Account, Sent, refuse_elsewhere, sent_from
from ...accounts.paying import payer
from ...accounts.purse import Purse
from ...methods import Method, makes_a_promise
from ...statements.statement import Statement
from ...tables.encode import Encoder
from ...tables.files import Dialect, Paths
from ...tables.fit.build import (
    Origin,
    budget_of,
    fit_of,
    method_for,
    names_of,
    ready_files,
    scaling_of,
    scaling_of_array,
    seed_of,
)
from ...tables.fit.effects import Effects
from ...tables.fit.fit import Fit
from ...tables.fit.fitted import Fitted
from ...tables.fit.labels import numbers_with, same_length
from ...tables.persons import Mask, PersonColumn, persons_of
from ...tables.refusal import our_words
from ...tables.rows import Scaling, declared_bounds
from ...tables.schema import Schema
from ...train import Records, StepProgress
from ...trusted.process import own_settings
from .buying import bought_ready
from .checks import bare_table, private_labels, private_rows, public_pair, refuse_others, warn_in_pipeline, with_label

if TYPE_CHECKING:
    import pandas as pd

    from ...accounts.ledger import Ledger

Array = NDArray[Any]
BUY = "buy"


class Shown:
    """Attributes that show the fitted model."""

    fitted_: Fitted

    @property
    def coef_(self) -> Array:
        """Coefficients of what :meth:`get_feature_names_out` names (see the guide), one row per output for several classes."""
        check_is_fitted(self, "fitted_")
        return self._shaped(self.fitted_.weights())[..., :-1]

    @property
    def intercept_(self) -> Any:
        check_is_fitted(self, "fitted_")
        return self._shaped(self.fitted_.weights())[..., -1]

    @property
    def coef_std_(self) -> Array | None:
        """Standard deviation of the privacy noise on each coefficient; None where it is not known (docs/standard-errors.md)."""
        return None if (errors := self._errors()) is None else errors[..., :-1]

    @property
    def intercept_std_(self) -> Any:
        """The same for the intercept."""
        return None if (errors := self._errors()) is None else errors[..., -1]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the coefficients: scaled columns, or knots, categories and pairs of a table."""
        check_is_fitted(self, "fitted_")
        return np.array(self.fitted_.features()[:-1], dtype=object)

    @property
    def effects_(self) -> pd.DataFrame:
        """The shape of each column's effect: feature, value, effect, noise_low, noise_high, and output if there are several.

        In units of the score, or of a regression's target; the band is 95 % of the privacy noise. See the guide.
        """
        return self._frame(lambda effects: list(effects.rows()))

    @property
    def pairs_(self) -> pd.DataFrame:
        """The effect of pairs of columns beyond that of each column: first, second, strength, noise, the strongest first."""
        return self._frame(Effects.pair_rows, ("first", "second", "strength", "noise"))

    def _frame(self, rows: Callable[[Effects], list[dict[str, Any]]], heads: Sequence[str] = ()) -> pd.DataFrame:
        import pandas as pd

        check_is_fitted(self, "fitted_")
        return pd.DataFrame(rows(self.fitted_.effects()), columns=list(heads) or None)

    def _errors(self) -> Array | None:
        check_is_fitted(self, "fitted_")
        self.fitted_.weights()
        errors = self.fitted_.errors()
        return None if errors is None else self._shaped(errors)

    def _shaped(self, weights: Array) -> Array:
        return weights[0] if isinstance(self, RegressorMixin) else weights


class PrivateEstimator(Shown, BaseEstimator, ABC):
    """Base of both estimators: validation of the input, then one private run."""

    _sent: Sent | None = None  # the account inside of whose block it was pickled, if any

    def watch(self, progress: StepProgress | None) -> Self:
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
        if ledger is not None or dataset is not None:
            purse = payer(purse, ledger, dataset)
        if not self._buys():
            return self._run(self.ready(X, y, public), purse)

        return self._run(bought_ready(self, X, y, public, purse), purse)

    def _run(self, fit: Fit, purse: Purse | Account | None) -> Self:
        return self.become(fit.run(progress=getattr(self, "_progress", None), purse=purse))

    def _buys(self) -> bool:
        """Whether bounds are to be bought, of columns or of the target."""
        return any(isinstance(one, str) and one == BUY for one in (self.bounds, getattr(self, "target_bounds", None)))

    def _refuse_to_buy(self) -> None:
        """Refuse bounds="buy" where nothing is paid for, or where each candidate would pay."""
        if self._buys():
            raise ValueError(
                "bounds='buy' is paid for in fit or fit_files, not in a search, where every candidate would pay; pass bounds "
                "or a schema, perhaps those that a fit has bought"
            )

    def ready(self, X: Any, y: Any, public: Any = None, *, counted: Mask | None = None) -> Fit:
        """What :meth:`fit` would run, checked and scaled, with nothing paid and nothing of this object changed.

        ``counted``: which rows of persons count, where that was chosen before.
        """
        self._refuse_to_buy()
        asked = self.get_params(deep=False)
        budget_of(asked)  # refused before rows are looked at
        encoder, persons, numeric = self._encoder(), self._persons(), isinstance(self, RegressorMixin)
        if persons is not None:
            counted = persons.in_table(X, seed=seed_of(self.random_state)) if counted is None else counted
            X = X if encoder is not None else persons.without(X)
        dropped = encoder is not None and encoder.schema.target_missing == "drop"
        if encoder is not None:
            names: tuple[str, ...] | None = names_of(encoder)
            method = self._method(len(encoder.schema.features))
            rows = private_rows(encoder.table(X) if method.table else encoder(X))
        else:
            rows, names = self._array(X)
        y = private_labels(y, numeric=numeric, dropped=dropped)
        same_length(rows, y)
        there = None
        if encoder is not None:
            if dropped:
                y, there = with_label(y, None if encoder.schema.target is None else encoder.classes)
            scaling = scaling_of(encoder, method, unit_rows=not numeric)
        else:
            low, high = declared_bounds(rows.shape[1], names, bounds=self.bounds, schema=self.schema)
            method = self._method(rows.shape[1])
            scaling = scaling_of_array(low, high, names, method, unit_rows=not numeric)
        known = None
        if public is not None:
            if encoder is not None and isinstance(public, tuple | list) and len(public) == 2:
                public = (encoder.table(public[0]) if scaling.cells else encoder(public[0]), public[1])
            known = public_pair(public, None if names is None else list(names), rows.shape[1])
        with own_settings():
            labels = y if there is None else y[there]
            fit = self._here(fit_of(asked, method, scaling, encoder, names, numeric=numeric, labels=labels))
            numbers = numbers_with(fit.labels, y, there)
            if counted is not None:
                rows, numbers = rows[counted], numbers[counted]
            private = Records(_scaled(scaling, rows), numbers, counted=counted)
        if known is None:
            return fit.on(private)
        return fit.on(private, Records(_scaled(scaling, known[0]), fit.labels.numbers(known[1], who="public")))

    def become(self, fitted: Fitted) -> Self:
        """Become the estimator of a finished fit; nothing of an earlier fit is left."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        return self._hold(fitted)

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
        from ...tables.fit.across_processes import elsewhere

        purse = payer(purse, ledger, dataset)
        with elsewhere(records, ray_workers, ray_address) as lead:
            reading = reading if lead is None else {**reading, "lead": lead}
            if not self._buys():
                return self._run(self.ready_files(paths, **reading), purse)
            from .buying import bought_files

            return self._run(bought_files(self, paths, purse, reading), purse)

    def ready_files(
        self,
        paths: Paths,
        *,
        separator: str | Dialect | None = None,
        decimal: str | None = None,
        origin: Origin | None = None,
        **others: Any,
    ) -> Fit:
        """What :meth:`fit_files` would run, read and scaled, with nothing paid and nothing of this object changed.

        ``others``: ``public``, ``cache``, ``reading``, ``counted`` and ``lead``, as :func:`noisewise.tables.fit.build.ready_files`
        takes them.
        """
        self._refuse_to_buy()
        return ready_files(self.planned(origin), paths, separator=Dialect.of(separator, decimal), **others)

    def planned(self, origin: Origin | None = None) -> Fit:
        """The fit that files of ``schema`` get: everything that can be checked before they are read."""
        asked, encoder, numeric = self.get_params(deep=False), self._encoder(), isinstance(self, RegressorMixin)
        budget_of(asked)
        if encoder is None or encoder.schema.target is None:
            raise ValueError(
                "schema must be a Schema with a target to train on files; see noisewise schema init --help"
            )
        method, names = self._method(len(encoder.schema.features)), names_of(encoder)
        scaling = scaling_of(encoder, method, unit_rows=not numeric)
        return self._here(fit_of(asked, method, scaling, encoder, names, numeric=numeric, origin=origin or Origin()))

    def _here(self, fit: Fit) -> Fit:
        """The fit, refused if this estimator was sent here from an account that is open in another process."""
        if makes_a_promise(fit.method) and self.random_state is None:
            refuse_elsewhere(self._sent)
        return fit

    def _encoder(self) -> Encoder | None:
        """The encoder of the schema, if there is one; it also says which column holds person ids."""
        schema = self._schema()
        return None if schema is None else Encoder(schema)

    def _schema(self) -> Schema | None:
        if not isinstance(self.schema, Schema):
            return None
        if self.unit is None and self.rows_per_unit is None:
            return self.schema
        said, here = self.schema.persons, persons_of(self.unit, self.rows_per_unit)
        if said is not None and said != here:
            raise ValueError("unit or rows_per_unit differ from what the schema declares; say it in one place")
        if said is not None or here is None:
            return self.schema
        return replace(self.schema, unit=here.column, rows_per_unit=here.rows)

    def _persons(self) -> PersonColumn | None:
        if (schema := self._schema()) is not None:
            return schema.persons
        return None if self.unit is None and self.rows_per_unit is None else persons_of(self.unit, self.rows_per_unit)

    def _hold(self, fitted: Fitted) -> Self:
        """Set the attributes of a fitted estimator."""
        self.fitted_: Fitted = fitted
        self.statement_: Statement = fitted.statement
        self.trace_, self.n_iter_ = fitted.trace, fitted.steps
        if fitted.classes is not None:
            self.classes_ = fitted.classes
        if fitted.columns is not None:
            self.feature_names_in_ = np.array(fitted.columns, dtype=object)
        self.n_features_in_ = len(fitted.scaling.low if fitted.columns is None else fitted.columns)
        return self

    def _method(self, columns: int) -> Method:
        return method_for(self.method, self.model, columns, self.max_grad_norm, self.isolation)

    def _array(self, X: Any) -> tuple[Array, tuple[str, ...] | None]:
        """Private rows as a matrix, and the names of its columns as scikit-learn has them."""
        rows, shown = (
            private_rows(X),
            BaseEstimator(),
        )  # not self, whose attributes stay as they are until a fit succeeds
        if (bare := bare_table(X)) is not None:
            validate_data(shown, bare, "no_validation", skip_check_array=True, reset=True)
        names = getattr(shown, "feature_names_in_", None)
        return rows, None if names is None else tuple(names)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: v for name, v in super().__getstate__().items() if name not in ("_progress", "_sent")}
        if not hasattr(self, "fitted_") and (sent := sent_from(self._sent)):
            state["_sent"] = sent
        return state

    def __sklearn_clone__(self) -> Self:
        return super().__sklearn_clone__()._of(self)

    def _of(self, other: Self) -> Self:
        """Remember the account that the other estimator was sent from."""
        if other._sent is not None:
            self._sent = other._sent
        return self

    def _scaled_rows(self, X: Any) -> Array:
        """Rows to predict, scaled."""
        check_is_fitted(self, "fitted_")
        fitted, persons = self.fitted_, self._persons()
        if fitted.encoder is None:
            rows = private_rows(X := X if persons is None else persons.without(X))
            names = bare_table(X)
            bare = np.empty((0, rows.shape[1])) if names is None else names
            validate_data(self, bare, "no_validation", skip_check_array=True, reset=False)
            return _scaled(fitted.scaling, rows)
        if fitted.scaling.cells:
            return fitted.encoder.table(X, predict=True)
        return _scaled(fitted.scaling, fitted.encoder(X, predict=True))

    def _scores(self, X: Any) -> Array:
        rows = self._scaled_rows(X)
        return self.fitted_.scores(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing feature of a private record must not stop anything
        return tags


def _scaled(scaling: Scaling, X: Array) -> Array:
    with our_words("X cannot be scaled by its bounds; pass bounds that its columns can have"):
        return scaling(X)
