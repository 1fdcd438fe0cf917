"""What a run claimed and did not use comes back with a closed journal, and with nothing else."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import psycopg
import pytest
from pg_server import ANALYST

from noisewise.accounts import Budget, Terms
from noisewise.accounts.journal import Journal, Journalled, closed_journal, paid
from noisewise.accounts.journal.chain import Chain
from noisewise.accounts.ledger import Ledger
from noisewise.accounts.ledger.verify import verified
from noisewise.accounts.spending_file import CLAIM_SHARE, Closed
from noisewise.curator import Count, Curator
from noisewise.trusted.events import Gaussian, leaves
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

GDP, PLAN, RUN = Terms.adaptive("gdp"), Terms.plan(Gaussian(31.0)), Budget(1.0, 1e-6)
X, Y = np.zeros((20, 2)), np.ones(20)


@pytest.fixture
def account(ledger):
    ledger.register("patients", Budget(3.0, 1e-5))
    return ledger


def asked(ledger, folder, shares, *, stop=False):
    """A run with a journal that asks for so many shares of what is left, and then ends."""
    journal = Journal(folder, {"of": "a test"})
    try:
        with paid(ledger.account("patients"), GDP, RUN, journal) as meter:
            curator = Curator(X, Y, model=Linear(2, LOSSES["logistic"]), meter=meter, size=20.0)
            run = Journalled(curator, journal)
            for share in shares:
                run.ask(Count(), noise=run.meter.noise_for(share))
            if stop:
                raise KeyboardInterrupt
    finally:
        journal.close()


def test_an_honest_run_gets_back_what_it_did_not_use(account, tmp_path):
    asked(account, tmp_path / "run", [0.3, 0.02])
    (entry,) = account.state("patients").entries
    used = 1 - 0.7 * 0.98
    assert entry.claimed > used and entry.spent.cost == pytest.approx(used * entry.reserved.cost, rel=1e-6)
    assert verified(account).wrong == () and verified(account.export()).wrong == ()
    journal = closed_journal(tmp_path / "run")
    assert verified(account, journals=[journal]).wrong == ()
    assert journal.events.total() == 2 and journal.events <= leaves(list(entry.events))


def test_a_run_that_was_stopped_and_went_on_does_so_too(account, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        asked(account, tmp_path / "run", [0.1], stop=True)
    (entry,) = account.state("patients").entries
    assert entry.counted == entry.reserved
    journal = tmp_path / "run" / "journal.jsonl"
    noise = json.loads(journal.read_text().splitlines()[2])["event"]["noise_multiplier"]
    run = Journal(tmp_path / "run", {"of": "a test"})
    with paid(account.account("patients"), GDP, RUN, run) as meter:
        again = Journalled(Curator(X, Y, model=Linear(2, LOSSES["logistic"]), meter=meter, size=20.0), run)
        again.ask(Count(), noise=noise)
    run.close()
    (entry,) = account.state("patients").entries
    assert entry.spent.cost == pytest.approx(0.1 * entry.reserved.cost, rel=1e-6)
    assert verified(account, journals=[closed_journal(tmp_path / "run")]).wrong == ()


def test_the_journal_that_is_shown_must_be_that_of_the_run(account, tmp_path):
    asked(account, tmp_path / "run", [0.3, 0.02])
    asked(account, tmp_path / "other", [0.3, 0.02])
    shown = [closed_journal(tmp_path / "run")]
    assert [wrong[:5] for wrong in verified(account, journals=shown).wrong] == ["run 1"]
    charged = shown[0].events + Counter([Gaussian(50.0)])
    forged = [Closed(shown[0].head, charged), closed_journal(tmp_path / "other")]
    assert [wrong[:5] for wrong in verified(account, journals=forged).wrong] == ["run 0"]


@pytest.mark.parametrize("damage", ["changed", "cut", "open", "missing", "nothing"])
def test_a_journal_that_is_open_cut_or_changed_is_none(account, tmp_path, damage):
    asked(account, tmp_path / "run", [0.3, 0.1])
    path = tmp_path / "run" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "missing":
        path.unlink()
    else:
        kept = {"changed": [lines[0], *lines[2:]], "cut": lines[:3], "open": lines[:-1], "nothing": []}[damage]
        path.write_bytes(b"".join(kept))
    with pytest.raises(ValueError, match=r"cannot be read|was changed|not finished"):
        closed_journal(tmp_path / "run")


def test_a_journal_of_fewer_events_than_were_charged_brings_nothing_back(account):
    """Also one that is shown to the purse itself: it must list no more than the meter paid for, and something."""
    for events in (Counter(), Counter([Gaussian(40.0), Gaussian(41.0)])):
        part = account.account("patients").part(GDP, Budget(0.5, 1e-7))
        part.claim(0.5)
        part.meter.spend(Gaussian(40.0))
        part.settle(journal=Closed("ab" * 32, events))
        assert account.state("patients").entries[-1].spent.cost >= 0.49 * part._entry.reserved.cost
    assert verified(account).wrong == ()


def test_no_journal_brings_back_more_than_a_block(account):
    part = account.account("patients").part(GDP, RUN)
    part.claim(1.0)
    part.meter.spend(Gaussian(100.0))
    part.settle(journal=Closed("ab" * 32, Counter([Gaussian(100.0)])))
    (entry,) = account.state("patients").entries
    assert entry.spent.cost >= (1 - 1.01 * CLAIM_SHARE) * entry.reserved.cost
    assert verified(account).wrong == ()


def test_lines_follow_from_each_other():
    chain, again = Chain(), Chain()
    lines = [chain.written(line) for line in ({"part": 0}, {"block": 0.5}, {"finished": True})]
    for line in lines:
        again.move(*again.read(line))
    assert again.closed == chain.closed and chain.closed is not None
    with pytest.raises(ValueError, match="follow"):
        Chain().read(lines[1])


@pytest.fixture
def place(server):
    name = server.database()
    officer = Ledger.create(server.url(name))
    officer.register("patients", Budget(3.0, 1e-5))
    officer.allow(ANALYST)
    return name, officer


HEAD = f'\'{{"charged": 1, "head": "{"ab" * 32}"}}\''


@pytest.mark.slow
@pytest.mark.parametrize("terms", [GDP, PLAN], ids=["filter", "plan"])
@pytest.mark.parametrize("journal", [", NULL", f", {HEAD}", ", '{}'", ', \'{"head": "no"}\''])
def test_a_server_settles_no_run_below_its_claim(server, place, terms, journal):
    """By SQL, and with a claim that was taken back."""
    name, officer = place
    part = Ledger(server.url(name, ANALYST)).account("patients").part(terms, RUN)
    with psycopg.connect(server.url(name, ANALYST), autocommit=True) as connection:
        connection.execute("SELECT noisewise_claim('patients', 0, 0, 1)")
        connection.execute("SELECT noisewise_claim('patients', 0, 1, 0.001)")
        with pytest.raises(psycopg.Error, match="settles no less than it claimed"):
            connection.execute(f"SELECT noisewise_settle('patients', 0, 0.001, 0, 0, 'failed', '[]'{journal})")
    assert officer.state("patients").entries[0].counted == officer.state("patients").entries[0].reserved
    assert part.number == 0 and verified(officer).wrong == ()
