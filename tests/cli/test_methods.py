"""``noisewise methods``: one row for each method of the registry."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise.methods import registry


def test_methods_as_json():
    told = CliRunner().invoke(app, ["methods", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["default"] == "auto"
    rows = {row["name"]: row for row in json.loads(told.stdout)["rows"]}
    assert set(rows) == set(registry())
    for row in rows.values():
        assert set(row) == {"name", "summary", "needs_public", "adaptive", "private", "losses", "paper"}
        assert row["summary"] and row["losses"]
    assert rows["dpsgd"]["private"] is True and rows["nonprivate"]["private"] is False


def test_methods_as_a_table():
    told = CliRunner().invoke(app, ["methods"])
    assert told.exit_code == 0 and "dpsgd" in told.stdout and "plan" in told.stdout
    assert "The default, auto, takes additive" in " ".join(told.stdout.split())


def test_help_has_an_example():
    assert "Example: noisewise methods" in CliRunner().invoke(app, ["methods", "--help"]).output
