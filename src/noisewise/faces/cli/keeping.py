"""What ``noisewise train`` keeps beside --out until the run is whole: what was spent, and a journal to go on from.

``<out>.journal/`` holds what was asked (settings.json), bounds that were bought (bounds.json), released answers, the drafts of
files that are being written, and a lock, which the process that runs holds.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._version import __version__
from ...accounts.atomic import read_plain, write_atomically
from .main import say
from .request import TrainingOptions

if TYPE_CHECKING:
    from ...accounts import Budget
    from ...accounts.account import Account
    from ...accounts.journal import Journal
    from ...accounts.ledger.receipt import Payment
    from ...accounts.purse import Purse
    from ...accounts.store import PurseEntry
    from ...tables.fit.fit import Fit
    from ...tables.resolve import Resolved


@dataclass(frozen=True)
class Spending:
    """A purse, and the file that it writes or the account that it is; neither for a simulation, which spends nothing."""

    purse: Purse | Account
    path: Path | None
    payment: Payment | None = None

    @property
    def where(self) -> str:
        """Where it is written down, in words."""
        return str(self.path) if self.payment is None else f"the account {self.payment.dataset!r}"

    def entries(self) -> dict[int, PurseEntry]:
        """What this run took, by number."""
        return dict(enumerate(self.purse.entries)) if self.payment is None else self.payment.entries()

    @property
    def counts(self) -> bool:
        """Whether something was spent, or may have been: what cannot be read stays."""
        try:
            return any(entry.counted.cost for entry in self.entries().values())
        except (OSError, ValueError):
            return True

    def into(self, folder: Path) -> None:
        """Put what was spent into a folder as ``spending.json``: a copy of the file, or a receipt of the account."""
        if self.payment is not None:
            content = json.dumps(self.payment.receipt(), indent=1).encode() + b"\n"
        elif self.path is not None:
            content = read_plain(self.path)
        else:
            return
        write_atomically(folder / "spending.json", content, durable=True)


@contextmanager
def spending(place: Path, budget: Budget, *, simulation: bool, payment: Payment | None = None) -> Iterator[Spending]:
    """A purse that is written to ``<place>.spending.json`` until all is done, and stays there when something was spent
    and the rest failed: killed at any moment, the file says at least what was released. Or an account, which stays anyway.
    """
    from ...accounts.purse import Purse

    if simulation:
        yield Spending(Purse(budget), None)
        return
    if payment is not None:
        spent = Spending(payment.account, None, payment)
        try:
            yield spent
        except BaseException:
            if spent.counts:
                say(f"stopped; what was spent is written to {spent.where}")
            raise
        return
    made = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    path = _own(place)
    spent = Spending(Purse(budget, store=path), path)
    kept = True  # unless it is known that nobody needs it
    try:
        yield spent
        kept = False
    except BaseException:
        if kept := spent.counts:
            say(f"stopped; what was spent is written to {spent.where}")
        raise
    finally:
        tidy(path, made, kept)


def _own(place: Path) -> Path:
    """A file that no other process writes, nor tidies away: whoever made the lock beside it has it."""
    for path in _names(place):
        lock = _lock(path)
        with suppress(FileExistsError):
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o666))
            if not os.path.lexists(path):
                return path
            lock.unlink()
    raise AssertionError("numbers have no end")


def free_name(place: Path) -> Path:
    """The first such file that nobody has, for who holds a lock elsewhere."""
    return next(path for path in _names(place) if not os.path.lexists(path) and not os.path.lexists(_lock(path)))


def _names(place: Path) -> Iterator[Path]:
    for number in count(1):
        yield place.with_name(f"{place.name}.spending{'' if number == 1 else f'-{number}'}.json")


def _lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def tidy(path: Path | None, made: list[Path], kept: bool) -> None:
    """Remove what nobody needs: the lock, the file when its content is elsewhere or nothing was spent, empty folders."""
    if path is not None:
        if not kept:
            path.unlink(missing_ok=True)
        _lock(path).unlink(missing_ok=True)
    if not kept:
        for parent in made:
            with suppress(OSError):
                parent.rmdir()


BOUNDS = "bounds.json"
DRAFT = "draft"
LOST_BOUNDS = (
    "the bounds of this run were paid for and lost when it was stopped; what {} says stays spent. Start anew with another --out, "
    "which takes a budget of its own"
)
MISSING = "{}: does not say what the run in {} has spent; bring the file back that was beside it, without it nothing can be asked"


def journal_of(place: Path) -> Path:
    """The folder of the journal of a run that is to be written to ``place``."""
    return place.with_name(f"{place.name}.journal")


def refuse_stopped(place: Path) -> None:
    """Refuse to start anew where a run was stopped, or is running."""
    if not os.path.lexists(journal_of(place)):
        return
    from ...accounts.journal import settings_in

    if settings_in(journal_of(place)) is not None:
        raise ValueError(
            f"{journal_of(place)} holds a run that was stopped or is running; `noisewise train --resume {shlex.quote(str(place))}` "
            "goes on with it. Pass another --out to start anew, which takes a budget of its own"
        )


def settings_for(asked: TrainingOptions, place: Path, fit: Fit, spent: str | dict[str, Any]) -> dict[str, Any]:
    """Of which run a journal is, as plain data; ``spent``: the name of the file that says what was spent, or the account."""
    from ...tables.fit.build import plain_values

    return {
        "noisewise": __version__,
        "run": str(place.absolute()),
        "spending": spent,
        "asked": asked.to_dict(),
        "declared": digests(asked),
        "method": fit.method.name,
        "settings": plain_values(fit.method.settings()),
    }


def digests(asked: TrainingOptions) -> dict[str, str]:
    """What public files say, so that a change is noticed. Private files are never compared."""
    return {str(path.absolute()): sha256(path.read_bytes()).hexdigest() for path in asked.declarations}


@dataclass(frozen=True)
class KeptRun(Spending):
    """What was spent, and the journal; None where a run keeps none."""

    journal: Journal | None = None
    folder: Path | None = None

    def bounds(self, resolved: Resolved) -> Resolved | None:
        """The same with the bounds that an earlier process of this run has bought; None where it had bought none."""
        if self.folder is None:
            return None
        entries = [entry for entry in self.entries().values() if entry.counted.cost]
        if not (self.folder / BOUNDS).exists():
            if entries:
                raise ValueError(LOST_BOUNDS.format(self.where))
            return None
        from ...tables.schema import Schema

        try:
            there = json.loads((self.folder / BOUNDS).read_bytes())
            paid = dict(there["preparation"])
            schema, words, asked = Schema.from_dict(there["schema"]), str(there["words"]), there["settings"]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            raise ValueError(f"{self.folder / BOUNDS}: cannot be read; bring it back as it was") from None
        same = ("epsilon", "delta", "meter")
        assert self.journal is not None
        if asked != self.journal.digest:
            raise ValueError(f"{self.folder}: its settings are not those that bounds were bought for; bring them back")
        if not any(all(entry.terms[name] == paid.get(name) for name in same) for entry in entries):
            raise ValueError(MISSING.format(self.where, self.folder))
        return replace(resolved, schema=schema, words=words, preparation=paid, purchase=None)

    def keep_bounds(self, resolved: Resolved) -> None:
        """Write down the bounds that were bought, which are released facts, before anything is made of them."""
        if self.folder is not None:
            assert self.journal is not None
            document = {
                "settings": self.journal.digest,
                "schema": resolved.schema.to_dict(),
                "words": resolved.words,
                "preparation": resolved.preparation,
            }
            write_atomically(self.folder / BOUNDS, json.dumps(document, indent=1).encode(), durable=True)

    def into(self, folder: Path) -> None:
        """Also the journal, where an account pays: it shows why a run took less than it claimed."""
        super().into(folder)
        if self.payment is not None and self.folder is not None:
            from ...accounts.journal import LINES

            write_atomically(folder / LINES, read_plain(self.folder / LINES), durable=True, private=True)

    @property
    def draft(self) -> Path | None:
        """Where the run folder is filled; what an earlier process left there is gone."""
        if self.folder is None:
            return None
        shutil.rmtree(self.folder / DRAFT, ignore_errors=True)
        return self.folder / DRAFT


@contextmanager
def keeping(
    place: Path, budget: Budget, said: Mapping[str, Any] | None, *, simulation: bool, payment: Payment | None = None
) -> Iterator[KeptRun]:
    """The purse of a run and, where ``said`` says of which run it is, its journal, until the run is whole.

    ``payment``: the account that is the purse, instead of a file.

    Stopped after something was spent, both stay; the second process that wants the same run is told so.
    """
    if said is None or simulation:
        with spending(place, budget, simulation=simulation, payment=payment) as spent:
            yield KeptRun(spent.purse, spent.path, spent.payment)
        return
    from ...accounts.journal import Running
    from ...accounts.store import Claimed

    made = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield from _keeping(place, budget, said, made, payment)
    except (Running, Claimed) as error:  # somebody else's run: it is left as it is
        raise ValueError(str(error)) from None


def _keeping(
    place: Path, budget: Budget, said: Mapping[str, Any], made: list[Path], payment: Payment | None
) -> Iterator[KeptRun]:
    from ...accounts.journal import Journal
    from ...accounts.store import Claimed

    folder = journal_of(place)
    journal = Journal(folder, said)
    try:
        spent = _spending(place, budget, said, payment)
        _take_up(journal, spent, folder)
        try:
            yield KeptRun(spent.purse, spent.path, spent.payment, journal, folder)
        except Claimed:
            raise
        except BaseException as error:
            _stopped(place, journal, spent, made, error, said)
            raise
        remove(folder)
        tidy(spent.path, made, kept=False)
    finally:
        journal.close()


def _spending(place: Path, budget: Budget, said: Mapping[str, Any], payment: Payment | None) -> Spending:
    from ...accounts.purse import Purse
    from ...accounts.store import SpendingFile

    if payment is not None:
        return Spending(payment.account, None, payment)
    path = place.with_name(said["spending"])
    return Spending(Purse(budget, store=SpendingFile(path, drafts=journal_of(place))), path)


def _take_up(journal: Journal, spent: Spending, folder: Path) -> None:
    """Find the part of the purse that pays for the training, where an earlier process has reserved it."""
    from ...accounts.journal import NOBODY

    entries = spent.entries()
    if journal.claim is None:
        for number, entry in entries.items():
            if _trains(entry):
                journal.adopt(number)
    elif journal.claim >= 0 and journal.claim not in entries:
        raise ValueError(MISSING.format(spent.where, folder))
    if journal.claim is not None and journal.claim >= 0 and not journal.touched:
        given_back = entries[journal.claim]
        if given_back.state == "failed" and not given_back.counted.cost:
            journal.adopt(NOBODY)  # which was not written down any more


def _trains(entry: PurseEntry) -> bool:
    from ...accounts.account import PERSONS
    from ...accounts.journal import WHAT

    return entry.terms["what"] in (WHAT, f"{WHAT}{PERSONS}")


def _stopped(
    place: Path, journal: Journal, spent: Spending, made: list[Path], error: BaseException, said: Mapping[str, Any]
) -> None:
    """Say what is left of a run that was stopped, and how to go on; remove what nobody needs."""
    from ...train import NothingLeft

    folder = journal_of(place)
    kept = spent.counts or journal.touched
    goes_on = kept and _goes_on(folder, spent)
    if not goes_on:
        remove(folder)
    tidy(spent.path, made, kept if spent.payment is None else goes_on)
    command = "train" if said["asked"]["clients"] is None else "federated server"
    hint = f"; `noisewise {command} --resume {shlex.quote(str(place))}` goes on"
    if kept:
        say(
            f"stopped; what was spent is written to {spent.where}{hint if goes_on and not isinstance(error, NothingLeft) else ''}"
        )


def _goes_on(folder: Path, spent: Spending) -> bool:
    """Whether something was released that a further process can go on from: bounds that were lost are nothing."""
    with suppress(OSError, ValueError):
        return (folder / BOUNDS).exists() or any(map(_trains, spent.entries().values()))
    return True


def remove(folder: Path) -> None:
    """Remove a journal. What is left when this is interrupted is no run any more."""
    with suppress(OSError):
        (folder / "settings.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
