"""Standard errors that a run reports, against the spread of many runs."""

from __future__ import annotations

import pytest

from noisewise.methods import method_named
from noisewise_lab.standard_errors import Setting, measure

pytestmark = pytest.mark.filterwarnings(
    "ignore::noisewise.protect.learned.zoo.OutsideRange"
)  # a few hundred records are few


@pytest.mark.parametrize(
    "name, steps, size",
    [("output_perturbation", None, 500), ("sufficient_statistics", None, 2000), ("dpsgd", 20, 500), ("descent", 40, 500),
     ("dynamic", 20, 500), ("projected_gd", 30, 500),
     pytest.param("ppsgd", 30, 500, marks=pytest.mark.slow), pytest.param("l2p", 20, 500, marks=pytest.mark.slow)],
)  # fmt: skip
def test_reported_errors_are_near_those_of_many_runs(name, steps, size):
    """Not below the truth by more than 15 % nor above three times it, at the median coordinate."""
    method = method_named(name) if steps is None else method_named(name).with_settings(steps=steps)
    loss = "logistic" if "logistic" in method.losses else "squared"
    row = measure(Setting(name, loss, size, 5, 2.0), runs=150, reported=3, method=method)
    assert 1 / 1.15 <= row.median <= 3.0, row
