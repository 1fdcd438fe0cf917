"""An audit that cries wolf: an honest method accused by chance."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from noisewise.cli.main import app


def test_an_honest_method_is_not_accused_at_the_default_seed():
    """With 2,000 runs the bound is 1.26 by chance; with 30,000 it is 0.92. The number of jobs changes nothing."""
    told = CliRunner().invoke(app, ["audit", "sufficient_statistics", "--epsilon", "1", "--jobs", "1", "--json"])
    found = json.loads(told.stdout)
    assert "VIOLATION" not in told.output
    assert (told.exit_code, found["violation"]) == (0, False)
