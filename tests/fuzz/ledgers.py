"""Ledgers whose rows somebody changed: rows of the tables, and exports, as verify and an account read them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from functools import cache
from random import Random
from typing import Any

from noisewise.accounts import Budget, BudgetExhausted, Terms
from noisewise.accounts.ledger import Ledger
from noisewise.accounts.ledger.verify import verified
from noisewise.trusted.events import Gaussian

from .core import target
from .mutate import reshaped
from .places import folder

GDP = Terms.adaptive("gdp")
TABLES = ("noisewise_accounts", "noisewise_runs", "noisewise_history", "noisewise_ledger")


@cache
def seed() -> str:
    path = folder(0) / "seed-ledger.db"
    path.unlink(missing_ok=True)
    ledger = Ledger.create(path)
    ledger.register("patients", Budget(3.0, 1e-5))
    account = ledger.account("patients")
    with account.part(GDP, Budget(1.0, 1e-6)) as part:
        part.claim(0.5)
        part.meter.spend(Gaussian(part.meter.noise_for(0.5)))
    account.part(Terms.plan(Gaussian(20.0)), Budget(0.5, 1e-6))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return str(path)


@cache
def document() -> Any:
    return json.loads(json.dumps(Ledger(seed()).export()))


@target("ledger, an export", lambda rng: reshaped(document(), rng), weight=1)
def export(given: Any) -> None:
    """A changed export is refused, or verify finds what is wrong, or says so of one that is as it was."""
    if not isinstance(given, dict):
        return
    found = verified(given)
    assert found.holds in (True, False) and (not found.holds or given == document())


def changed_row(rng: Random) -> tuple[str, str, Any]:
    table = rng.choice(TABLES)
    columns = {
        "noisewise_accounts": (
            "terms",
            "unit",
            "unit_cost",
            "unit_delta",
            "cap",
            "cap_delta",
            "taken",
            "taken_delta",
            "runs",
        ),
        "noisewise_runs": (
            "terms",
            "reserved",
            "reserved_delta",
            "spent",
            "spent_delta",
            "events",
            "state",
            "claimed",
            "number",
        ),
        "noisewise_history": ("body", "kind", "previous", "account", "at"),
        "noisewise_ledger": ("version", "seq", "head"),
    }
    values: list[Any] = [
        None,
        0,
        1,
        -1,
        2**63 - 1,
        -(2**63),
        1e308,
        -0.0,
        5e-324,
        "",
        "x",
        "{}",
        "[]",
        "null",
        b"\xff\x00",
    ]
    values += ['{"filter": null}', '{"epsilon": 1e999}', "NaN", "[" * 500, "0" * 64, "reserved", "spent"]
    return table, rng.choice(columns[table]), rng.choice(values)


@target("ledger, a row", changed_row, weight=0.2, also=(BudgetExhausted,))
def row(given: tuple[str, str, Any]) -> None:
    """Whatever a row says, reading it is refused, or the account never has more than was granted, and verify tells."""
    table, column, value = given
    path = folder(0) / "own-ledger.db"
    for old in folder(0).glob("own-ledger.db*"):
        old.unlink()
    shutil.copyfile(seed(), path)
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        for what in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER noisewise_history_{what}")
        before = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        try:
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})", (value,)
            )
        except sqlite3.Error:
            return  # the database itself does not take it
        connection.commit()
        after = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()  # as the column's type took it
    finally:
        connection.close()
    ledger = Ledger(path)
    found = verified(ledger)
    assert not found.holds or before == after
    ledger.state("patients")
    account = ledger.account("patients")
    account.part(GDP, Budget(0.1, 1e-7))
