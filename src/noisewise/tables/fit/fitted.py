"""The result of a fit: parameters and everything that is needed to use them, as numpy arrays and plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ...asking import Gradient
from ...methods.preparation.choices import names_of
from ...statements.network import ROWS_PER_CHUNK, Network
from ...statements.statement import Statement
from ...trusted.features import Features, TableColumn
from ...trusted.losses import loss_named
from ...trusted.units import UNIT, Released, Unit
from ..encode import Encoder
from ..rows import Cells, Scaling, columns_of, number_columns
from .effects import Effects, effects_of
from .labels import Classes, ClassesOrTarget, Target, labels_from

if TYPE_CHECKING:
    from ...protect.learned.zoo import Learned

Values = NDArray[Any] | None
Array = NDArray[Any]
TASKS = {"PrivateClassifier": "classification", "PrivateRegressor": "regression"}  # as run folders name them


def calibrated(scores: Array, cap: float) -> Array:
    """Log-odds of the second class, from scores of a logistic loss whose slopes were cut: the clip biases scores, and this takes it back.

    A record of a class of probability p pulls with p s(-z) one way and (1-p) min(s(z), c) the other, s the logistic function
    and c the cut, where z > 0 and s(z) > c. They are even where p = c / (c + s(-z)), whose log-odds are log(1 + e^z) + log c;
    below that nothing was cut, and the log-odds are z. For rows of typical length c is the clip norm, at least 1/2.

    >>> calibrated(np.array([-2.0, 0.0, 2.0]), 0.5).round(3).tolist()
    [-1.434, 0.0, 1.434]
    """
    if cap >= 1:
        return scores
    size = np.abs(scores)
    return np.sign(scores) * np.where(size > _turn(cap), np.logaddexp(0.0, size) + math.log(cap), size)


def uncalibrated(log_odds: Array, cap: float) -> Array:
    """The scores that have these log-odds."""
    if cap >= 1:
        return log_odds
    size = np.abs(log_odds)
    above = np.maximum(size - math.log(cap), 1e-12)
    far = above + np.log(-np.expm1(-above))  # log(e^above - 1)
    return np.sign(log_odds) * np.where(size > _turn(cap), far, size)


def _turn(cap: float) -> float:
    """The score from which slopes are cut."""
    return math.log(cap / (1 - cap))


class Spread:
    """Standard errors of theta, computed when they are first needed or saved; then their inputs are dropped."""

    def __init__(self, compute: Callable[[], Values]) -> None:
        self._compute: Callable[[], Values] | None = compute
        self._known: Values = None

    @classmethod
    def known(cls, errors: Values) -> Self:
        """Standard errors that were computed before, e.g. of a saved model."""
        return cls(lambda: errors)

    def values(self) -> Values:
        """The standard error of each coordinate of theta, or None where it is not known."""
        if self._compute is not None:
            self._known, self._compute = self._compute(), None
        return self._known

    def __getstate__(self) -> dict[str, Any]:
        return {"_compute": None, "_known": self.values()}


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model with its preprocessing, labels, statement and trace. Predicting with it needs numpy alone.

    ``encoder`` is None for a model of plain arrays; ``columns`` are the names of the columns if they had any. ``size``
    is the number of records as declared or bought. ``settings`` are what was asked for, as plain data.
    """

    theta: Array
    network: Network
    scaling: Scaling
    labels: ClassesOrTarget
    statement: Statement
    trace: tuple[Released, ...]
    steps: int
    size: float | None
    spread: Spread
    settings: Mapping[str, Any]
    encoder: Encoder | None = None
    columns: tuple[str, ...] | None = None
    made: Features | None = None  # what rows of a table are made of
    shares: Array | None = None  # of the records that have each coordinate, as released
    protector: Learned | None = None  # one that the run has trained on its records

    @property
    def classes(self) -> Array | None:
        """The classes of a classifier; None for a regression."""
        return self.labels.values if isinstance(self.labels, Classes) else None

    @property
    def likely(self) -> bool:
        """Whether there are probabilities."""
        return isinstance(self.labels, Classes) and self.labels.likely

    @property
    def target(self) -> str:
        """The name of what is predicted."""
        return str((None if self.encoder is None else self.encoder.schema.target) or "y")

    def scores(self, rows: Array) -> Array:
        """Scores of scaled rows, or of a table's cells."""
        if self.made is None:
            return self.network.scores(self.theta, rows)
        theta, parts = (
            self.theta.astype(np.float64).reshape(self.network.outputs, -1),
            range(0, max(len(rows), 1), ROWS_PER_CHUNK),
        )
        scores = np.concatenate(
            [self.made.scores(theta, rows[at : at + ROWS_PER_CHUNK].astype(np.float64)) for at in parts]
        )
        return scores[:, 0] if self.network.outputs == 1 else scores

    def predictions(self, rows: Array) -> Array:
        """The predicted class or number of each scaled row."""
        return self.labels.predictions(self.scores(rows))

    def probabilities(self, rows: Array) -> Array:
        """The probability of each class, where the loss has them."""
        if not self.likely:
            raise AttributeError("this model has no probabilities; train with the logistic or softmax loss for them")
        return loss_named(self.network.loss_name).probabilities(calibrated(self.scores(rows), self.cap))

    @property
    def cap(self) -> float:
        """The score at which the slope of a typical record was cut, by which probabilities are corrected."""
        clips = [line.clip for line in self.trace if line.question == Gradient.name and line.clip is not None]
        promise = self.statement.data.get("promise") or {}
        alone = Unit.of_words(promise.get("unit", UNIT)).most == 1  # rows of persons are cut elsewhere
        plainly = self.made is not None and self.network.loss == "logistic" and alone
        return max(clips[-1], 0.5) if clips and plainly else math.inf

    def uncalibrated(self, log_odds: Array) -> Array:
        """Scores whose probabilities have these log-odds."""
        return uncalibrated(log_odds, self.cap)

    def weights(self) -> Array:
        """A row of coefficients per output, the intercept last; linear models only."""
        rows = self._rows(self.theta)
        return rows if self.made is None else rows * self.made.gains

    def errors(self) -> Array | None:
        """The standard deviation of the privacy noise on each coefficient; None where it is not known."""
        values = self.spread.values()
        return None if values is None else self._rows(values)

    def _rows(self, values: Array) -> Array:
        if not self.network.linear:
            raise AttributeError("coef_ exists for linear models only")
        return values.astype(np.float64).reshape(self.network.outputs, self.network.features)

    def effects(self) -> Effects:
        """The effect of each column on the score, or on a regression's target in its unit, and the strength of pairs."""
        if self.made is None:
            raise AttributeError(
                "effects_ exist for models of the effects of columns, which method='additive' trains; a linear model "
                "has coef_"
            )
        unit = (self.labels.high - self.labels.low) / 2 if isinstance(self.labels, Target) else 1.0
        weights, errors = unit * self.weights(), self.errors()
        deviations = None if errors is None else unit * errors
        names = self.outputs if self.network.outputs > 1 else None
        return effects_of(self.made, self._cells(), weights, deviations, self.shares, names)

    @property
    def outputs(self) -> tuple[str, ...] | None:
        """The class of each score; a single score belongs to the second of two classes. None for a regression."""
        return None if self.classes is None else tuple(str(name) for name in self.classes[-self.network.outputs :])

    def features(self) -> list[str]:
        """Names of the coordinates that have a coefficient, the intercept last."""
        if self.made is not None:
            return names_of(self.made, self._cells())
        plain = self.columns if self.columns is not None else [f"x{i}" for i in range(len(self.scaling.low))]
        return [*map(str, plain if self.encoder is None else self.encoder.feature_names), "(intercept)"]

    def _cells(self) -> tuple[TableColumn, ...]:
        assert isinstance(self.scaling, Cells)
        return self.scaling.columns

    def to_dict(self) -> dict[str, Any]:
        """Everything but theta, statement and trace as plain data, as ``run.json`` has it."""
        task = {task: name for name, task in TASKS.items()}["regression" if self.classes is None else "classification"]
        bounds = [self.labels.low, self.labels.high] if isinstance(self.labels, Target) else None
        return {
            "estimator": task,
            "settings": dict(self.settings),
            "target": self.target,
            "classes": None if self.classes is None else self.classes.tolist(),
            "probabilities": self.likely,
            "features": self.features() if self.made is None else [column.name for column in self._cells()],
            "preprocessing": {
                "schema": None if self.encoder is None else self.encoder.to_dict(),
                "columns": None if self.columns is None else list(self.columns),
                "low": self.scaling.low.tolist(),
                "high": self.scaling.high.tolist(),
                "unit_rows": self.scaling.unit_rows,
                "target_bounds": bounds,
                **({} if self.made is None else {"features": self.made.to_dict()}),
                **({} if self.shares is None else {"shares": self.shares.tolist()}),
            },
            "model": self.network.to_dict(),
            "steps": self.steps,
            "size": self.size,
            "coefficients": self._coefficients() if self.network.linear else None,
        }

    def _coefficients(self) -> list[dict[str, Any]]:
        """Each coefficient with the standard deviation of the privacy noise on it, where that is known."""
        values, errors, features = self.weights(), self.errors(), self.features()
        return [
            {
                "output": output,
                "feature": feature,
                "value": float(values[k, j]) if self.made is None else float(f"{values[k, j]:.7g}"),
                "standard_error": None if errors is None else float(errors[k, j]),
            }
            for k, output in enumerate(self.outputs or (None,))
            for j, feature in enumerate(features)
        ]

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any], theta: Array, statement: Statement, trace: tuple[Released, ...]
    ) -> Fitted:
        """The fitted thing that :meth:`to_dict` described; what does not go together is refused."""
        saved, network = document["preprocessing"], Network.from_dict(document["model"])
        if TASKS[document["estimator"]] != ("regression" if document["classes"] is None else "classification"):
            raise ValueError("its estimator does not go with its labels")
        low, high = (np.asarray(saved[end], dtype=float) for end in ("low", "high"))
        if not (low.ndim == 1 and low.shape == high.shape and bool((low < high).all())):
            raise ValueError("its bounds are not pairs of numbers with low < high")
        _check_settings(document["settings"], network)
        made = None if saved.get("features") is None else Features.from_dict(saved["features"])
        if (made is None) != (network.kind != "Additive"):
            raise ValueError("its features do not go with its model")
        if (
            network.features != (len(low) + 1 if made is None else made.width)
            or theta.shape != (network.dimension,)
            or not np.isfinite(theta).all()
        ):
            raise ValueError("the model's parameters do not fit its description")
        names = None if saved["columns"] is None else tuple(map(str, saved["columns"]))
        encoder = None if saved["schema"] is None else Encoder.from_dict(saved["schema"])
        scaling = Scaling(low, high, bool(saved["unit_rows"]))
        if made is not None:
            known = number_columns(low, high, names) if encoder is None else columns_of(encoder.schema)
            made.check(known)
            scaling = Cells(low, high, bool(saved["unit_rows"]), known)
        fitted = cls(
            theta,
            network,
            scaling,
            labels_from(document, network.outputs),
            statement,
            trace,
            int(document["steps"]),
            document.get("size"),
            Spread.known(_saved_errors(document["coefficients"])),
            dict(document["settings"]),
            columns=names,
            made=made,
            shares=_saved_shares(saved.get("shares"), made),
        )
        if not fitted.cap > 0:
            raise ValueError("its trace has a clip that is no number")
        return fitted if encoder is None else fitted._with_encoder(encoder)

    def _with_encoder(self, encoder: Encoder) -> Fitted:
        """With a schema, if it goes with the rest of the run."""
        same = np.array_equal(encoder.low, self.scaling.low) and np.array_equal(encoder.high, self.scaling.high)
        declared = None if encoder.schema.target is None or encoder.classes is None else encoder.classes.tolist()
        known = None if self.classes is None or self.settings.get("classes") else self.classes.tolist()
        if not same or (declared is not None and known is not None and declared != known):
            raise ValueError("its schema does not go with its bounds or classes")
        return replace(self, encoder=encoder)


def _check_settings(settings: Mapping[str, Any], network: Network) -> None:
    """Refuse settings that cannot have led to the model."""
    hidden = (
        {"auto": (), "linear": (), "mlp": (20,)}.get(settings["model"]) if isinstance(settings["model"], str) else None
    )
    asked = tuple(settings["model"]) if hidden is None and isinstance(settings["model"], list | tuple) else hidden
    if asked != network.sizes[1:-1] or settings["loss"] not in ("auto", network.loss_name):
        raise ValueError("its settings do not go with its model")


def _saved_shares(shares: Any, made: Features | None) -> Array | None:
    values = None if shares is None else np.asarray(shares, dtype=np.float64)
    if values is None:
        return None
    if made is None or values.shape != (made.width,) or not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError("its shares do not go with its features")
    return values


def _saved_errors(coefficients: Sequence[Mapping[str, Any]] | None) -> Array | None:
    errors = [row["standard_error"] for row in coefficients or ()]
    return None if not errors or None in errors else np.array(errors, dtype=np.float64)
