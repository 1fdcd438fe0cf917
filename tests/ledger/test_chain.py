"""The history is only ever added to, and whatever is changed by hand is found."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from noisewise.accounts import Budget, Terms
from noisewise.accounts.ledger import Ledger
from noisewise.accounts.ledger.database import Database, ledger_url
from noisewise.accounts.ledger.sql_tables import HistoryRow, hashed
from noisewise.accounts.ledger.verify import verified
from noisewise.trusted.events import Gaussian

GDP = Terms.adaptive("gdp")


@pytest.fixture
def spent(ledger):
    ledger.register("patients", Budget(3.0, 1e-5))
    ledger.register("others", Budget(1.0, 1e-6), currency="zcdp")
    account = ledger.account("patients")
    for share in (0.5, 1.0):
        with account.part(GDP, Budget(1.0, 1e-6)) as part:
            part.claim(share)
            part.meter.spend(Gaussian(part.meter.noise_for(share)))
    account.part(GDP, Budget(0.5, 1e-6))
    ledger.grant("patients", Budget(3.5, 1e-5))
    return ledger


def edited(url, *statements, free=True):
    """Changes that somebody with all rights makes; ``free``: the triggers are gone."""
    database = Database(ledger_url(url))
    with database.writing() as connection:
        if free and database.server:
            connection.execute(text("ALTER TABLE noisewise_history DISABLE TRIGGER ALL"))
        elif free:
            for what in ("UPDATE", "DELETE"):
                connection.execute(text(f"DROP TRIGGER noisewise_history_{what}"))
        for statement in statements:
            connection.execute(text(statement))


CHANGES = {
    "edited": "UPDATE noisewise_history SET body = replace(body, '\"reserved_delta\"', '\"reserved_delta\" ') WHERE seq = 4",
    "another time": "UPDATE noisewise_history SET at = '2020-01-01T00:00:00.000000+00:00' WHERE seq = 3",
    "removed": "DELETE FROM noisewise_history WHERE seq = 5",
    "truncated": "DELETE FROM noisewise_history WHERE seq > 7",
    "another account": "UPDATE noisewise_history SET account = 'others' WHERE seq = 4",
    "less taken": "UPDATE noisewise_accounts SET taken = taken - 1000000 WHERE name = 'patients'",
    "more granted": "UPDATE noisewise_accounts SET cap = cap * 2 WHERE name = 'patients'",
    "less spent": "UPDATE noisewise_runs SET spent = 1 WHERE number = 1",
    "a run gone": "DELETE FROM noisewise_runs WHERE number = 0",
    "unsettled": "UPDATE noisewise_runs SET state = 'failed', spent = 0, spent_delta = 0, events = '[]' WHERE number = 2",
    "another person": "UPDATE noisewise_runs SET owner = 'nobody' WHERE number = 0",
    "unclaimed": "UPDATE noisewise_runs SET claimed = 0 WHERE number = 0",
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_by_hand_is_found(url, spent, what):
    assert verified(spent).holds
    edited(url, CHANGES[what])
    found = verified(spent)
    assert not found.holds and found.wrong


def test_rows_that_changed_places_are_found(url, spent):
    edited(
        url,
        "UPDATE noisewise_history SET seq = 1000 WHERE seq = 4",
        "UPDATE noisewise_history SET seq = 4 WHERE seq = 5",
        "UPDATE noisewise_history SET seq = 5 WHERE seq = 1000",
    )
    assert not verified(spent).holds


@pytest.mark.parametrize("statement", ["DELETE FROM noisewise_history", "UPDATE noisewise_history SET body = '{}'"])
def test_a_history_is_only_ever_added_to(url, spent, statement):
    with pytest.raises(Exception, match="history"):
        edited(url, statement, free=False)
    assert verified(spent).holds


def test_a_history_that_is_written_anew_is_found_by_a_head_that_was_kept_elsewhere(url, spent):
    """Whoever may write everything can make a chain of his own; a head that somebody else has tells."""
    kept = spent.head()
    rows, previous = [row for row in spent.history() if row.seq < 8], "0" * 64
    statements = ["DELETE FROM noisewise_history WHERE seq >= 8"]
    for row in rows:
        new = hashed(previous, row.seq, row.at, row.account, row.number, row.kind, row.body)
        statements.append(f"UPDATE noisewise_history SET previous = '{previous}', hash = '{new}' WHERE seq = {row.seq}")
        previous = new
    statements.append(f"UPDATE noisewise_ledger SET seq = 7, head = '{previous}'")
    edited(url, *statements)
    assert not any("history" in wrong and "row" in wrong for wrong in verified(spent).wrong)  # the chain itself holds
    assert any("cut off" in wrong for wrong in verified(spent, [kept]).wrong)


def test_a_run_that_reserved_less_than_its_terms_cost_is_found(spent):
    document = json.loads(json.dumps(spent.export()))
    for row in document["history"]:
        if row["kind"] == "reserved" and row["number"] == 2:
            body = json.loads(row["body"])
            body["reserved"] -= 1
            row["body"] = json.dumps(body)
    rechained(document)
    for run in document["runs"]:
        run["reserved"] -= run["number"] == 2
    document["accounts"] = [
        {**account, "taken": account["taken"] - (account["name"] == "patients")} for account in document["accounts"]
    ]
    assert verified(document).wrong == ("run 2 of the account 'patients' reserved less than its terms cost",)


def test_a_run_that_returned_more_than_its_events_leave_is_found(spent):
    document = json.loads(json.dumps(spent.export()))
    for row in document["history"]:
        if row["kind"] == "settled" and row["number"] == 0:
            body = json.loads(row["body"])
            back = body["spent"] // 2
            body["spent"] -= back
            row["body"] = json.dumps(body)
    rechained(document)
    document["runs"][0]["spent"] -= back
    for account in document["accounts"]:
        account["taken"] -= back * (account["name"] == "patients")
    assert verified(document).wrong == ("run 0 of the account 'patients' returned more than its events leave",)


def rechained(document):
    previous = "0" * 64
    for row in document["history"]:
        row["previous"] = previous
        row["hash"] = previous = HistoryRow(**{**row, "hash": ""}).expected
    document["head"] = previous


@pytest.mark.parametrize("damage", ["{}", "[]", '{"format": "noisewise-ledger/2"}', '{"format": "noisewise-ledger/1"}'])
def test_what_is_no_export_is_refused(damage):
    with pytest.raises(ValueError, match="no ledger"):
        verified(json.loads(damage))


def test_a_ledger_of_another_version_is_refused_and_left_as_it_is(url, spent):
    edited(url, "UPDATE noisewise_ledger SET version = 2", free=False)
    for use in (
        lambda: Ledger(url),
        lambda: spent.account("patients"),
        lambda: spent.register("new", Budget(1.0, 1e-6)),
    ):
        with pytest.raises(ValueError, match="version 2, and this noisewise reads version 1"):
            use()
