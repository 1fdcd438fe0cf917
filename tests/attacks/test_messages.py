"""Attacks by error message: rows that make a library quote them, count them or carry them in an exception.

Whatever is wrong with private rows, neither a value of theirs nor their number may stand in an error (its text, its
attributes, the errors it came from), in a warning or on the screen.
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import noisewise as nw
from noisewise.cli import main
from noisewise.data.schema import Column, Schema
from noisewise.methods import method_named

QUICK = method_named("dpsgd").with_settings(steps=2)
N = 4177
WORD = "Xanthippe7"
NUMBER = 7316529.25
SECRETS = (WORD, "7316529", "7.316529", "7.3165", "731652", "4,177", "4177", "4176", "4178")
BUDGET = ("--epsilon", "2", "--delta", "1e-6")

RNG = np.random.default_rng(0)
PLAIN = RNG.uniform(-1, 1, (N, 2))
LABELS = (PLAIN[:, 0] > 0).astype(int)


WITHSTOOD: dict[str, set[str]] = {}


def cases(test: str, poisons: dict[str, Any]) -> Any:
    """One case for each poison; those that did no harm before are guards."""
    guard = pytest.mark.guard("the old commit already withstood it")
    marks = {what: guard if what in WITHSTOOD.get(test, ()) else () for what in poisons}
    return pytest.mark.parametrize("what", [pytest.param(what, marks=marks[what], id=what) for what in poisons])


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


def everything_in(error: BaseException | None, depth: int = 0) -> Iterator[str]:
    """All that an error says or carries, and the errors that it came from."""
    if error is None or depth > 10:
        return
    for name in ("args", "__notes__", *(name for name in dir(error) if not name.startswith("__"))):
        try:
            value = getattr(error, name, None)
        except Exception:
            continue
        if not callable(value):
            yield shown(value)
    yield from (shown(error), str(type(error)))
    for other in (error.__cause__, error.__context__):
        yield from everything_in(other, depth + 1)


def shown(value: Any) -> str:
    """A value as a log would write it; one that cannot be written is a record that got out."""
    try:
        return f"{value!r} {value!s}"
    except Exception as error:
        return f"{WORD}: {type(error)}"


def keeps_quiet(what: Callable[[], Any], capsys: Any) -> BaseException | None:
    """Do it, look at everything that was said, and return the error."""
    raised: BaseException | None = None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            what()
        except (Exception, SystemExit) as error:
            raised = error
    said = [*everything_in(raised), *capsys.readouterr(), *(shown(one.message) for one in heard)]
    for text in said:
        assert not [secret for secret in SECRETS if secret in text], text[:400]
    for one in heard:
        assert "number of unique classes" not in str(one.message), "a count of private labels decides over this warning"
    assert isinstance(raised, ValueError | SystemExit | None), f"{raised!r} is not one of our own errors"
    return raised


@cases("rows", ROWS)
def test_rows_that_a_library_would_quote(what: str, capsys: Any) -> None:
    rows = ROWS[what]()
    keeps_quiet(lambda: classifier().fit(rows, LABELS), capsys)


@cases("labels of classes", TARGETS)
def test_labels_that_a_library_would_quote(what: str, capsys: Any) -> None:
    labels = TARGETS[what]()
    keeps_quiet(lambda: classifier().fit(PLAIN, labels), capsys)


@cases("labels of a regression", TARGETS)
def test_numbers_that_a_library_would_quote(what: str, capsys: Any) -> None:
    labels = TARGETS[what]()
    keeps_quiet(lambda: regressor().fit(PLAIN, labels), capsys)


@cases("declared classes", TARGETS)
def test_labels_beside_declared_classes(what: str, capsys: Any) -> None:
    labels = TARGETS[what]()
    assert keeps_quiet(lambda: classifier(classes=[0, 1]).fit(PLAIN, labels), capsys) is not None


NUMBERS = Schema((Column("a", "number", -1, 1), Column("b", "number", -1, 1)))
CATEGORIES = Schema((Column("a", "number", -1, 1), Column("b", "category", categories=("no", "yes"))))


@cases("schema", ROWS)
def test_rows_that_a_schema_describes(what: str, capsys: Any) -> None:
    rows = ROWS[what]()
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == 2:
        rows = pd.DataFrame(rows, columns=["a", "b"])
    for schema in (NUMBERS, CATEGORIES):
        model = nw.PrivateClassifier(1.0, 1e-6, schema=schema, method=QUICK, random_state=0)
        keeps_quiet(lambda model=model: model.fit(rows, LABELS), capsys)


@cases("predict", ROWS)
def test_rows_to_predict(what: str, capsys: Any) -> None:
    fitted, rows = classifier().fit(PLAIN, LABELS), ROWS[what]()
    keeps_quiet(lambda: fitted.predict(rows), capsys)


@cases("score", TARGETS)
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


# --- files -----------------------------------------------------------------------------------------------------------

TOML = """format = "noisewise-schema/1"
target = "y"
[columns.a]
kind = "number"
low = -1
high = 1
[columns.b]
kind = "category"
categories = ["no", "yes"]
[columns.y]
kind = "category"
categories = ["0", "1"]
"""


def good() -> dict[str, list[Any]]:
    return {"a": PLAIN[:, 0].tolist(), "b": ["no", "yes"] * (N // 2) + ["no"], "y": [str(label) for label in LABELS]}


def csv_of(**changes: bytes) -> bytes:
    """A CSV whose last record has these cells."""
    lines = [f"{a},{b},{y}".encode() for a, b, y in zip(*good().values(), strict=True)]
    last = dict(zip("aby", lines[-1].split(b","), strict=True)) | changes
    return b"\n".join([b"a,b,y", *lines[:-1], b",".join(last.values())]) + b"\n"


def parquet_of(**changes: Any) -> pa.Table:
    """A Parquet table with these columns instead."""
    return pa.table(good() | changes)


def raw_text(cells: list[bytes]) -> pa.Array:
    ends = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(cells), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(cells))]
    )


FILES: dict[str, Callable[[], Any]] = {
    "text for a number": lambda: csv_of(a=WORD.encode()),
    "complex": lambda: csv_of(a=b"7316529.25+1j"),
    "huge": lambda: csv_of(a=b"7316529e999"),
    "digits without end": lambda: csv_of(a=b"7316529" * 900),
    "unknown category": lambda: csv_of(b=WORD.encode()),
    "unknown label": lambda: csv_of(y=WORD.encode()),
    "missing label": lambda: csv_of(y=b""),
    "half a character": lambda: csv_of(b=WORD.encode() + b"\xed\xa0\x80"),
    "not UTF-8": lambda: csv_of(a=WORD.encode() + b"\xff"),
    "a NUL": lambda: csv_of(b=WORD.encode() + b"\0"),
    "a field too many": lambda: csv_of(y=b"1," + WORD.encode()),
    "an open quote": lambda: csv_of(y=b'"' + WORD.encode()),
    "dates": lambda: parquet_of(a=[datetime.datetime(7316, 5, 29)] * N),
    "lists": lambda: parquet_of(a=[[NUMBER]] * N),
    "bytes": lambda: parquet_of(b=[WORD.encode()] * N),
    "decimals": lambda: parquet_of(a=pa.array([Decimal("7316529.25")] * N, pa.decimal128(20, 2))),
    "wide decimals": lambda: parquet_of(a=pa.array([Decimal("7316529.25")] * N, pa.decimal256(70, 2))),
    "decimals as classes": lambda: parquet_of(y=pa.array([Decimal("7316529.25")] * N, pa.decimal128(20, 2))),
    "text that is none": lambda: parquet_of(b=raw_text([WORD.encode() + b"\xff"] * N)),
    "numbers as classes": lambda: parquet_of(y=[NUMBER] * N),
    "dictionaries": lambda: parquet_of(b=pa.array([WORD] * N).dictionary_encode()),
    "floats as categories": lambda: parquet_of(b=[NUMBER] * N),
}  # fmt: skip


def written(what: str, folder: Path) -> str:
    made = FILES[what]()
    path = folder / ("private.csv" if isinstance(made, bytes) else "private.parquet")
    if isinstance(made, bytes):
        path.write_bytes(made)
    else:
        pq.write_table(made, path)
    (folder / "schema.toml").write_text(TOML)
    return str(path)


def command(*words: object) -> Callable[[], None]:
    def call() -> None:
        before, sys.argv = sys.argv, ["noisewise", *map(str, words)]
        try:
            main()
        finally:
            sys.argv = before

    return call


OPTIONS = {
    "a schema": ("--schema", "schema.toml"),
    "bought bounds": ("--target", "y", "--bounds-epsilon", 1),
    "a regression": ("--target", "y", "--bounds-epsilon", 1, "--loss", "squared"),
}


@cases("train", FILES)
def test_files_to_train_on(what: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    path = written(what, tmp_path)
    monkeypatch.chdir(tmp_path)
    for how, options in OPTIONS.items():
        keeps_quiet(command("train", path, *options, *BUDGET, "--method", "dpsgd", "--out", how), capsys)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    pq.write_table(parquet_of(), folder / "good.parquet")
    (folder / "schema.toml").write_text(TOML)
    schema = ("--schema", folder / "schema.toml")
    with pytest.raises(SystemExit) as stopped:
        command(
            "train",
            folder / "good.parquet",
            *schema,
            *BUDGET,
            "--method",
            "dpsgd",
            "--seed",
            1,
            "--out",
            folder / "run",
        )()
    assert not stopped.value.code
    return folder / "run"


@cases("evaluate", FILES)
def test_files_to_evaluate(run: Path, what: str, tmp_path: Path, capsys: Any) -> None:
    capsys.readouterr()
    call = command("evaluate", run, written(what, tmp_path), "--epsilon", 1, "--seed", 1)
    assert keeps_quiet(call, capsys) is not None


@cases("to predict", FILES)
def test_files_to_predict(run: Path, what: str, tmp_path: Path, capsys: Any) -> None:
    capsys.readouterr()
    call = command("predict", run, written(what, tmp_path), "--out", tmp_path / "p.parquet")
    assert keeps_quiet_but_for_predictions(call, capsys) is not None


def keeps_quiet_but_for_predictions(what: Callable[[], Any], capsys: Any) -> BaseException | None:
    """Whoever asks for predictions gets one for each row and is told so."""

    def call() -> None:
        try:
            what()
        finally:
            out, err = capsys.readouterr()
            sys.stderr.write(out + err.replace(f"{N:,} predictions", ""))

    return keeps_quiet(call, capsys)


@cases("beside a schema", FILES)
def test_files_beside_a_schema(what: str, tmp_path: Path, capsys: Any) -> None:
    path, schema, new = written(what, tmp_path), tmp_path / "schema.toml", tmp_path / "new.toml"
    keeps_quiet(command("schema", "check", schema, path), capsys)
    keeps_quiet(command("schema", "init", path, "--target", "y", "--out", new), capsys)
    assert not any(secret in new.read_text() for secret in SECRETS)
