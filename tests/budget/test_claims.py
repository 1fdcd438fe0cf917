"""Claims: of two processes that take up one run, one gets each block; what nobody knows of any more is given up."""

from __future__ import annotations

import pytest

from noisewise.accounts import Budget, BudgetExhausted, Terms, open_meter
from noisewise.accounts.purse import Purse
from noisewise.accounts.spending_file import Claimed
from noisewise.trusted.accountants.base import currencies
from noisewise.trusted.events import ApproximateDP, BoundedRange, Gaussian, Poisson, Repeated

BUDGET = Budget(2.0, 1e-6)
GDP = Terms.adaptive("gdp")


def test_only_one_of_two_that_take_up_a_run_gets_the_next_block(tmp_path):
    first = Purse(BUDGET, store=tmp_path / "spending.json").part(GDP, BUDGET)
    first.claim(0.25)
    second = Purse(BUDGET, store=tmp_path / "spending.json").part(GDP, BUDGET, number=first.number)
    assert second.claimed == 0.25
    second.claim(0.5)
    with pytest.raises(Claimed, match="taken up"):
        first.claim(0.5)
    with pytest.raises(Claimed):
        second.claim(0.5)  # nothing new
    second.settle()
    with pytest.raises(Claimed):
        second.claim(0.75)
    assert Purse(BUDGET, store=tmp_path / "spending.json").entries[0].claimed == 0.5


def test_a_file_of_before_has_no_claims(tmp_path):
    path = tmp_path / "spending.json"
    Purse(BUDGET, store=path).part(GDP, BUDGET)
    path.write_text(path.read_text().replace(',\n   "claimed": 0.0', ""))
    assert "claimed" not in path.read_text() and Purse(BUDGET, store=path).entries[0].claimed == 0.0


@pytest.mark.parametrize("claimed", ["1.5", "-0.1", "true", '"0"', "null", "NaN"])
def test_a_claim_that_is_no_share_is_damage(tmp_path, claimed):
    path = tmp_path / "spending.json"
    Purse(BUDGET, store=path).part(GDP, BUDGET)
    path.write_text(path.read_text().replace('"claimed": 0.0', f'"claimed": {claimed}'))
    with pytest.raises(ValueError, match="nothing can be spent"):
        Purse(BUDGET, store=path)


def test_what_is_given_up_of_a_filter_is_charged_and_one_shots_with_it():
    meter = open_meter(BUDGET, Terms.adaptive("zcdp", one_shot_delta=1e-7))
    meter.spend(Gaussian(meter.noise_for(0.1)))
    meter.forfeit(0.6)
    assert meter.spent_fraction == pytest.approx(0.6) and meter.used
    assert not meter.affords(ApproximateDP(0.01, 1e-8))
    meter.forfeit(0.3)  # less than is gone already
    assert meter.spent_fraction == pytest.approx(0.6)
    meter.forfeit(1.0)
    with pytest.raises(BudgetExhausted):
        meter.noise_for(0.5)


def test_what_is_given_up_of_a_plan_is_taken_from_each_kind_of_event():
    """Two of four events may have happened, and either kind may be both of them."""
    plan = [Repeated(Gaussian(20.0), 3), Repeated(BoundedRange(0.01), 5)]
    meter = open_meter(BUDGET, Terms.plan(plan))
    meter.spend(Gaussian(20.0))
    assert meter.forfeit(3 / 8) == {Gaussian(20.0): 2, BoundedRange(0.01): 2}
    assert meter.remaining == {BoundedRange(0.01): 3}
    assert meter.spent_fraction == 5 / 8
    with pytest.raises(BudgetExhausted):
        meter.spend(Gaussian(20.0))


@pytest.mark.parametrize("name", currencies())
def test_what_stands_for_what_was_given_up_costs_the_same(name):
    """A statement lists it, and whoever adds up its events comes to what the meter says."""
    terms = Terms.adaptive(name, order=30 if name == "rdp" else None)
    meter, again = (open_meter(Budget(2.0, 1e-6), terms) for _ in range(2))
    for share in (0.1, 0.3, 0.3 + 1e-9, 0.9, 1.0):
        gone = meter.forfeit(share)
        assert 1 <= gone.total() <= 3
        for event in gone.elements():
            again.spend(event)
        assert meter.spent_fraction == pytest.approx(share) == pytest.approx(again.spent_fraction, rel=1e-10)
    assert meter.events == again.events and not meter.forfeit(1.0)


def test_a_settled_run_counts_what_was_given_up(tmp_path):
    purse = Purse(Budget(2.0, 1e-6), GDP)
    part = purse.part(GDP, share=0.5)
    part.meter.forfeit(0.5)
    part.settle()
    assert purse.spent_fraction == pytest.approx(0.25)


def test_a_share_after_an_event_is_what_is_spent_then():
    for terms, event in (
        (GDP, Gaussian(30.0)),
        (Terms.adaptive("rdp", order=16), Poisson(0.01, Gaussian(2.0))),
        (Terms.plan(Repeated(Gaussian(20.0), 7)), Gaussian(20.0)),
    ):
        meter = open_meter(BUDGET, terms)
        for _ in range(5):
            after = meter.share_after(event)
            meter.spend(event)
            assert meter.spent_fraction <= after <= meter.spent_fraction * (1 + 1e-12)
        assert meter.share_after(Repeated(event, 10**9)) > 1


# --- runs that count as their promise -------------------------------------------------------------------------------------


def filtered(share=5e-7):
    return Purse(Budget(3.0, 1e-6), Terms.adaptive("gdp", one_shot_delta=share))


def test_a_run_of_another_currency_counts_as_its_promise():
    purse, budget = filtered(), Budget(0.3, 1e-7)
    before = purse.left
    with purse.part(Terms.adaptive("rdp", order=90), budget) as part:
        part.meter.spend(Poisson(0.001, Gaussian(5.0)))
    own = open_meter(purse.budget, Terms.adaptive("gdp", one_shot_delta=5e-7))
    own.spend(ApproximateDP(0.3, 1e-7))
    cost, delta = own.charged
    spent = purse.entries[0].spent
    assert spent.cost >= cost and spent.cost == pytest.approx(float(cost)) and spent.delta == float(delta) == 1e-7
    assert before[1] - purse.left[1] == delta  # all of it is gone, although little was asked


def test_it_is_refused_without_a_share_of_delta_and_when_the_share_is_used_up():
    with pytest.raises(ValueError, match="share of delta"):
        filtered(0.0).part(Terms.adaptive("rdp", order=90), Budget(0.3, 1e-7))
    purse = filtered(1.5e-7)
    purse.part(Terms.adaptive("rdp", order=400), Budget(0.1, 1e-7)).settle("failed")
    purse.part(Terms.adaptive("rdp", order=400), Budget(0.1, 1e-7))  # nothing was asked of the first one
    with pytest.raises(BudgetExhausted):
        purse.part(Terms.adaptive("rdp", order=400), Budget(0.1, 1e-7))


def test_a_plan_counts_as_the_cheaper_of_its_events_and_its_promise():
    sampled = Terms.plan(Repeated(Poisson(0.001, Gaussian(2.0)), 300))
    purse = filtered()
    purse.part(sampled, Budget(0.3, 1e-7))
    (entry,) = purse.entries
    assert entry.reserved.delta == 1e-7  # as a promise: GDP has no amplification by sampling
    full = Terms.plan(Repeated(Gaussian(60.0), 20))
    purse.part(full, Budget(0.9, 1e-7))
    assert purse.entries[1].reserved.delta == 0.0
    assert purse.entries[1].reserved.cost == pytest.approx(20 / 3600)


def test_when_the_cheaper_way_does_not_fit_the_other_is_taken():
    plan = Terms.plan(Repeated(Poisson(0.05, Gaussian(10.0)), 10))
    purse = filtered(1e-7)  # enough for one promise
    for _ in range(2):
        purse.part(plan, Budget(0.12, 1e-7))
    assert [entry.reserved.delta for entry in purse.entries] == [1e-7, 0.0]
    assert purse.entries[0].reserved.cost < purse.entries[1].reserved.cost == pytest.approx(0.1)


@pytest.mark.parametrize("terms", [None, GDP], ids=["promises", "filter"])
def test_what_another_process_used_of_a_part_is_not_known_and_counts_whole(tmp_path, terms):
    whole, run = Budget(4.0, 1e-5), Budget(1.0, 1e-6)
    first = Purse(whole, terms, store=tmp_path / "spending.json").part(GDP, run)
    first.meter.spend(Gaussian(first.meter.noise_for(0.9)))
    later = Purse(whole, terms, store=tmp_path / "spending.json")  # as another process has it
    later.part(GDP, run, number=first.number).settle("failed")
    (entry,) = later.entries
    assert entry.counted == entry.reserved


def test_a_run_without_a_journal_takes_at_least_what_it_claimed():
    purse = Purse(Budget(4.0, 1e-5), GDP)
    with purse.part(GDP, Budget(1.0, 1e-6)) as part:
        part.claim(0.5)
        part.meter.spend(Gaussian(100.0))
    (entry,) = purse.entries
    assert 0.4999 * entry.reserved.cost <= entry.counted.cost <= 0.51 * entry.reserved.cost
