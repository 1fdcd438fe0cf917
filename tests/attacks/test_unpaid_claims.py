"""Runs that claimed a part of an account and settled as if they had used less: ``ledger verify`` once looked at neither claim."""

from __future__ import annotations

import json
import math

import pytest

from noisewise.accounts.ledger.sql_tables import HistoryRow
from noisewise.budget import Budget, Terms
from noisewise.ledger import Ledger
from noisewise.ledger.verify import verified
from noisewise.trusted.events import Gaussian

GDP, PLAN, RUN = Terms.adaptive("gdp"), Terms.plan(Gaussian(31.0)), Budget(1.0, 1e-6)
HEAD = "ab" * 32


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "ledger.db")
    made.register("patients", Budget(3.0, 1e-5))
    return made


def claimed(ledger, terms, *shares, noise=None):
    """A run that claims these shares one after the other, asks at most one question, and ends."""
    with ledger.account("patients").part(terms, RUN) as part:
        for share in shares:
            part.claim(share)
        if noise is not None:
            part.meter.spend(Gaussian(noise))


@pytest.mark.parametrize("terms", [GDP, PLAN], ids=["filter", "plan"])
@pytest.mark.parametrize("shares", [(1.0,), (0.5, 1.0), (1.0, math.ulp(0.0))], ids=["all", "blocks", "taken back"])
def test_a_run_that_claimed_all_is_not_settled_as_unused(ledger, terms, shares):
    claimed(ledger, terms, *shares)
    (entry,) = ledger.state("patients").entries
    assert entry.counted == entry.reserved


def test_a_run_that_claimed_half_and_asked_little_takes_half(ledger):
    claimed(ledger, GDP, 0.5, noise=100.0)
    (entry,) = ledger.state("patients").entries
    assert 0.5 * entry.reserved.cost <= entry.counted.cost <= 0.51 * entry.reserved.cost


def settled_as(ledger, spent, *, events="[]", journal=None, at=None):
    """The ledger as somebody who may write everything makes it: a run that settled otherwise, and a chain that follows."""
    document = json.loads(json.dumps(ledger.export()))
    (run,) = document["runs"]
    back = run["spent"] - spent
    for row in document["history"]:
        if row["kind"] == "settled":
            body = {**json.loads(row["body"]), "spent": spent, "events": events}
            row["body"] = json.dumps(body if journal is None else {**body, "journal": journal})
    run |= {"spent": spent, "events": events}
    document["accounts"][0]["taken"] -= back
    previous = "0" * 64
    for row in document["history"]:
        row["previous"] = previous
        row["hash"] = previous = HistoryRow(**{**row, "hash": ""}).expected
    document["head"] = previous
    return document


@pytest.mark.parametrize("shares", [(1.0,), (1.0, math.ulp(0.0)), (1.0, 0.25)], ids=["all", "taken back", "lowered"])
@pytest.mark.parametrize("terms", [GDP, PLAN], ids=["filter", "plan"])
def test_a_history_with_a_claim_that_was_not_paid_does_not_hold(ledger, terms, shares):
    claimed(ledger, terms, *shares)
    assert any("run 0" in wrong for wrong in verified(settled_as(ledger, 0)).wrong)


def test_a_plan_gives_nothing_back_whatever_journal_it_names(ledger):
    claimed(ledger, PLAN, 1.0)
    assert verified(settled_as(ledger, 0, journal={"head": HEAD, "charged": 0})).wrong


ODD = [
    {}, [], "", HEAD, {"head": HEAD, "charged": 0}, {"head": HEAD}, {"head": HEAD, "charged": 1}, {"head": "ab", "charged": 0}, {"head": HEAD, "charged": -1},
    {"head": HEAD.upper(), "charged": 0}, {"head": HEAD + "\n", "charged": 0}, {"head": HEAD, "charged": True},
    {"head": HEAD, "charged": 0.0}, {"head": [HEAD], "charged": 0}, {"head": HEAD, "charged": 0, "open": 1},
]  # fmt: skip


@pytest.mark.parametrize("journal", ODD, ids=json.dumps)
def test_what_is_no_end_of_a_closed_journal_brings_nothing_back(ledger, journal):
    """Among them one that counts a charged event more than was settled."""
    claimed(ledger, GDP, 1.0)
    assert verified(settled_as(ledger, 0, journal=journal)).wrong
