"""Rows from files: scaled, of norm at most 1 in single precision, in memory or in a file that nobody can find."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from noisewise.tables import rows as module
from noisewise.tables.encode import Encoder
from noisewise.tables.rows import RowStore, Scaling, in_single_precision, read_matrix, read_rows
from noisewise.tables.schema import Column, Schema

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("job", "category", categories=("clerk", "farmer")),
        Column("name", "ignore"),
        Column("y", "category", categories=(1, 0)),
    ),
    "y",
)
ENCODER = Encoder(SCHEMA)
SCALING = Scaling(ENCODER.low, ENCODER.high, unit_rows=True)


@pytest.fixture
def table(tmp_path):
    """A CSV of 500 rows, and what its rows and labels must be."""
    rng = np.random.default_rng(0)
    age, job, y = rng.integers(-20, 150, 500), rng.choice(["clerk", "farmer", ""], 500), rng.integers(0, 2, 500)
    path = tmp_path / "people.csv"
    lines = [f"{a},{j},Eve,{label}" for a, j, label in zip(age, job, y, strict=True)]
    path.write_text("\n".join(["age,job,name,y", *lines]))
    matrix = np.column_stack([age, job == "clerk", job == "farmer"]).astype(float)
    return path, matrix, y


def test_a_file_becomes_scaled_rows_and_labels(table):
    path, matrix, y = table
    rows = read_rows(path, ENCODER, SCALING)
    assert rows.X.dtype == np.float32 and rows.X.shape == (500, 4) and repr(rows) == "Rows(...)"
    np.testing.assert_allclose(rows.X, SCALING(matrix), rtol=2e-6)
    np.testing.assert_array_equal(rows.y, y)
    unscaled, labels = read_matrix(path, ENCODER)
    np.testing.assert_array_equal(unscaled, matrix)
    np.testing.assert_array_equal(labels, y)


def test_memory_and_file_hold_the_same(table, tmp_path, monkeypatch):
    path, _, y = table
    cache = tmp_path / "cache"
    cache.mkdir()
    plain = read_rows(path, ENCODER, SCALING)
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 70)  # many small pieces
    mapped = read_rows(path, ENCODER, SCALING, cache=cache)
    assert list(cache.iterdir()) == []
    assert np.array_equal(plain.X, mapped.X) and (mapped.y == y).all()
    monkeypatch.setattr(module, "MAX_BYTES_IN_MEMORY", 1000)
    monkeypatch.setenv("TMPDIR", str(cache))
    monkeypatch.setattr(module.tempfile, "tempdir", None)
    large = read_rows(path, ENCODER, SCALING)
    assert np.array_equal(plain.X, large.X) and is_mapped(large.X, cache) and is_mapped(mapped.X, cache)
    assert not is_mapped(plain.X, cache)
    large.X[0] = 0  # ours alone: may be written to
    with pytest.raises(ValueError, match="existing folder"):
        read_rows(path, ENCODER, SCALING, cache=tmp_path / "none")


def is_mapped(X, folder):
    """Whether the memory of a tensor is that of a nameless file in the folder."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= X.ctypes.data < end:
                return str(folder) in line and "(deleted)" in line
    return False


def test_the_file_is_for_its_owner_alone(tmp_path):
    with RowStore(3, tmp_path) as store:
        store.append(np.ones((5, 3), np.float32))
        state = os.fstat(store._file.fileno())
        assert state.st_mode & 0o777 == 0o600 and state.st_nlink == 0


def test_a_crash_leaves_nothing_behind(tmp_path):
    code = f"""
import os, numpy as np
from noisewise.tables.rows import RowStore
store = RowStore(3, {str(tmp_path)!r})
store.append(np.ones((5, 3), np.float32))
X = store.matrix()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    class Full:
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            pass

    monkeypatch.setattr(module.tempfile, "TemporaryFile", lambda dir: Full())
    with pytest.raises(ValueError, match="no space left for the rows"), RowStore(3, tmp_path) as store:
        store.append(np.ones((5, 3), np.float32))


def test_a_bad_row_far_down_leaves_nothing(table, tmp_path, monkeypatch):
    path, _, _ = table
    path.write_text(path.read_text() + "\n44,Eve-4711,x,1")
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 70)
    cache = tmp_path / "cache"
    cache.mkdir()
    with pytest.raises(ValueError, match="column 'job'") as refused:
        read_rows(path, ENCODER, SCALING, cache=cache)
    assert list(cache.iterdir()) == [] and "4711" not in str(refused.value)


def test_prediction_needs_no_target_and_ignores_other_columns(table, tmp_path):
    path, matrix, _ = table
    pq.write_table(
        pa.table({"pay": [1.0] * 500, "job": pa.csv.read_csv(path)["job"], "age": matrix[:, 0]}),
        tmp_path / "new.parquet",
    )
    rows = read_rows(tmp_path / "new.parquet", ENCODER, SCALING, predict=True)
    assert rows.y is None and np.array_equal(rows.X, read_rows(path, ENCODER, SCALING).X)
    assert np.array_equal(rows.X, read_rows(path, ENCODER, SCALING, predict=True).X)
    assert read_matrix(path, ENCODER, predict=True)[1] is None
    with pytest.raises(ValueError, match=r"new.parquet: the data lacks the target 'y'"):
        read_rows(tmp_path / "new.parquet", ENCODER, SCALING)


def test_a_scaling_of_other_columns_is_refused(table):
    with pytest.raises(ValueError, match="scaling is for 2 columns; the schema makes 3"):
        read_rows(table[0], ENCODER, Scaling(np.zeros(2), np.ones(2), True))


def test_progress_is_a_share(table):
    heard = []
    read_rows(table[0], ENCODER, SCALING, progress=heard.append)
    assert heard and heard == sorted(heard) and heard[-1] == 1.0


ANY = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(
    arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=ANY), st.booleans(), st.floats(-1e9, 1e9)
)
def test_no_row_is_longer_than_one_after_rounding(X, unit_rows, low):
    scaling = Scaling(np.full(X.shape[1], low), np.full(X.shape[1], low + 1), unit_rows)
    rows = in_single_precision(scaling(X)).astype(np.float64)
    assert (np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1)) <= 1).all()


def test_rounding_alone_would_make_rows_too_long():
    rng = np.random.default_rng(0)
    rows = Scaling(np.zeros(5), np.ones(5), unit_rows=True)(rng.random((1000, 5)))
    assert np.linalg.norm(rows.astype(np.float32).astype(np.float64), axis=1).max() > 1
    assert np.linalg.norm(in_single_precision(rows).astype(np.float64), axis=1).max() <= 1
