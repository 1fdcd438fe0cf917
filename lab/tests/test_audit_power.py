"""How near audits come to the truth for a mechanism that is known."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from noisewise import Budget
from noisewise.faces.cli.main import app
from noisewise_lab import audit_power


def test_the_power_of_a_real_gaussian_mechanism():
    audit, seconds = audit_power.one_audit(1.0, 1e-5, 4000, seed=1)
    assert audit.trials == 1000
    assert 0 <= audit.lower_bound <= 1.0
    assert seconds > 0
    spread = audit_power.answers(Budget(1.0, 1e-5), 2.0, 1, 2000, seed=5)
    assert spread.mean() == pytest.approx(1.0, abs=0.2)
    assert spread.std() == pytest.approx(2.0, rel=0.1)


def test_bench_audit_power_prints_its_row():
    told = CliRunner().invoke(app, ["bench", "audit-power", "--audits", "2", "--runs", "400", "--jobs", "1", "--json"])
    assert told.exit_code == 0, told.output
    (row,) = json.loads(told.stdout)["rows"]
    assert row["audits"] == 2
    assert {"reached", "median", "lowest_5_percent", "first_alarms", "false_violations", "seconds_per_audit"} <= set(
        row
    )
