"""Private tasks of the Learning-to-Protect studies, and the public ones that stand beside them.

=================== ================================================== ====================================
``ipums-br``        census table, columns in [-1, 1], 80/20 split        public: a9a and bank
``mnist35``         digits 3 and 5, pixels in [0, 1], official split     public: pairs of the other digits
``mnist35-features`` the same in 64 principal components                  public: the same pairs and components
``mnist35-gradients`` the same, of histograms of oriented gradients        public: the same pairs and components
=================== ================================================== ====================================

Mean and components come from the images of the eight other digits, which count as public. Bounds for scaling a table
are those of its file, declared public. All rows have norm 1, with an intercept, as the estimators prepare them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.protect.learned import zoo
from noisewise.tables.pictures import OrientedGradients
from noisewise.trusted.losses import loss_named
from noisewise.trusted.models import MLP, Linear, Model

from .datasets import Missing

Floats = NDArray[np.float32]
TASKS = ("ipums-br", "mnist35", "mnist35-features", "mnist35-gradients")
FEATURES = {"mnist35": "pixels", "mnist35-features": "components", "mnist35-gradients": "gradients"}
PRIVATE_PAIR = (3, 5)
PAIRS = tuple(combinations([digit for digit in range(10) if digit not in PRIVATE_PAIR], 2))  # all of them: no choice
PAPER_PAIR = (4, 6)
PUBLIC_TABLES = ("a9a.parquet", "bank_lee_kifer.parquet")
COMPONENTS = 64
TRAIN_SHARE = 0.8
HIDDEN = 20


@dataclass(frozen=True)
class Rows:
    """Unit rows and labels -1/+1."""

    name: str
    X: Floats
    y: Floats


@dataclass(frozen=True)
class Problem:
    """A private task: rows to train on, rows to test on."""

    train: Rows
    test: Rows


@lru_cache(maxsize=4)
def problem(name: str, folder: Path, *, repeat: int = 0) -> Problem:
    """The private task of that name; a table is split anew for each repeat."""
    if name.startswith("ipums"):
        X, y = _table(folder / f"{name.replace('-', '_')}.parquet")
        order = np.random.default_rng([repeat, 2021]).permutation(len(X))
        train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
        return Problem(scaled_rows(name, X[train], y[train]), scaled_rows(name, X[test], y[test]))
    return Problem(
        digit_pair(folder, PRIVATE_PAIR, features=FEATURES[name]),
        digit_pair(folder, PRIVATE_PAIR, features=FEATURES[name], test=True),
    )


def how_many_auxiliaries(name: str) -> int:
    """How many public tasks stand beside a private one."""
    return len(PUBLIC_TABLES) if name.startswith("ipums") else len(PAIRS)


@lru_cache(maxsize=2)
def auxiliary(name: str, folder: Path, number: int) -> Rows:
    """One of the public tasks beside a private one: all that there are, and never the private rows."""
    if name.startswith("ipums"):
        file = PUBLIC_TABLES[number]
        return scaled_rows(file.removesuffix(".parquet"), *_table(folder / file))
    return digit_pair(folder, PAIRS[number], features=FEATURES[name])


def digit_pair(folder: Path, pair: tuple[int, int], *, features: str = "pixels", test: bool = False) -> Rows:
    """The images of two digits, +1 for the first: pixels, or public components of pixels or of oriented gradients."""
    X, y = _images(folder / "mnist.npz", test)
    chosen = np.isin(y, pair)
    rows = described(X[chosen], features)
    if features != "pixels":
        mean, components = public_features(folder, features)
        rows = (rows - mean) @ components
    return scaled_rows(f"{pair[0]} vs {pair[1]}", rows, np.where(y[chosen] == pair[0], 1.0, -1.0))


def described(images: NDArray[np.uint8], features: str) -> NDArray[np.float64]:
    """Pixels in [0, 1], or their histograms of oriented gradients."""
    pixels: NDArray[np.float64] = images.astype(np.float64) / 255
    if features != "gradients":
        return pixels
    side = math.isqrt(pixels.shape[1])
    return OrientedGradients((side, side)).fit_transform(pixels).astype(np.float64)


@lru_cache(maxsize=2)
def public_features(folder: Path, features: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and leading principal components (as columns) of the training images of the eight public digits."""
    X, y = _images(folder / "mnist.npz", False)
    rows = described(X[~np.isin(y, PRIVATE_PAIR)], features)
    mean = rows.mean(0)
    centred = rows - mean
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return mean, vectors[:, ::-1][:, :COMPONENTS].copy()


def is_there(name: str, folder: Path) -> None:
    """Raise :class:`Missing` with the file's name if a task or its public tasks lack a file."""
    tables = (f"{name.replace('-', '_')}.parquet", *PUBLIC_TABLES)
    for file in tables if name.startswith("ipums") else ("mnist.npz",):
        _there(folder / file)


def model_for(rows: Rows, kind: str) -> Model:
    """Logistic regression (``linear``), a support vector machine (``svm``), or 20 sigmoid units and softmax (``mlp``)."""
    features = rows.X.shape[1]
    if kind == "mlp":
        return MLP((features, HIDDEN, 2), loss_named("softmax"), activation="sigmoid")
    return Linear(features, loss_named("hinge" if kind == "svm" else "logistic"))


def labelled(rows: Rows, model: Model) -> tuple[Floats, NDArray[Any]]:
    """Rows and labels as the model's loss wants them."""
    return rows.X, (rows.y > 0).astype(np.int64) if model.loss.task == "classes" else rows.y


def accuracy(model: Model, theta: NDArray[Any], rows: Rows) -> float:
    """Share of the rows that are classified rightly."""
    scores = model.scores(theta, rows.X)
    positive = scores > 0 if scores.ndim == 1 else scores.argmax(1) == 1
    return float((positive == (rows.y > 0)).mean())


def mean_loss(model: Model, theta: NDArray[Any], rows: Rows) -> float:
    """Mean loss of the rows: not private, so for simulations only."""
    return float(model.losses(theta, model.lay_out(*labelled(rows, model))).mean(dtype=np.float64))


def scaled_rows(name: str, X: NDArray[Any], y: NDArray[Any]) -> Rows:
    """Rows of norm 1, with an intercept, and labels."""
    X = np.column_stack([X, np.ones(len(X))])
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return Rows(name, (X / np.maximum(lengths, 1e-12)).astype(np.float32), y.astype(np.float32))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise Missing(f"{path} is not there")
    return path


@lru_cache(maxsize=4)
def _table(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns scaled to [-1, 1], and labels; of a file with a split, its training part."""
    import pandas as pd

    frame = pd.read_parquet(_there(path))
    if "split" in frame:
        frame = frame[frame["split"] == "train"].drop(columns="split")
    X = frame.drop(columns="y").to_numpy(dtype=float)
    low, high = X.min(0), X.max(0)
    return 2 * (X - low) / np.where(high > low, high - low, 1.0) - 1, np.where(frame["y"].to_numpy() > 0, 1.0, -1.0)


@lru_cache(maxsize=4)
def _images(path: Path, test: bool) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    part = "test" if test else "train"
    arrays = np.load(_there(path))
    return arrays[f"X_{part}"].reshape(len(arrays[f"y_{part}"]), -1), arrays[f"y_{part}"]


def fingerprint() -> str:
    """All protectors of the package in short: what a result with the rule's protector depends on."""
    return " ".join(f"{name}:{zoo.shipped(name).digest[:8]}" for name in zoo.names())
