"""Checks of a ledger: the chain of its history, its tables against the history, and every price computed anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ...trusted.accountants.terms import Budget
from ...trusted.events import leaves
from ...trusted.meter import meter_from
from ..account import PERSONS
from ..purse import Purse
from ..replay import replayed
from ..spending_file import Amount, Closed, PurseEntry
from .ledger import Ledger
from .sql_tables import START, VERSION, HistoryRow
from .store import canonical, entry_of, filter_terms, in_units

HEAD = re.compile("[0-9a-f]{64}")
BAD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Findings:
    """The faults of a ledger; none, if it holds."""

    seq: int
    head: str
    runs: int
    wrong: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.wrong


class _Named(dict[str, Any]):
    """A row of an export whose columns are read by name."""

    __getattr__ = dict.__getitem__


@dataclass
class _Replayed:
    """The tables as the history says they should be."""

    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Claim:
    """The largest share that a run ever claimed, and the end of the journal that it was settled with."""

    most: float = 0.0
    journal: Mapping[str, Any] | None = None


def verified(
    ledger: Ledger | Mapping[str, Any],
    known: Iterable[tuple[int, str]] = (),
    journals: Iterable[Closed] | None = None,
) -> Findings:
    """Check a ledger, or an export of one. ``known``: heads (number, hash) that were kept elsewhere.

    ``journals``: closed journals of its runs; given any, every run that took less than it claimed must have its own among them.

    It finds rows of the history that were edited, removed, reordered or added by hand, and a history that was cut off, if
    the later hashes and the table that names its end were left alone, or a head was kept elsewhere: someone with all rights
    can make a chain anew, or restore an old copy, and only such a head shows it. It finds tables that differ from the
    history; sums above a cap; runs of another relation or unit than the account, that reserved less than their terms cost, or
    that returned more than their events leave; and runs that took less than they ever claimed, unless costs add up in their
    meter and the history has the end of a closed journal, with no more events charged than were settled.
    """
    document = ledger.export() if isinstance(ledger, Ledger) else dict(ledger)
    try:
        if document["format"] != f"noisewise-ledger/{VERSION}":
            raise ValueError("it is of another version")
        _possible(set(document) == {"format", "seq", "head", "accounts", "runs", "history"})
        rows = sorted((HistoryRow(**row) for row in document["history"]), key=lambda row: row.seq)
        wrong = [*_chain(rows, document, tuple(known))]
        wrong += _tables(rows, document)
        claims = _claims(rows)
        shown = None if journals is None else {journal.head: journal for journal in journals}
        for account in document["accounts"]:
            wrong += _prices(_Named(account), document["runs"], claims, shown)
        return Findings(int(document["seq"]), str(document["head"]), len(document["runs"]), tuple(wrong))
    except BAD as error:
        raise ValueError(f"this is no ledger that can be read ({type(error).__name__})") from None


def _chain(rows: list[HistoryRow], document: Mapping[str, Any], known: tuple[tuple[int, str], ...]) -> Iterator[str]:
    previous, hashes = START, {}
    for number, row in enumerate(rows, start=1):
        if row.seq != number:
            yield f"row {number} of the history is missing"
            return
        if row.previous != previous:
            yield f"row {row.seq} of the history does not follow from the one before it"
        if row.hash != row.expected:
            yield f"row {row.seq} of the history was edited"
        previous, hashes[row.seq] = row.hash, row.hash
    if (len(rows), previous) != (document["seq"], document["head"]):
        yield f"the history ends at row {len(rows)}, but the ledger says it ends at row {document['seq']}"
    for seq, head in known:
        if hashes.get(seq) != head:
            yield f"row {seq} is not the one that was known: the history was cut off there, or written anew"


def _tables(rows: list[HistoryRow], document: Mapping[str, Any]) -> Iterator[str]:
    """Where the tables differ from what the history says."""
    replay = _Replayed()
    for row in rows:
        try:
            _take(replay, row, json.loads(row.body))
        except BAD:
            yield f"row {row.seq} of the history tells of something that cannot have happened"
    accounts = {row["name"]: dict(row) for row in document["accounts"]}
    runs = {(row["account"], row["number"]): dict(row) for row in document["runs"]}
    if len(accounts) != len(document["accounts"]) or len(runs) != len(document["runs"]):
        yield "an account or a run is there twice"
    yield from _differences("the account", replay.accounts, accounts)
    yield from _differences("the run", replay.runs, runs)


def _differences(what: str, stated: Mapping[Any, Any], there: Mapping[Any, Any]) -> Iterator[str]:
    for name in sorted({*stated, *there}, key=str):
        if stated.get(name) != there.get(name):
            yield f"{what} {name!r} is not what the history says"


def _take(replay: _Replayed, row: HistoryRow, body: Any) -> None:
    where = (row.account, -1 if row.number is None else int(row.number))
    match row.kind:
        case "created":
            _possible(body == {"version": VERSION})
        case "registered":
            _possible(row.account not in replay.accounts and body["taken"] == body["taken_delta"] == body["runs"] == 0)
            replay.accounts[row.account] = {**body, "terms": canonical(body["terms"])}
        case "granted":
            account = replay.accounts[row.account]
            _possible(body["cap"] >= account["cap"] and body["cap_delta"] >= account["cap_delta"])
            account.update(body, terms=canonical(body["terms"]))
        case "reserved":
            account = replay.accounts[row.account]
            _possible(where[1] == account["runs"])
            _move(account, int(body["reserved"]), int(body["reserved_delta"]))
            account["runs"] += 1
            entry = {"run_key": body["key"], "spent": None, "spent_delta": None, "events": None, "claimed": 0.0}
            same = {name: body[name] for name in ("owner", "terms", "reserved", "reserved_delta")}
            replay.runs[where] = {"account": where[0], "number": where[1], **entry, **same, "state": "reserved"}
        case "claimed":
            run = replay.runs[where]
            _possible(run["state"] == "reserved" and run["claimed"] == body["before"] != body["after"])
            run["claimed"] = float(body["after"])
        case "settled":
            run = replay.runs[where]
            _possible(run["state"] == "reserved" and body["state"] in ("spent", "failed"))
            _possible(0 <= body["spent"] <= run["reserved"] and 0 <= body["spent_delta"] <= run["reserved_delta"])
            back = (body["spent"] - run["reserved"], body["spent_delta"] - run["reserved_delta"])
            _move(replay.accounts[row.account], *back)
            run.update({name: body[name] for name in ("spent", "spent_delta", "state", "events")})
        case _:
            raise ValueError("unknown")


def _move(account: dict[str, Any], cost: int, delta: int) -> None:
    account["taken"] += cost
    account["taken_delta"] += delta
    _possible(0 <= account["taken"] <= account["cap"] and 0 <= account["taken_delta"] <= account["cap_delta"])


def _possible(holds: bool) -> None:
    """Raise for what cannot have happened."""
    if not holds:
        raise ValueError("it cannot have happened")


def _claims(rows: Iterable[HistoryRow]) -> dict[tuple[str, int | None], _Claim]:
    """What each run claimed at most, by the history, and the journal that it was settled with."""
    claims: dict[tuple[str, int | None], _Claim] = {}
    for row in rows:
        before = claims.get(where := (row.account, row.number), _Claim())
        with suppress(*BAD):  # a row that makes no sense was found by now
            body = json.loads(row.body)
            if row.kind == "claimed":
                claims[where] = replace(before, most=max(before.most, float(body["after"])))
            elif row.kind == "settled":
                claims[where] = replace(before, journal=body.get("journal"))
    return claims


def _prices(
    account: Any,
    runs: Iterable[Mapping[str, Any]],
    claims: Mapping[tuple[str, int | None], _Claim],
    shown: Mapping[str, Closed] | None,
) -> Iterator[str]:
    """Check every price of an account, computed anew from its terms and events."""
    terms = json.loads(account.terms)
    purse = Purse(Budget(terms["epsilon"], terms["delta"], terms["adjacency"]), filter_terms(terms))
    cap = Amount(**purse.terms["cap"])
    most = in_units(cap.cost, account.unit_cost), in_units(cap.delta, account.unit_delta)
    if account.cap > most[0] or account.cap_delta > most[1]:
        yield f"the account {account.name!r} has a larger cap than its budget gives"
    persons = account.unit == "person"
    for run in runs:
        if run["account"] != account.name:
            continue
        claim, entry = claims.get((account.name, run["number"]), _Claim()), entry_of(_Named(run), account)
        if text := _price(purse, entry, persons=persons) or _below_claim(purse, entry, claim, shown):
            yield f"run {run['number']} of the account {account.name!r} {text}"


def _below_claim(purse: Purse, entry: PurseEntry, claim: _Claim, shown: Mapping[str, Closed] | None) -> str:
    """Why a run cannot have taken less than it claimed; empty, where it can or did not. Its price was checked before."""
    if entry.spent is None:
        return ""
    promise = Budget(entry.terms["epsilon"], entry.terms["delta"], entry.terms["adjacency"])
    meter = meter_from(promise, entry.terms["meter"])
    replayed(meter, entry.events)
    if purse.settled(meter, entry.reserved, claim.most).within(entry.spent):
        return ""
    paid = leaves(list(entry.events)).total()
    match claim.journal:
        case {"head": str(head), "charged": int(charged), **rest} if (
            not rest and HEAD.fullmatch(head) and type(charged) is int and 1 <= charged <= paid
        ):
            there = Closed(head, meter.events) if shown is None else shown.get(head)
        case _:
            return "took less than it claimed, without a closed journal that shows why"
    if there is None:
        return "took less than it claimed, and its journal is not among those that were shown"
    if not purse.settled(meter, entry.reserved, claim.most, there).within(entry.spent):
        return "took less than it claimed, which its journal or its meter does not allow"
    return ""


def _price(purse: Purse, entry: PurseEntry, *, persons: bool) -> str:
    try:
        if entry.terms["adjacency"] != purse.budget.adjacency or entry.terms["what"].endswith(PERSONS) != persons:
            return "is under another relation, or protects another unit"
        promise = Budget(entry.terms["epsilon"], entry.terms["delta"], entry.terms["adjacency"])
        meter = meter_from(promise, entry.terms["meter"])
        if not any(most.within(entry.reserved) for most in purse.prices(meter)):
            return "reserved less than its terms cost"
        if entry.spent is None:
            return ""
        replayed(meter, entry.events)
        return "" if purse.settled(meter, entry.reserved).within(entry.spent) else "returned more than its events leave"
    except Exception as error:
        return f"cannot be priced ({type(error).__name__})"
