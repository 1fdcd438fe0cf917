"""The benchmark of large tables measures what it says, on few rows; the full size is a command."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.tables.encode import Encoder
from noisewise.tables.rows import Scaling, read_rows
from noisewise_lab import large

ROWS, COLUMNS, PASSES = 3000, 4, 6
LINUX = pytest.mark.skipif(not large.STATUS.is_file(), reason="/proc is missing on this system: memory is read from it")


def nothing(*_: object) -> None:
    pass


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The benchmark run once, on few rows: its figures, what it reported, and the folder it worked in."""
    folder, heard = tmp_path_factory.mktemp("large"), []
    found = large.large_rows(
        ROWS, COLUMNS, folder=folder, steps=PASSES, report=lambda what, share: heard.append((what, share))
    )
    return found, heard, folder


@LINUX
@pytest.mark.slow
def test_a_result_per_process(measured):
    found, _, _ = measured
    assert [row["what"] for row in found["results"]] == ["decoding", "training, mapped file", "training, in memory"]
    assert found["passes"] == PASSES
    for row in found["results"]:
        assert row["rows_per_second"] == round(ROWS / row["seconds"])
        assert 50 < row["anonymous_mb"] < 1000 and row["mapped_mb"] > 0


@LINUX
@pytest.mark.slow
def test_goals_are_judged_by_the_figures(measured):
    found, _, _ = measured
    ratio, memory = found["goals"]["ratio"], found["goals"]["anonymous_mb"]
    assert ratio["met"] is (found["ratio"] >= 0.5)
    assert memory["measured"] == max(row["anonymous_mb"] for row in found["results"][:2])
    assert memory["met"] is (memory["measured"] < 700)


@LINUX
@pytest.mark.slow
def test_nothing_stays_and_progress_is_heard(measured):
    _, heard, folder = measured
    assert list(folder.iterdir()) == []
    assert {"writing the table", "decoding", "reading for the memory training", f"pass {PASSES}"} <= {
        w for w, _ in heard
    }
    assert all(0 <= share <= 1 for _, share in heard)


def test_threads_are_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with large.one_thread():
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    monkeypatch.delenv("OMP_NUM_THREADS")
    with large.one_thread():
        pass
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_table_is_read_by_its_schema(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(large, "ROWS_PER_BLOCK", 400)
    path = tmp_path / f"table.{kind}"
    large.write_table(path, 1000, COLUMNS, nothing)
    encoder = Encoder(large.Job(path, COLUMNS, tmp_path, None).schema)
    rows = read_rows(path, encoder, Scaling(encoder.low, encoder.high, unit_rows=True))
    assert rows.X.shape == (1000, COLUMNS + 1)
    assert 0.3 < float(np.mean(rows.y)) < 0.7
    if kind == "parquet":
        assert pq.ParquetFile(path).num_row_groups == 3


@LINUX
def test_peak_sees_memory_that_is_gone_again():
    with large.Peak() as peak:
        before = peak.figures()["anonymous_mb"]
        block = np.ones(25_000_000)
        peak.figures()
        del block
        assert peak.figures()["anonymous_mb"] >= before + 150


@pytest.mark.slow
@LINUX
def test_what_fails_in_a_process_is_said(tmp_path):
    job = large.Job(tmp_path / "absent.parquet", COLUMNS, tmp_path, 2)
    with large.Helper(large.decode, job) as helper, pytest.raises(ValueError, match=r"absent\.parquet"):
        helper.hear(nothing)


def test_folders_in_memory_and_full_ones_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="existing folder"):
        large.roomy_folder(tmp_path / "absent", 10, 2, "csv")
    with pytest.raises(ValueError, match=r"are free; pass another folder"):
        large.roomy_folder(tmp_path, 10**15, 50, "parquet")
    monkeypatch.setattr(large, "filesystem", lambda folder: "tmpfs")
    with pytest.raises(ValueError, match="kept in memory"):
        large.roomy_folder(tmp_path, 10, 2, "csv")


@LINUX
def test_filesystem_goes_by_the_longest_mount_point():
    assert large.filesystem(Path("/proc/self")) == "proc"
    assert large.filesystem(Path("/")) != "proc"


def test_command_prints_figures_and_goals(monkeypatch):
    row = {"what": "decoding", "seconds": 2.0, "anonymous_mb": 300, "mapped_mb": 12, "rows_per_second": 1_500_000}
    found = {
        "rows": 3_000_000, "columns": 50, "format": "parquet", "file_mb": 612, "passes": 40, "results": [row], "ratio": 0.4,
        "poisson": {"rate": 0.001, "mapped_seconds": 0.001, "memory_seconds": 0.0005},
        "goals": {
            "ratio": {"least": 0.5, "measured": 0.4, "met": False},
            "anonymous_mb": {"below": 700, "measured": 300, "met": True},
        },
    }  # fmt: skip
    asked = {}
    monkeypatch.setattr(large, "large_rows", lambda *size, **how: asked.update(how, size=size) or found)
    shown = CliRunner().invoke(app, ["bench", "large", "--passes", "0"])
    assert shown.exit_code == 0, shown.output
    assert asked["size"] == (3_000_000, 50) and asked["steps"] is None and asked["kind"] == "parquet"
    assert "1,500,000" in shown.stdout and "0.40 (goal: at least 0.5; missed)" in shown.stdout
    assert "300 MB (goal: below 700; met)" in shown.stdout


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pass parquet or csv"):
        large.large_rows(1000, 2, folder=tmp_path, kind="xls", report=nothing)
