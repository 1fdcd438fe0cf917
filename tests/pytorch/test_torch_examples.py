"""The example scripts run, and say what they cost."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "pytorch"
SMALL = {
    "mnist": ["--records", "60", "--batch-size", "20"],
    "cifar10": ["--records", "40", "--batch-size", "20", "--max-physical-batch-size", "8"],
    "text": ["--records", "60", "--batch-size", "20", "--vocab-size", "50"],
    "char_lstm": ["--records", "60", "--batch-size", "20", "--hidden-size", "8"],
}


def test_every_example_is_tried():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SMALL}
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 120


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "1", *SMALL[name]])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "make_private without epochs")
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "epsilon = " in capsys.readouterr().out
