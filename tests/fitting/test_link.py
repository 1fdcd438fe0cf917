"""Probabilities of scores whose slopes were cut."""

from __future__ import annotations

import math

import numpy as np
import pytest

import noisewise as nw
from noisewise.tables.fit.fitted import calibrated, uncalibrated

CAPS = (0.5, 0.6, 0.75, 0.99, 1.0, 3.0, math.inf)
SCORES = np.unique([*np.linspace(-60, 60, 4001), 1e-9, -1e-9, 700.0, -700.0])


@pytest.mark.parametrize("cap", CAPS)
def test_there_and_back(cap):
    there = calibrated(SCORES, cap)
    np.testing.assert_allclose(uncalibrated(there, cap), SCORES, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(calibrated(uncalibrated(SCORES, cap), cap), SCORES, rtol=1e-9, atol=1e-9)
    assert (np.diff(there) > 0).all() and (np.diff(uncalibrated(SCORES, cap)) > 0).all()
    np.testing.assert_allclose(there, -calibrated(-SCORES, cap))
    assert (np.sign(there) == np.sign(SCORES)).all()
    assert (np.abs(there) <= np.abs(SCORES) + 1e-12).all()


@pytest.mark.parametrize("cap", [0.5, 0.8])
def test_it_is_where_cut_slopes_are_even(cap):
    """p min(s(-z), c) = (1 - p) min(s(z), c) for the probability that belongs to z."""
    p = 1 / (1 + np.exp(-calibrated(SCORES[1:-1], cap)))
    up, down = (np.minimum(1 / (1 + np.exp(side * SCORES[1:-1])), cap) for side in (1, -1))
    np.testing.assert_allclose(p * up, (1 - p) * down, atol=1e-12)


def test_above_one_nothing_was_cut():
    for cap in (1.0, 2.0, math.inf):
        assert calibrated(SCORES, cap) is SCORES and uncalibrated(SCORES, cap) is SCORES


def test_probabilities_of_a_run_are_calibrated():
    """The expected calibration error on fresh rows is small, and smaller than that of scores as they are."""
    rng = np.random.default_rng(0)

    def rows(n):
        X = rng.uniform(-1, 1, (n, 2))
        likely = 1 / (1 + np.exp(-(3 * np.sin(4 * X[:, 0]) + 1.5 * X[:, 1])))
        return X, (rng.uniform(size=n) < likely).astype(int)

    face = nw.PrivateClassifier(4.0, 1e-6, method="additive", bounds=(-1, 1), random_state=0).fit(*rows(20_000))
    X, y = rows(20_000)
    scores = face.fitted_.scores(X)
    assert face.fitted_.cap == 0.5
    ours, plain = (_error(1 / (1 + np.exp(-z)), y) for z in (calibrated(scores, 0.5), scores))
    np.testing.assert_array_equal(face.predict_proba(X)[:, 1] > 0.5, scores > 0)
    assert ours < 0.05 and ours < plain
    assert _error(face.predict_proba(X)[:, 1], y) == pytest.approx(ours, abs=1e-6)


def _error(p, y):
    bins = np.minimum((p * 15).astype(int), 14)
    return sum(abs((p - y)[bins == k].sum()) for k in range(15)) / len(y)
