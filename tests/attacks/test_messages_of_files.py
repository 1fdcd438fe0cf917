"""Attacks by error message, in files: cells that make Arrow or a parser quote a record to whoever reads the screen."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise.faces.cli import main

from .silence import LABELS, NUMBER, PLAIN, SECRETS, WORD, N, cases, keeps_quiet

BUDGET = ("--epsilon", "2", "--delta", "1e-6")

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


QUOTED = {"a field too many"}  # by Arrow
OPTIONS = {
    "a schema": ("--schema", "schema.toml"),
    "bought bounds": ("--target", "y", "--bounds-epsilon", 1),
    "a regression": ("--target", "y", "--bounds-epsilon", 1, "--loss", "squared"),
}


@pytest.mark.sample(11)
@cases(FILES, held=FILES.keys() - QUOTED)
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


@pytest.mark.sample(11)
@cases(FILES, held=FILES.keys() - QUOTED)
def test_files_to_evaluate(run: Path, what: str, tmp_path: Path, capsys: Any) -> None:
    capsys.readouterr()
    call = command("evaluate", run, written(what, tmp_path), "--epsilon", 1, "--seed", 1)
    assert keeps_quiet(call, capsys) is not None


@pytest.mark.sample(11)
@cases(FILES, held=FILES.keys() - QUOTED)
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


@pytest.mark.sample(11)
@cases(FILES, held=FILES)
def test_files_beside_a_schema(what: str, tmp_path: Path, capsys: Any) -> None:
    path, schema, new = written(what, tmp_path), tmp_path / "schema.toml", tmp_path / "new.toml"
    keeps_quiet(command("schema", "check", schema, path), capsys)
    keeps_quiet(command("schema", "init", path, "--target", "y", "--out", new), capsys)
    assert not any(secret in new.read_text() for secret in SECRETS)
