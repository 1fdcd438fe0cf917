"""Attacks by error message: rows that make a library quote them, count them or carry them in an exception.

Whatever is wrong with private rows, neither a value of theirs nor their number may stand in an error (its text, its
attributes, the errors it came from), in a warning or on the screen.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import noisewise as nw
from noisewise.data.schema import Column, Schema
from noisewise.methods import method_named

from .silence import LABELS, NUMBER, PLAIN, WORD, N, cases, keeps_quiet

QUICK = method_named("dpsgd").with_settings(steps=2)


class Hostile:
    """A table that answers every question with a record."""

    def _tell(self, *_: object, **__: object) -> Any:
        raise RuntimeError(f"{WORD} {NUMBER} of {N}")

    __array__ = __len__ = __iter__ = __getitem__ = __repr__ = __str__ = __float__ = __index__ = _tell
    shape = (N, 2)


class HostileCell:
    """A cell that tells its record when it is turned into anything."""

    def _tell(self, *_: object) -> Any:
        raise ValueError(f"{WORD} {NUMBER}")

    __float__ = __int__ = __index__ = __str__ = __repr__ = __len__ = __eq__ = __lt__ = _tell
    __hash__ = object.__hash__


def with_cell(cell: Any) -> Any:
    rows = PLAIN.astype(object)
    rows[7, 1] = cell
    return rows


def ragged() -> Any:
    return [*PLAIN.tolist(), [NUMBER]]


def framed(cell: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": PLAIN[:, 0], "b": with_cell(cell)[:, 1]})


ROWS: dict[str, Callable[[], Any]] = {
    "complex array": lambda: PLAIN + NUMBER * 1j,
    "complex list": lambda: (PLAIN + NUMBER * 1j).tolist(),
    "complex frame": lambda: pd.DataFrame(PLAIN + NUMBER * 1j, columns=["a", "b"]),
    "complex cell": lambda: with_cell(NUMBER * 1j),
    "complex text": lambda: with_cell(f"{NUMBER}+1j"),
    "a text": lambda: with_cell(WORD),
    "texts": lambda: np.full((N, 2), WORD),
    "half a character": lambda: with_cell(f"{WORD}\ud800"),
    "half a character in a frame": lambda: framed(f"{WORD}\ud800"),
    "bytes": lambda: with_cell(WORD.encode()),
    "array of bytes": lambda: np.full((N, 2), WORD.encode()),
    "a date": lambda: with_cell(datetime.datetime(7316, 5, 29)),
    "array of dates": lambda: np.full((N, 2), np.datetime64("7316-05-29")),
    "a huge number": lambda: with_cell(7316529 * 10**400),
    "more digits than Python prints": lambda: with_cell(7316529 * 10**5000),
    "a decimal that shouts": lambda: with_cell(Decimal("sNaN7316529")),
    "a decimal": lambda: with_cell(Decimal("7316529.25")),
    "a list in a cell": lambda: with_cell([NUMBER, WORD]),
    "a dictionary in a cell": lambda: with_cell({WORD: NUMBER}),
    "a cell that tells": lambda: with_cell(HostileCell()),
    "nothing in a cell": lambda: with_cell(None),
    "ragged": ragged,
    "flat": lambda: PLAIN[:, 0] * NUMBER,
    "flat list of text": lambda: [WORD] * N,
    "three dimensions": lambda: np.full((N, 2, 2), NUMBER),
    "no columns": lambda: PLAIN[:, :0],
    "one row more": lambda: np.vstack([PLAIN, PLAIN[:1]]),
    "sparse": lambda: sparse.csr_matrix(PLAIN),
    "a column twice": lambda: pd.DataFrame(PLAIN, columns=["a", "a"]),
    "categories in a frame": lambda: framed(WORD).astype({"b": str}).astype({"b": "category"}),
    "complex categories": lambda: framed(NUMBER * 1j).astype({"b": "category"}),
    "a cell that tells, in a frame": lambda: framed(HostileCell()),
    "a table that tells": Hostile,
    "a generator": lambda: (row for row in PLAIN.tolist()),
    "a mapping": lambda: {WORD: NUMBER},
    "one text": lambda: WORD,
    "one number": lambda: NUMBER,
}


def label_cell(cell: Any) -> Any:
    labels = LABELS.astype(object)
    labels[7] = cell
    return labels


TARGETS: dict[str, Callable[[], Any]] = {
    "one label less": lambda: LABELS[:-1],
    "one label more": lambda: np.append(LABELS, 1),
    "NaN": lambda: np.where(LABELS > 0, np.nan, NUMBER),
    "infinity": lambda: np.where(LABELS > 0, np.inf, NUMBER),
    "continuous": lambda: PLAIN[:, 0] * NUMBER,
    "more than half are different": lambda: np.arange(N) // 2 * 2.0 + (np.arange(N) % 5 == 0),
    "several outputs": lambda: PLAIN * NUMBER,
    "three dimensions": lambda: np.full((N, 1, 2), NUMBER),
    "complex": lambda: LABELS + NUMBER * 1j,
    "complex label": lambda: label_cell(NUMBER * 1j),
    "half a character": lambda: np.where(LABELS > 0, f"{WORD}\ud800", "no"),
    "bytes": lambda: np.where(LABELS > 0, WORD.encode(), b"no"),
    "dates": lambda: np.full(N, np.datetime64("7316-05-29")),
    "a label that tells": lambda: label_cell(HostileCell()),
    "text and numbers": lambda: label_cell(WORD),
    "a list among labels": lambda: label_cell([WORD, NUMBER]),
    "a huge label": lambda: label_cell(7316529 * 10**400),
    "nothing": lambda: label_cell(None),
    "not there": lambda: pd.Series(label_cell(pd.NA)),
    "ragged": lambda: [[NUMBER], *[[0, 1]] * (N - 1)],
    "labels that tell": Hostile,
    "one text": lambda: WORD,
    "sparse": lambda: sparse.csr_matrix(LABELS[:, None]),
}


def classifier(**more: Any) -> Any:
    return nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method=QUICK, random_state=0, **more)


def regressor() -> Any:
    return nw.PrivateRegressor(1.0, 1e-6, bounds=(-1, 1), target_bounds=(-1, 1), method=QUICK, random_state=0)


@cases(
    ROWS,
    held={
        "a column twice",
        "a decimal",
        "a decimal that shouts",
        "a list in a cell",
        "array of dates",
        "flat",
        "nothing in a cell",
        "three dimensions",
    },
)
def test_rows_that_a_library_would_quote(what: str, capsys: Any) -> None:
    rows = ROWS[what]()
    keeps_quiet(lambda: classifier().fit(rows, LABELS), capsys)


HELD = {
    "NaN",
    "a huge label",
    "a list among labels",
    "complex label",
    "continuous",
    "dates",
    "half a character",
    "infinity",
    "nothing",
    "one text",
    "text and numbers",
    "three dimensions",
}


@cases(TARGETS, held=HELD)
def test_labels_that_a_library_would_quote(what: str, capsys: Any) -> None:
    labels = TARGETS[what]()
    keeps_quiet(lambda: classifier().fit(PLAIN, labels), capsys)


@cases(
    TARGETS,
    held={
        "NaN",
        "a list among labels",
        "bytes",
        "continuous",
        "dates",
        "half a character",
        "infinity",
        "more than half are different",
        "nothing",
        "one text",
        "three dimensions",
    },
)
def test_numbers_that_a_library_would_quote(what: str, capsys: Any) -> None:
    labels = TARGETS[what]()
    keeps_quiet(lambda: regressor().fit(PLAIN, labels), capsys)


@cases(TARGETS, held=HELD)
def test_labels_beside_declared_classes(what: str, capsys: Any) -> None:
    labels = TARGETS[what]()
    assert keeps_quiet(lambda: classifier(classes=[0, 1]).fit(PLAIN, labels), capsys) is not None


NUMBERS = Schema((Column("a", "number", -1, 1), Column("b", "number", -1, 1)))
CATEGORIES = Schema((Column("a", "number", -1, 1), Column("b", "category", categories=("no", "yes"))))


@cases(
    ROWS,
    held={
        "a cell that tells",
        "a cell that tells, in a frame",
        "a column twice",
        "a date",
        "a decimal",
        "a dictionary in a cell",
        "a huge number",
        "a list in a cell",
        "a text",
        "array of bytes",
        "array of dates",
        "bytes",
        "categories in a frame",
        "complex cell",
        "complex text",
        "more digits than Python prints",
        "nothing in a cell",
        "texts",
    },
)
def test_rows_that_a_schema_describes(what: str, capsys: Any) -> None:
    rows = ROWS[what]()
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == 2:
        rows = pd.DataFrame(rows, columns=["a", "b"])
    for schema in (NUMBERS, CATEGORIES):
        model = nw.PrivateClassifier(1.0, 1e-6, schema=schema, method=QUICK, random_state=0)
        keeps_quiet(lambda model=model: model.fit(rows, LABELS), capsys)


@cases(
    ROWS,
    held={
        "a column twice",
        "a decimal",
        "a decimal that shouts",
        "a list in a cell",
        "array of dates",
        "flat",
        "nothing in a cell",
        "one row more",
        "three dimensions",
    },
)
def test_rows_to_predict(what: str, capsys: Any) -> None:
    fitted, rows = classifier().fit(PLAIN, LABELS), ROWS[what]()
    keeps_quiet(lambda: fitted.predict(rows), capsys)


@cases(
    TARGETS,
    held={"NaN", "continuous", "infinity", "more than half are different", "several outputs", "three dimensions"},
)
def test_labels_to_score(what: str, capsys: Any) -> None:
    for fitted in (classifier().fit(PLAIN, LABELS), regressor().fit(PLAIN, LABELS)):
        labels = TARGETS[what]()
        keeps_quiet(lambda fitted=fitted, labels=labels: fitted.score(PLAIN, labels), capsys)


def test_as_many_classes_as_records_are_not_counted_aloud(capsys: Any) -> None:
    def fit() -> None:
        nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), loss="hinge").fit(PLAIN, np.arange(N))

    assert keeps_quiet(fit, capsys) is not None


def test_a_class_weight_that_names_no_class_does_not_list_the_labels(capsys: Any) -> None:
    labels = np.where(LABELS > 0, WORD, "no")
    assert keeps_quiet(lambda: classifier(class_weight={"maybe": 2.0}).fit(PLAIN, labels), capsys) is not None


@pytest.mark.parametrize("what", ["flat", "three dimensions", "complex array", "one row more"])
def test_pictures(what: str, capsys: Any) -> None:
    from noisewise.data.pictures import OrientedGradients

    assert keeps_quiet(lambda: OrientedGradients((8, 8)).fit_transform(ROWS[what]()), capsys) is not None
