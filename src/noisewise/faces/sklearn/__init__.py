"""The face for scikit-learn users: ``PrivateClassifier`` and ``PrivateRegressor``.

Thin: they check what the data holder declared, scale rows by it, run a :class:`~noisewise.tables.fit.fit.Fit` and hold what
came of it. Everything that is not declared, public or paid for stays inside the curator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if

from ...evidence import runs
from ...methods import Method
from ...tables.fit.build import AUTO, classes_for, classifier_loss, method_for
from ...tables.fit.build import Origin as Origin
from ...tables.fit.fitted import Fitted
from ...tables.fit.labels import Classes
from ...tables.refusal import our_words
from ...tables.schema import Schema
from ...trusted.losses import Loss
from .estimator_base import PrivateEstimator

Array = NDArray[Any]
NO_SCORE = "y cannot be scored; pass one label of the kind that predict returns for each row of X"
BINARY = np.array([0, 1])


def _has_probabilities(estimator: Any) -> bool:
    fitted: Fitted | None = getattr(estimator, "fitted_", None)
    if fitted is not None:
        return fitted.likely
    try:
        loss = classifier_loss(
            estimator.loss, method_for(estimator.method, estimator.model, 1, isolation=estimator.isolation), BINARY
        )
    except ValueError:
        return False
    return classes_for(BINARY, loss).likely


class PrivateClassifier(ClassifierMixin, PrivateEstimator):
    """A linear or MLP classifier, binary or multi-class, trained under (epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon
        The budget of one ``fit``, with delta. Two fits on the same records spend it twice. None spends 1, with a warning.
    delta
        The rest of the budget: well below one over the number of records.
    method
        "auto" (effects of columns and pairs for a table, descent for other models), a name
        (``noisewise.methods.registry()``), a configured method object, or "package.module:Class", a method of another package,
        which runs in a process of its own.
    loss
        "auto" (logistic for two classes, softmax for more), a name (``noisewise.losses.loss_names()``), or a loss.
    model
        "auto" (left to the method), "linear", "mlp" (one hidden layer of 20), or a tuple of hidden layer sizes.
    adjacency
        "add_remove" or "replace_one": what a neighbouring data set is.
    bounds
        (low, high) for all columns, a pair per column, or {column: (low, high)} for a DataFrame. Declared by you; values
        outside are clamped. Never read from private rows. "buy": a part of epsilon buys noisy quantiles as bounds, of all
        columns or of those that a Schema leaves open.
    schema
        A :class:`Schema` in their place, with categories too.
    bounds_epsilon
        The part of epsilon that buys bounds; a fifth by default.
    classes
        The class labels, if they are not to be taken from ``y`` (taking them assumes that they are public).
    max_grad_norm
        Clip norm of a record's gradient, or of a person's; None leaves it to the method.
    size_is_public
        Whether the number of records may be known. If not, a noisy count is bought from the budget.
    class_weight
        {class: weight} chosen without the private labels; "balanced" is refused, counting labels would leak.
        Weights count relative to the largest, by which they are divided: the clip would undo what is above 1.
    random_state
        None trains privately. A seed makes the run a simulation, whose statement says "not private".
    unit
        The column of a DataFrame that says whose row it is: what is protected is then a person with all rows. The column
        is no feature. A :class:`Schema` can say this and the next.
    rows_per_unit
        How many rows of a person count.
    isolation
        Where a method of another package runs: "sandbox", or "process", which trusts it not to look at your files.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3)); y = X[:, 0] > 0.2
    >>> clf = PrivateClassifier(epsilon=1.0, delta=1e-6, bounds=(-1, 1), random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float = 1e-6,
        *,
        method: str | Method = AUTO,
        loss: str | Loss = "auto",
        model: str | tuple[int, ...] = AUTO,
        adjacency: str = "add_remove",
        bounds: Any = None,
        schema: Mapping[str, Any] | Schema | None = None,
        classes: Any = None,
        max_grad_norm: float | None = None,
        size_is_public: bool = False,
        class_weight: Mapping[Any, float] | None = None,
        random_state: Any = None,
        unit: str | None = None,
        rows_per_unit: int | None = None,
        bounds_epsilon: float | None = None,
        isolation: str = "sandbox",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.loss = loss
        self.model = model
        self.adjacency = adjacency
        self.bounds = bounds
        self.schema = schema
        self.classes = classes
        self.max_grad_norm = max_grad_norm
        self.size_is_public = size_is_public
        self.class_weight = class_weight
        self.random_state = random_state
        self.unit = unit
        self.rows_per_unit = rows_per_unit
        self.bounds_epsilon = bounds_epsilon
        self.isolation = isolation

    def decision_function(self, X: Any) -> Array:
        """Score of each row (positive: ``classes_[1]``), or one column per class for several classes."""
        scores, labels = self._scores(X), self.fitted_.labels
        assert isinstance(labels, Classes)
        return labels.decisions(scores)

    def predict(self, X: Any) -> Array:
        """The most likely class of each row."""
        rows = self._scaled_rows(X)
        return self.fitted_.predictions(rows)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Probability of each class; for losses that model one (logistic, softmax)."""
        rows = self._scaled_rows(X)
        return self.fitted_.probabilities(rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on rows with labels. Not private: ``noisewise evaluate`` buys a score that is."""
        predicted = self.predict(X)
        with our_words(NO_SCORE):
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few dozen rows are not enough to learn from privately
        return tags


class PrivateRegressor(RegressorMixin, PrivateEstimator):
    """A linear or MLP regression trained under (epsilon, delta)-differential privacy; least squares.

    Parameters are those of :class:`PrivateClassifier`, and ``target_bounds``: the declared (low, high) of the target,
    clamped, unless a :class:`Schema` has them; "buy" buys them along with those of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20000, 2)); y = X @ [1.0, -0.5]
    >>> reg = PrivateRegressor(epsilon=1.0, delta=1e-6, bounds=(-1, 1), target_bounds=(-2, 2), random_state=0)
    >>> reg.fit(X, y).score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float = 1e-6,
        *,
        method: str | Method = AUTO,
        loss: str | Loss = "squared",
        model: str | tuple[int, ...] = AUTO,
        adjacency: str = "add_remove",
        bounds: Any = None,
        schema: Mapping[str, Any] | Schema | None = None,
        target_bounds: Any = None,
        max_grad_norm: float | None = None,
        size_is_public: bool = False,
        random_state: Any = None,
        unit: str | None = None,
        rows_per_unit: int | None = None,
        bounds_epsilon: float | None = None,
        isolation: str = "sandbox",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.loss = loss
        self.model = model
        self.adjacency = adjacency
        self.bounds = bounds
        self.schema = schema
        self.target_bounds = target_bounds
        self.max_grad_norm = max_grad_norm
        self.size_is_public = size_is_public
        self.random_state = random_state
        self.unit = unit
        self.rows_per_unit = rows_per_unit
        self.bounds_epsilon = bounds_epsilon
        self.isolation = isolation

    def predict(self, X: Any) -> Array:
        """The predicted target of each row, within the declared bounds."""
        rows = self._scaled_rows(X)
        return self.fitted_.predictions(rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 on rows with targets. Not private: ``noisewise evaluate`` buys a score that is."""
        predicted = self.predict(X)
        with our_words(NO_SCORE):
            return float(r2_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def save(estimator: PrivateEstimator, folder: str | Path, *, warnings: Sequence[str] = ()) -> Path:
    """Write a fitted estimator to a new folder, all of it or nothing."""
    return runs.save(estimator.fitted_, folder, warnings=warnings)


def load(folder: str | Path) -> PrivateClassifier | PrivateRegressor:
    """The estimator of a run folder. Nothing in the folder is executed; one whose files were changed is refused."""
    fitted = runs.load(folder)
    with runs.readable(folder):
        return _held(fitted)


def _held(fitted: Fitted) -> PrivateClassifier | PrivateRegressor:
    settings: dict[str, Any] = dict(fitted.settings)
    settings["method"] = settings.pop("chosen_by", settings["method"])
    settings.pop("federated", None)  # where records lay is the run's, not the model's
    if settings.pop("epsilon_by", None) == "default":
        settings["epsilon"] = None
    if settings.get("class_weight") is not None:
        settings["class_weight"] = dict(settings["class_weight"])
    if fitted.encoder is not None:
        settings["schema"] = fitted.encoder.schema
    else:
        settings["bounds"] = list(zip(fitted.scaling.low.tolist(), fitted.scaling.high.tolist(), strict=True))
    face: Any = (PrivateRegressor if fitted.classes is None else PrivateClassifier)(**settings)
    return face._hold(fitted)
