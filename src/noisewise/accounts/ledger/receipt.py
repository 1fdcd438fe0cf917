"""What one run took of an account: a receipt that its folder keeps, and whether the account has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...trusted.events import from_dict, leaves
from ..account import Account
from ..spending_file import PurseEntry, entry_from_dict, entry_to_dict
from .ledger import Ledger, Taken
from .store import new_run

FORMAT = "noisewise-receipt/1"
BAD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Payment:
    """One run and the account that pays for it. The keys of its rows begin alike, so that it finds them again."""

    ledger: Ledger
    account: Account
    run: str

    @classmethod
    def from_account(cls, ledger: Ledger, dataset: str, run: str | None = None) -> Payment:
        """A payment of a new run, or of one that is resumed."""
        run = run or new_run()
        return cls(ledger, ledger.account(dataset, run=run), run)

    @property
    def dataset(self) -> str:
        return self.account.dataset

    def entries(self) -> dict[int, PurseEntry]:
        """What it has taken so far, by number."""
        return {one.number: one.entry for one in self._taken()}

    def receipt(self) -> dict[str, Any]:
        """Plain data for the run's folder: its own rows alone, and not where the ledger lies."""
        entries = [{"number": one.number, "key": one.key, **entry_to_dict(one.entry)} for one in self._taken()]
        return {"format": FORMAT, "dataset": self.dataset, "entries": entries}

    def _taken(self) -> tuple[Taken, ...]:
        return self.ledger.taken_by(self.dataset, self.run)


def paid(ledger: Ledger, receipt: Any, statement: Mapping[str, Any], dataset: str | None = None) -> tuple[bool, str]:
    """Whether an account has paid for the run of this receipt and this statement, and in one line why, or why not."""
    try:
        numbers = tuple(_checked(ledger, receipt, statement, dataset))
    except _No as error:
        return False, str(error)
    except BAD:
        return False, "spending.json is no receipt that can be read"
    runs = f"run {numbers[0]}" if len(numbers) == 1 else f"runs {', '.join(map(str, numbers))}"
    return True, f"the account {receipt['dataset']!r} has paid for it as {runs}"


class _No(Exception):
    """Why it was not paid for."""


def _checked(ledger: Ledger, receipt: Any, statement: Mapping[str, Any], dataset: str | None) -> Iterator[int]:
    if not isinstance(receipt, Mapping) or receipt.get("format") != FORMAT:
        raise _No("the run has no receipt of a ledger: no account of one has paid for it")
    name, stated = receipt["dataset"], statement.get("account")
    if dataset is not None and name != dataset:
        raise _No(f"its receipt is of the account {name!r}, not of {dataset!r}")
    if stated is None or stated["dataset"] != name:
        raise _No(
            f"its receipt is of the account {name!r}, but the statement names {'none' if stated is None else 'another'}"
        )
    if name not in ledger.datasets():
        raise _No(f"the ledger has no account {name!r}")
    state, own = ledger.state(name), []
    for given in receipt["entries"]:
        number, key = int(given["number"]), given["key"]
        entry = entry_from_dict({field: value for field, value in given.items() if field not in ("number", "key")})
        if not 0 <= number < len(state.entries) or state.keys[number] != key:
            raise _No(f"the account {name!r} has no run {number} with the key of the receipt")
        if state.entries[number] != entry:
            raise _No(f"run {number} of the account {name!r} has other terms, amounts or events than the receipt")
        own.append(entry)
        yield number
    for what, promised in _stated(statement):
        events = leaves([from_dict(event) for event in promised["events"]])
        if not any(entry.terms["meter"] == promised["meter"] and leaves(entry.events) == events for entry in own):
            raise _No(f"none of its runs in the account {name!r} is the {what} that the statement tells of")


def _stated(statement: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the statement lists as paid for: the training, or the search that it was a part of, and bounds before it."""
    yield "training", statement
    if (before := statement.get("preparation")) is not None:
        yield "purchase of bounds", before
