"""Accuracy of training on a thousand clients, against training where all their rows are in one place.

``digits``: MNIST, pictures of 14 x 14 cells, dealt to clients at random. ``adult``: UCI Adult, sorted by a column and cut into
consecutive parts, so that clients differ. Ways to train: ``central`` (one place, a record protected), ``record`` (clients, a record
protected: the same bits), ``client`` (clients, each protected with all its rows, counted once). Numbers of records and of clients
count as public.

Seeds make simulations: the same mechanisms, not private. Clients are objects of one process, which gives the bits of Flower's
simulation; ``flower`` runs it instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from noisewise.accounts import Budget
from noisewise.remote.clients.server import Carrier, Crowd, DirectCarrier, fit_of_clients, ready_clients
from noisewise.remote.federation import Federated
from noisewise.tables.fit.build import fit_of_files, ready_files
from noisewise.tables.fit.fit import Fit
from noisewise.tables.fit.fitted import Fitted
from noisewise.tables.rows import read_rows
from noisewise.tables.schema import Column, Schema

from .tables_prepare import SOURCES, schema_of

WAYS = ("central", "record", "client")
CELL = 2  # pixels of a picture's cell, on a side
DEALT = 0  # the seed that rows are dealt by, the same for all runs


@dataclass(frozen=True)
class Crowded:
    """A data set as clients' files, a schema, and a file to test on."""

    name: str
    schema: Schema
    paths: tuple[Path, ...]
    test: Path


def digits(folder: Path, to: Path, clients: int) -> Crowded:
    """Pictures of digits, dealt to clients at random."""
    with np.load(folder / "mnist.npz") as arrays:
        X, y, X_test, y_test = (arrays[name] for name in ("X_train", "y_train", "X_test", "y_test"))
    order = np.random.default_rng(DEALT).permutation(len(X))
    train, test = _pictures(X[order], y[order]), _pictures(X_test, y_test)
    columns = [Column(str(name), "number", 0, 1) for name in train.columns[:-1]]
    schema = Schema((*columns, Column("digit", "category", categories=tuple(range(10)))), "digit")
    return _written("digits", to, schema, train, test, clients)


def _pictures(X: Any, y: Any) -> pd.DataFrame:
    """Rows of cells from 0 to 1, each the mean of its pixels, and the digit."""
    n, height, width = X.shape
    cells = (X / 255).reshape(n, height // CELL, CELL, width // CELL, CELL).mean(axis=(2, 4)).reshape(n, -1)
    frame = pd.DataFrame(cells.round(4), columns=[f"cell{i}" for i in range(cells.shape[1])])
    return frame.assign(digit=y.astype(int))


def adult(folder: Path, to: Path, clients: int, column: str = "age") -> Crowded:
    """Rows of the census, sorted by a column and cut: neighbours in it are with the same client."""
    source = SOURCES["adult"]
    whole = pd.read_parquet(folder / source.file)
    frame = whole.drop(columns=list(source.drop))
    train, test = (frame[whole["split"] == part] for part in ("train", "test"))
    mixed = train.iloc[np.random.default_rng(DEALT).permutation(len(train))]
    if column not in mixed:
        raise ValueError(f"--column is {column!r}; pass one of {', '.join(map(str, mixed.columns))}")
    return _written("adult", to, schema_of(frame, source), mixed.sort_values(column, kind="stable"), test, clients)


def _written(name: str, to: Path, schema: Schema, train: pd.DataFrame, test: pd.DataFrame, clients: int) -> Crowded:
    place = to / name
    place.mkdir(parents=True)
    ends = np.linspace(0, len(train), clients + 1).astype(int)
    paths = []
    for client in range(clients):
        paths.append(place / f"{client:05}.parquet")
        train.iloc[ends[client] : ends[client + 1]].to_parquet(paths[-1], index=False)
    test.to_parquet(to / f"{name}.parquet", index=False)
    return Crowded(name, schema, tuple(paths), to / f"{name}.parquet")


DATA = {"digits": digits, "adult": adult}


def fit_for(data: Crowded, epsilon: float, delta: float, method: str, seed: int, clip: float | None = None) -> Fit:
    how: dict[str, Any] = {"loss": "auto", "model": "auto", "size_is_public": True, "max_grad_norm": clip}
    return fit_of_files(data.schema, Budget(epsilon, delta), method, seed=seed, **how)


def trained(data: Crowded, fit: Fit, way: str, federated: Federated, *, flower: bool = False) -> Fitted:
    """What was fitted, in one place or on clients."""
    if way == "central":
        return ready_files(fit, data.paths).run()
    with carried(data.paths, flower=flower) as carrier:
        return ready_clients(fit_of_clients(fit, federated), Crowd(carrier, federated)).run()


@contextmanager
def carried(paths: Sequence[Path], *, flower: bool) -> Iterator[Carrier]:
    """Clients of this process, or of Flower's simulation."""
    if not flower:
        yield DirectCarrier(paths)
        return
    from noisewise.remote.clients.flower import simulated

    with simulated(paths) as carrier:
        yield carrier


def accuracy(data: Crowded, fitted: Fitted) -> float:
    """Share of test rows whose class is predicted."""
    assert fitted.encoder is not None and fitted.encoder.classes is not None
    rows = read_rows(data.test, fitted.encoder, fitted.scaling)
    return float(np.mean(fitted.predictions(rows.X) == fitted.encoder.classes[rows.y]))


def federated_rows(
    sets: Sequence[Crowded],
    *,
    ways: Sequence[str],
    epsilons: Sequence[float],
    delta: float,
    seeds: int,
    method: str = "auto",
    clip: float | None = None,
    local_steps: int = 1,
    local_rate: float = 1.0,
    flower: bool = False,
    report: Callable[[Any], None] = lambda news: None,
) -> Iterator[dict[str, Any]]:
    """A line for each data set, budget and way: test accuracy, its standard error over seeds, and seconds a run."""
    done, total = 0, len(sets) * len(epsilons) * len(ways) * seeds
    for data in sets:
        for epsilon in epsilons:
            for way in ways:
                client = Federated("client", "required", local_steps, local_rate)
                federated, scores, start = client if way == "client" else Federated("record"), [], time.perf_counter()
                for seed in range(seeds):
                    fit = fit_for(data, epsilon, delta, method, seed, clip if way == "client" else None)
                    scores.append(accuracy(data, trained(data, fit, way, federated, flower=flower)))
                    done += 1
                    report((done, total))
                yield {
                    "data": data.name, "clients": len(data.paths), "epsilon": epsilon, "way": way, "method": fit.method.name,
                    "accuracy": float(np.mean(scores)),
                    "standard_error": float(np.std(scores, ddof=1) / math.sqrt(seeds)) if seeds > 1 else None,
                    "seeds": seeds, "seconds": (time.perf_counter() - start) / seeds,
                }  # fmt: skip
