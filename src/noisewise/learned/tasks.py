"""PublicTask distributions as data: a small TOML file says from which public learning problems a protector learns.

    name = "tables"
    epsilon = [0.0125, 1.0]        # drawn log-uniformly, as are size and horizon
    delta = 1e-8
    size = [2000, 60000]           # how many private records the rows stand for
    ratio = [10, 400]              # if given, of n mu / sqrt(d), and the size follows from it
    horizon = [20, 80]
    [[source]]
    data = "table"                 # or "images", or a generated one: gaussian, census, quadratic, digits
    file = "a9a.parquet"           # csv, parquet or npz, looked up in the data folder
    label = "y"
    licence = "CC BY 4.0"
    columns = [10, 123]            # a random subset of that many columns
    rescale = [0.3, 1.0]           # each column times a random factor
    losses = ["logistic", "hinge"]
    basis = 0.5                    # how often rows are put in a bought basis, where a private run could buy one

Sources may have ``pairs`` of classes (``"all"``, a list, or ``"groups"``: random groups of classes, which is harder),
``without`` classes, ``components = [20, 128]`` (that many leading principal components of the images or table, instead of
columns), ``model = "mlp"`` with ``hidden`` units, and a ``weight``. Every source's last fifth of the rows is held out for evaluation.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..accounts.atomic import is_there
from ..methods.preparation.basis import BASIS_SHARE, LENGTH_SHARE, deflating, worth_buying
from ..tables.generated import census, digits
from ..tables.schema_text import one_line
from ..trusted import validate
from ..trusted.accountants.gdp import mu_of
from ..trusted.losses import USUAL, loss_named, loss_names
from ..trusted.models import MLP, Linear, Model
from ..trusted.torch_extra import torch
from .unroll import PublicTask, TaskRows

Floats = NDArray[np.float64]
GENERATED = ("gaussian", "census", "quadratic", "digits")
HELD_OUT = 0.2
SPREAD = 1.3  # the copies of a task differ in their budgets by up to this factor


def _check_range(name: str, value: Any) -> None:
    numbers = isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, int | float) for v in value)
    if not (numbers and 0 < value[0] <= value[1] < math.inf):
        raise ValueError(f"{name} is {value!r}; pass [low, high] with 0 < low <= high")


@dataclass(frozen=True)
class TaskSource:
    """One entry of a task file."""

    data: str
    file: str | None = None
    label: str = "y"
    where: dict[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    licence: str = ""
    pairs: Any = "all"
    without: tuple[int, ...] = ()
    columns: tuple[int, int] | None = None
    components: tuple[int, int] | None = None
    rescale: tuple[float, float] | None = None
    losses: tuple[str, ...] = ("logistic",)
    model: str = "linear"
    hidden: int = 20
    basis: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        self._check_kinds()
        validate.one_of(("table", "images", *GENERATED), data=self.data)
        validate.one_of(("linear", "mlp"), model=self.model)
        validate.whole(hidden=self.hidden)
        validate.positive(weight=self.weight)
        if not 0 <= self.basis <= 1:
            raise ValueError(f"basis is {self.basis!r}; pass how often rows get a new basis, from 0 to 1")
        if not self.losses:
            raise ValueError("losses is empty; name at least one, e.g. losses = ['logistic']")
        for loss in self.losses:
            validate.one_of(loss_names(), losses=loss)
            if self.model == "mlp" and math.isinf(loss_named(loss).smoothness):
                raise ValueError(f"losses has {loss!r} for a perceptron, whose losses are smooth; pass 'huber_hinge'")
        for name in ("columns", "components", "rescale"):
            if getattr(self, name) is not None:
                _check_range(name, getattr(self, name))
        if self.components is not None and (self.columns is not None or self.data in ("gaussian", "quadratic")):
            raise ValueError("components are of images or a table, whole; leave out columns or components")
        pairs = self.pairs if isinstance(self.pairs, tuple | list) else ()
        if self.pairs not in ("all", "groups") and not (
            pairs and all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs)
        ):
            raise ValueError(f"pairs is {self.pairs!r}; pass 'all', 'groups' or pairs of classes, e.g. [[3, 5]]")
        if self.hidden > 10_000:
            raise ValueError(f"hidden is {self.hidden}; pass at most 10000")
        if (self.data in ("table", "images")) != (self.file is not None):
            raise ValueError(f"data is {self.data!r}; 'table' and 'images' need a file, generated tasks have none")

    def _check_kinds(self) -> None:
        """Refuse what is of another kind than it should be, and a file that is not inside of the data folder."""
        if self.file is not None:
            plain = isinstance(self.file, str) and self.file.isprintable()
            if not plain or Path(self.file).is_absolute() or ".." in Path(self.file).parts:
                raise ValueError(f"file is {self.file!r}; name a file inside the data folder")
        if not isinstance(self.label, str) or not isinstance(self.licence, str):
            raise ValueError("label and licence are texts")
        if not isinstance(self.where, dict) or not isinstance(self.pairs, str | tuple | list):
            raise ValueError("where is a table, and pairs 'all', 'groups' or a list")
        lists = (self.drop, self.without, self.losses)
        if any(not isinstance(one, tuple) for one in lists) or not all(isinstance(name, str) for name in self.drop):
            raise ValueError("drop, without and losses are lists")
        if not isinstance(self.basis, int | float):
            raise ValueError(f"basis is {self.basis!r}; pass how often rows get a new basis, from 0 to 1")

    @property
    def name(self) -> str:
        return self.file or self.data


@dataclass(frozen=True)
class Tasks:
    """A distribution of public tasks, checked."""

    name: str
    sources: tuple[TaskSource, ...]
    epsilon: tuple[float, float] = (0.0125, 1.0)
    delta: float = 1e-8
    size: tuple[float, float] = (3000, 60000)
    ratio: tuple[float, float] | None = None
    horizon: tuple[int, int] = (20, 80)
    rows: int = 3000
    copies: int = 8
    folder: Path = Path()

    def __post_init__(self) -> None:
        for name in ("epsilon", "size", "horizon", *(("ratio",) if self.ratio else ())):
            _check_range(name, getattr(self, name))
        validate.open_unit(delta=self.delta)
        validate.whole(rows=self.rows, copies=self.copies)
        if self.rows > 1_000_000 or self.copies > 1000:
            raise ValueError(f"rows is {self.rows} and copies {self.copies}; pass at most 1000000 and 1000")
        if self.horizon[0] < 2:
            raise ValueError(f"horizon is {list(self.horizon)}; pass at least 2 steps")
        if not self.sources:
            raise ValueError("there is no [[source]]; name at least one, e.g. data = 'gaussian'")

    def draw(
        self, rng: np.random.Generator, *, held_out: bool = False, horizon: int | None = None, spread: float = SPREAD
    ) -> PublicTask:
        """A random task: source, rows, columns, loss, size, horizon, and a budget for each copy."""
        weights = np.array([source.weight for source in self.sources])
        source = self.sources[rng.choice(len(self.sources), p=weights / weights.sum())]
        loss_name = str(rng.choice(source.losses))
        X, y = _rows(source, self.folder, rng, self.rows, held_out)
        size, worth = self._size_and_worth(rng, _dimension(source, loss_name, X.shape[1]))
        if rng.random() < source.basis and worth_buying(size, worth, X.shape[1]):
            X = X @ _bought(X, size, worth, rng)
            worth *= math.sqrt(1 - BASIS_SHARE - LENGTH_SHARE)
        mu = torch.from_numpy(worth * rng.uniform(1 / spread, spread, self.copies)).float()
        steps = horizon or round(math.exp(rng.uniform(*np.log(self.horizon))))
        model, labels = _model(source, loss_name, X.shape[1], y)
        rows = TaskRows.of(model, X, labels)
        return PublicTask(f"{source.name} {loss_name} d={model.dimension}", rows, size, mu, steps)

    def _size_and_worth(self, rng: np.random.Generator, dimension: int) -> tuple[float, float]:
        """How many records the rows stand for, and what the budget is worth in Gaussian DP.

        Recorded commands reproduce protectors by their seeds, so the order of the draws is part of the format.
        """

        def drawn(span: tuple[float, float]) -> float:
            return math.exp(rng.uniform(*np.log(span)))

        if self.ratio is None:
            size = drawn(self.size)
            return size, mu_of(drawn(self.epsilon), self.delta)
        worth = mu_of(drawn(self.epsilon), self.delta)
        drawn(self.size)  # not used: the size follows from the ratio
        wanted = drawn(self.ratio) * math.sqrt(dimension) / worth
        return min(max(wanted, self.size[0]), self.size[1]), worth


def load_tasks(path: Path, folder: Path | None = None) -> Tasks:
    """The task distribution in a TOML file; files it names are looked up in ``folder`` (default: beside it)."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); pass a task file") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file ({one_line(str(error))})") from None
    try:
        tasks = tasks_from(document, folder or path.parent)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    for source in tasks.sources:
        if source.file and not is_there(tasks.folder / source.file):
            raise ValueError(f"{path}: {tasks.folder / source.file} is not there; pass its folder with --data")
        if source.file and not (tasks.folder / source.file).resolve().is_relative_to(tasks.folder.resolve()):
            raise ValueError(
                f"{path}: {tasks.folder / source.file} is a link out of the data folder; copy the file there"
            )
    return tasks


def tasks_from(document: dict[str, Any], folder: Path) -> Tasks:
    """Tasks from the contents of a TOML file; a name it does not know is refused."""
    known = {f.name for f in fields(Tasks)} - {"sources", "folder"} | {"source"}
    if unknown := set(document) - known:
        raise ValueError(f"{sorted(unknown)[0]!r} is not known; a task file has {', '.join(sorted(known))}")
    sources, entries = [], document.get("source", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("source must be tables, [[source]]")
    for entry in entries:
        if unknown := set(entry) - {f.name for f in fields(TaskSource)}:
            raise ValueError(
                f"a source has no {sorted(unknown)[0]!r}; it has {', '.join(f.name for f in fields(TaskSource))}"
            )
        if "data" not in entry:
            raise ValueError(
                "a source does not say what its data are; write data = 'table', 'images' or a generated one"
            )
        settings: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        sources.append(TaskSource(**settings))
    rest: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in document.items() if key not in ("source", "name")
    }
    return Tasks(name=str(document.get("name", "tasks")), sources=tuple(sources), folder=folder, **rest)


def _rows(
    source: TaskSource, folder: Path, rng: np.random.Generator, rows: int, held_out: bool
) -> tuple[Floats, NDArray[Any]]:
    """Rows of norm 1 with an intercept, and labels -1/+1 or real ones."""
    if source.data in ("gaussian", "quadratic"):
        X, y = _gaussian(rng, rows, source.columns or (5, 200), regression=source.data == "quadratic")
    else:
        everything, labels = _loaded(
            source.data, source.file, source.label, tuple(source.where.items()), source.drop, str(folder)
        )
        last = int((1 - HELD_OUT) * len(everything))
        X, y = (everything[last:], labels[last:]) if held_out else (everything[:last], labels[:last])
        if source.data in ("images", "digits"):
            first, second = _sides(source, labels, rng)
            chosen = np.isin(y, first + second)
            X, y = X[chosen], np.where(np.isin(y[chosen], first), 1.0, -1.0)
        some = rng.permutation(len(X))[:rows]
        X, y = X[some], y[some]
        if source.components:
            X = _in_components(source, folder, X, rng)
        elif source.columns:
            low, high = source.columns
            many = int(rng.integers(min(low, X.shape[1]), min(high, X.shape[1]) + 1))
            X = X[:, rng.choice(X.shape[1], many, replace=False)]
    if source.rescale:
        X = X * rng.uniform(*source.rescale, X.shape[1])
    X = np.column_stack([X, np.ones(len(X))])
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def _in_components(source: TaskSource, folder: Path, X: Floats, rng: np.random.Generator) -> Floats:
    """Rows in some of the leading principal components of the source, as public features would be made."""
    where = tuple(source.where.items())
    mean, vectors = _principal(source.data, source.file, source.label, where, source.drop, source.without, str(folder))
    assert source.components is not None
    low, high = source.components
    many = int(rng.integers(min(low, X.shape[1]), min(high, X.shape[1]) + 1))
    features: Floats = (X - mean) @ vectors[:, :many]
    return features


def _bought(X: Floats, size: float, mu: float, rng: np.random.Generator) -> Floats:
    """The basis that a private run would buy for the shares of ``prepare.basis``: the mean row with that noise on it."""
    std = 1 / (mu * math.sqrt(BASIS_SHARE) * size)
    mean = X.mean(0) + std * rng.standard_normal(X.shape[1])
    return deflating(mean, float(np.square(X).sum(1).mean()), X.shape[1] * std**2)


def _sides(source: TaskSource, labels: NDArray[Any], rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Which classes are told from which: one from one, or two random groups, which is harder."""
    classes = [int(c) for c in np.unique(labels) if int(c) not in source.without]
    if source.pairs == "groups":
        shuffled = [int(c) for c in rng.permutation(classes)]
        cut = int(rng.integers(1, len(classes) // 2 + 1))
        return shuffled[:cut], shuffled[cut : cut + int(rng.integers(1, len(classes) // 2 + 1))]
    pairs = list(combinations(classes, 2)) if source.pairs == "all" else [tuple(pair) for pair in source.pairs]
    first, second = pairs[rng.integers(len(pairs))]
    return ([first], [second]) if rng.random() < 0.5 else ([second], [first])


@lru_cache(maxsize=16)
def _loaded(
    data: str, file: str | None, label: str, where: tuple[tuple[str, Any], ...], drop: tuple[str, ...], folder: str
) -> tuple[Floats, NDArray[Any]]:
    """All rows of a source in a fixed random order: columns in [-1, 1] (pixels in [0, 1]), labels as said."""
    if data == "digits":
        bundled = digits()
        X, y = bundled.X.to_numpy() / 16.0, bundled.y
    elif data == "images":
        arrays = np.load(Path(folder) / str(file))
        X, y = arrays["X_train"].reshape(len(arrays["y_train"]), -1) / 255.0, arrays["y_train"]
    else:
        if data == "census":
            made = census(20000, seed=1)
            frame = made.X.assign(**{label: made.y})
        else:
            path = Path(folder) / str(file)
            frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        for column, value in where:
            frame = frame[frame[column] == value].drop(columns=column)
        if label not in frame:
            raise ValueError(f"{file} has no column {label!r}")
        y = np.where(frame[label].to_numpy(dtype=float) > 0, 1.0, -1.0)
        columns = frame.drop(columns=[label, *drop]).to_numpy(dtype=float)
        low, high = columns.min(0), columns.max(0)
        X = 2 * (columns - low) / np.where(high > low, high - low, 1.0) - 1
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


@lru_cache(maxsize=4)
def _principal(
    data: str,
    file: str | None,
    label: str,
    where: tuple[tuple[str, Any], ...],
    drop: tuple[str, ...],
    without: tuple[int, ...],
    folder: str,
) -> tuple[Floats, Floats]:
    """Mean row and principal directions (as columns, leading first) of the rows that are not held out."""
    X, y = _loaded(data, file, label, where, drop, folder)
    last = int((1 - HELD_OUT) * len(X))
    rows = X[:last][~np.isin(y[:last], without)]
    mean = rows.mean(0)
    _, vectors = np.linalg.eigh((rows - mean).T @ (rows - mean))
    return mean, vectors[:, ::-1].copy()


def _gaussian(
    rng: np.random.Generator, rows: int, columns: tuple[int, int], *, regression: bool
) -> tuple[Floats, Floats]:
    """A made-up table: a decaying spectrum, a common mean, some columns of zeros and ones, labels from a linear score."""
    d = round(math.exp(rng.uniform(*np.log(columns))))
    spectrum = np.arange(1, d + 1) ** -rng.uniform(0.0, 1.0)
    mixing = rng.standard_normal((d, d)) / math.sqrt(d) if d <= 100 else np.diag(rng.choice([-1.0, 1.0], d))
    X = rng.standard_normal((rows, d)) * spectrum @ mixing
    X = X / X.std(0).mean() + rng.uniform(0, 1.5) * rng.standard_normal(d)
    binary = rng.random(d) < rng.choice([0.0, 0.5, 1.0])
    X[:, binary] = X[:, binary] > rng.normal(0.5, 0.7, int(binary.sum()))
    X = np.clip(X / 3, -1, 1)
    important = rng.standard_normal(d) * (rng.random(d) < rng.uniform(0.2, 1.0))
    score = (X - X.mean(0)) @ important
    score /= score.std() + 1e-9
    if regression:
        return X, np.clip(0.3 * score + rng.uniform(0.05, 0.3) * rng.standard_normal(rows), -1, 1)
    chance = 1 / (1 + np.exp(-rng.uniform(0.7, 4.0) * (score + rng.normal(0, 0.7))))
    return X, np.where(rng.random(rows) < chance, 1.0, -1.0)


def _dimension(source: TaskSource, loss_name: str, features: int) -> int:
    outputs = 2 if loss_named(loss_name).task == "classes" else 1
    return source.hidden * (features + 1 + outputs) + outputs if source.model == "mlp" else features * outputs


def _model(source: TaskSource, loss_name: str, features: int, y: NDArray[Any]) -> tuple[Model, NDArray[Any]]:
    """The model of a task, and its labels as the loss wants them."""
    real = source.data == "quadratic"
    loss = loss_named(USUAL["regression"]) if real else loss_named(loss_name).as_classifier()
    classes = loss.task == "classes"
    labels, outputs = ((y > 0).astype(np.int64), 2) if classes else (y.astype(np.float64), 1)
    if source.model == "mlp":
        return MLP((features, source.hidden, outputs), loss, activation="sigmoid"), labels
    return Linear(features, loss, outputs), labels
