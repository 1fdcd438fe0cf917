"""An account as people look at it: a line for each run, with what it took of what was granted and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .ledger import AccountState, Ledger
from .sql_tables import HistoryRow


@dataclass(frozen=True)
class AccountLine:
    """One run of an account. Shares are of what was granted: of the currency, and of the part of delta for promises."""

    number: int
    what: str
    epsilon: float
    delta: float
    share: float
    delta_share: float
    state: str
    owner: str
    when: str
    key: str


def lines_of(ledger: Ledger, dataset: str) -> tuple[AccountState, tuple[AccountLine, ...]]:
    """How an account stands, and its runs in order."""
    state = ledger.state(dataset)
    began = {row.number: row.at for row in ledger.history(dataset) if row.kind == "reserved"}
    granted, lines = state.granted, []
    for number, (entry, key, owner) in enumerate(zip(state.entries, state.keys, state.owners, strict=True)):
        told, counted = entry.terms, entry.counted
        lines.append(
            AccountLine(
                number,
                str(told["what"]),
                float(told["epsilon"]),
                float(told["delta"]),
                counted.cost / granted.cost,
                counted.delta / granted.delta if granted.delta else 0.0,
                entry.state,
                owner,
                str(began.get(number, "")),
                key,
            )
        )
    return state, tuple(lines)


def told(row: HistoryRow) -> dict[str, Any]:
    """A row of the history as plain data, with its body read."""
    body = json.loads(row.body)
    for name in ("terms", "events"):
        if isinstance(body.get(name), str):
            body[name] = json.loads(body[name])
    return {**row._asdict(), "body": body}


def in_words(row: HistoryRow) -> str:
    """What happened, in one line."""
    body: Mapping[str, Any] = told(row)["body"]
    run = f"run {row.number} of {row.account!r}"
    match row.kind:
        case "registered" | "granted":
            terms = body["terms"]
            return f"{row.kind} {row.account!r}: ({terms['epsilon']:g}, {terms['delta']:g}), {terms['adjacency']}"
        case "reserved":
            terms = body["terms"]
            return f"{run} reserved by {body['owner']}: {terms['what']} for ({terms['epsilon']:g}, {terms['delta']:g})"
        case "claimed":
            return f"{run} may use up to {body['after']:.1%} of its part"
        case "settled":
            return f"{run} settled as {body['state']}"
    return f"the ledger was made, version {body['version']}"
