"""A ledger keeps the account of a data set: nothing is granted twice, lost or doubled, on both databases."""

from __future__ import annotations

import json
import stat
from fractions import Fraction
from pathlib import Path

import pytest

from noisewise.accounts import Budget, BudgetExhausted, Terms, open_meter
from noisewise.accounts.ledger import Ledger, account_in
from noisewise.accounts.ledger.database import ledger_url, shown
from noisewise.accounts.ledger.store import in_units, unit_for
from noisewise.accounts.ledger.verify import verified
from noisewise.accounts.spending_file import Claimed
from noisewise.trusted.events import Gaussian, Poisson, Repeated

BUDGET = Budget(3.0, 1e-5)
GDP = Terms.adaptive("gdp")
RUN = Budget(1.0, 1e-6)


@pytest.fixture
def account(ledger):
    ledger.register("patients", BUDGET)
    return ledger.account("patients")


def spend(part, share=0.5):
    part.meter.spend(Gaussian(part.meter.noise_for(share)))


def test_a_run_reserves_before_it_starts_and_settles_what_it_spent(ledger, account):
    with account.part(GDP, RUN) as part:
        state = ledger.state("patients")
        assert state.entries[0].state == "reserved" and state.reserved.cost > 0 and state.spent.cost == 0
        spend(part)
    after = ledger.state("patients")
    assert after.reserved.cost == 0 and after.spent.cost == pytest.approx(state.reserved.cost / 2)
    assert after.granted.cost == pytest.approx(after.spent.cost + after.left.cost, rel=1e-12)
    assert verified(ledger).holds


def test_a_killed_run_stays_charged_whole(url, ledger, account):
    account.part(GDP, RUN)
    again = Ledger(url).account("patients")
    assert [entry.state for entry in again.entries] == ["reserved"] and again.left.epsilon < BUDGET.epsilon


def test_ten_runs_cost_less_than_ten_times_one(ledger, account):
    runs = 0
    while account.left is not None and runs < 100:
        try:
            with account.part(GDP, Budget(1.0, 1e-6)) as part:
                spend(part, 1.0)
        except BudgetExhausted:
            break
        runs += 1
    assert runs > 6  # three times the epsilon of one buys three by adding up
    own = open_meter(BUDGET, Terms.adaptive("gdp", one_shot_delta=5e-6))
    for entry in ledger.state("patients").entries:
        for event in entry.events:
            own.spend(event)  # all that happened fits into the promise, counted anew


def test_the_last_of_it_can_be_taken_and_no_more(account):
    left = account.left
    account.part(GDP, left)
    assert account.left is None
    with pytest.raises(BudgetExhausted, match="stop here"):
        account.part(GDP, Budget(0.5, 1e-6))


def test_runs_of_all_kinds_join(ledger, account):
    with account.part(Terms.plan(Repeated(Poisson(0.01, Gaussian(2.0)), 50)), Budget(0.3, 1e-6)) as part:
        part.meter.spend(Poisson(0.01, Gaussian(2.0)))
    with account.part(Terms.adaptive("rdp", order=160), Budget(0.2, 1e-6)) as part:
        part.meter.spend(Poisson(0.001, Gaussian(8.0)))
    with account.part(Terms.plan(Repeated(Gaussian(50.0), 10)), Budget(0.6, 1e-6)):
        pass  # nothing was asked
    first, second, third = ledger.state("patients").entries
    assert first.spent.delta == second.spent.delta == pytest.approx(1e-6) and third.spent.cost == 0
    assert verified(ledger).holds


def test_what_was_executed_does_not_come_back(account):
    with account.part(Terms.plan(Repeated(Gaussian(30.0), 20)), RUN) as part:
        part.meter.spend(Gaussian(30.0))
    (entry,) = account.entries
    assert entry.spent == entry.reserved  # a plan stays charged whole


def test_claims_follow_each_other(url, ledger, account):
    part = account.part(GDP, RUN)
    part.claim(0.25)
    other = Ledger(url).account("patients").part(GDP, RUN, number=part.number)
    other.claim(0.5)
    with pytest.raises(Claimed):
        part.claim(0.5)
    spend(other)
    other.settle()
    with pytest.raises(Claimed):
        other.claim(0.75)
    with pytest.raises(ValueError, match="settled before"):
        part.settle()
    assert verified(ledger).holds


def test_a_grant_makes_room_and_runs_that_were_open_go_on(ledger, account):
    part = account.part(GDP, account.left)
    ledger.grant("patients", Budget(4.0, 1e-5))
    spend(part)
    part.settle()
    with ledger.account("patients").part(GDP, RUN) as more:
        spend(more)
    assert verified(ledger).holds and ledger.state("patients").budget == Budget(4.0, 1e-5)


@pytest.mark.parametrize("budget", [Budget(2.0, 1e-5), Budget(4.0, 1e-6), Budget(4.0, 1e-5, adjacency="replace_one")])
def test_nothing_is_taken_back(ledger, account, budget):
    with pytest.raises(ValueError, match="grant at least as much"):
        ledger.grant("patients", budget)


@pytest.mark.parametrize("currency, order", [("zcdp", None), ("rdp", 24)])
def test_other_currencies(ledger, currency, order):
    ledger.register("people", Budget(3.0, 1e-5), currency=currency, order=order)
    account = ledger.account("people")
    terms = Terms.adaptive(currency, order=order)
    with account.part(terms, Budget(1.5, 1e-6)) as part:
        spend(part)
    state = ledger.state("people")
    assert (state.currency, state.order) == (currency, order) and state.spent.cost == pytest.approx(
        account.entries[0].reserved.cost / 2
    )
    assert verified(ledger).holds


def test_relation_and_unit_are_the_accounts_own(ledger, account):
    with pytest.raises(ValueError, match="adjacency"):
        account.admitted(Budget(1.0, 1e-6, adjacency="replace_one"), persons=False)
    with pytest.raises(ValueError, match="person"):
        account.admitted(RUN, persons=True)
    ledger.register("persons", BUDGET, unit="person")
    persons = ledger.account("persons")
    with persons.part(GDP, persons.admitted(RUN, persons=True)):
        pass
    assert ledger.account("persons").unit == "person"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"dataset": ""}, "not a name"),
        ({"dataset": "two\nlines"}, "not a name"),
        ({"dataset": "patients"}, "registered already"),
        ({"unit": "family"}, "unit"),
        ({"currency": "pld"}, "currency is 'pld'"),
        ({"currency": "rdp", "order": 2}, "order 2"),
        ({"delta_share": 1.0}, "delta-share"),
    ],
)
def test_what_cannot_be_registered(ledger, account, wrong, message):
    with pytest.raises(ValueError, match=message):
        ledger.register(**{"dataset": "others", "budget": BUDGET, **wrong})
    assert ledger.datasets() == ("patients",) and verified(ledger).holds


def test_a_ledger_is_made_once(url, ledger):
    ledger.register("patients", BUDGET)
    with pytest.raises(ValueError, match="already"):
        Ledger.create(url)
    assert Ledger(url).datasets() == ("patients",)


def test_an_account_that_is_not_there(url, ledger):
    with pytest.raises(ValueError, match="no account 'patients'"):
        account_in(url, "patients")
    with pytest.raises(ValueError, match="--dataset"):
        account_in(url, None)


def test_no_ledger_there(tmp_path, monkeypatch):
    monkeypatch.delenv("NOISEWISE_LEDGER", raising=False)
    with pytest.raises(ValueError, match="no ledger is named"):
        Ledger()
    with pytest.raises(ValueError, match="not there"):
        Ledger(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "other.db").write_text("something else, long enough to be looked at as a database" * 20)
    with pytest.raises(ValueError, match="no ledger"):
        Ledger(tmp_path / "other.db")
    for odd in ("mysql://root:pw@host/db", "sqlite://", "sqlite:///:memory:", "://", "postgresql:/u:pw@host/db"):
        with pytest.raises(ValueError) as refused:
            Ledger(odd)
        assert "pw" not in str(refused.value)


def test_the_environment_names_it(url, ledger, monkeypatch):
    monkeypatch.setenv("NOISEWISE_LEDGER", url)
    assert Ledger().datasets() == ()


def test_a_file_is_ones_own_and_never_a_link(tmp_path):
    Ledger.create(tmp_path / "ledger.db")
    assert stat.S_IMODE((tmp_path / "ledger.db").stat().st_mode) == 0o600
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(ValueError, match="exists already"):
        Ledger.create(tmp_path / "link.db")
    assert not (tmp_path / "elsewhere.db").exists()


def test_amounts_are_exact(ledger, account):
    """What is left is what was granted less what was taken, to the last unit; nothing is lost to rounding."""
    before = account._purse.left
    account.part(GDP, Budget(0.1, 1e-7))
    (entry,) = account.entries
    assert before[0] - account._purse.left[0] == Fraction(entry.reserved.cost)
    assert repr(account).startswith("Account('patients': 0.0")


def test_an_export_is_checked_like_the_ledger_itself(ledger, account):
    with account.part(GDP, RUN) as part:
        spend(part)
    document = json.loads(json.dumps(ledger.export()))
    assert verified(document).holds and verified(document, [ledger.head()]).holds


def test_nobody_writes_a_password(url, ledger, account, tmp_path):
    from pg_server import WORD

    shown = [ledger.name, repr(ledger), repr(account), str(ledger.export()), str(account.describe())]
    assert not any(WORD in text for text in shown)
    assert Path(str(ledger.name)).name  # it is named


@pytest.mark.parametrize("amount", [0.1, 1 / 3, 1e-12, 2.0])
def test_amounts_are_rounded_up_to_whole_units(amount):
    unit = unit_for(3.0)
    whole = in_units(amount * (1 + 2.0**-52), unit) * Fraction(unit)
    assert 0 <= whole - Fraction(amount * (1 + 2.0**-52)) < Fraction(unit)
    assert in_units(unit / 3, unit) == 1 and in_units(0.0, unit) == 0


def test_where_a_ledger_lies_is_shown_without_a_password():
    url = ledger_url("postgresql://me:hunter2@host:5432/db?password=hunter2&passfile=hunter2")
    assert "hunter2" not in shown(url) and "host" in shown(url)
