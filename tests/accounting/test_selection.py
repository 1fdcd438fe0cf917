"""The price of private selection: against exact divergences of small examples, dp-accounting, and itself."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import dp_accounting as dp
import mpmath as mp
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from noisewise.accounts import AdditiveMeter, PlanMeter
from noisewise.trusted.accountants import Unpriceable, gdp, rdp
from noisewise.trusted.accountants.base import currency
from noisewise.trusted.accountants.calibrate import accountants_for, calibrate, epsilon
from noisewise.trusted.accountants.choose import choose_terms
from noisewise.trusted.accountants.repetitions import (
    BestOf,
    RunPrivacy,
    chance_missed,
    leaks,
    log_mean,
    mean_runs,
    theorem,
)
from noisewise.trusted.accountants.selection import (
    as_approximate,
    calibrated_candidates,
    candidate_budget,
    choose_repetitions,
    gaussian_worth,
    whole_of,
)
from noisewise.trusted.accountants.terms import Budget
from noisewise.trusted.events import (
    ADJACENCIES,
    ApproximateDP,
    AtOrder,
    BoundedRange,
    Composed,
    FixedBatch,
    Gaussian,
    Poisson,
    PoissonRepetitions,
    Repeated,
    Selection,
    TruncatedNegativeBinomial,
    leaves,
)

TNB = TruncatedNegativeBinomial
LAWS = [TNB(1.0, 0.01), TNB(0.0, 0.05), TNB(0.5, 0.001), TNB(-0.5, 0.1), TNB(3.0, 0.3), TNB(1.0, 1.0),
        PoissonRepetitions(0.05), PoissonRepetitions(1.0), PoissonRepetitions(20.0)]  # fmt: skip
ORDERS = np.array(rdp.ORDERS, dtype=np.float64)


def pgf(law, x):
    """E[x^K] in mpmath, from the weights of the definition."""
    x = mp.mpf(x)
    if isinstance(law, PoissonRepetitions):
        return mp.exp(mp.mpf(law.mean) * (x - 1))
    gamma, eta = mp.mpf(law.gamma), mp.mpf(law.eta)
    if gamma == 1:
        return x
    if eta == 0:
        return mp.log(1 - (1 - gamma) * x) / mp.log(gamma)
    return ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


def best_of_runs(law, probabilities):
    """The exact distribution of the best of K runs with these probabilities of outputs, worst first; first of all, no run."""
    ends = [mp.mpf(0), *itertools.accumulate(map(mp.mpf, probabilities))]
    return [pgf(law, 0), *(pgf(law, above) - pgf(law, below) for below, above in itertools.pairwise(ends))]


def divergence(p, q, order):
    return mp.log(mp.fsum(mp.mpf(a) ** order * mp.mpf(b) ** (1 - order) for a, b in zip(p, q, strict=True) if a)) / (
        order - 1
    )


@lru_cache(maxsize=32)
def curve_of(p, q):
    """The Renyi divergences of one run, in both directions, at all orders."""
    both = [[max(divergence(p, q, int(a)), divergence(q, p, int(a)))] for a in ORDERS]
    return np.array([float(one[0]) * (1 + 1e-12) for one in both])


def pairs():
    """Neighbouring outputs of one run: random ones, and those whose best output tells the other way than the next."""
    rng = np.random.default_rng(0)
    for size, spread in ((2, 0.3), (3, 0.5), (4, 1.0), (5, 0.1)):
        p = rng.dirichlet(np.ones(size))
        q = p * np.exp(rng.uniform(-spread, spread, size))
        yield tuple(p.tolist()), tuple((q / q.sum()).tolist())
    for e, small in ((0.5, 0.1), (1.0, 0.02), (0.2, 0.3), (0.1, 0.001)):
        low, high = small, small * math.exp(e)
        yield (1 - low - high, high, low), (1 - low - high, low, high)


@pytest.mark.parametrize("law", LAWS, ids=str)
@mp.workdps(40)
def test_the_best_run_is_never_further_apart_than_its_price(law):
    """By Renyi divergence at several orders, from exact distributions: also for Poisson means below 1."""
    closest = 0.0
    for p, q in pairs():
        curve = curve_of(p, q)
        pure = max(abs(math.log(a / b)) for a, b in zip(p, q, strict=True))
        ours = [best_of_runs(law, one) for one in (p, q)]
        for run in (RunPrivacy(ORDERS, curve), RunPrivacy(ORDERS, curve, pure * (1 + 1e-12))):
            best = BestOf(run, law)
            for order in (2, 3, 8, 32, 256):
                true = max(divergence(*ours, order), divergence(*ours[::-1], order))
                assert best.at(order) >= true
                closest = max(closest, float(true) / best.at(order))
    assert closest > 0.4, "a price that is far above every example would pass any test"


@mp.workdps(30)
def test_theorem_6_alone_would_be_wrong_for_few_runs():
    """With a mean of 0.05 it promises a negative divergence: the chance of no run must be counted."""
    law, (p, q) = PoissonRepetitions(0.05), ((0.5, 0.5), (0.45, 0.55))
    run = RunPrivacy(ORDERS, curve_of(p, q))
    alone = run.rdp + law.mean * leaks(run, np.log1p(1 / (ORDERS - 1))) + math.log(law.mean) / (ORDERS - 1)
    true = divergence(best_of_runs(law, p), best_of_runs(law, q), 2)
    assert alone[0] < 0 < true <= theorem(run, law)[0]


@pytest.mark.parametrize("mean", [1.5, 10.0, 300.0])
@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 4.0, math.inf])
@pytest.mark.parametrize("sigma, rate", [(10.0, None), (2.0, None), (0.7, None), (1.0, 0.01)])
def test_the_theorems_agree_with_dp_accounting(mean, shape, sigma, rate):
    first = [1.0] if rate is None and shape < math.inf else []  # its sampled Gaussian has no order 1
    accountant = rdp_privacy_accountant.RdpAccountant(orders=[*first, *map(int, ORDERS)])
    one = dp.GaussianDpEvent(sigma)
    one = one if rate is None else dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, one), 100)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(one, mean, shape))
    leaf = Gaussian(sigma) if rate is None else Poisson(rate, Gaussian(sigma))
    count = 1 if rate is None else 100
    curve = np.array([count * rdp.cost(leaf, "add_remove", int(a)) for a in ORDERS])
    law = law_of(mean, shape)
    ours = theorem(RunPrivacy(ORDERS, curve), law)
    theirs = np.minimum.accumulate(accountant.rdp[len(first) :][::-1])[::-1]
    no_run = math.exp(-mean) / mean / (ORDERS - 1) if shape == math.inf else np.zeros(len(ORDERS))  # they leave it out
    assert (ours >= theirs * (1 - 1e-9)).all()
    assert (ours <= (theirs + no_run) * (1 + 1e-6) + 1e-12).all()
    price = rdp.plan_epsilon(Selection((Repeated(leaf, count),), law), 1e-6, "add_remove")
    assert price <= accountant.get_epsilon(1e-6) * (1 + 1e-6) + no_run[0]


def law_of(mean, shape):
    if shape == math.inf:
        return PoissonRepetitions(mean)
    low, high = -25.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if mean_runs(TNB(shape, math.exp(middle))) < mean else (middle, high)
    return TNB(shape, math.exp(low))


@pytest.mark.parametrize("law", LAWS, ids=str)
@mp.workdps(40)
def test_means_and_chances_are_those_of_the_distribution(law):
    assert mean_runs(law) == pytest.approx(float(mp.diff(lambda x: pgf(law, x), 1)), rel=1e-9)
    assert chance_missed(law, 7) == pytest.approx(float(pgf(law, 1 - mp.mpf(1) / 7)), rel=1e-9)


@pytest.mark.parametrize("eta", [-0.999, -1e-6, 0.0, 1e-6, 1.0, 100.0])
@pytest.mark.parametrize("gamma", [2.0**-40, 1e-5, 0.5, 1 - 2.0**-53])
@mp.workdps(60)
def test_the_mean_keeps_its_digits_at_the_ends(eta, gamma):
    g, e = mp.mpf(gamma), mp.mpf(eta)
    exact = (1 / g - 1) / mp.log(1 / g) if eta == 0 else e * (1 - g) / (g * (1 - g**e))
    assert log_mean(TNB(eta, gamma)) == pytest.approx(float(mp.log(exact)), rel=1e-12, abs=1e-12)


def test_a_run_that_is_drawn_costs_what_the_worst_candidate_costs():
    law = TNB(1.0, 0.05)
    one, other = Gaussian(5.0), Composed((Repeated(Poisson(0.05, Gaussian(2.0)), 50), BoundedRange(0.1)))
    prices = [epsilon(Selection(some, law), delta=1e-6, accountant="rdp") for some in ((one,), (other,), (one, other))]
    assert prices[2] >= max(prices[:2]) * (1 - 1e-9)
    assert epsilon(Selection((one,) * 50, law), delta=1e-6) == prices[0]
    assert epsilon(Selection((one, Gaussian(50.0)), law), delta=1e-6) == pytest.approx(prices[0], rel=1e-9)
    assert epsilon(Selection((Gaussian(10.0), Gaussian(5.0)), law), delta=1e-6) == prices[0]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_one_certain_run_costs_what_it_costs_without_selection(adjacency):
    for event in (Gaussian(4.0), Repeated(Poisson(0.02, Gaussian(1.5)), 30)):
        alone = rdp.plan_epsilon(event, 1e-6, adjacency)
        best = rdp.best_order(event, 1e-6, adjacency)[0]
        selected = rdp.plan_epsilon(Selection((event,), TNB(1.0, 1.0)), 1e-6, adjacency)
        assert alone * (1 - 1e-12) <= selected <= alone * (1 + 1e-9) + 0.01 * alone * (best not in rdp.ORDERS)


def test_replacing_a_record_costs_what_twice_the_sensitivity_does():
    law = TNB(1.0, 0.05)
    doubled = epsilon(Selection((Gaussian(10.0),), law), delta=1e-6, adjacency="replace_one")
    assert doubled == pytest.approx(epsilon(Selection((Gaussian(5.0),), law), delta=1e-6), rel=1e-9)


def test_a_pure_run_stays_pure():
    event = Selection((ApproximateDP(0.3), BoundedRange(0.1)), TNB(1.0, 1e-9))
    assert rdp.cost(event, "add_remove", 1024) <= 0.9 * (1 + 1e-9)


def test_auto_finds_rdp_and_the_others_refuse_by_name():
    event = Selection((Gaussian(20.0),), TNB(1.0, 0.1))
    assert accountants_for([event, Gaussian(50.0)], "add_remove") == ("rdp",)
    price = epsilon([event, Gaussian(50.0)], delta=1e-6)
    assert price == epsilon([event, Gaussian(50.0)], delta=1e-6, accountant="rdp") > epsilon(event, delta=1e-6)
    for other in ("gdp", "zcdp", "tcdp", "pld", "basic", "advanced", "moments"):
        with pytest.raises(Unpriceable, match=r"Selection has a price in RDP only.*as_approximate"):
            epsilon(event, delta=1e-6, accountant=other)
    assert choose_terms(Budget(5.0, 1e-6), adaptive=False, plan=[event]).accountant == "auto"
    noise = calibrate(Budget(2.0, 1e-6), steps=10, also=event)
    assert 1.99 < epsilon([Repeated(Gaussian(noise), 10), event], delta=1e-6) <= 2.0


def test_a_count_is_that_many_selections():
    event = Selection((Gaussian(20.0),), TNB(1.0, 0.1))
    assert rdp.plan_epsilon(Repeated(event, 3), 1e-6, "add_remove") > 1.5 * rdp.plan_epsilon(event, 1e-6, "add_remove")
    assert leaves(Repeated(event, 3))[event] == 3


def test_candidates_without_a_renyi_price_are_refused():
    for wrong, message in ((ApproximateDP(0.1, 1e-6), "delta > 0"), (FixedBatch(0.1, Gaussian(5.0)), "add_remove")):
        with pytest.raises(Unpriceable, match=message):
            rdp.plan_epsilon(Selection((Gaussian(5.0), Composed((wrong,))), TNB(1.0, 0.1)), 1e-6, "add_remove")


# -- one order ----------------------------------------------------------------------------------------------------


def test_a_candidate_under_an_rdp_filter_is_known_at_its_order_and_below():
    event, known = Selection((AtOrder(20, 0.05), Gaussian(40.0)), TNB(1.0, 0.1)), AtOrder(20, 0.05)
    assert rdp.cost(known, "add_remove", 20) == rdp.cost(known, "add_remove", 3) == 0.05
    for leaf in (event, known):
        with pytest.raises(Unpriceable, match="order 21"):
            rdp.cost(leaf, "add_remove", 21)
    theorem_2 = 0.05 + 2 * ((1 - 1 / 20) * 0.05 + math.log(10) / 20) + math.log(10) / 19
    assert 0.05 < rdp.cost(event, "add_remove", 20) <= theorem_2 * (1 + 1e-9)
    order, price = rdp.best_order(event, 1e-6, "add_remove")
    assert order <= 20 and price < math.inf
    assert rdp.best_order(AtOrder(2, 0.05), 0.1, "add_remove")[0] == 2


def test_an_rdp_meter_pays_for_a_selection_at_its_order_and_other_filters_refuse():
    event = Selection((Gaussian(40.0),), TNB(1.0, 0.1))
    meter = AdditiveMeter(Budget(2.0, 1e-6), "rdp", order=24)
    meter.spend(event)
    cost = rdp.cost(event, "add_remove", 24)
    assert meter.spent_fraction == pytest.approx(cost / meter.currency.cap)
    assert meter.events == {event: 1}
    for name in ("gdp", "zcdp", "tcdp"):
        with pytest.raises(Unpriceable, match="Selection has a price in RDP only"):
            AdditiveMeter(Budget(2.0, 1e-6), name).spend(event)
    joined = as_approximate(event, 1e-7, "add_remove")
    purse = AdditiveMeter(Budget(5.0, 1e-6), "gdp", one_shot_delta=1e-7)
    purse.spend(joined)
    assert joined.delta == 1e-7 and joined.epsilon == epsilon(event, delta=1e-7) and purse.spent_fraction > 0


# -- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_filter_counts_as_all_that_its_cap_lets_through(adjacency):
    budget = Budget(1.0, 1e-6, adjacency)
    gaussian = whole_of(currency(budget, "gdp"))
    assert 1 <= gdp.cost(gaussian, adjacency) / currency(budget, "gdp").cap < 1 + 1e-12
    filtered = currency(budget, "rdp", order=30)
    assert whole_of(filtered) == AtOrder(30, filtered.cap)
    with pytest.raises(Unpriceable, match="zcdp"):
        whole_of(currency(budget, "zcdp"))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("law", [TNB(1.0, 0.02), TNB(0.0, 0.001), PoissonRepetitions(15.0)], ids=str)
@pytest.mark.parametrize("promise", [0.3, 4.0])
def test_the_budget_of_a_candidate_uses_the_total_and_keeps_within_it(adjacency, law, promise):
    budget = Budget(promise, 1e-6, adjacency)
    each = candidate_budget(budget, law)
    assert 0.999 * promise < each.price <= promise
    metered = whole_of(currency(each.budget, "gdp"))
    price = epsilon(Selection((metered,) * 20, law), delta=1e-6, adjacency=adjacency)
    assert 0.998 * promise < price <= promise and each.mu < gdp.mu_of(promise, 1e-6)
    assert PlanMeter(budget, Selection((each.event,), law)).accountant == "rdp"
    more = Selection((gaussian_worth(1.01 * each.mu, adjacency),), law)
    assert epsilon(more, delta=1e-6, adjacency=adjacency) > promise


def test_what_is_bought_beside_a_selection_leaves_less_for_candidates():
    budget, law, beside = Budget(1.0, 1e-6), TNB(1.0, 0.02), [Gaussian(40.0)]
    each = candidate_budget(budget, law, also=beside)
    assert each.mu < candidate_budget(budget, law).mu
    assert epsilon([Selection((each.event,), law), *beside], delta=1e-6) <= 1.0


def test_plans_of_candidates_are_calibrated_together():
    budget, law, asked = Budget(2.0, 1e-5), TNB(1.0, 0.1), []

    def plans(promise):
        asked.append(promise)
        full = Gaussian(1 / gdp.mu_of(promise.epsilon, promise.delta))
        sampled = calibrate(promise, steps=20, sampling=("poisson", 0.1), accountant="rdp")
        return [full, Repeated(Poisson(0.1, Gaussian(sampled)), 20), full]

    promise, event = calibrated_candidates(budget, law, plans)
    assert promise in asked and event == Selection(tuple(plans(promise)[:2]), law)
    assert 0.99 * 2.0 < epsilon(event, delta=1e-5) <= 2.0 and promise.epsilon < 2.0


def test_how_often_to_draw_follows_from_public_numbers():
    for k in (2, 10, 50):
        drawing = choose_repetitions(Budget(1.0, 1e-6), k)
        everyone = (drawing, *drawing.alternatives)
        for one in everyone:
            assert 0.8 <= one.seen < 0.8001 and one.mean == mean_runs(one.repetitions) <= 100 * k
        assert drawing.each.mu >= 0.98 * max(one.each.mu for one in everyone)
        assert any(isinstance(one.repetitions, PoissonRepetitions) for one in everyone)
    assert (
        choose_repetitions(Budget(1.0, 1e-6), 10, seen=0.5).each.mu > choose_repetitions(Budget(1.0, 1e-6), 10).each.mu
    )
    alone = choose_repetitions(Budget(1.0, 1e-6), 1)
    assert alone.mean == alone.seen == 1
    for wrong in (0, 2.5):
        with pytest.raises(ValueError, match="candidates"):
            choose_repetitions(Budget(1.0, 1e-6), wrong)
    with pytest.raises(ValueError, match="seen"):
        choose_repetitions(Budget(1.0, 1e-6), 5, seen=1.0)
