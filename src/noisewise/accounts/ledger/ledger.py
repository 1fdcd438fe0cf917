"""A ledger: accounts of data sets by name. Its owner makes it, registers data sets, grants, looks and checks."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select, text, update

from ...trusted import validate
from ...trusted.accountants.base import currencies
from ...trusted.accountants.terms import Budget, Terms
from ..account import UNITS, Account, UnitName, named
from ..purse import Purse
from ..spending_file import Amount, PurseEntry
from .database import Database, ledger_url
from .sql_tables import ACCOUNTS, HISTORY, LEDGER, RUNS, SQLITE_TRIGGERS, START, VERSION, HistoryRow, metadata
from .store import MAX_CAP_UNITS, DatasetStore, account_row, add, canonical, entry_of, filter_terms, rows_of, unit_for

PROMISE_DELTA_SHARE = 0.5  # of delta: for runs that count as the (epsilon, delta) that they promise
CURRENCY = "gdp"
_OWN = text("SELECT pg_get_userbyid(relowner) = current_user FROM pg_class WHERE oid = 'noisewise_ledger'::regclass")
_CREATES = text("SELECT pg_catalog.has_schema_privilege(:role, pg_catalog.current_schema(), 'CREATE')")


class Taken(NamedTuple):
    """A reserved row of a run: its number in the account, its key, and its entry in the purse."""

    number: int
    key: str
    entry: PurseEntry


@dataclass(frozen=True)
class AccountState:
    """The state of an account: amounts in its currency, and of the share of delta."""

    name: str
    budget: Budget
    unit: UnitName
    currency: str
    order: int | None
    granted: Amount
    reserved: Amount
    spent: Amount
    left: Amount
    fits: Budget | None  # the largest promise that a further run of the currency can get
    entries: tuple[PurseEntry, ...]
    keys: tuple[str, ...]
    owners: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        budget, fits = self.budget, self.fits
        amounts = {
            name: {"cost": getattr(self, name).cost, "delta": getattr(self, name).delta}
            for name in ("granted", "reserved", "spent", "left")
        }
        return {
            "dataset": self.name,
            "epsilon": float(budget.epsilon),
            "delta": float(budget.delta),
            "adjacency": budget.adjacency,
            "unit": self.unit,
            "currency": self.currency,
            "order": self.order,
            **amounts,
            "fits": None if fits is None else {"epsilon": fits.epsilon, "delta": fits.delta},
            "runs": len(self.entries),
        }


class Ledger:
    """A ledger that is there; :meth:`create` makes one.

    ``url`` is a path of an SQLite file or a database URL; by default that in the environment variable ``NOISEWISE_LEDGER``.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None) -> None:
        self._database = Database(ledger_url(url))
        with self._database.reading():
            pass  # which checks that it is there, and its version

    @classmethod
    def create(cls, url: str | os.PathLike[str] | None = None) -> Ledger:
        """A new ledger without accounts. What is there already is refused, never overwritten."""
        database = Database(ledger_url(url))
        made = None if database.server else _new_file(str(database.url.database))
        try:
            _make(database)
        except BaseException:
            if made is not None:
                os.unlink(made)
            raise
        return cls(url)

    @property
    def name(self) -> str:
        """Where it lies, without a password."""
        return self._database.name

    def __repr__(self) -> str:
        return f"Ledger({self.name!r})"

    def register(
        self,
        dataset: str,
        budget: Budget,
        *,
        unit: UnitName = "record",
        currency: str = CURRENCY,
        order: int | None = None,
        delta_share: float = PROMISE_DELTA_SHARE,
    ) -> None:
        """Open the account of a data set: all its runs together will be (epsilon, delta)-DP, whatever they are.

        ``currency`` is what runs are added up in: gdp, zcdp, or rdp at one ``order``. ``delta_share``: the part of delta that
        is kept for runs that cannot be counted in it and count as the (epsilon, delta) that they promise.
        """
        named(dataset)
        validate.one_of(UNITS, unit=unit)
        terms = _terms(budget, currency, order, delta_share)
        purse = Purse(budget, terms)  # refuses what no filter can hold, and computes its cap
        cap = Amount(**purse.terms["cap"])
        units = unit_for(cap.cost), unit_for(cap.delta)
        row: dict[str, Any] = {"name": dataset, "terms": canonical(purse.terms), "unit": unit, "unit_cost": units[0]}
        row |= {"unit_delta": units[1], **_caps(cap, *units), "taken": 0, "taken_delta": 0, "runs": 0}
        with self._database.writing() as connection:
            self._alone(connection)
            if connection.execute(select(ACCOUNTS.c.name).where(ACCOUNTS.c.name == dataset)).one_or_none():
                raise ValueError(f"the account {dataset!r} is registered already; grant it more, or take another name")
            connection.execute(insert(ACCOUNTS), row)
            add(connection, dataset, None, "registered", {**row, "terms": json.loads(row["terms"])})

    def grant(self, dataset: str, budget: Budget) -> None:
        """Raise the budget: from now on it covers all runs together, past ones too.

        The promise of an account is the largest that was ever granted; whoever grants it is responsible for it.
        """
        with self._database.writing() as connection:
            self._alone(connection)
            account = account_row(connection, dataset)
            old = json.loads(account.terms)
            if budget.adjacency != old["adjacency"] or budget.epsilon < old["epsilon"] or budget.delta < old["delta"]:
                raise ValueError(
                    f"the account {dataset!r} has ({old['epsilon']:g}, {old['delta']:g}) under {old['adjacency']}; grant at "
                    "least as much, under the same relation: what was promised to runs is not taken back"
                )
            purse = Purse(budget, filter_terms(old))
            row: dict[str, Any] = {"terms": canonical(purse.terms)}
            row |= _caps(Amount(**purse.terms["cap"]), account.unit_cost, account.unit_delta)
            connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.name == dataset).values(**row))
            add(connection, dataset, None, "granted", {**row, "terms": json.loads(row["terms"])})

    def allow(self, role: str) -> None:
        """Let a role of a PostgreSQL server read the ledger, reserve, claim and settle; it can neither grant nor edit."""
        if not self._database.server:
            raise ValueError(
                "an SQLite file has no roles: who can write the file can do everything; use PostgreSQL for a team"
            )
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]{0,62}", role):
            raise ValueError("--role is not a plain name of a database role")
        with self._database.writing() as connection:
            if not connection.execute(_OWN).scalar_one():
                raise PermissionError(f"{self.name}: only who keeps the ledger lets others in")
            if connection.execute(_CREATES, {"role": role}).scalar_one():
                raise PermissionError(
                    f"{self.name}: {role} may create things in the ledger's schema, and could bring operators that others would "
                    f"use; first REVOKE CREATE ON SCHEMA {_schema(connection)} FROM PUBLIC, {role}"
                )
            for statement in rights(role, _schema(connection)):
                connection.exec_driver_sql(statement)

    def _alone(self, connection: Connection) -> None:
        """Wait for others at the ledger: its history is one chain."""
        connection.execute(select(LEDGER).with_for_update())

    def account(self, dataset: str, *, run: str | None = None) -> Account:
        """The account of a data set, to fit with: ``with account:``, or ``purse=account``.

        ``run``: what the keys of its rows begin with, for a run that is taken up again.
        """
        with self._database.reading() as connection:
            row = account_row(connection, dataset)
        return Account(self._purse(row, run), dataset, row.unit)

    def _purse(self, row: Any, run: str | None = None) -> Purse:
        terms = json.loads(row.terms)
        budget = Budget(terms["epsilon"], terms["delta"], terms["adjacency"])
        return Purse(budget, filter_terms(terms), store=DatasetStore(self._database, row.name, run))

    def taken_by(self, dataset: str, run: str) -> tuple[Taken, ...]:
        """The rows that one run has reserved, in order."""
        with self._database.reading() as connection:
            account = account_row(connection, dataset)
            rows = rows_of(connection, dataset, run)
        return tuple(Taken(row.number, row.run_key, entry_of(row, account)) for row in rows)

    def datasets(self) -> tuple[str, ...]:
        """The names of all accounts."""
        with self._database.reading() as connection:
            return tuple(connection.execute(select(ACCOUNTS.c.name).order_by(ACCOUNTS.c.name)).scalars())

    def state(self, dataset: str) -> AccountState:
        """How an account stands."""
        with self._database.reading() as connection:
            row = account_row(connection, dataset)
            runs = connection.execute(select(RUNS).where(RUNS.c.account == dataset).order_by(RUNS.c.number)).all()
        kept = json.loads(row.terms)["filter"]
        open_runs = [run for run in runs if run.state == "reserved"]
        sums = [sum(getattr(run, name) for run in open_runs) for name in ("reserved", "reserved_delta")]
        spent = row.taken - sums[0], row.taken_delta - sums[1]
        left = row.cap - row.taken, row.cap_delta - row.taken_delta
        account = Account(self._purse(row), dataset, row.unit)
        return AccountState(
            dataset,
            account.budget,
            row.unit,
            kept["name"],
            kept["order"],
            _in(row, row.cap, row.cap_delta),
            _in(row, *sums),
            _in(row, *spent),
            _in(row, *left),
            account.left,
            tuple(entry_of(run, row) for run in runs),
            tuple(run.run_key for run in runs),
            tuple(run.owner for run in runs),
        )

    def history(self, dataset: str | None = None) -> Iterator[HistoryRow]:
        """The history in order, of everything or of one data set."""
        query = select(HISTORY).order_by(HISTORY.c.seq)
        if dataset is not None:
            query = query.where(HISTORY.c.account == dataset)
        with self._database.reading() as connection:
            for row in connection.execute(query):
                yield HistoryRow(*row)

    def head(self) -> tuple[int, str]:
        """The end of the history: with a copy kept elsewhere, no earlier row can be changed or cut off unnoticed."""
        with self._database.reading() as connection:
            row = connection.execute(select(LEDGER)).one()
            return int(row.seq), str(row.head)

    def export(self) -> dict[str, Any]:
        """The whole ledger as plain data."""
        with self._database.reading() as connection:
            last = connection.execute(select(LEDGER)).one()
            rows = {
                table.name.removeprefix("noisewise_"): [dict(row._mapping) for row in connection.execute(select(table))]
                for table in (ACCOUNTS, RUNS, HISTORY)
            }
        return {"format": f"noisewise-ledger/{VERSION}", "seq": last.seq, "head": last.head, **rows}


def account_in(url: str | os.PathLike[str] | None, dataset: str | None) -> Account:
    """The account of a data set in a ledger."""
    if not dataset:
        raise ValueError("a ledger holds accounts of data sets; say which one: --dataset NAME (dataset= in Python)")
    return Ledger(url).account(dataset)


def rights(role: str, schema: str) -> list[str]:
    """The SQL that lets a role spend and look, and nothing else."""
    tables = ", ".join(f"{schema}.{table.name}" for table in metadata.sorted_tables)
    functions = (
        "noisewise_reserve(text, text, text, bigint, bigint)",
        "noisewise_claim(text, bigint, double precision, double precision)",
        "noisewise_settle(text, bigint, double precision, bigint, bigint, text, text, text)",
    )
    return [
        f'GRANT USAGE ON SCHEMA {schema} TO "{role}"',
        f'GRANT SELECT ON {tables} TO "{role}"',
        *(f'GRANT EXECUTE ON FUNCTION {schema}.{function} TO "{role}"' for function in functions),
    ]


def _terms(budget: Budget, currency: str, order: int | None, delta_share: float) -> Terms:
    if currency not in currencies():
        raise ValueError(f"currency is {currency!r}; pass one of {', '.join(currencies())}")
    if not 0 <= delta_share < 1:
        raise ValueError(f"delta-share is {delta_share!r}; pass a part of delta, from 0 to below 1")
    return Terms.adaptive(currency, order=order, one_shot_delta=float(budget.delta) * float(delta_share))


def _caps(cap: Amount, unit_cost: float, unit_delta: float) -> dict[str, int]:
    """A cap in whole units, rounded down."""
    found = (Fraction(cap.cost) / Fraction(unit_cost), Fraction(cap.delta) / Fraction(unit_delta))
    if max(found) >= MAX_CAP_UNITS:
        raise ValueError("so much more than was registered at first cannot be counted; register another account")
    return {"cap": math.floor(found[0]), "cap_delta": math.floor(found[1])}


def _in(row: Any, cost: int, delta: int) -> Amount:
    return Amount(float(cost * Fraction(row.unit_cost)), float(delta * Fraction(row.unit_delta)))


def _new_file(path: str) -> str:
    """A new empty file, readable by its owner alone; a link that is there is refused."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        raise ValueError(f"{path} exists already; pass another file, or go on with the ledger in it") from None
    return path


def _make(database: Database) -> None:
    with database.writing(new=True) as connection:
        schema = _schema(connection) if database.server else ""
        if database.server and connection.dialect.has_table(connection, LEDGER.name):
            raise ValueError(f"{database.name} holds a ledger already; go on with it")
        metadata.create_all(connection, checkfirst=False)
        statements = SQLITE_TRIGGERS
        if database.server:  # one script: the driver takes several statements without parameters
            script = files(__package__).joinpath("server.sql").read_text(encoding="utf-8")
            statements = (script.replace("{schema}", schema).replace("%", "%%"),)
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.execute(insert(LEDGER), {"one": 1, "version": VERSION, "seq": 0, "head": START})
        add(connection, "", None, "created", {"version": VERSION})


def _schema(connection: Connection) -> str:
    return connection.dialect.identifier_preparer.quote(
        str(connection.execute(select(func.current_schema())).scalar_one())
    )
