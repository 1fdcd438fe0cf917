"""``noisewise demo``, on tables small enough for a test."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.faces.cli import demo
from noisewise.faces.cli.main import app


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(demo, "CENSUS_ROWS", 2000)


def test_json_is_one_document_and_nothing_else(quick, tmp_path):
    told = CliRunner().invoke(app, ["demo", "--json", "--out", str(tmp_path / "new" / "folder")])
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert [row["data"] for row in document["rows"]] == ["census", "digits"]
    for row in document["rows"]:
        shares = [row[name] for name in ("epsilon=0.1", "epsilon=1", "epsilon=8", "non-private")]
        assert all(0 <= share <= 1 for share in shares)
    assert nw.verify(document["statement"]).holds
    written = json.loads((tmp_path / "new" / "folder" / "statement.json").read_text(encoding="utf-8"))
    assert written == document["statement"]


def test_text_and_files(quick, tmp_path):
    out = tmp_path / "demo"
    told = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert "census" in told.stdout and "digits" in told.stdout
    assert "they promise (9.1, 3e-06) together" in told.stdout and "BudgetWarning" not in told.output
    assert {"statement.json", "statement.txt"} <= {file.name for file in out.iterdir()}
    assert "(epsilon, delta) = (1, 1e-06)" in (out / "statement.txt").read_text(encoding="utf-8")
    assert f"noisewise verify {out}/statement.json" in told.stdout
    assert CliRunner().invoke(app, ["verify", str(out / "statement.json")]).exit_code == 0


def test_a_folder_that_cannot_be_written_is_found_out_before_training(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(demo, "splits", lambda: pytest.fail("trained first"))
    told = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert isinstance(told.exception, OSError)
