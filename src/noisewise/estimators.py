"""The face for scikit-learn users: ``PrivateClassifier`` and ``PrivateRegressor``.

Thin: they check what the data holder declared, scale rows by it, call :func:`noisewise.train.train` and keep what was
released. Everything that is not declared, public or paid for stays inside the curator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if

from .data.checks import class_codes, class_weights, classes_in, declared_classes
from .data.desk import our_words
from .data.preprocess import interval
from .data.schema import Schema
from .fitting import Origin, PrivateEstimator, Task
from .losses import LOSSES, USUAL, ClassWeighted, Loss, loss_named
from .methods import RECOMMENDED, Method
from .models import Model

Array = NDArray[Any]
NO_SCORE = "y cannot be scored; pass one label of the kind that predict returns for each row of X"


def _has_probabilities(estimator: Any) -> bool:
    named = isinstance(estimator.loss, str) and estimator.loss in LOSSES
    loss = LOSSES[estimator.loss] if named else estimator.loss
    return getattr(loss, "has_probabilities", loss == "auto")


class PrivateClassifier(ClassifierMixin, PrivateEstimator):
    """A linear or MLP classifier, binary or multi-class, trained under (epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon, delta : the budget of one ``fit``. Two fits on the same records spend it twice.
    method : name of a method (``noisewise.methods.registry()``) or a configured method object.
    loss : "auto" (logistic for two classes, softmax for more), a name (``noisewise.losses.loss_names()``), or a loss.
    model : "linear", "mlp" (one hidden layer of 20), or a tuple of hidden layer sizes.
    adjacency : "add_remove" or "replace_one": what a neighbouring data set is.
    bounds, schema : (low, high) for all columns, a pair per column, {column: (low, high)} for a DataFrame, or a
        :class:`Schema` with categories too. Declared by you; values outside are clamped. Never read from private rows.
    classes : the class labels, if they are not to be taken from ``y`` (taking them assumes that they are public).
    max_grad_norm : clip norm of a record's gradient; None leaves it to the method.
    size_is_public : whether the number of records may be known. If not, a noisy count is bought from the budget.
    class_weight : {class: weight} chosen without the private labels; "balanced" is refused, counting labels would leak.
    random_state : None trains privately. A seed makes the run a simulation, whose statement says "not private".

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3)); y = X[:, 0] > 0.2
    >>> clf = PrivateClassifier(epsilon=1.0, delta=1e-6, bounds=(-1, 1), random_state=0).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    """

    _unit_rows = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        method: str | Method = RECOMMENDED,
        loss: str | Loss = "auto",
        model: str | tuple[int, ...] = "linear",
        adjacency: str = "add_remove",
        bounds: Any = None,
        schema: Mapping[str, Any] | Schema | None = None,
        classes: Any = None,
        max_grad_norm: float | None = None,
        size_is_public: bool = False,
        class_weight: Mapping[Any, float] | None = None,
        random_state: Any = None,
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

    def _prepared(self, task: Task) -> tuple[Task, Model]:
        self.classes_, whence = self._known_classes(task.private.y)
        if len(self.classes_) < 2:
            raise ValueError(
                "y has one class only; a classifier needs at least two, pass classes=[...] to declare them"
            )
        loss = self._loss()
        coded, public = _coded(loss, class_codes(self.classes_, task.private.y)), task.public
        if public is not None:
            public = public._replace(y=_coded(loss, class_codes(self.classes_, public.y, who="public")))
        assumed = (*task.assumed, f"the classes, {whence}")
        outputs = len(self.classes_) if loss.task == "classes" else 1
        ready = replace(task, private=task.private._replace(y=coded), public=public, assumed=assumed)
        return ready, self._model(loss, outputs)

    def _known_classes(self, y: Array) -> tuple[Array, str]:
        found = classes_in(y)  # also when they are declared: a continuous y is refused
        if self.classes is not None:
            return declared_classes(self.classes), "declared"
        encoder = getattr(self, "_encoder", None)
        if encoder is not None and encoder.schema.target is not None and encoder.classes is not None:
            return encoder.classes, getattr(self, "_origin", Origin()).classes
        return found, "taken from the labels"

    def _loss(self) -> Loss:
        several = len(self.classes_) > 2
        named = isinstance(self.loss, str) and self.loss == "auto"
        loss = loss_named(USUAL["classes" if several else "binary"] if named else self.loss).as_classifier()
        if several and loss.task != "classes":
            raise ValueError(
                f"loss is {loss.name!r} but there are more than two classes; pass loss={USUAL['classes']!r}"
            )
        if self.class_weight is None:
            return loss
        return ClassWeighted(loss, class_weights(self.class_weight, self.classes_))

    def _model_labels(self, y: Array) -> Array:
        return _coded(self._trained_model.loss, class_codes(self.classes_, y))

    def decision_function(self, X: Any) -> Array:
        """Score of each row (positive: ``classes_[1]``), or one column per class for several classes."""
        return self._decisions(self._scores(X))

    def _decisions(self, scores: Array) -> Array:
        return scores[:, 1] - scores[:, 0] if scores.ndim == 2 and len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """The most likely class of each row."""
        return self._predictions(self._scores(X))

    def _predictions(self, scores: Array) -> Array:
        scores = self._decisions(scores)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Probability of each class; for losses that model one."""
        return self._probabilities(self._scores(X))

    def _probabilities(self, scores: Array) -> Array:
        return self._trained_model.loss.probabilities(scores)

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
    clamped. When it is None, a single pair of ``bounds`` stands for the target too.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20000, 2)); y = X @ [1.0, -0.5]
    >>> reg = PrivateRegressor(epsilon=1.0, delta=1e-6, bounds=(-1, 1), target_bounds=(-2, 2), random_state=0)
    >>> reg.fit(X, y).score(X, y) > 0.8
    True
    """

    _unit_rows = False

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        method: str | Method = RECOMMENDED,
        loss: str | Loss = "squared",
        model: str | tuple[int, ...] = "linear",
        adjacency: str = "add_remove",
        bounds: Any = None,
        schema: Mapping[str, Any] | Schema | None = None,
        target_bounds: Any = None,
        max_grad_norm: float | None = None,
        size_is_public: bool = False,
        random_state: Any = None,
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

    def _prepared(self, task: Task) -> tuple[Task, Model]:
        if task.private.y.dtype.kind not in "fiub":
            raise ValueError("y holds text; a regression needs numbers, or use PrivateClassifier")
        self._target = self._target_bounds()
        loss = loss_named(self.loss)
        if loss.task != "regression":
            raise ValueError(f"loss is {loss.name!r}; pass loss='squared' for a regression")
        scaled, public = task.private._replace(y=self._scaled(task.private.y)), task.public
        if public is not None:
            public = public._replace(y=self._scaled(public.y.astype(float)))
        named = hasattr(self, "_origin")  # which says where all bounds come from
        assumed = task.assumed if named else (*task.assumed, "bounds of the target, declared")
        return replace(task, private=scaled, public=public, assumed=assumed), self._model(loss, 1)

    def _target_bounds(self) -> tuple[float, float]:
        if self.target_bounds is not None:
            return interval("target_bounds", self.target_bounds)
        if isinstance(self.schema, Schema) and self.schema.target is not None:
            column = self.schema[self.schema.target]
            return interval("bounds of the target", (column.low, column.high))
        if np.shape(self.bounds) == (2,):
            return interval("bounds", self.bounds)
        raise ValueError("target_bounds is missing; pass the declared (low, high) of y, never read from private rows")

    def _model_labels(self, y: Array) -> Array:
        return self._scaled(y)

    def _scaled(self, y: Array) -> Array:
        low, high = self._target
        return 2 * (np.clip(y, low, high) - low) / (high - low) - 1

    def predict(self, X: Any) -> Array:
        """The predicted target of each row, within the declared bounds."""
        return self._predictions(self._scores(X))

    def _predictions(self, scores: Array) -> Array:
        low, high = self._target
        return low + (np.clip(scores, -1, 1) + 1) / 2 * (high - low)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 on rows with targets. Not private: ``noisewise evaluate`` buys a score that is."""
        predicted = self.predict(X)
        with our_words(NO_SCORE):
            return float(r2_score(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def _coded(loss: Loss, codes: Array) -> Array:
    """Class numbers as the loss wants them: as they are, or -1 and +1."""
    return codes if loss.task == "classes" else 2 * codes - 1
