"""Where spending is recorded: in memory, in a file, or in anything else with the protocol of :class:`PurseStore`; and a run's share.

A file ``spending.json`` holds one purse and a list of its runs, each with the same keys::

    {"terms":   {"epsilon", "delta", "adjacency",             what may be promised in all
                 "filter":  null, or {"name", "order", "one_shot_delta"},
                 "cap":     {"cost", "delta"}},               what may be spent: epsilons, or the filter's currency
     "entries": [{"terms":    {"what", "epsilon", "delta", "adjacency", "meter"},   ``meter`` as it describes itself
                  "reserved": {"cost", "delta"},              the most that the run may spend
                  "spent":    null, or {"cost", "delta", "events"},                 null until the run is settled
                  "state":    "reserved", "spent" or "failed",
                  "claimed":  0.0 to 1.0}]}                   how much of its part the run may have used by now

An entry counts as what it reserved until it is settled, and then as what it spent: a run that was killed stays charged
whole. A run that can be taken up again claims its part block by block before it draws; a claim says what it follows, so of
two processes that take up the same run only one gets the next block. A file that is not exactly of this shape is refused, never taken for an empty one.
"""

from __future__ import annotations

import json
import math
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..trusted import validate
from ..trusted.counts import BudgetExhausted, NotCopied
from ..trusted.events import Event, Leaf, from_dict, to_dict
from ..trusted.meter import Meter
from .atomic import locked, write_atomically

if TYPE_CHECKING:
    from .purse import Purse

STATES = ("reserved", "spent", "failed")
CLAIM_SHARE = 1 / 16  # of its share: what a run claims at a time, and what a crash can cost
UNUSED = math.ulp(0.0)  # the claim of a run that gives its share back whole, so that no other process can resume it
TAKEN_UP = "another process has taken up this run since; let that one finish: what is drawn is paid for once"


@dataclass(frozen=True, slots=True)
class Amount:
    """What a run reserves or spends: a cost in the purse's unit, and some of delta; finite floats, rounded up."""

    cost: float
    delta: float

    def __post_init__(self) -> None:
        for value in (self.cost, self.delta):
            if type(value) is not float or not 0 <= value < math.inf:
                raise ValueError(f"an amount is {value!r}; pass finite numbers >= 0")

    def within(self, other: Amount) -> bool:
        """Whether both the cost and the delta are at most those of the other amount."""
        return self.cost <= other.cost and self.delta <= other.delta


class Closed(NamedTuple):
    """The end of a finished journal: the hash of its last line, and every event that was charged, answered or not."""

    head: str
    events: Counter[Leaf]


@dataclass(frozen=True, slots=True)
class PurseEntry:
    """One run of a purse: its terms as plain data, the most that it may spend and, once it is settled, what it spent."""

    terms: Mapping[str, Any]
    reserved: Amount
    spent: Amount | None = None
    events: tuple[Event, ...] = ()
    state: str = "reserved"
    claimed: float = 0.0
    journal: Closed | None = field(
        default=None, compare=False
    )  # why a run takes less than it claimed; only a ledger keeps it

    def __post_init__(self) -> None:
        if type(self.claimed) is not float or not 0 <= self.claimed <= 1:
            raise ValueError(f"a run claimed {self.claimed!r} of its part; pass a share from 0.0 to 1.0")
        if self.state not in STATES or (self.spent is None) != (self.state == "reserved"):
            raise ValueError(f"a run in state {self.state!r} with spent {self.spent}; only reserved runs have none")
        if self.spent is not None and not self.spent.within(self.reserved):
            raise ValueError("a run spent more than it reserved")

    @property
    def counted(self) -> Amount:
        """What the run takes of the purse now."""
        return self.reserved if self.spent is None else self.spent

    def is_that_of(self, other: PurseEntry) -> bool:
        """Whether a requested run is this one, which is reserved and not settled."""
        return self.state == "reserved" and self.terms == other.terms and other.reserved.within(self.reserved)


Entries = tuple[PurseEntry, ...]


def left_of(cap: Amount, entries: Entries) -> tuple[Fraction, Fraction]:
    """What the runs leave of a cap, exactly."""
    counted = [entry.counted for entry in entries]
    cost = Fraction(cap.cost) - sum(Fraction(amount.cost) for amount in counted)
    return cost, Fraction(cap.delta) - sum(Fraction(amount.delta) for amount in counted)


class PurseStore(Protocol):
    """Keeps the runs of one purse. Each call is atomic, also against other processes, and durable when it returns."""

    def entries(self, terms: Mapping[str, Any]) -> Entries:
        """All runs so far; refused when the store belongs to a purse with other terms."""

    def reserve(self, terms: Mapping[str, Any], entry: PurseEntry) -> int:
        """Write down a run if the cap has room for all it reserves, and give it a number; else ``BudgetExhausted``."""

    def claim(self, terms: Mapping[str, Any], number: int, before: float, after: float) -> None:
        """Record that a reserved run may use its share up to ``after``; :class:`Claimed` if its claim is not ``before``.

        A run that stops in good order claims less than before: what it did use.
        """

    def settle(self, terms: Mapping[str, Any], number: int, settled: PurseEntry) -> None:
        """Replace a reserved run by the settled one; a run is settled once, by the process with the last claim."""

    def left(self, terms: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
        """What is neither spent nor reserved, exactly: of the cost, and of delta."""


class Claimed(RuntimeError):
    """Another process has taken up the same run since; what is drawn is paid for by that one alone."""


class _Kept(ABC):
    """A store on top of ``_change``, which edits all runs in one atomic step."""

    @abstractmethod
    def _change(self, terms: Mapping[str, Any], edit: Callable[[Entries], Entries]) -> Entries: ...

    def entries(self, terms: Mapping[str, Any]) -> Entries:
        return self._change(terms, lambda entries: entries)

    def reserve(self, terms: Mapping[str, Any], entry: PurseEntry) -> int:
        def edit(entries: Entries) -> Entries:
            cost, delta = left_of(Amount(**terms["cap"]), entries)
            if entry.reserved.cost > cost or entry.reserved.delta > delta:
                raise BudgetExhausted(
                    f"the run reserves {entry.reserved.cost:.6g} and delta {entry.reserved.delta:.3g}, but "
                    f"{float(cost):.6g} and {float(delta):.3g} are left of the purse; ask for less"
                )
            return (*entries, entry)

        return len(self._change(terms, edit)) - 1

    def claim(self, terms: Mapping[str, Any], number: int, before: float, after: float) -> None:
        def edit(entries: Entries) -> Entries:
            here = entries[number] if number < len(entries) else None
            if here is None or here.state != "reserved" or here.claimed != before or before == after:
                raise Claimed(TAKEN_UP)
            return (*entries[:number], replace(here, claimed=after), *entries[number + 1 :])

        self._change(terms, edit)

    def left(self, terms: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
        return left_of(Amount(**terms["cap"]), self.entries(terms))

    def settle(self, terms: Mapping[str, Any], number: int, settled: PurseEntry) -> None:
        def edit(entries: Entries) -> Entries:
            if number >= len(entries) or not entries[number].is_that_of(settled):
                raise ValueError(f"run {number} is not reserved as it should be; it may have been settled before")
            if entries[number].claimed != settled.claimed:
                raise Claimed(TAKEN_UP)
            return (*entries[:number], settled, *entries[number + 1 :])

        self._change(terms, edit)


class MemoryStore(_Kept):
    """Keeps runs in memory: the purse is forgotten with the process."""

    def __init__(self) -> None:
        self._lock, self._entries = threading.Lock(), Entries()

    def _change(self, terms: Mapping[str, Any], edit: Callable[[Entries], Entries]) -> Entries:
        with self._lock:
            self._entries = edit(self._entries)
            return self._entries


class SpendingFile(_Kept):
    """One file, ``spending.json``: locked while it is changed, and replaced as a whole or not at all.

    *Guarantee*: what :meth:`reserve` wrote is on the disk when it returns (the file and its folder are synced), and two
    processes never both reserve the last of a budget. Killed at any moment, the file is the old one or the new one.
    """

    def __init__(self, path: str | os.PathLike[str], *, drafts: Path | None = None) -> None:
        self.path, self._drafts = Path(path), drafts

    def _change(self, terms: Mapping[str, Any], edit: Callable[[Entries], Entries]) -> Entries:
        lock = self.path.with_name(f"{self.path.name}.lock")  # beside the file, and never replaced
        with locked(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)):
            entries = self._read(terms)
            changed = edit(entries)
            if changed is not entries:
                document = {"terms": terms, "entries": [entry_to_dict(entry) for entry in changed]}
                content = json.dumps(document, indent=1).encode() + b"\n"
                write_atomically(self.path, content, durable=True, drafts=self._drafts)
            return changed

    def _read(self, terms: Mapping[str, Any]) -> Entries:
        try:
            with open(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as stream:
                document = json.load(stream)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(type(error).__name__) from None
        try:
            _exactly(document, ("terms", "entries"), "the document")
            entries = tuple(entry_from_dict(entry) for entry in document["entries"])
            cap = Amount(**document["terms"]["cap"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged(str(error)) from None
        if min(left_of(cap, entries)) < 0:
            raise self._damaged("its runs take more than the cap")
        if document["terms"] != json.loads(json.dumps(terms)):
            raise ValueError(f"{self.path} belongs to a purse with other terms; pass the same ones, or another file")
        return entries

    def _damaged(self, why: str) -> ValueError:
        return ValueError(
            f"{self.path} is not a spending file that can be read ({why}); nothing can be spent until it is restored: "
            "bring back a copy, do not delete it, for it says what was spent"
        )


def entry_to_dict(entry: PurseEntry) -> dict[str, Any]:
    """A run as plain data for the file."""

    def amount(value: Amount) -> dict[str, float]:
        return {"cost": value.cost, "delta": value.delta}

    spent = entry.spent and {**amount(entry.spent), "events": [to_dict(event) for event in entry.events]}
    kept = {"terms": dict(entry.terms), "reserved": amount(entry.reserved), "spent": spent, "state": entry.state}
    return {**kept, "claimed": entry.claimed}


def entry_from_dict(data: Any) -> PurseEntry:
    """The inverse of :func:`entry_to_dict`; ValueError for anything else."""
    claimed = data.get("claimed", 0.0) if isinstance(data, dict) else 0.0  # older files have none
    data = {name: value for name, value in data.items() if name != "claimed"} if isinstance(data, dict) else data
    _exactly(data, ("terms", "reserved", "spent", "state"), "a run")
    check_terms(data["terms"])
    _exactly(data["reserved"], ("cost", "delta"), "reserved")
    entry = PurseEntry(data["terms"], Amount(**data["reserved"]), claimed=claimed)
    if (spent := data["spent"]) is not None:
        _exactly(spent, ("cost", "delta", "events"), "spent")
        events = tuple(from_dict(event) for event in spent["events"])
        entry = replace(entry, spent=Amount(spent["cost"], spent["delta"]), events=events, state=data["state"])
    if entry.state != data["state"]:
        raise ValueError(f"a run in state {data['state']!r} has no spent")
    return entry


def check_terms(terms: Any) -> None:
    """Refuse anything but the terms of a run."""
    _exactly(terms, ("what", "epsilon", "delta", "adjacency", "meter"), "its terms")
    if type(terms["what"]) is not str:
        raise ValueError("a run has no name")


def _exactly(data: Any, keys: tuple[str, ...], what: str) -> None:
    if not isinstance(data, dict) or set(data) != set(keys):
        raise ValueError(f"{what} should have exactly {', '.join(keys)}")


class PurseShare:
    """A run's share of a purse: ``meter`` pays until the run is settled, which leaving the ``with`` block does."""

    __slots__ = ("_claimed", "_entry", "_most", "_number", "_purse", "_unknown", "meter")

    def __init__(
        self, purse: Purse, number: int, entry: PurseEntry, meter: Meter, claimed: float = 0.0, *, unknown: bool = False
    ) -> None:
        self._purse, self._number, self._entry, self.meter, self._claimed = purse, number, entry, meter, claimed
        self._most = claimed  # the largest claim that this process knows of
        self._unknown = unknown  # whether another process may have used, or may still use, some of it

    @property
    def number(self) -> int:
        """The number of the run in the purse."""
        return self._number

    @property
    def claimed(self) -> float:
        """How much of the share was claimed so far, here or by an earlier process of the run."""
        return self._claimed

    def claim(self, share: float) -> None:
        """Record durably, before anything is drawn, that the meter may be used up to this share.

        Of several processes that took up one run only one gets any block: :class:`~.store.Claimed` for the others.
        """
        self._purse._claim(self._number, self._claimed, float(share))
        self._claimed, self._most = float(share), max(self._most, float(share))

    def known(self) -> None:
        """Declare that a journal has, or will have, charged the meter with all that earlier processes may have used."""
        self._unknown = False

    def settle(self, state: str = "spent", *, journal: Closed | None = None) -> None:
        """Close the meter and record what it paid for; ``state`` is "spent", or "failed" for a run without a model.

        ``journal``: the end of the run's journal, for what it claimed and did not use to come back.
        """
        validate.one_of(("spent", "failed"), state=state)
        if self._unknown and not self.meter.closed:
            self.meter.forfeit(1.0)
        self._purse._settle(self._number, self._entry, self.meter, state, (self._claimed, self._most), journal)

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = (
        NotCopied._refuse
    )  # a copy would not know of later claims

    def __enter__(self) -> PurseShare:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if not self.meter.closed:
            self.settle("spent" if kind is None else "failed")
