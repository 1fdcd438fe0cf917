"""What both scikit-learn faces share: checks at the data holder, one private run, and what is kept of it."""

from __future__ import annotations

import numbers
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .budget import Budget
from .curator import PublicCurator
from .curator.desk import nobody_listens, unheard
from .data.checks import labels_of, names_of, public_pair, rows_of, same_length
from .data.desk import our_words
from .data.encode import Encoder
from .data.files import Paths, Share
from .data.preprocess import Scaling, declared_bounds
from .data.rows import IN_MEMORY, read_rows
from .data.schema import Schema
from .losses import Loss
from .methods import Method, method_named
from .models import MLP, Linear, Model
from .records.grid import CHUNK, Mapped, Store, in_memory
from .replay import Spread
from .report.statement import Statement, make_statement, training_budget
from .train import Progress, Records, Trained, train

Array = NDArray[Any]
DECLARED = "bounds of the features, declared"
SETTINGS = "settings, chosen without the private rows"


class Labelled(NamedTuple):
    """Scaled rows with labels as a face knows them, before they are numbers that a loss takes."""

    X: torch.Tensor
    y: Array


@dataclass(frozen=True)
class Task:
    """What one fit works on: rows, what is assumed of them, where they are kept, and what was paid for before."""

    private: Labelled
    public: Labelled | None
    assumed: tuple[str, ...]
    store: Store = in_memory
    preparation: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Origin:
    """Where bounds and categories come from, in words, and what was paid for them before training."""

    words: str = "bounds and categories, declared in a schema"
    classes: str = "declared"
    preparation: Mapping[str, Any] | None = None


class PrivateEstimator(BaseEstimator, ABC):
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
        nobody_listens()  # the method is somebody's object, made before this
        fresh = self._fresh()
        fresh._fit(X, y, public)
        return self._become(fresh)

    def fit_files(
        self,
        paths: Paths,
        *,
        public: Paths | None = None,
        separator: str | None = None,
        cache: str | Path | None = None,
        reading: Share | None = None,
        origin: Origin | None = None,
    ) -> Self:
        """Train on CSV or Parquet files by ``schema``, a :class:`Schema` with a target; see docs/schema.md.

        Rows that need more than 200 MB, or all when ``cache`` is a folder, are kept in a file without a name there and
        mapped into memory, so that they need not fit into it.
        """
        nobody_listens()  # the method is somebody's object, made before this
        fresh = self._fresh()
        fresh._fit_files(paths, public, separator, cache, reading, origin or Origin())
        return self._become(fresh)

    def _fresh(self) -> Self:
        return type(self)(**self.get_params(deep=False)).watch(getattr(self, "_progress", None))

    def _become(self, fresh: Self) -> Self:
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # nothing of an earlier fit may survive beside the new one
        self.__dict__.update(fresh.__dict__)
        return self

    def _fit(self, X: Any, y: Any, public: Any) -> None:
        self._budget()
        encoder = Encoder(self.schema) if isinstance(self.schema, Schema) else None
        names = None if encoder is None else [column.name for column in encoder.schema.features]
        X, y = self._checked(X if encoder is None else encoder(X), y)
        if encoder is not None:
            self._encoder, self.n_features_in_ = encoder, len(names or ())
            self.feature_names_in_ = np.array(names, dtype=object)
            self._scaling, words = Scaling(encoder.low, encoder.high, self._unit_rows), Origin().words
        else:
            found = getattr(self, "feature_names_in_", None)
            self._scaling = Scaling(
                *declared_bounds(X.shape[1], found, bounds=self.bounds, schema=self.schema), self._unit_rows
            )
            words = DECLARED
        pair = None if public is None else self._public_pair(public, X.shape[1])
        self._train(Task(self._labelled(X, y), pair, (words, SETTINGS)))

    def _fit_files(
        self,
        paths: Paths,
        public: Paths | None,
        separator: str | None,
        cache: str | Path | None,
        reading: Share | None,
        origin: Origin,
    ) -> None:
        self._budget()
        if not isinstance(self.schema, Schema) or self.schema.target is None:
            raise ValueError(
                "schema must be a Schema with a target to train on files; see noisewise schema init --help"
            )
        self._encoder, self._origin = (encoder := Encoder(self.schema)), origin
        self.feature_names_in_ = np.array([column.name for column in encoder.schema.features], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self._scaling = scaling = Scaling(encoder.low, encoder.high, self._unit_rows)
        known = None
        if public is not None:
            found = read_rows(public, encoder, scaling, separator=separator)
            known = Labelled(found.X, self._values(found.y))
        rows = read_rows(paths, encoder, scaling, separator=separator, cache=cache, progress=reading)
        large = cache is not None or rows.X.numel() * rows.X.element_size() > IN_MEMORY
        store = Mapped(Path(cache or tempfile.gettempdir())) if large else in_memory
        private = Labelled(rows.X, self._values(rows.y))
        assumed = (origin.words, SETTINGS, "files checked against the schema before training")
        self._train(Task(private, known, assumed, store, origin.preparation))

    def _values(self, y: Array | None) -> Array:
        """Labels of a file as the caller of ``fit`` would give them."""
        assert y is not None
        classes = self._encoder.classes
        return y if classes is None else classes[y]

    def _labelled(self, X: Array, y: Array) -> Labelled:
        return Labelled(self._scaled_rows(X), y)

    def _scaled_rows(self, X: Array) -> torch.Tensor:
        with our_words("X cannot be scaled by its bounds; pass bounds that its columns can have"):
            return torch.from_numpy(self._scaling(X))

    def _public_pair(self, public: Any, columns: int) -> Labelled:
        encoder = getattr(self, "_encoder", None)
        if encoder is not None and isinstance(public, tuple | list) and len(public) == 2:
            public = (encoder(public[0]), public[1])
        return self._labelled(*public_pair(public, getattr(self, "feature_names_in_", None), columns))

    @abstractmethod
    def _prepared(self, task: Task) -> tuple[Task, Model]:
        """The task with labels as its loss takes them, and the model: each face checks its own labels."""

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

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        """X and y as arrays; missing labels are refused, features never (a bad feature is the curator's matter)."""
        rows, labels = self._rows(X, reset=True), labels_of(y, numeric=isinstance(self, RegressorMixin))
        same_length(rows, labels)
        return rows, labels

    def _rows(self, X: Any, *, reset: bool) -> Array:
        """Rows as a matrix; scikit-learn is shown the names of the columns only, and ``reset`` remembers them."""
        rows = rows_of(X)
        names = names_of(X)
        bare = np.empty((0, rows.shape[1])) if names is None else names
        validate_data(self, bare, "no_validation", skip_check_array=True, reset=reset)
        return rows

    def _train(self, task: Task) -> None:
        """One private run."""
        with unheard():
            task, model = self._prepared(task)
            labels = as_labels(task.private.y, model)
        private, public, assumed, preparation = task.private, task.public, list(task.assumed), task.preparation
        size = self._size(len(private.y))
        if size is not None:
            relation = self.adjacency == "replace_one"
            assumed.append("the number of records, " + ("fixed by replace_one" if relation else "declared public"))
        records = Records(private.X, labels, size, row_bound=1.0, store=task.store)
        curator = None
        if public is not None:
            curator = PublicCurator(public.X, as_labels(public.y, model), model=model)
            assumed.append(f"{curator.size} public rows, disjoint from the private ones")
        method, budget = self._method(), self._budget()
        self._trained_model = model

        def stated(run: Trained) -> Statement:
            settings, shape = method.settings(), describe(model)
            return make_statement(
                method=method.name,
                settings=settings,
                run=run,
                model=shape,
                assumed=assumed,
                preparation=preparation,
                arithmetic=run.arithmetic,
            )

        try:
            run = train(
                method,
                records,
                model=model,
                budget=budget if preparation is None else training_budget(budget, preparation),
                public=curator,
                seed=_seed(self.random_state),
                progress=getattr(self, "_progress", None),
            )
        except BaseException as error:
            if (so_far := getattr(error, "run", None)) is not None:
                error.statement = stated(so_far)  # type: ignore[attr-defined]
            raise
        self._theta, self._spread = run.theta, Spread(method, run.tape, curator)
        self.trace_, self._released_size = run.trace, run.facts.size
        self.n_iter_ = max(run.steps, 1)
        self.statement_: Statement = stated(run)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_progress", None)  # a callback is not part of a model
        return state

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "statement_")
        encoder = getattr(self, "_encoder", None)
        matrix = self._rows(X, reset=False) if encoder is None else encoder(X, predict=True)
        return self._row_scores(self._scaled_rows(matrix))

    def _row_scores(self, rows: torch.Tensor) -> Array:
        """Scores of scaled rows, a chunk at a time."""
        theta = self._theta.double()
        chunks = [self._trained_model.scores(theta, chunk.double()) for chunk in rows.split(CHUNK)]
        return torch.cat(chunks).numpy()

    @property
    def coef_(self) -> Array:
        """Coefficients of the scaled features (see the guide), one row per output for several classes."""
        return self._weights()[..., :-1]

    @property
    def intercept_(self) -> Any:
        return self._weights()[..., -1]

    @property
    def coef_std_(self) -> Array | None:
        """Standard deviation of the privacy noise on each coefficient; None where it is not known (docs/standard-errors.md)."""
        return None if (errors := self._errors()) is None else errors[..., :-1]

    @property
    def intercept_std_(self) -> Any:
        """The same for the intercept."""
        return None if (errors := self._errors()) is None else errors[..., -1]

    def _errors(self) -> Array | None:
        weights, errors = self._weights(), self._theta_std()
        return None if errors is None else self._shaped(errors).reshape(weights.shape)

    def _theta_std(self) -> torch.Tensor | None:
        return self._spread.values()

    def _weights(self) -> Array:
        check_is_fitted(self, "statement_")
        return self._shaped(self._theta)

    def _shaped(self, theta: torch.Tensor) -> Array:
        model = self._trained_model
        if not model.linear:
            raise AttributeError("coef_ exists for linear models only")
        weights = theta.double().numpy().reshape(model.outputs, model.features)
        return weights[0] if isinstance(self, RegressorMixin) else weights

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing feature of a private record may not stop anything
        return tags


def describe(model: Model) -> dict[str, Any]:
    """The model in words and numbers, for a statement."""
    return {
        "kind": type(model).__name__,
        "shape": list(model.shape),
        "loss": str(model.loss),
        "parameters": model.dimension,
    }


def as_labels(y: Array, model: Model) -> torch.Tensor:
    return torch.as_tensor(y, dtype=torch.int64 if model.loss.task == "classes" else torch.float32)


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
