"""Where a ledger lies: opening the database, transactions, and what goes wrong with either, in our own words."""

from __future__ import annotations

import os
import re
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import NullPool, QueuePool

from ...trusted.process import Process, this_process
from .sql_tables import VERSION

WAIT_SECONDS = 5.0  # that a transaction waits for others before it gives up
ENVIRONMENT = "NOISEWISE_LEDGER"
POSTGRESQL = "postgresql+psycopg"
INSTALL = "pip install 'noisewise[postgres]'"


_VERSION = text("SELECT version FROM noisewise_ledger")
# a server, or a user, may be set not to wait for the disk
_DURABLE = (
    "BEGIN; SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)


class LedgerBusy(TimeoutError):
    """Others were at the ledger for too long. Nothing was reserved or spent; ask again."""


class LedgerUnreachable(ConnectionError):
    """The database does not answer. Nothing is released that it did not note before."""


def ledger_url(given: str | os.PathLike[str] | None) -> URL:
    """The URL of a ledger: what is given, or the environment's; a plain path is an SQLite file. Never shown with a password."""
    said = os.environ.get(ENVIRONMENT) if given is None else os.fspath(given)
    if not said:
        raise ValueError(f"no ledger is named; pass --ledger URL (ledger= in Python), or set {ENVIRONMENT}")
    if re.match(r"(sqlite|postgres\w*)(\+\w+)?:(?!//)", said):  # it may hold a password, and would be shown as a path
        raise ValueError("the ledger's URL cannot be read; a URL begins with sqlite:/// or postgresql://")
    if "://" not in said:
        return URL.create("sqlite", database=str(Path(said).absolute()))
    try:
        url = make_url(said)
    except (ArgumentError, ValueError):
        raise ValueError("the ledger's URL cannot be read; pass a path, sqlite:///FILE, or postgresql://...") from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername=POSTGRESQL)
    if url.drivername not in ("sqlite", POSTGRESQL):
        raise ValueError(f"the ledger is a {url.drivername} database; pass sqlite:///FILE or postgresql://...")
    if url.drivername == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError("the ledger has no file; pass sqlite:///FILE: what is spent must outlive the process")
    return url


def shown(url: URL) -> str:
    """A URL as messages and files name it: without its password."""
    if url.drivername == "sqlite":
        return str(url.database)
    bare = url.set(password=None, query={})
    return bare.set(drivername="postgresql").render_as_string(hide_password=True)


class Database:
    """One database. A connection to a server lasts for one transaction; a file is kept open, by this process alone, since
    closing it for good makes SQLite put everything in its place.
    """

    def __init__(self, url: URL) -> None:
        self.url, self.name = url, shown(url)
        self.server = url.drivername != "sqlite"
        self._engine: Any = None
        self._process = this_process()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of everything."""
        with self._translated(), self._opened().connect() as connection:
            connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if self.server else "BEGIN")
            try:
                yield connection
            finally:
                connection.exec_driver_sql("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is alone: durable when this block is left, or as if it had never been."""
        with self._translated(), self._opened().connect() as connection:
            connection.exec_driver_sql(_DURABLE if self.server else "BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                try:
                    connection.exec_driver_sql("ROLLBACK")
                except DBAPIError:
                    connection.invalidate()  # the server is gone, and the transaction with it
                raise

    def _opened(self) -> Any:
        if self._engine is None or self._process != this_process():
            self._engine, self._process = self._made(), this_process()
            weakref.finalize(self, _closed, self._engine, self._process)
        return self._engine

    def _made(self) -> Any:
        if not self.server:
            engine = create_engine("sqlite://", creator=self._connected, poolclass=QueuePool)
            event.listen(engine, "connect", _prepared)
            return engine
        limits = f"-c lock_timeout={WAIT_SECONDS * 1000:.0f} -c statement_timeout={WAIT_SECONDS * 2000:.0f}"
        try:
            return create_engine(
                self.url,
                isolation_level="AUTOCOMMIT",  # transactions begin and end where we say
                connect_args={"connect_timeout": int(WAIT_SECONDS), "options": limits},
                poolclass=NullPool,
            )
        except (ModuleNotFoundError, NoSuchModuleError):
            raise ValueError(f"a ledger on PostgreSQL needs its driver: {INSTALL}") from None

    def _connected(self) -> sqlite3.Connection:
        """The file, which is never made by opening it; the driver begins no transactions of its own."""
        where = f"file:{quote(str(self.url.database))}?mode=rw"
        return sqlite3.connect(where, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """What a database says, in our words: its own may hold what was written, or where it lies."""
        try:
            yield
        except DBAPIError as error:
            raise self._meaning(error) from None

    def _meaning(self, error: DBAPIError) -> Exception:
        code, said = getattr(error.orig, "sqlstate", None), str(error.orig).lower()
        if code in ("55P03", "57014", "40001", "40P01") or "locked" in said or "busy" in said:
            return LedgerBusy(
                f"{self.name}: others were at the ledger for more than {WAIT_SECONDS:g} s; nothing was spent, try again"
            )
        if "unable to open" in said and not os.path.lexists(str(self.url.database)):
            return ValueError(f"{self.name} is not there; make a ledger with noisewise ledger init")
        if "no such table" in said or code == "42P01":
            return ValueError(f"{self.name} is no ledger; make one with noisewise ledger init")
        if code == "42501" or "permission denied" in said:
            return PermissionError(f"{self.name}: this database user may not do that; ask who keeps the ledger")
        if code == "P0001":  # our own functions refuse
            return ValueError(str(error.orig).splitlines()[0])
        if isinstance(error, IntegrityError):
            return ValueError(
                f"{self.name}: its rows do not agree; nothing was spent. Check it with noisewise ledger verify"
            )
        if "not a database" in said or "malformed" in said or "corrupt" in said:
            return ValueError(f"{self.name} is no ledger, or a damaged one; bring back a copy, do not delete it")
        if "readonly" in said or "read-only" in said:
            return PermissionError(f"{self.name} cannot be written; nothing can be spent until it can")
        if "full" in said and not self.server:
            return OSError(f"{self.name}: no space is left on the disk; nothing was spent")
        return LedgerUnreachable(
            f"{self.name}: the ledger does not answer ({type(error.orig).__name__}); nothing was spent"
        )

    def check(self, connection: Connection) -> None:
        """Refuse tables of another version, rather than misread them."""
        found = connection.execute(_VERSION).scalar_one_or_none()
        if found is None:
            raise ValueError(f"{self.name} is no ledger; make one with noisewise ledger init")
        if found != VERSION:
            raise ValueError(
                f"{self.name} is a ledger of version {found}, and this noisewise reads version {VERSION}; use the noisewise "
                "that wrote it, or a newer one: nothing was read or changed"
            )


def _prepared(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "trusted_schema=OFF"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _closed(engine: Any, process: Process) -> None:
    engine.dispose(close=process == this_process())
