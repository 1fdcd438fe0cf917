"""The ledger attacked: runs that verify should find (by an analyst with SQL: tests/ledger/test_sql_attacks.py)."""

from __future__ import annotations

import json

import pytest

from noisewise.budget import Budget, Terms
from noisewise.ledger import Ledger
from noisewise.ledger.verify import verified
from noisewise.trusted.events import Gaussian, Repeated

GDP, RUN = Terms.adaptive("gdp"), Budget(1.0, 1e-6)
BUDGET = Budget(3.0, 1e-5, adjacency="replace_one")


def reserved_by_hand(ledger, described, cost, events, spent):
    """A run as somebody who may write can put it there, or an analyst by the functions of a server."""
    with ledger._database.writing() as connection:
        from noisewise.ledger.store import _reserve, _settle, account_row, run_row

        account = account_row(connection, "patients")
        number = _reserve(connection, account, f"key{account.runs}", json.dumps(described), cost, 0)
        there = run_row(connection, "patients", number)
        given = {"account": "patients", "number": number, "spent": spent, "delta": 0, "state": "spent"}
        _settle(connection, there, given, json.dumps(events))


@pytest.mark.parametrize("how", ["relation", "unit"])
def test_a_run_of_another_relation_or_unit_is_found(tmp_path, how):
    """Its events cost a quarter under add_remove, and a record's budget is no person's."""
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.register("patients", BUDGET, unit="person" if how == "unit" else "record")
    other = Ledger.create(tmp_path / "other.db")
    budget = Budget(3.0, 1e-5) if how == "relation" else BUDGET
    other.register("patients", budget)
    with other.account("patients").part(GDP, Budget(1.0, 1e-6, adjacency=budget.adjacency)) as part:
        part.meter.spend(Gaussian(part.meter.noise_for(0.9)))
    run = other.export()["runs"][0]
    reserved_by_hand(ledger, json.loads(run["terms"]), run["reserved"], json.loads(run["events"]), run["spent"])
    assert any("run 0" in wrong for wrong in verified(ledger).wrong)


def test_a_ledger_that_was_granted_more_still_holds(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db")
    for number in range(12):
        name = f"patients {number}"
        ledger.register(name, Budget(3.0 + number / 7, 1e-5))
        with ledger.account(name).part(Terms.plan(Repeated(Gaussian(31.0 + number), 7)), RUN) as part:
            part.meter.spend(Gaussian(31.0 + number))
        ledger.account(name).part(Terms.adaptive("zcdp"), Budget(0.3, 1e-7))
        ledger.grant(name, Budget(5.0 + number / 3, 3e-5))
    assert verified(ledger).wrong == ()
