import copy
import json
import math
import os
import pickle

import pytest

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, Meter, PlanMeter, meter_from
from noisewise.accounts.choosing import choose_meter
from noisewise.trusted.accountants import Unpriceable, gdp, zcdp
from noisewise.trusted.accountants.calibrate import calibrate
from noisewise.trusted.accountants.choose import explain
from noisewise.trusted.events import ApproximateDP, BoundedRange, Composed, FixedBatch, Gaussian, Poisson, Repeated

RATE = 1000 / 26048
BUDGET = Budget(0.5, 1e-8)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": math.inf, "delta": 1e-5}, "epsilon"),
        ({"epsilon": math.nan, "delta": 1e-5}, "epsilon"),
        ({"epsilon": "1", "delta": 1e-5}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": 9.99e-16}, "delta"),
        ({"epsilon": 1.0, "delta": 5e-324}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-5, "adjacency": "swap"}, "adjacency"),
    ],
)
def test_a_budget_out_of_range_is_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=f"{name} is .*; pass"):
        Budget(**arguments)


def test_the_least_delta_is_taken_and_less_is_refused_with_the_reason():
    assert Budget(1.0, 1e-15).delta == 1e-15
    with pytest.raises(ValueError, match="cannot be delivered"):
        Budget(1.0, 1e-16)
    for made in (Budget.from_gdp, Budget.from_zcdp):
        with pytest.raises(ValueError, match="cannot be delivered"):
            made(1.0, 1e-16)


def test_a_budget_is_frozen():
    with pytest.raises(AttributeError):
        BUDGET.epsilon = 10.0


@pytest.mark.parametrize("amount", [0.01, 0.3, 1.0, 4.0])
def test_budgets_from_other_currencies_recover_at_most_what_they_came_from(amount):
    from_mu = Budget.from_gdp(amount, 1e-6)
    assert amount * (1 - 1e-7) < gdp.mu_of(from_mu.epsilon, 1e-6) <= amount
    from_rho = Budget.from_zcdp(amount, 1e-6, "replace_one")
    assert amount * (1 - 1e-7) < zcdp.rho_of(from_rho.epsilon, 1e-6) <= amount
    assert from_rho.adjacency == "replace_one"


def test_a_budget_too_small_to_mean_anything_is_refused():
    with pytest.raises(ValueError, match="mu"):
        Budget.from_gdp(1e-9, 1e-5)


@pytest.mark.parametrize("name", ["gdp", "zcdp", "rdp"])
def test_a_refused_event_changes_nothing_and_says_what_is_left(name):
    meter = AdditiveMeter(BUDGET, name, order=56 if name == "rdp" else None)
    meter.spend(Gaussian(20.0))
    before = meter.spent_fraction, meter.events
    assert not meter.affords(Gaussian(1.0))
    with pytest.raises(BudgetExhausted, match=r"asked for .* is left"):
        meter.spend(Gaussian(1.0))
    with pytest.raises(BudgetExhausted):
        meter.spend(Composed((Gaussian(100.0), Gaussian(1.0))))
    assert (meter.spent_fraction, meter.events) == before


def test_repeated_and_composed_events_cost_their_parts():
    one, many = AdditiveMeter(BUDGET, "gdp"), AdditiveMeter(BUDGET, "gdp")
    one.spend(Repeated(Composed((Gaussian(100.0), BoundedRange(0.001))), 20))
    for _ in range(20):
        many.spend(Gaussian(100.0))
        many.spend(BoundedRange(0.001))
    assert one.spent_fraction == many.spent_fraction
    assert one.events == many.events


def test_the_whole_cap_can_be_spent():
    meter = AdditiveMeter(Budget(1.0, 1e-6), "gdp")
    sigma = meter.noise_for(1.0)
    assert sigma == pytest.approx(1 / gdp.mu_of(1.0, 1e-6))
    meter.spend(Gaussian(sigma))
    assert meter.spent_fraction > 1 - 1e-9
    with pytest.raises(BudgetExhausted, match="nothing is left"):
        meter.noise_for(1.0)
    # A part in 10^12 beyond the cap is still beyond it.
    assert not meter.affords(Gaussian(sigma * 1e6))
    with pytest.raises(BudgetExhausted):
        meter.spend(Gaussian(sigma * 1e6))


def test_replacing_costs_four_times_adding():
    add, replace = AdditiveMeter(BUDGET, "gdp"), AdditiveMeter(Budget(0.5, 1e-8, "replace_one"), "gdp")
    for meter in (add, replace):
        meter.spend(Gaussian(100.0))
    assert replace.spent_fraction == pytest.approx(4 * add.spent_fraction)


def test_one_shots_need_and_use_their_share_of_delta():
    with pytest.raises(Unpriceable, match="one_shot_delta"):
        AdditiveMeter(BUDGET, "zcdp").spend(ApproximateDP(0.01, 1e-9))
    for name in ("gdp", "zcdp", "rdp"):
        meter = AdditiveMeter(BUDGET, name, order=60 if name == "rdp" else None, one_shot_delta=4e-9)
        whole = AdditiveMeter(BUDGET, name, order=60 if name == "rdp" else None)
        assert meter.currency.cap < whole.currency.cap
        meter.spend(ApproximateDP(0.01, 3e-9))
        with pytest.raises(BudgetExhausted, match="one-shot"):
            meter.spend(ApproximateDP(0.01, 3e-9))
        assert meter.events == {ApproximateDP(0.01, 3e-9): 1}
    with pytest.raises(ValueError, match="one_shot_delta"):
        AdditiveMeter(BUDGET, "gdp", one_shot_delta=1e-8)


@pytest.mark.parametrize("action", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("make", [lambda: AdditiveMeter(BUDGET, "gdp"), lambda: PlanMeter(BUDGET, Gaussian(50.0))])
def test_a_meter_cannot_be_copied(make, action):
    with pytest.raises(TypeError, match="twice"):
        action(make())


def test_a_meter_stays_in_its_process(monkeypatch):
    meter = AdditiveMeter(BUDGET, "gdp")
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(RuntimeError, match="another process"):
        meter.spend(Gaussian(100.0))


def test_events_handed_out_are_not_the_meters_own():
    meter = AdditiveMeter(BUDGET, "gdp")
    meter.events[Gaussian(1.0)] += 5
    assert not meter.events


# -- plans ------------------------------------------------------------------------------------------------------


def plan_meter(**options):
    return PlanMeter(Budget(2.0, 1e-5), [Repeated(Poisson(0.1, Gaussian(2.0)), 3), Gaussian(10.0)], **options)


def test_a_plan_can_be_reordered_skipped_and_stopped_but_not_changed():
    meter = plan_meter()
    meter.spend(Gaussian(10.0))
    meter.spend(Poisson(0.1, Gaussian(2.0)))
    for other in (Gaussian(10.0), Gaussian(2.0), Poisson(0.1, Gaussian(3.0)), Repeated(Poisson(0.1, Gaussian(2.0)), 3)):
        assert not meter.affords(other)
        with pytest.raises(BudgetExhausted, match="plan"):
            meter.spend(other)
    assert meter.spent_fraction == 0.5
    meter.spend(Repeated(Poisson(0.1, Gaussian(2.0)), 2))
    assert meter.spent_fraction == 1.0 and not meter.remaining


def test_a_plan_beyond_the_budget_is_refused():
    with pytest.raises(ValueError, match="plan_events cost epsilon"):
        PlanMeter(BUDGET, Gaussian(1.0))


def test_a_plan_hands_out_no_noise():
    with pytest.raises(ValueError, match="fixed beforehand"):
        plan_meter().noise_for(0.5)


def test_a_one_shot_plan_may_use_the_whole_budget():
    meter = PlanMeter(BUDGET, ApproximateDP(0.5, 1e-8))
    meter.spend(ApproximateDP(0.5, 1e-8))


def test_both_meters_speak_the_protocol():
    assert isinstance(AdditiveMeter(BUDGET, "gdp"), Meter)
    assert isinstance(plan_meter(), Meter)
    assert not plan_meter().adaptive and AdditiveMeter(BUDGET, "gdp").adaptive


# -- descriptions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdditiveMeter(BUDGET, "gdp"),
        lambda: AdditiveMeter(BUDGET, "zcdp", one_shot_delta=1e-9),
        lambda: AdditiveMeter(BUDGET, "rdp", order=56),
        lambda: AdditiveMeter(Budget(0.5, 1e-8, "replace_one"), "tcdp"),
        lambda: AdditiveMeter(Budget(0.5, 1e-8, "replace_one"), "ctcdp"),
        plan_meter,
    ],
)
def test_a_meter_can_be_rebuilt_from_its_description_and_replayed(make):
    meter = make()
    event = next(iter(meter.remaining)) if isinstance(meter, PlanMeter) else Gaussian(150.0)
    meter.spend(event)
    again = meter_from(meter.budget, json.loads(json.dumps(meter.describe())))
    assert again.spent_fraction == 0 and not again.events
    for leaf, count in meter.events.items():
        again.spend(Repeated(leaf, count))
    assert again.spent_fraction == meter.spent_fraction
    assert again.describe() == meter.describe()


def test_a_description_for_another_budget_is_refused():
    description = AdditiveMeter(Budget(5.0, 1e-5), "gdp").describe()
    with pytest.raises(ValueError, match="cap"):
        meter_from(BUDGET, description)
    with pytest.raises(ValueError, match="describe"):
        meter_from(BUDGET, {"meter": "abacus"})


# -- choosing ---------------------------------------------------------------------------------------------------


def test_the_natural_meters():
    assert choose_meter(BUDGET, adaptive=True).name == "gdp"
    sampled_run = choose_meter(BUDGET, adaptive=True, sampling=("poisson", RATE), steps=300)
    assert sampled_run.name == "rdp" and sampled_run.currency.order == 56
    sigma = calibrate(BUDGET, steps=300)
    full = choose_meter(BUDGET, adaptive=False, plan=Repeated(Gaussian(sigma), 300))
    full.spend(Repeated(Gaussian(sigma), 300))
    assert full.name == "gdp"
    sigma = calibrate(BUDGET, steps=300, sampling=("poisson", RATE))
    plan = choose_meter(BUDGET, adaptive=False, plan=Repeated(Poisson(RATE, Gaussian(sigma)), 300))
    assert isinstance(plan, PlanMeter) and plan.accountant == "pld"


def test_pld_is_not_a_filter():
    with pytest.raises(ValueError, match="not a filter"):
        choose_meter(BUDGET, adaptive=True, sampling=("poisson", RATE), steps=300, meter="pld")
    with pytest.raises(ValueError, match="not a filter"):
        explain(BUDGET, adaptive=True, meter="pld")
    with pytest.raises(ValueError, match="plan"):
        choose_meter(BUDGET, adaptive=True, meter=PlanMeter(BUDGET, Gaussian(50.0)))


def test_choosing_says_what_is_missing():
    with pytest.raises(ValueError, match="steps is None"):
        choose_meter(BUDGET, adaptive=True, sampling=("poisson", RATE))
    with pytest.raises(ValueError, match="plan is None"):
        choose_meter(BUDGET, adaptive=False, meter="pld")
    with pytest.raises(ValueError, match="meter"):
        choose_meter(BUDGET, adaptive=True, meter="abacus")
    with pytest.raises(ValueError, match="plan costs more"):
        choose_meter(BUDGET, adaptive=False, plan=Gaussian(1.0))
    with pytest.raises(ValueError, match="for this budget"):
        choose_meter(BUDGET, adaptive=True, meter=AdditiveMeter(Budget(1.0, 1e-5), "gdp"))


def test_fixed_batches_need_replace_one():
    with pytest.raises(Unpriceable, match="add_remove"):
        choose_meter(BUDGET, adaptive=True, sampling=("fixed", RATE), steps=300)
    meter = choose_meter(Budget(0.5, 1e-8, "replace_one"), adaptive=True, sampling=("fixed", RATE), steps=300)
    meter.spend(FixedBatch(RATE, Gaussian(meter.noise_for(1 / 300, ("fixed", RATE)))))


def test_explanations_say_which_meter_why_and_what_else():
    plan = explain(BUDGET, steps=300, sampling=("poisson", RATE), size=26048)
    assert plan.meter == "pld" and plan.noise_multiplier == pytest.approx(6.73, abs=0.005)
    noise = dict(plan.alternatives)
    assert noise["rdp"] == pytest.approx(7.13, abs=0.005)
    assert isinstance(noise["tcdp"], str)
    assert "0.00673 C" in str(plan) and "tightest" in str(plan) and "refused" in str(plan)
    full = explain(BUDGET, steps=300, size=26048, adaptive=True)
    assert full.meter == "gdp" and "0.00656 C" in str(full)
    assert "not a filter" in dict(full.alternatives)["pld"]
