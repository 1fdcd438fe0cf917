"""A table of a folder, NAME.parquet and NAME.toml, split into rows to train on and rows to test on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from noisewise.tables.encode import Encoder
from noisewise.tables.schema import Column, Schema, gaps, read_schema

TEST_SHARE = 0.25
Array = NDArray[Any]


@dataclass(frozen=True)
class Listed:
    """A table that is there: its schema, and a digest of both files."""

    name: str
    path: Path
    schema: Schema
    digest: str

    @property
    def regression(self) -> bool:
        assert self.schema.target is not None
        return self.schema[self.schema.target].kind == "number"


def listed(folder: Path, names: list[str] | None = None) -> list[Listed]:
    """The tables of a folder by name, all or those named; one that is not there, or not complete, is refused."""
    there = sorted(path.stem for path in folder.glob("*.parquet"))
    if not there:
        raise ValueError(f"{folder} holds no NAME.parquet; `noisewise bench tables-prepare` writes some")
    if unknown := [name for name in names or [] if name not in there]:
        raise ValueError(f"--tables has {unknown[0]!r}; there are {', '.join(there)}")
    return [_listed(folder / f"{name}.parquet") for name in names or there]


def _listed(path: Path) -> Listed:
    schema = read_schema(path.with_suffix(".toml"))
    if open_ends := gaps(schema):
        raise ValueError(f"{path.with_suffix('.toml')}: {open_ends[0]}")
    digest = hashlib.sha256()
    for file in (path, path.with_suffix(".toml")):
        digest.update(file.read_bytes())
    return Listed(path.stem, path, schema, digest.hexdigest()[:12])


def widened(schema: Schema, factor: float) -> Schema:
    """The same schema with the bounds of its number columns ``factor`` times as wide; the target keeps its own.

    A column of values from 0 up keeps its lower end, any other its middle.

    >>> schema = widened(Schema((Column("a", "number", 0, 2), Column("b", "number", -1, 1))), 10)
    >>> [(column.low, column.high) for column in schema.columns]
    [(0.0, 20.0), (-10.0, 10.0)]
    """
    if factor == 1:
        return schema
    for column in schema.features:
        if column.kind == "number":
            schema = schema.with_column(_wider(column, factor))
    return schema


def _wider(column: Column, factor: float) -> Column:
    assert column.low is not None and column.high is not None
    width = column.high - column.low
    if column.low >= 0:
        return replace(column, high=column.low + factor * width)
    more = (factor - 1) / 2 * width
    return replace(column, low=column.low - more, high=column.high + more)


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on and to test on, with labels: positions among ``classes`` or, for a regression, numbers."""

    schema: Schema
    classes: Array | None
    train: pd.DataFrame
    test: pd.DataFrame
    train_y: Array
    test_y: Array

    @property
    def labels(self) -> Array:
        """Labels of the rows to train on, as they are in the table."""
        return self.train_y if self.classes is None else self.classes[self.train_y]

    def facts(self) -> dict[str, Any]:
        """What the schema declares, for the other learners."""
        numbers = [column for column in self.schema.features if column.kind == "number"]
        target = self.schema[self.schema.target or ""]
        return {
            "low": [column.low for column in numbers],
            "high": [column.high for column in numbers],
            "sizes": [len(column.categories) for column in self.schema.features if column.kind == "category"],
            "classes": None if self.classes is None else len(self.classes),
            "target": [target.low, target.high],
        }

    def save(self, path: Path) -> None:
        """As arrays, for the other learners; values beyond their bounds are clamped, as they are for noisewise."""
        arrays: dict[str, Array] = {"train_y": self.train_y, "test_y": self.test_y}
        for part, frame in (("train", self.train), ("test", self.test)):
            arrays[f"{part}_numbers"], arrays[f"{part}_codes"] = coded(self.schema, frame)
        np.savez(path, **arrays)  # type: ignore[arg-type]


def split(table: Listed, *, seed: int, widen: float = 1.0) -> Split:
    """Three quarters of the rows to train on, one quarter to test on, by a seed that is fixed."""
    schema = widened(table.schema, widen)
    frame = pd.read_parquet(table.path)
    encoder = Encoder(schema)
    encoder.check([str(name) for name in frame.columns])
    labels = encoder.labels(frame)
    order = np.random.default_rng(seed).permutation(len(frame))
    test, train = np.split(order, [round(TEST_SHARE * len(frame))])
    rows = frame.drop(columns=[schema.target])
    return Split(schema, encoder.classes, rows.iloc[train], rows.iloc[test], labels[train], labels[test])


def coded(schema: Schema, frame: pd.DataFrame) -> tuple[Array, Array]:
    """Numbers within their bounds, NaN for what is missing, and places among the categories, -1 for what is missing."""
    numbers, codes = [np.empty((len(frame), 0))], [np.empty((len(frame), 0), dtype=np.int64)]
    for column in schema.features:
        cells = frame[[column.name]]
        if column.kind == "category":
            ones = Encoder(Schema((column,)))(cells)
            codes.append(np.where(ones.any(axis=1), ones.argmax(axis=1), -1)[:, None])
        else:
            numbers.append(np.clip(_numbers(column, cells), column.low, column.high))
    return np.hstack(numbers), np.hstack(codes)


def _numbers(column: Column, cells: pd.DataFrame) -> Array:
    """A number column with NaN where the schema says nothing of missing values: those become what is filled in."""
    if column.missing is not None:
        return Encoder(Schema((column,)))(cells)
    low, high = (Encoder(Schema((replace(column, missing=end),)))(cells) for end in (column.low, column.high))
    return np.where(low == high, low, np.nan)
