"""The tables of a ledger, the same on every database, and the chain of hashes that its history is."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, CheckConstraint, Column, Float, Integer, MetaData, String, Table, Text

VERSION = 1
START = "0" * 64  # what the first row of a history follows

metadata = MetaData()

#: one row: the version of the tables, and where the history ends
LEDGER = Table(
    "noisewise_ledger",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("head", String(64), nullable=False),
)

#: a row for each data set: what was granted, and what its runs have taken, in whole units (`unit_cost`, `unit_delta`)
ACCOUNTS = Table(
    "noisewise_accounts",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("terms", Text, nullable=False),  # of its purse, as JSON: see budget.store
    Column("unit", String(10), nullable=False),  # whom the promise is to
    Column("unit_cost", Float, nullable=False),
    Column("unit_delta", Float, nullable=False),
    Column("cap", BigInteger, nullable=False),
    Column("cap_delta", BigInteger, nullable=False),
    Column("taken", BigInteger, nullable=False),
    Column("taken_delta", BigInteger, nullable=False),
    Column("runs", BigInteger, nullable=False),
    CheckConstraint("0 <= taken AND taken <= cap", name="noisewise_within_cap"),
    CheckConstraint("0 <= taken_delta AND taken_delta <= cap_delta", name="noisewise_within_delta"),
)

#: a row for each run: its entry in the purse
RUNS = Table(
    "noisewise_runs",
    metadata,
    Column("account", String(100), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("run_key", String(32), nullable=False, unique=True),
    Column("owner", String(100), nullable=False),
    Column("terms", Text, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("reserved_delta", BigInteger, nullable=False),
    Column("spent", BigInteger),
    Column("spent_delta", BigInteger),
    Column("events", Text),
    Column("state", String(10), nullable=False),
    Column("claimed", Float, nullable=False),
)

#: all that ever happened, in order; every row follows from the one before it
HISTORY = Table(
    "noisewise_history",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", String(40), nullable=False),
    Column("account", String(100), nullable=False),
    Column("number", BigInteger),
    Column("kind", String(12), nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
)

#: SQLite keeps the history as it is; PostgreSQL does so by rights, and by the same triggers (server.sql)
SQLITE_TRIGGERS = tuple(
    f"CREATE TRIGGER noisewise_history_{what} BEFORE {what} ON noisewise_history "
    "BEGIN SELECT RAISE(ABORT, 'a history is only ever added to'); END"
    for what in ("UPDATE", "DELETE")
)


class HistoryRow(NamedTuple):
    """A row of the history."""

    seq: int
    at: str
    account: str
    number: int | None
    kind: str
    body: str
    previous: str
    hash: str

    @property
    def expected(self) -> str:
        """The hash that it must have."""
        return hashed(self.previous, self.seq, self.at, self.account, self.number, self.kind, self.body)


def hashed(previous: str, *fields: Any) -> str:
    """SHA-256 over the fields, each on a line of its own; server.sql computes the same."""
    lines = "\n".join("" if field is None else str(field) for field in (previous, *fields))
    return hashlib.sha256(lines.encode()).hexdigest()
