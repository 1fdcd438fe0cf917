"""Hostile numbers in a run folder: ``noisewise report RUN`` answers with a page or one line, never with a traceback."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import noisewise as nw

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)


def spoiled(run, name, document):
    """The folder with another document under a new seal, as anybody can make one."""
    (run / name).write_text(json.dumps(document))
    seal = json.loads((run / "seal.json").read_text())
    seal["sha256"][name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    (run / "seal.json").write_text(json.dumps(seal))
    return run


def huge_error(run):
    document = json.loads((run / "run.json").read_text())
    document["coefficients"][0]["standard_error"] = 1e308
    return spoiled(run, "run.json", document)


def huge_audit(run):
    audit = {"kind": "a", "lower_bound": 10**400, "claimed": 1, "confidence": 1, "runs": 1, "verdict": "", "when": ""}
    return spoiled(run, "audit.json", [audit])


@pytest.mark.parametrize("spoil", [huge_error, huge_audit])
def test_numbers_that_no_float_can_hold(tmp_path, shell, spoil):
    run = nw.save(nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), method="dpsgd").fit(X, Y), tmp_path / "run")
    try:
        told = shell("report", spoil(run))
    except OverflowError:
        pytest.fail("a traceback instead of a page or a line")
    assert told.code == 0 or (told.code == 2 and told.err.count("\n") == 1)
