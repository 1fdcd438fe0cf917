"""Golden runs: what methods, commands and run folders gave when they were recorded, they give today.

Exactly on the machine that recorded them, else within a tolerance for floats; ``record.py --check`` is always exact.
"""

from __future__ import annotations

import json

import pytest
from golden_cases import (
    COMMANDS,
    OLD,
    RUN,
    RUN_FILES,
    laid_out,
    made_run,
    method_runs,
    of_commands,
    of_file,
    of_old,
    old_folders,
)
from golden_text import SINGLE, machine, moved, normal, recorded

import noisewise

COARSE = 0.02
EXACT = machine() == recorded("machine.json")
METHODS, COMMANDS_THEN, RUN_THEN, OLD_NOW = map(recorded, ("methods.json", "commands.json", "run", "old.json"))
THEN = json.loads((OLD / "then.json").read_text())  # what the old version itself said of its folders


def close(name: str) -> float:
    """How near is near on another machine: a perceptron may be summed in whole numbers on one and not on the other."""
    return COARSE if "mlp" in name or name == "predict-json" else SINGLE


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return laid_out(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The folder in which all commands ran, and what they said."""
    folder = tmp_path_factory.mktemp("session")
    return folder, of_commands(folder)


def test_everything_is_recorded():
    for known, made in ((METHODS, method_runs()), (COMMANDS_THEN, COMMANDS), (RUN_THEN, RUN_FILES)):
        assert sorted(known) == sorted(made), "run tests/golden/record.py and look at the difference"
    assert sorted(OLD_NOW) == sorted(THEN) == old_folders()


# Small batches take seconds to price, whatever the table: on numbers is in make test.
SMALL_BATCHES = ("projected_sgd on mixed", "growing_batch on mixed")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SMALL_BATCHES)) for name in method_runs()]
)
def test_method(name, tables):
    before, now = METHODS[name], made_run(name, tables)
    assert moved(before, now, exact=EXACT, close=close(name)) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name, session):
    assert moved(COMMANDS_THEN[name], session[1][name], exact=EXACT, close=close(name)) is None


@pytest.mark.parametrize("name", RUN_FILES)
def test_file_of_a_run_folder(name, session):
    assert moved(RUN_THEN[name], of_file(session[0] / RUN / name), exact=EXACT, close=SINGLE) is None


def test_a_run_folder_has_no_other_files(session):
    assert sorted(path.name for path in (session[0] / RUN).iterdir()) == sorted(RUN_FILES)


@pytest.mark.parametrize("name", old_folders())
def test_folder_of_an_earlier_version(name, tmp_path):
    """It loads, predicts what it predicted then, and verify says what is recorded."""
    now = of_old(name, tmp_path)
    assert moved(OLD_NOW[name], now, exact=EXACT) is None
    assert moved(THEN[name]["predict"], now["predict"], exact=EXACT) is None
    assert THEN[name]["verify"]["code"] == now["verify"]["code"]
    loaded = noisewise.load(OLD / name)
    assert loaded.statement_.data == json.loads((OLD / name / "statement.json").read_text())
    assert len(loaded.trace_) == len(json.loads((OLD / name / "trace.json").read_text())["rows"])


def test_what_moves_is_found():
    """The comparison itself: in the last bit when exact, beyond the tolerance else, and in words always."""
    before = {"theta": [0.1, 0.2], "out": ["epsilon 0.5"], "sha256": "a"}
    assert moved(before, before, exact=True) is None
    nudged = {**before, "theta": [0.1, 0.2000000000001]}
    assert moved(before, nudged, exact=True) == "theta[1]: 0.2 became 0.2000000000001"
    assert moved(before, nudged, exact=False) is None
    assert moved(before, {**before, "theta": [0.1, 0.21]}, exact=False) == "theta[1]: 0.2 became 0.21"
    assert moved(before, {**before, "out": ["delta 0.5"]}, exact=False) is not None
    assert moved(before, {**before, "out": ["epsilon 0.6"]}, exact=False) is not None
    assert moved(before, {**before, "sha256": "b"}, exact=True) is not None
    assert (
        normal("at 2025-03-01T12:30:59+00:00 in noisewise " + noisewise.__version__) == "at MOMENT in noisewise VERSION"
    )
