"""What a ledger costs: reservations against bare commits of the same database, in turns, and how long racing processes wait."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisewise.accounts import Budget, BudgetExhausted, Terms
from noisewise.accounts.ledger import Ledger, LedgerBusy

GDP, RUN = Terms.adaptive("gdp"), Budget(0.01, 1e-8)
BODY = "x" * 1000  # about what a reservation writes
RACERS, RACED = 50, Budget(0.2, 1e-6)


def ledger_rows(
    *, rounds: int = 15, each: int = 20, progress: Callable[[int, int], None] | None = None
) -> list[dict[str, Any]]:
    """Milliseconds of a bare commit, of a reservation and of a claim, and the ratio of rates, the median of rounds in turns."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("NOISEWISE_BENCH_DIR")) as made:
        bare = _bare(Path(made) / "bare.db")
        ledger = Ledger.create(Path(made) / "ledger.db")
        ledger.register("records", Budget(100.0, 1e-4))
        account = ledger.account("records")
        part, steps = account.part(GDP, RUN), iter(range(1, 10**6))
        jobs: dict[str, Callable[[], Any]] = {
            "bare commit (SQLite, WAL, synchronous full)": lambda: _commit(bare),
            "reserve a run": lambda: account.part(GDP, RUN),
            "claim a block": lambda: part.claim(next(steps) / 10**6),
        }
        taken: list[list[float]] = []
        for number in range(rounds):
            taken.append([_timed(job, each) for job in jobs.values()])
            if progress is not None:
                progress(number + 1, rounds)
        bare.close()
    rows = []
    for place, name in enumerate(jobs):
        ratio = statistics.median(one[0] / one[place] for one in taken)
        rows.append(
            {"job": name, "ms": 1000 * statistics.median(one[place] for one in taken), "rate_against_bare": ratio}
        )
    return rows


def waits(url: str | None = None) -> dict[str, Any]:
    """Fifty processes reserve from one account until nothing is left: how long they wait, and that nothing is overspent."""
    with tempfile.TemporaryDirectory() as made:
        where = f"{made}/ledger.db" if url is None else url
        ledger = Ledger.create(where)
        ledger.register("records", Budget(3.0, 1e-5))
        fork = multiprocessing.get_context("fork")
        gate, results = fork.Barrier(RACERS), fork.Queue()
        racers = [fork.Process(target=_race, args=(where, gate, results)) for _ in range(RACERS)]
        for racer in racers:
            racer.start()
        waited = sorted(wait for _ in racers for wait in results.get(timeout=300))
        for racer in racers:
            racer.join()
        state = ledger.state("records")
        within = sum(entry.counted.cost for entry in state.entries) <= state.granted.cost
    return {
        "processes": RACERS,
        "runs": len(state.entries),
        "p50": statistics.median(waited),
        "p99": waited[int(0.99 * len(waited))],
        "within": within,
    }


def _race(url: str, gate: Any, results: Any) -> None:
    account, waited = Ledger(url).account("records"), []
    gate.wait()
    while True:
        began = time.monotonic()
        try:
            account.part(GDP, RACED)
        except LedgerBusy:
            pass
        except BudgetExhausted:
            break
        finally:
            waited.append(time.monotonic() - began)
    results.put(waited)


def _bare(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE kept (id INTEGER PRIMARY KEY, body TEXT)",
    ):
        connection.execute(statement)
    return connection


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO kept (body) VALUES (?)", (BODY,))
    connection.execute("COMMIT")


def _timed(job: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        job()
    return (time.perf_counter() - began) / times
