"""What every meter and every price must obey, whatever it is asked."""

import math
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, MeterView, Terms, meter_from, open_meter
from noisewise.trusted.accountants import gdp, rdp, zcdp
from noisewise.trusted.accountants.calibrate import epsilon
from noisewise.trusted.events import (
    ApproximateDP,
    BoundedRange,
    Composed,
    FixedBatch,
    Gaussian,
    Poisson,
    Repeated,
    sampled,
)

law = settings(max_examples=30, deadline=None, derandomize=True)
quick = settings(max_examples=100, deadline=None, derandomize=True)

sigmas = st.floats(0.5, 500.0)
selections = st.one_of(st.builds(BoundedRange, st.floats(0.001, 2.0)), st.builds(ApproximateDP, st.floats(0.001, 2.0)))
full = st.one_of(st.builds(Gaussian, sigmas), selections)
poisson = st.builds(Poisson, st.floats(0.001, 1.0), full)
fixed = st.builds(FixedBatch, st.floats(0.001, 1.0), full)
anywhere = st.one_of(full, poisson)
plans = st.lists(anywhere, min_size=1, max_size=5)

CURRENCIES = [("gdp", None), ("zcdp", None), ("rdp", 12)]
COSTS = {
    "gdp": gdp.cost,
    "zcdp": zcdp.cost,
    "rdp": lambda leaf, relation: rdp.cost(leaf, relation, 12),
}


def meter_for(budget, name, order):
    """As every run gets it: opened by the trusted side from terms that a method could have named."""
    return open_meter(budget, Terms.adaptive(name, order=order))


# -- prices -----------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("accountant", ["gdp", "rdp", "zcdp", "pld"])
@law
@given(plan=plans, extra=anywhere)
def test_one_more_event_never_lowers_the_price(accountant, plan, extra):
    before = epsilon(plan, delta=1e-5, accountant=accountant)
    # PLD grids follow the plan, so two prices of one number may differ by their discretisation.
    slack = 5e-3 if accountant == "pld" else 1e-12
    assert epsilon([*plan, extra], delta=1e-5, accountant=accountant) >= before * (1 - slack)


@pytest.mark.parametrize("accountant", ["gdp", "rdp", "zcdp", "pld"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(plan=plans, cut=st.integers(0, 5))
def test_grouping_and_order_change_nothing(accountant, plan, cut):
    price = epsilon(plan, delta=1e-5, accountant=accountant)
    regrouped = [Composed(tuple(plan[cut:])), Repeated(Composed(tuple(plan[:cut])), 1)]
    assert epsilon(regrouped, delta=1e-5, accountant=accountant) == price
    assert epsilon(plan[::-1], delta=1e-5, accountant=accountant) == price


@pytest.mark.sample(2)
@pytest.mark.parametrize("accountant", ["gdp", "rdp", "zcdp", "pld"])
@law
@given(plan=plans)
def test_replacing_a_record_costs_at_least_what_adding_one_costs(accountant, plan):
    add = epsilon(plan, delta=1e-5, accountant=accountant)
    replace = epsilon(plan, delta=1e-5, adjacency="replace_one", accountant=accountant)
    assert replace >= add * (1 - (1e-3 if accountant == "pld" else 1e-9))


@pytest.mark.parametrize("name", list(COSTS))
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@quick
@given(sigma=sigmas, rate=st.floats(0.001, 0.999), more=st.floats(1.001, 3.0))
def test_more_noise_and_smaller_batches_never_cost_more(name, relation, sigma, rate, more):
    cost = COSTS[name]
    event = Poisson(rate, Gaussian(sigma))
    price = cost(event, relation)
    assert 0 < cost(Poisson(rate, Gaussian(sigma * more)), relation) <= price * (1 + 1e-8)
    assert cost(Poisson(rate / more, Gaussian(sigma)), relation) <= price * (1 + 1e-8)
    assert price <= cost(Gaussian(sigma), relation) * (1 + 1e-8)
    if relation == "replace_one":
        batch = cost(FixedBatch(rate, Gaussian(sigma)), relation)
        assert price * (1 - 1e-8) <= batch <= cost(Gaussian(sigma), relation) * (1 + 1e-8)


# -- meters -----------------------------------------------------------------------------------------------------

# What an adversary may do next: ask for a share of what is left, or throw in any event.
shares = st.one_of(st.just(1.0), st.floats(1e-6, 1.0), st.floats(0.999, 1.0))
samplings = st.one_of(st.just(("full",)), st.tuples(st.just("poisson"), st.floats(0.001, 1.0)))
moves = st.lists(st.one_of(st.tuples(shares, samplings), anywhere), max_size=25)


def play(meter, moves):
    """Do what is asked; a share must always be affordable, an event may be refused and then changes nothing."""
    for move in moves:
        if isinstance(move, tuple):
            try:
                sigma = meter.noise_for(*move)
            except BudgetExhausted:
                assert meter.spent_fraction > 1 - 1e-5
                continue
            meter.spend(sampled(move[1], Gaussian(sigma)))
        else:
            before = meter.spent_fraction, meter.events
            affordable = meter.affords(move)
            try:
                meter.spend(move)
                assert affordable
            except BudgetExhausted:
                assert not affordable and (meter.spent_fraction, meter.events) == before
        assert 0 <= meter.spent_fraction <= 1


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "order"), CURRENCIES)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@quick
@given(moves=moves, promise=st.floats(3.0, 12.0))
def test_no_sequence_of_choices_exceeds_the_cap(name, order, relation, moves, promise):
    budget = Budget(promise, 1e-6, relation)
    meter = meter_for(budget, name, order)
    view = MeterView(meter)
    play(meter, moves)
    assert (view.spent_fraction, view.events, view.budget) == (meter.spent_fraction, meter.events, budget)
    total = sum(count * Fraction(meter.currency.cost(leaf)) for leaf, count in meter.events.items())
    assert total <= Fraction(meter.currency.cap)


@mp.workdps(40)
def exact_delta(name, order, events, promise, relation):
    """The delta at epsilon ``promise`` of Gaussians, from the textbook formulas in 40 digits."""
    scale = 2 if relation == "replace_one" else 1
    squares = mp.fsum(count * (scale / mp.mpf(leaf.noise_multiplier)) ** 2 for leaf, count in events.items())
    if name == "gdp":
        mu = mp.sqrt(squares)
        return mp.ncdf(-promise / mu + mu / 2) - mp.exp(promise) * mp.ncdf(-promise / mu - mu / 2)
    if name == "zcdp":
        rho = squares / 2
        return mp.exp(-((promise - rho) ** 2) / (4 * rho)) if promise > rho else mp.mpf(1)
    exponent = (order - 1) * (order * squares / 2 - promise + mp.log(1 - mp.mpf(1) / order)) - mp.log(order)
    return mp.exp(exponent)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "order"), CURRENCIES)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@quick
@given(asked=st.lists(shares, min_size=1, max_size=30), promise=st.floats(3.0, 12.0), delta=st.floats(1e-9, 1e-2))
def test_the_promise_holds_in_exact_arithmetic(name, order, relation, asked, promise, delta):
    meter = meter_for(Budget(promise, delta, relation), name, order)
    play(meter, [(share, ("full",)) for share in asked] + [(1.0, ("full",))])
    assert exact_delta(name, order, meter.events, promise, relation) <= delta
    # The check has teeth: one part in a million less noise everywhere would break the promise.
    cheaper = {Gaussian(leaf.noise_multiplier * (1 - 1e-6)): count for leaf, count in meter.events.items()}
    assert exact_delta(name, order, cheaper, promise, relation) > delta


@pytest.mark.parametrize(("name", "order"), CURRENCIES)
@pytest.mark.parametrize("sampling", [("full",), ("poisson", 0.05)])
def test_spending_what_is_left_after_thousands_of_steps_never_overruns(name, order, sampling):
    meter = meter_for(Budget(3.0, 1e-5), name, order)
    steps = 3000 if name != "rdp" or sampling == ("full",) else 400
    for t in range(steps):
        meter.spend(sampled(sampling, Gaussian(meter.noise_for(1 / (steps - t), sampling))))
    total = sum(count * Fraction(meter.currency.cost(leaf)) for leaf, count in meter.events.items())
    assert Fraction(meter.currency.cap) * Fraction(999_999, 1_000_000) < total <= Fraction(meter.currency.cap)


@pytest.mark.parametrize(("name", "order"), CURRENCIES)
@quick
@given(moves=moves)
def test_replaying_the_events_gives_the_same_price(name, order, moves):
    meter = meter_for(Budget(4.0, 1e-6), name, order)
    play(meter, moves)
    again = meter_from(meter.budget, meter.describe())
    again.spend(Composed(tuple(Repeated(leaf, count) for leaf, count in meter.events.items())))
    assert again.spent_fraction == meter.spent_fraction


@law
@given(asked=st.lists(shares, min_size=1, max_size=20), rate=st.floats(0.001, 0.1))
def test_tcdp_meters_keep_every_condition(asked, rate):
    meter = AdditiveMeter(Budget(0.5, 1e-8, "replace_one"), "tcdp")
    play(meter, [(share, ("fixed", rate)) for share in asked])
    omega = meter.currency.omega
    for leaf in meter.events:
        rho = 2 / leaf.event.noise_multiplier**2
        assert rho <= 0.1 and rate <= 0.1
        assert math.log(1 / rate) >= 3 * rho * (2 + math.log2(1 / rho))
        assert math.log(1 / rate) / (4 * rho) >= omega * (1 - 1e-12)
    total = sum(13 * rate**2 * 2 / leaf.event.noise_multiplier**2 * count for leaf, count in meter.events.items())
    assert total <= meter.currency.cap * (1 + 1e-12)


@law
@given(plan=st.lists(full, min_size=1, max_size=4), data=st.data())
def test_a_plan_meter_pays_for_its_plan_in_any_order_and_for_nothing_else(plan, data):
    price = epsilon(plan, delta=1e-5)
    assume(0 < price < 200)
    meter = open_meter(Budget(price, 1e-5), Terms.plan(plan))
    order = data.draw(st.permutations(plan))
    for event in order:
        meter.spend(event)
    for event in plan:
        with pytest.raises(BudgetExhausted):
            meter.spend(event)
    assert meter.spent_fraction == 1.0
