"""The face for scikit-learn users: ``PrivateClassifier`` and ``PrivateRegressor``.

Thin: they check what the data holder declared, scale rows by it, call :func:`noisewise.train.train` and keep what was
released. Everything that is not declared, public or paid for stays inside the curator.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .budget import Budget
from .curator import PublicCurator
from .data.checks import class_codes, class_weights, declared_classes, no_missing_labels, public_pair, without_values
from .data.preprocess import Scaling, declared_bounds, interval
from .gradients import MLP, Linear, Model
from .losses import ClassWeighted, Loss, Squared, loss_named
from .methods import RECOMMENDED, Method, method_named
from .report.statement import Statement, make_statement
from .train import Progress, Records, train

Array = NDArray[Any]


class _PrivateEstimator(BaseEstimator):
    """What both faces share: validation at the data holder, then one private run."""

    _unit_rows: bool

    def watch(self, progress: Progress | None) -> Self:
        """Call ``progress(step, steps, spent share of the budget)`` after every step of the next fits."""
        self._progress = progress
        return self

    def fit(self, X: Any, y: Any, public: Any = None) -> Self:
        """Train on private rows ``X`` with labels ``y``; ``public`` is a pair (X, y) of public rows, if there are any.

        What was fitted before stays as it was when this fails.
        """
        fresh = type(self)(**self.get_params(deep=False)).watch(getattr(self, "_progress", None))
        fresh._fit(X, y, public)
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # nothing of an earlier fit may survive beside the new one
        self.__dict__.update(fresh.__dict__)
        return self

    def _fit(self, X: Any, y: Any, public: Any) -> None:
        raise NotImplementedError  # each face checks its own labels

    def _budget(self) -> Budget:
        return Budget(self.epsilon, self.delta, adjacency=self.adjacency)

    def _method(self) -> Method:
        method = method_named(self.method)
        if self.max_grad_norm is not None:
            method = method.with_settings(max_grad_norm=self.max_grad_norm)
        return method

    def _size(self, n: int) -> float | None:
        """The size when it is public: declared so, or fixed by the relation. Only then is delta compared with it."""
        if not isinstance(self.size_is_public, bool | np.bool_):
            raise ValueError(f"size_is_public is {self.size_is_public!r}; pass True or False")
        if self.adjacency == "add_remove" and not self.size_is_public:
            return None
        if self.delta > 1 / n:
            raise ValueError(
                f"delta is {self.delta!r}, above 1/size = {1 / n:.3g}, which allows publishing a record; "
                f"pass a delta well below it, e.g. {0.1 / n:.1g}"
            )
        return float(n)

    def _model(self, loss: Loss, outputs: int) -> Model:
        features = self._scaling.features
        if isinstance(self.model, str) and self.model == "linear":
            return Linear(features, loss, outputs)
        hidden = (20,) if isinstance(self.model, str) and self.model == "mlp" else self.model
        sizes = hidden if isinstance(hidden, tuple | list) else ()
        if not sizes or not all(isinstance(units, numbers.Integral) and int(units) >= 1 for units in sizes):
            raise ValueError(f"model is {self.model!r}; pass 'linear', 'mlp' or the hidden sizes, e.g. (64, 32)")
        return MLP((features, *(int(units) for units in sizes), outputs), loss)

    def _checked(self, X: Any, y: Any, *, numeric: bool) -> tuple[Array, Array]:
        """X and y as arrays; missing labels are refused, features never (a bad feature is the curator's matter)."""
        no_missing_labels(y)
        try:
            checked: tuple[Array, Array] = validate_data(
                self, X, y, ensure_all_finite=False, dtype=np.float64, y_numeric=numeric
            )
        except ValueError as error:
            raise without_values(error) from None
        return checked

    def _train(self, X: Array, y: Array, public: tuple[Array, Array] | None, model: Model, assumed: list[str]) -> None:
        records = Records(torch.from_numpy(self._scaling(X)), _labels(y, model), self._size(len(X)), row_bound=1.0)
        curator = None
        if public is not None:
            curator = PublicCurator(torch.from_numpy(self._scaling(public[0])), _labels(public[1], model), model=model)
            assumed.append(f"{curator.size} public rows, disjoint from the private ones")
        method = self._method()
        run = train(
            method,
            records,
            model=model,
            budget=self._budget(),
            public=curator,
            seed=_seed(self.random_state),
            progress=getattr(self, "_progress", None),
        )
        self._trained_model, self._theta = model, run.theta
        self.trace_ = run.trace
        self.n_iter_ = max(run.steps, 1)
        self.statement_: Statement = make_statement(
            method=method.name, settings=method.settings(), run=run, model=describe(model), assumed=assumed
        )

    def _public(self, public: Any, columns: int) -> tuple[Array, Array] | None:
        return None if public is None else public_pair(public, getattr(self, "feature_names_in_", None), columns)

    def _declare(self, X: Array) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        low, high = declared_bounds(X.shape[1], names, bounds=self.bounds, schema=self.schema)
        self._scaling = Scaling(low, high, self._unit_rows)
        assumed = ["bounds of the features, declared", "settings, chosen without the private rows"]
        if self._size(len(X)) is not None:
            relation = self.adjacency == "replace_one"
            assumed.append("the number of records, " + ("fixed by replace_one" if relation else "declared public"))
        return assumed

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_progress", None)  # a callback is not part of a model
        return state

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "statement_")
        X = validate_data(self, X, ensure_all_finite=False, dtype=np.float64, reset=False)
        return self._trained_model.scores(self._theta.double(), torch.from_numpy(self._scaling(X))).numpy()

    @property
    def coef_(self) -> Array:
        """Coefficients of the scaled features (see the guide), one row per output for several classes."""
        return self._weights()[..., :-1]

    @property
    def intercept_(self) -> Any:
        return self._weights()[..., -1]

    def _weights(self) -> Array:
        check_is_fitted(self, "statement_")
        model = self._trained_model
        if not isinstance(model, Linear):
            raise AttributeError("coef_ exists for linear models only")
        weights = self._theta.double().numpy().reshape(model.outputs, model.features)
        return weights[0] if isinstance(self, RegressorMixin) else weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing feature of a private record may not stop anything
        return tags


def _has_probabilities(estimator: Any) -> bool:
    return estimator.loss in ("auto", "logistic", "softmax") or getattr(estimator.loss, "name", "") in (
        "logistic",
        "softmax",
    )


class PrivateClassifier(ClassifierMixin, _PrivateEstimator):
    """A linear or MLP classifier, binary or multi-class, trained under (epsilon, delta)-differential privacy.

    Parameters
    ----------
    epsilon, delta : the budget of one ``fit``. Two fits on the same records spend it twice.
    method : name of a method (``noisewise.methods.registry()``) or a configured method object.
    loss : "auto" (logistic for two classes, softmax for more), "logistic", "hinge", "huber_hinge", "squared", "softmax".
    model : "linear", "mlp" (one hidden layer of 20), or a tuple of hidden layer sizes.
    adjacency : "add_remove" or "replace_one": what a neighbouring data set is.
    bounds, schema : (low, high) for all columns, a pair per column, or {column: (low, high)} for a DataFrame. Declared
        by you; values outside are clamped. Never read from private rows.
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
        schema: Mapping[str, Any] | None = None,
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

    def _fit(self, X: Any, y: Any, public: Any) -> None:
        self._budget()
        X, y = self._checked(X, y, numeric=False)
        check_classification_targets(y)
        assumed = self._declare(X)
        self.classes_ = np.unique(y) if self.classes is None else declared_classes(self.classes)
        if len(self.classes_) < 2:
            raise ValueError(
                "y has one class only; a classifier needs at least two, pass classes=[...] to declare them"
            )
        assumed.append("the classes, " + ("taken from the labels" if self.classes is None else "declared"))
        codes = class_codes(self.classes_, y)
        loss = self._loss()
        outputs = len(self.classes_) if loss.task == "classes" else 1
        pair = self._public(public, X.shape[1])
        if pair is not None:
            pair = (pair[0], _coded(loss, class_codes(self.classes_, pair[1], who="public")))
        self._train(X, _coded(loss, codes), pair, self._model(loss, outputs), assumed)

    def _loss(self) -> Loss:
        several = len(self.classes_) > 2
        named = isinstance(self.loss, str) and self.loss == "auto"
        loss = loss_named(("softmax" if several else "logistic") if named else self.loss)
        loss = Squared(signs=True) if isinstance(loss, Squared) else loss
        if several and loss.task != "classes":
            raise ValueError(f"loss is {loss.name!r} but there are {len(self.classes_)} classes; pass loss='softmax'")
        if self.class_weight is None:
            return loss
        return ClassWeighted(loss, class_weights(self.class_weight, self.classes_))

    def decision_function(self, X: Any) -> Array:
        """Score of each row (positive: ``classes_[1]``), or one column per class for several classes."""
        scores = self._scores(X)
        if scores.ndim == 2 and len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> Array:
        """The most likely class of each row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Probability of each class; for losses that model one (logistic, softmax)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few dozen rows are not enough to learn from privately
        return tags


class PrivateRegressor(RegressorMixin, _PrivateEstimator):
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
        schema: Mapping[str, Any] | None = None,
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

    def _fit(self, X: Any, y: Any, public: Any) -> None:
        self._budget()
        X, y = self._checked(X, y, numeric=True)
        if y.dtype.kind not in "fiub":
            raise ValueError("y holds text; a regression needs numbers, or use PrivateClassifier")
        assumed = self._declare(X)
        self._target = self._target_bounds()
        assumed.append("bounds of the target, declared")
        loss = loss_named(self.loss)
        if loss.task != "regression":
            raise ValueError(f"loss is {loss.name!r}; pass loss='squared' for a regression")
        pair = self._public(public, X.shape[1])
        if pair is not None:
            pair = (pair[0], self._scaled(pair[1].astype(float)))
        self._train(X, self._scaled(y), pair, self._model(loss, 1), assumed)

    def _target_bounds(self) -> tuple[float, float]:
        if self.target_bounds is not None:
            return interval("target_bounds", self.target_bounds)
        if np.shape(self.bounds) == (2,):
            return interval("bounds", self.bounds)
        raise ValueError("target_bounds is missing; pass the declared (low, high) of y, never read from private rows")

    def _scaled(self, y: Array) -> Array:
        low, high = self._target
        return 2 * (np.clip(y, low, high) - low) / (high - low) - 1

    def predict(self, X: Any) -> Array:
        """The predicted target of each row, within the declared bounds."""
        low, high = self._target if hasattr(self, "_target") else (0.0, 1.0)
        return low + (np.clip(self._scores(X), -1, 1) + 1) / 2 * (high - low)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def describe(model: Model) -> dict[str, Any]:
    """The model in words and numbers, for a statement."""
    shape = [model.features, model.outputs] if isinstance(model, Linear) else list(model.sizes)
    return {"kind": type(model).__name__, "shape": shape, "loss": str(model.loss), "parameters": model.dimension}


def _labels(y: Array, model: Model) -> torch.Tensor:
    return torch.as_tensor(y, dtype=torch.int64 if model.loss.task == "classes" else torch.float32)


def _coded(loss: Loss, codes: Array) -> Array:
    """Class numbers as the loss wants them: as they are, or -1 and +1."""
    return codes if loss.task == "classes" else 2 * codes - 1


def _seed(random_state: Any) -> int | None:
    """None stays None (a private run); an int or a numpy generator gives the seed of a simulation."""
    if random_state is None:
        return None
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    raise ValueError(f"random_state is {random_state!r}; pass None for a private run or an integer for a simulation")
