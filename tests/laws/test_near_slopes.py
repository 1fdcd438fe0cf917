"""Whole walks take slopes to the last bits: their proofs grant rounding no more (``FLOOR``, ``ROUNDED``)."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from noisewise.trusted.losses import ClassWeighted, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.walks.objective import FLOOR

EDGES = np.log(2) * (np.arange(-40, 40) + 0.5)  # where the reduction of exp jumps
SCORES = np.sort(np.concatenate([np.linspace(-30, 30, 2001), EDGES, np.nextafter(EDGES, 99), np.nextafter(EDGES, -99)]))


def test_logistic_slopes_are_those_of_the_formula():
    for y in (-1.0, 1.0):
        found = Logistic().near_slope(SCORES, np.full(len(SCORES), y))
        with mpmath.workdps(40):
            truth = np.array([float(-y / (1 + mpmath.e ** (y * mpmath.mpf(float(z))))) for z in SCORES])
        assert np.max(np.abs(found - truth)) < 4e-16
        assert np.all(np.diff(found) > -4e-16)  # of a convex function: no jump down


def test_softmax_slopes_are_those_of_the_formula():
    z = np.column_stack([SCORES, -SCORES / 3, np.ones(len(SCORES))])
    found = Softmax().near_slope(z, np.ones(len(z), np.int64))
    truth = np.exp(z - z.max(1, keepdims=True)).astype(np.longdouble)
    truth = truth / truth.sum(1, keepdims=True) - np.array([0, 1, 0])
    assert np.max(np.abs(found - truth)) < 1e-15


@pytest.mark.parametrize(
    "loss", [Squared(), HuberHinge(), ClassWeighted(Logistic(), (0.5, 1.0)), Logistic(), Softmax()], ids=str
)
def test_both_slopes_are_alike_and_neither_is_wrong_by_the_floor(loss):
    several = loss.task == "classes"
    z = np.column_stack([SCORES, -SCORES]) if several else SCORES
    y = (SCORES > 1).astype(np.int64) if several else np.where(SCORES > 1, 1.0, -1.0)
    assert np.max(np.abs(loss.near_slope(z, y) - loss.row_slope(z, y))) < FLOOR / 4
