"""Fifty processes at one account: never more than was granted, no run lost or doubled, nobody waits for long."""

from __future__ import annotations

import multiprocessing
import time

import pytest
from sqlalchemy import text

from noisewise.accounts import Budget, BudgetExhausted, Terms
from noisewise.accounts.ledger import Ledger, LedgerBusy
from noisewise.accounts.ledger import database as where
from noisewise.accounts.ledger.verify import verified
from noisewise.trusted.events import Gaussian

PROCESSES, LONGEST = 50, 5.0
BUDGET, RUN, GDP = Budget(3.0, 1e-5), Budget(0.2, 1e-6), Terms.adaptive("gdp")


def racer(url, gate, results, settles):
    """Reserve as long as there is anything; every other run is settled with what it spent."""
    account = Ledger(url).account("patients")
    gate.wait()
    numbers, waits = [], []
    while True:
        began = time.monotonic()
        try:
            part = account.part(GDP, RUN)
        except LedgerBusy:  # as a user would, after five seconds
            waits.append(time.monotonic() - began)
            continue
        except BudgetExhausted:
            waits.append(time.monotonic() - began)
            break
        waits.append(time.monotonic() - began)
        numbers.append(part.number)
        if settles:
            part.meter.spend(Gaussian(part.meter.noise_for(0.9)))
            while True:
                try:
                    part.settle()
                    break
                except LedgerBusy:
                    continue
    results.put((numbers, waits))


@pytest.mark.parametrize("settles", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["reserved", "settled"])
def test_never_is_more_reserved_than_was_granted(url, settles):
    race(url, settles)


@pytest.mark.slow
def test_nobody_waits_for_long(url):
    waited, whole = race(url, True)
    assert waited < max(LONGEST, whole / 2), (waited, whole)  # a machine that others share is slow for all alike


# The race at a file, above, has the same accounts.
@pytest.mark.slow
def test_nor_on_a_server(server):
    race(server.url(server.database()), False)


def race(url, settles):
    ledger = Ledger.create(url)
    ledger.register("patients", BUDGET)
    fork = multiprocessing.get_context("fork")
    gate, results = fork.Barrier(PROCESSES), fork.Queue()
    runners = [fork.Process(target=racer, args=(url, gate, results, settles)) for _ in range(PROCESSES)]
    began = time.monotonic()
    for runner in runners:
        runner.start()
    done = [results.get(timeout=600) for _ in runners]
    for runner in runners:
        runner.join()
    whole = time.monotonic() - began
    numbers = sorted(number for taken, _ in done for number in taken)
    waits = sorted(wait for _, waited in done for wait in waited)
    state, found = ledger.state("patients"), verified(ledger)
    assert found.holds, found.wrong
    assert numbers == list(range(len(state.entries)))  # each number once: none lost, none doubled
    assert sum(entry.counted.cost for entry in state.entries) <= state.granted.cost
    assert state.left.cost < state.entries[0].reserved.cost  # and none was refused while there was room
    assert len(numbers) > 20
    return waits[int(0.99 * len(waits))], whole  # the 99th of a hundred waits


def test_who_waits_for_too_long_is_told_and_nothing_is_spent(url, monkeypatch):
    monkeypatch.setattr(where, "WAIT_SECONDS", 0.5)
    ledger = Ledger.create(url)
    ledger.register("patients", BUDGET)
    account, other = ledger.account("patients"), where.Database(where.ledger_url(url))
    with other.writing() as connection:
        if other.server:
            connection.execute(text("SELECT 1 FROM noisewise_ledger FOR UPDATE"))
        began = time.monotonic()
        with pytest.raises(LedgerBusy, match="nothing was spent"):
            account.part(GDP, RUN)
        assert time.monotonic() - began < 60
    assert not ledger.state("patients").entries
    account.part(GDP, RUN)  # and then it goes


def test_two_at_one_run_never_both_get_a_block(url):
    """Claims of many processes that took up the same run: every step of it went to one of them."""
    ledger = Ledger.create(url)
    ledger.register("patients", BUDGET)
    number = ledger.account("patients").part(GDP, RUN).number
    fork = multiprocessing.get_context("fork")
    gate, results = fork.Barrier(8), fork.Queue()
    runners = [fork.Process(target=claimer, args=(url, number, gate, results)) for _ in range(8)]
    for runner in runners:
        runner.start()
    claims = [results.get(timeout=600) for _ in runners]
    for runner in runners:
        runner.join()
    taken = sorted(claim for one in claims for claim in one)
    assert len(taken) == len(set(taken)) == round(taken[-1] * 16) and verified(ledger).holds


def claimer(url, number, gate, results):
    from noisewise.accounts.spending_file import Claimed

    gate.wait()
    got = []
    for _ in range(6):
        try:
            part = Ledger(url).account("patients").part(GDP, RUN, number=number)
            if part.claimed >= 1:
                break
            part.claim(part.claimed + 1 / 16)
            got.append(part.claimed)
        except (Claimed, LedgerBusy):
            continue
    results.put(got)
