"""The edges of a cap, in exact arithmetic: all of it can be spent, nothing beyond it, and no charge is rounded to nothing."""

from __future__ import annotations

import math

import pytest

from noisewise.accounts import AdditiveMeter, Budget
from noisewise.trusted.events import Gaussian

FAINT = Gaussian(1e30)  # costs far less than the smallest part that a meter counts in


def all_of(meter: AdditiveMeter) -> Gaussian:
    """An event whose price is the cap to the last bit."""
    around = 1 / math.sqrt(meter.currency.cap)
    tries = (Gaussian(around * (1 + k * 2.0**-52)) for k in range(-40, 40))
    return next(event for event in tries if meter.currency.cost(event) == meter.currency.cap)


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 8.0])
def test_the_whole_cap_is_affordable_and_nothing_beyond_it(epsilon):
    meter = AdditiveMeter(Budget(epsilon, 1e-6), "gdp")
    event = all_of(meter)
    assert meter.affords(event)
    meter.spend(event)
    assert meter.spent_fraction == 1 and not meter.affords(FAINT)


def test_no_charge_is_rounded_to_nothing():
    meter = AdditiveMeter(Budget(0.5, 1e-6), "gdp")
    event = all_of(meter)
    meter.spend(FAINT)
    assert meter.spent_fraction > 0 and not meter.affords(event)
