"""The runs of one data set as a purse keeps them: rows of the ledger, changed one at a time and never by two at once.

Amounts are whole numbers of units that were fixed when the data set was registered, 2^-52 of what was granted: costs are
rounded up, caps down, and sums are exact on every database.
"""

from __future__ import annotations

import getpass
import json
import math
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from typing import Any

from sqlalchemy import Connection, select, text, update

from ...trusted.accountants.base import currencies
from ...trusted.accountants.terms import Budget, Terms
from ...trusted.counts import BudgetExhausted, up
from ...trusted.events import from_dict, to_dict
from ..account import UNITS
from ..spending_file import TAKEN_UP, UNUSED, Amount, Claimed, Entries, PurseEntry, check_terms
from .database import Database
from .sql_tables import ACCOUNTS, HISTORY, RUNS, hashed

CAP_BITS = 52  # of what was granted: its cap is a whole number of units, exactly
MAX_CAP_UNITS = 1 << 62  # no cap has as many


class DatasetStore:
    """The :class:`~noisewise.accounts.spending_file.PurseStore` of one account.

    *Guarantee*: what :meth:`reserve` took is on the disk when it returns; of several processes, also on several machines,
    never more is reserved than was granted; a run is claimed by one process at a time and settled once.
    """

    def __init__(self, database: Database, name: str, run: str | None = None) -> None:
        self._database, self.name = database, name
        self.run = run or new_run()  # the beginning of the keys of all rows that are reserved here

    def entries(self, terms: Mapping[str, Any]) -> Entries:
        with self._database.reading() as connection:
            account = self._account(connection, terms)
            query = select(RUNS).where(RUNS.c.account == self.name).order_by(RUNS.c.number)
            return tuple(entry_of(row, account) for row in connection.execute(query))

    def left(self, terms: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
        with self._database.reading() as connection:
            account = self._account(connection, terms)
        cost, delta = account.cap - account.taken, account.cap_delta - account.taken_delta
        return cost * Fraction(account.unit_cost), delta * Fraction(account.unit_delta)

    def _account(self, connection: Connection, terms: Mapping[str, Any]) -> Any:
        found = account_row(connection, self.name)
        there = json.loads(found.terms)
        if any(there[name] != terms[name] for name in ("filter", "adjacency")):
            raise ValueError(f"the account {self.name!r} is kept in another currency, or under another relation")
        return found

    def reserve(self, terms: Mapping[str, Any], entry: PurseEntry) -> int:
        key, described = f"{self.run}{secrets.token_hex(4)}", canonical(dict(entry.terms))
        with self._database.writing() as connection:
            account = self._account(connection, terms)
            cost = in_units(entry.reserved.cost, account.unit_cost)
            delta = in_units(entry.reserved.delta, account.unit_delta)
            if self._database.server:
                query = text("SELECT noisewise_reserve(:account, :key, :terms, :cost, :delta)").bindparams(
                    account=self.name, key=key, terms=described, cost=cost, delta=delta
                )
                number = connection.execute(query).scalar_one()
            else:
                number = _reserve(connection, account, key, described, cost, delta)
        if number is None:
            raise BudgetExhausted(self._shortage(entry, account))
        return int(number)

    def claim(self, terms: Mapping[str, Any], number: int, before: float, after: float) -> None:
        with self._database.writing() as connection:
            self._account(connection, terms)
            if self._database.server:
                query = text("SELECT noisewise_claim(:account, :number, :before, :after)").bindparams(
                    account=self.name, number=number, before=before, after=after
                )
                done = connection.execute(query).scalar_one()
            else:
                done = _claim(connection, self.name, number, before, after)
        if not done:
            raise Claimed(TAKEN_UP)

    def settle(self, terms: Mapping[str, Any], number: int, settled: PurseEntry) -> None:
        assert settled.spent is not None
        events = canonical([to_dict(event) for event in settled.events])
        with self._database.writing() as connection:
            account = self._account(connection, terms)
            there = run_row(connection, self.name, number)
            if there is None or not entry_of(there, account).is_that_of(settled):
                raise ValueError(f"run {number} is not reserved as it should be; it may have been settled before")
            if there.claimed != settled.claimed:
                raise Claimed(TAKEN_UP)
            cost = in_units(settled.spent.cost, account.unit_cost)
            delta = in_units(settled.spent.delta, account.unit_delta)
            given: dict[str, Any] = {"account": self.name, "number": number, "spent": cost, "delta": delta}
            given["state"], journal = settled.state, None
            if settled.journal is not None:
                journal = {"head": settled.journal.head, "charged": settled.journal.events.total()}
            most = most_claimed(connection, self.name, number)
            if most > UNUSED and journal is None:
                given |= {"spent": max(cost, least_units(there.reserved, most)), "delta": there.reserved_delta}
            if self._database.server:
                end = None if journal is None else canonical(journal)
                query = _SETTLE.bindparams(**given, claimed=there.claimed, events=events, journal=end)
                connection.execute(query)
            else:
                _settle(connection, there, given, events, journal)

    def _shortage(self, entry: PurseEntry, account: Any) -> str:
        cost = float((account.cap - account.taken) * Fraction(account.unit_cost))
        delta = float((account.cap_delta - account.taken_delta) * Fraction(account.unit_delta))
        return (
            f"the run reserves {entry.reserved.cost:.6g} and delta {entry.reserved.delta:.3g}, but {cost:.6g} and "
            f"{delta:.3g} are left of the account {self.name!r}; ask for less"
        )


def new_run() -> str:
    """The beginning of the keys of one run's rows: a process that takes the run up again finds them by it."""
    return secrets.token_hex(12)


def in_units(amount: float, unit: float) -> int:
    """An amount in whole units, rounded up, and at most ``MAX_CAP_UNITS``."""
    return min(math.ceil(Fraction(amount) / Fraction(unit)), MAX_CAP_UNITS)


def unit_for(cap: float) -> float:
    """A power of two, small beside a cap: what amounts are counted in."""
    return 1.0 if cap == 0 else math.ldexp(1.0, math.frexp(cap)[1] - 1 - CAP_BITS)


def _amount(cost: int, delta: int, account: Any) -> Amount:
    return Amount(up(cost * Fraction(account.unit_cost)), up(delta * Fraction(account.unit_delta)))


def filter_terms(account: Mapping[str, Any]) -> Terms:
    """The terms of the filter that keeps an account, from its terms as plain data."""
    kept = account["filter"]
    return Terms.adaptive(kept["name"], order=kept["order"], one_shot_delta=kept["one_shot_delta"])


def entry_of(row: Any, account: Any) -> PurseEntry:
    """A row as an entry of the purse; an impossible one is refused."""
    try:
        check_terms(json.loads(row.terms))
        if not all(_whole(amount) for amount in (row.reserved, row.reserved_delta, row.number)):
            raise ValueError("an amount is no whole number")
        spent = None if row.spent is None else _amount(row.spent, row.spent_delta, account)
        events = () if row.events is None else tuple(from_dict(event) for event in json.loads(row.events))
        reserved = _amount(row.reserved, row.reserved_delta, account)
        return PurseEntry(json.loads(row.terms), reserved, spent, events, row.state, float(row.claimed))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise ValueError(
            f"run {row.number!r} of the account {row.account!r} cannot be read; check the ledger with noisewise ledger verify"
        ) from None


def canonical(data: Any) -> str:
    """Plain data as one line of text, always the same."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def least_units(reserved: int, claimed: float) -> int:
    """The least that a run takes which claimed this share of its reserved units."""
    return math.ceil(Fraction(claimed) * reserved)


def most_claimed(connection: Connection, account: str, number: int) -> float:
    """The largest share that a run ever claimed: it may have used that much, whatever it claimed later."""
    query = select(HISTORY.c.body).where(HISTORY.c.account == account, HISTORY.c.number == number)
    bodies = connection.execute(query.where(HISTORY.c.kind == "claimed")).scalars()
    return max((float(json.loads(body)["after"]) for body in bodies), default=0.0)


# Rows on SQLite; PostgreSQL does the same in its own functions (server.sql), which are all that an analyst may call.


def rows_of(connection: Connection, account: str, run: str) -> list[Any]:
    """The rows that one run reserved, in order."""
    query = select(RUNS).where(RUNS.c.account == account, RUNS.c.run_key.startswith(run, autoescape=True))
    return list(connection.execute(query.order_by(RUNS.c.number)))


def account_row(connection: Connection, name: str) -> Any:
    found = connection.execute(_ACCOUNT, {"named": name}).one_or_none()
    if found is None:
        raise ValueError(f"there is no account {name!r} in this ledger; register it with noisewise ledger register")
    if not sensible(found):
        raise ValueError(f"the account {name!r} cannot be read; check the ledger with noisewise ledger verify")
    return found


def sensible(account: Any) -> bool:
    """Whether the row of an account is possible."""
    try:
        terms = json.loads(account.terms)
        units = [type(unit) is float and math.frexp(unit)[0] == 0.5 for unit in (account.unit_cost, account.unit_delta)]
        numbers = [account.cap, account.cap_delta, account.taken, account.taken_delta, account.runs]
        Budget(terms["epsilon"], terms["delta"], terms["adjacency"])
        known = account.unit in UNITS and terms["filter"]["name"] in currencies()
        return known and all(units) and all(map(_whole, numbers))
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return False


def _whole(number: Any) -> bool:
    return type(number) is int and 0 <= number < MAX_CAP_UNITS


_ACCOUNT = text(
    f"SELECT {', '.join(column.name for column in ACCOUNTS.columns)} FROM noisewise_accounts WHERE name = :named"
)


def run_row(connection: Connection, account: str, number: int) -> Any:
    query = select(RUNS).where(RUNS.c.account == account, RUNS.c.number == number)
    return connection.execute(query).one_or_none()


def add(connection: Connection, account: str, number: int | None, kind: str, body: Any) -> None:
    """Add a row to the history, which follows from the one before it."""
    last = connection.execute(_LEDGER).one()
    if not _whole(last.seq):
        raise ValueError("the end of the history cannot be read; check the ledger with noisewise ledger verify")
    at, seq, content = datetime.now(UTC).isoformat(timespec="microseconds"), last.seq + 1, canonical(body)
    head = hashed(last.head, seq, at, account, number, kind, content)
    row = {"seq": seq, "at": at, "account": account, "number": number, "kind": kind, "body": content}
    connection.execute(_ADD, {**row, "previous": last.head, "hash": head})
    connection.execute(_MOVE, {"new_seq": seq, "new_head": head})


# made once: making a statement takes longer than SQLite takes to execute it
_SETTLE = text("SELECT noisewise_settle(:account, :number, :claimed, :spent, :delta, :state, :events, :journal)")
_LEDGER = text("SELECT seq, head FROM noisewise_ledger")
_ADD = text(
    "INSERT INTO noisewise_history (seq, at, account, number, kind, body, previous, hash) "
    "VALUES (:seq, :at, :account, :number, :kind, :body, :previous, :hash)"
)
_MOVE = text("UPDATE noisewise_ledger SET seq = :new_seq, head = :new_head")
_RUN = text(
    "INSERT INTO noisewise_runs (account, number, run_key, owner, terms, reserved, reserved_delta, state, claimed) "
    "VALUES (:account, :number, :run_key, :owner, :terms, :reserved, :reserved_delta, 'reserved', 0.0)"
)
_TAKE = text(
    "UPDATE noisewise_accounts SET taken = taken + :cost, taken_delta = taken_delta + :delta, runs = runs + 1 "
    "WHERE name = :account"
)


def _reserve(connection: Connection, account: Any, key: str, terms: str, cost: int, delta: int) -> int | None:
    if cost > account.cap - account.taken or delta > account.cap_delta - account.taken_delta:
        return None
    run = {"account": account.name, "number": account.runs, "run_key": key, "owner": _user(), "terms": terms}
    connection.execute(_RUN, {**run, "reserved": cost, "reserved_delta": delta})
    connection.execute(_TAKE, {"account": account.name, "cost": cost, "delta": delta})
    body = {"key": key, "owner": run["owner"], "terms": terms, "reserved": cost, "reserved_delta": delta}
    add(connection, account.name, account.runs, "reserved", body)
    return int(account.runs)


def _claim(connection: Connection, account: str, number: int, before: float, after: float) -> bool:
    there = run_row(connection, account, number)
    if there is None or there.state != "reserved" or there.claimed != before or before == after:
        return False
    of = (RUNS.c.account == account) & (RUNS.c.number == number)
    connection.execute(update(RUNS).where(of).values(claimed=after))
    add(connection, account, number, "claimed", {"before": before, "after": after})
    return True


def _settle(
    connection: Connection, there: Any, given: Mapping[str, Any], events: str, journal: Mapping[str, Any] | None = None
) -> None:
    if given["spent"] > there.reserved or given["delta"] > there.reserved_delta:
        raise ValueError("a run spent more than it reserved")
    most = most_claimed(connection, there.account, there.number)
    less = given["spent"] < least_units(there.reserved, most) or given["delta"] < there.reserved_delta
    if journal is None and most > UNUSED and less:
        raise ValueError("a run without a closed journal settles no less than it claimed")
    of = (RUNS.c.account == there.account) & (RUNS.c.number == there.number)
    spent = {"spent": given["spent"], "spent_delta": given["delta"], "state": given["state"]}
    connection.execute(update(RUNS).where(of).values(**spent, events=events))
    back = {"taken": there.reserved - given["spent"], "taken_delta": there.reserved_delta - given["delta"]}
    values = {getattr(ACCOUNTS.c, name): getattr(ACCOUNTS.c, name) - amount for name, amount in back.items()}
    connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.name == there.account).values(values))
    kept = {} if journal is None else {"journal": journal}
    add(connection, there.account, there.number, "settled", {**spent, "events": events, **kept})


@cache
def _user() -> str:
    try:
        return getpass.getuser()[:100]
    except (OSError, KeyError):
        return "unknown"
