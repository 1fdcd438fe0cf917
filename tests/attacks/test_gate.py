"""What a first reading of the gate and the meters found, each kept; none of it reached a release."""

from __future__ import annotations

import math
import threading
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisewise.budget import AdditiveMeter, Budget, PlanMeter
from noisewise.curator import QUESTIONS
from noisewise.trusted.events import Composed, Gaussian, InvalidEvent, Repeated
from noisewise.trusted.gate import Gate
from noisewise.trusted.own_settings import own_settings
from noisewise.trusted.question import HowAsked
from noisewise.trusted.stores.totals import IntegerTotal, fixed_size

pytestmark = pytest.mark.guard("found by reading, and mended in the room where it stood")
BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize("rate", [0.05 - 2e-14, 0.05, 1 / 3, 0.1, 0.7, 1 - 2**-53])
@pytest.mark.parametrize("records", [1, 7, 100, 30_000_000])
def test_a_batch_of_fixed_size_is_never_larger_than_its_price(rate, records):
    rows = fixed_size(rate, records)
    assert rows <= Fraction(rate) * records or rows / records == rate
    assert rows > Fraction(rate) * records - 1


def test_b_of_n_records_are_b():
    assert all(fixed_size(b / n, n) == b for n in (3, 10, 49, 1000, 12345) for b in range(1, n + 1, max(n // 50, 1)))


class Chameleon(float):
    """Equal to every number, and so in a cache by that."""

    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


def test_noise_that_is_no_plain_number_prices_nobody_else():
    gate = Gate(AdditiveMeter(BUDGET, "gdp"))
    gate.open(Chameleon(1e5), ("full",), range(3))
    honest = AdditiveMeter(BUDGET, "gdp")
    Gate(honest).open(7.5, ("full",), range(3))
    paid = AdditiveMeter(BUDGET, "gdp")
    paid.spend(Gaussian(7.5))
    assert honest.spent_fraction == paid.spent_fraction > 0.1
    (leaf,) = gate.meter.events
    assert type(leaf.noise_multiplier) is float


@pytest.mark.parametrize("events", [iter([Gaussian(10.0)]), [Gaussian(10.0)], (Gaussian(10.0), 3)])
def test_what_was_composed_is_a_tuple_of_events(events):
    with pytest.raises(InvalidEvent, match="a tuple of events"):
        Composed(events)


def test_a_batch_has_its_noise_once():
    ticket = Gate(AdditiveMeter(BUDGET, "gdp")).open(7.5, ("full",), range(3))
    totals = [(IntegerTotal(np.zeros(2, np.int64), 1 << 20, 1.0), np.float64)]
    first = ticket.release(totals, over=1.0)
    with pytest.raises(RuntimeError, match="has had its noise"):
        ticket.release(totals, over=1.0)  # also before the first was looked at
    assert len(next(first)) == 2


def test_events_that_become_equal_are_counted_each():
    third = Fraction(100003, 3)
    plan = PlanMeter(Budget(5.0, 1e-6), [Repeated(Gaussian(third), 2), Gaussian(float(third))])
    assert plan.remaining.total() == 3
    assert PlanMeter(BUDGET, []).share_after(Composed(())) in (0.0, 1.0)


def test_settings_of_one_gate_outlive_those_of_another():
    """torch has one default for all threads: the first to come sets it, the last to leave gives it back."""
    inside, leave, found = threading.Event(), threading.Event(), []

    def second():
        with own_settings():
            inside.set()
            leave.wait(10)
            found.append(torch.get_default_dtype())

    torch.set_default_dtype(torch.float64)
    try:
        other = threading.Thread(target=second)
        with own_settings():
            other.start()
            assert inside.wait(10)
        leave.set()
        other.join()
        assert found == [torch.float32] and torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", QUESTIONS.values(), ids=QUESTIONS)
def test_taking_a_record_out_moves_no_total_further_than_replacing_it(kind):
    for asked in kind.cases(3):
        for relation in ("add_remove", "replace_one"):
            added, replaced = asked.moves(HowAsked(relation, ("full",), 1.0, 10.0, 3))
            assert 0 < added <= replaced <= 2 * added * (1 + 1e-12) and math.isfinite(replaced)
