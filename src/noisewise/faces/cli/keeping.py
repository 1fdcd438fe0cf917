"""What commands keep beside their output until it is complete: what was spent and, for ``noisewise train``, a journal to resume from.

``<out>.journal/`` holds the options of the run (settings.json), the bounds that were bought (bounds.json), the released answers,
drafts of files, and a lock that the running process holds.
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
    from ...accounts.spending_file import PurseEntry
    from ...tables.fit.fit import Fit
    from ...tables.resolve import Resolved

BOUNDS = "bounds.json"
DRAFT = "draft"
LOST_BOUNDS = (
    "the bounds of this run were paid for and lost when it was stopped; what {} says stays spent. Start anew with another --out, "
    "which takes a budget of its own"
)
MISSING = "{}: does not say what the run in {} has spent; bring the file back that was beside it, without it nothing can be asked"


@dataclass(frozen=True)
class Spending:
    """A purse, with the file that it writes or the account that pays; a simulation spends nothing and has neither."""

    purse: Purse | Account
    path: Path | None
    payment: Payment | None = None

    @property
    def where(self) -> str:
        """Where the spending is recorded, in words."""
        return str(self.path) if self.payment is None else f"the account {self.payment.dataset!r}"

    def entries(self) -> dict[int, PurseEntry]:
        """The entries of this run, by their number in the purse."""
        return dict(enumerate(self.purse.entries)) if self.payment is None else self.payment.entries()

    @property
    def counts(self) -> bool:
        """Whether something was spent, or may have been because the entries cannot be read."""
        try:
            return any(entry.counted.cost for entry in self.entries().values())
        except (OSError, ValueError):
            return True

    def into(self, folder: Path) -> None:
        """Write ``spending.json`` to a folder: a copy of the spending file, or a receipt of the account."""
        if self.payment is not None:
            content = json.dumps(self.payment.receipt(), indent=1).encode() + b"\n"
        elif self.path is not None:
            content = read_plain(self.path)
        else:
            return
        write_atomically(folder / "spending.json", content, durable=True)


@contextmanager
def spending(place: Path, budget: Budget, *, simulation: bool, payment: Payment | None = None) -> Iterator[Spending]:
    """A purse that records its spending in ``<place>.spending.json``, or an account that pays.

    The file is removed when the block ends well. It stays where something was spent and the block failed: whenever the process is
    killed, the file lists at least what was released.
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
    kept = True  # until it is known that nothing was spent, or that the run folder has a copy
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
    """A spending file that no other process writes or removes: it belongs to the process that made the lock beside it."""
    for path in _names(place):
        lock = _lock(path)
        with suppress(FileExistsError):
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o666))
            if not os.path.lexists(path):
                return path
            lock.unlink()
    raise AssertionError("numbers have no end")


def free_name(place: Path) -> Path:
    """The first unused name of a spending file, for a run whose lock is elsewhere."""
    return next(path for path in _names(place) if not os.path.lexists(path) and not os.path.lexists(_lock(path)))


def _names(place: Path) -> Iterator[Path]:
    for number in count(1):
        yield place.with_name(f"{place.name}.spending{'' if number == 1 else f'-{number}'}.json")


def _lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def tidy(path: Path | None, made: list[Path], kept: bool) -> None:
    """Remove the lock and, unless ``kept``, the spending file and the folders that were made for it, if they are empty."""
    if path is not None:
        if not kept:
            path.unlink(missing_ok=True)
        _lock(path).unlink(missing_ok=True)
    if not kept:
        for parent in made:
            with suppress(OSError):
                parent.rmdir()


def journal_of(place: Path) -> Path:
    """The folder of the journal of a run whose output is ``place``."""
    return place.with_name(f"{place.name}.journal")


def refuse_stopped(place: Path) -> None:
    """Refuse to start a run where another one was stopped, or is running."""
    if not os.path.lexists(journal_of(place)):
        return
    from ...accounts.journal import settings_in

    if settings_in(journal_of(place)) is not None:
        raise ValueError(
            f"{journal_of(place)} holds a run that was stopped or is running; `noisewise train --resume {shlex.quote(str(place))}` "
            "goes on with it. Pass another --out to start anew, which takes a budget of its own"
        )


def settings_for(asked: TrainingOptions, place: Path, fit: Fit, spent: str | dict[str, Any]) -> dict[str, Any]:
    """The settings of a journal, as plain data; ``spent`` is the name of the spending file, or names the account that pays."""
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
    """Digests of public files, so that a change is noticed. Private files are never compared."""
    return {str(path.absolute()): sha256(path.read_bytes()).hexdigest() for path in asked.declarations}


@dataclass(frozen=True)
class KeptRun(Spending):
    """The spending of a run and its journal; ``journal`` is None for a run that cannot be resumed."""

    journal: Journal | None = None
    folder: Path | None = None

    def bounds(self, resolved: Resolved) -> Resolved | None:
        """``resolved`` with the bounds that an earlier process of this run bought; None if it bought none."""
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
        """Record the bounds that were bought, which are released facts, before they are used."""
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
        """Also write the journal where an account pays: it proves why the run took less than it claimed."""
        super().into(folder)
        if self.payment is not None and self.folder is not None:
            from ...accounts.journal import LINES

            write_atomically(folder / LINES, read_plain(self.folder / LINES), durable=True, private=True)

    @property
    def draft(self) -> Path | None:
        """An empty folder in which the output is prepared; what an earlier process left there is removed."""
        if self.folder is None:
            return None
        shutil.rmtree(self.folder / DRAFT, ignore_errors=True)
        return self.folder / DRAFT


@contextmanager
def keeping(
    place: Path, budget: Budget, settings: Mapping[str, Any] | None, *, simulation: bool, payment: Payment | None = None
) -> Iterator[KeptRun]:
    """The purse of a run and its journal, both of which are removed when the run is complete.

    ``settings`` are those of the journal; without them no journal is kept. ``payment`` is the account that pays instead of a
    spending file. Where the run stops after something was spent, both stay. A second process that takes up the same run is
    refused.
    """
    if settings is None or simulation:
        with spending(place, budget, simulation=simulation, payment=payment) as spent:
            yield KeptRun(spent.purse, spent.path, spent.payment)
        return
    from ...accounts.journal import Running
    from ...accounts.spending_file import Claimed

    made = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield from _keeping(place, budget, settings, made, payment)
    except (Running, Claimed) as error:  # somebody else's run: it is left as it is
        raise ValueError(str(error)) from None


def _keeping(
    place: Path, budget: Budget, settings: Mapping[str, Any], made: list[Path], payment: Payment | None
) -> Iterator[KeptRun]:
    from ...accounts.journal import Journal
    from ...accounts.spending_file import Claimed

    folder = journal_of(place)
    journal = Journal(folder, settings)
    try:
        spent = _spending(place, budget, settings, payment)
        _take_up(journal, spent, folder)
        try:
            yield KeptRun(spent.purse, spent.path, spent.payment, journal, folder)
        except Claimed:
            raise
        except BaseException as error:
            _stopped(place, journal, spent, made, error, settings)
            raise
        remove(folder)
        tidy(spent.path, made, kept=False)
    finally:
        journal.close()


def _spending(place: Path, budget: Budget, settings: Mapping[str, Any], payment: Payment | None) -> Spending:
    from ...accounts.purse import Purse
    from ...accounts.spending_file import SpendingFile

    if payment is not None:
        return Spending(payment.account, None, payment)
    path = place.with_name(settings["spending"])
    return Spending(Purse(budget, store=SpendingFile(path, drafts=journal_of(place))), path)


def _take_up(journal: Journal, spent: Spending, folder: Path) -> None:
    """Find the share of the purse that an earlier process of this run reserved for the training."""
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
            journal.adopt(NOBODY)  # the process was killed before it could record that


def _trains(entry: PurseEntry) -> bool:
    from ...accounts.account import PERSONS
    from ...accounts.journal import WHAT

    return entry.terms["what"] in (WHAT, f"{WHAT}{PERSONS}")


def _stopped(
    place: Path, journal: Journal, spent: Spending, made: list[Path], error: BaseException, settings: Mapping[str, Any]
) -> None:
    """Report what a stopped run has left and how to resume it; remove the rest."""
    from ...train import NothingLeft

    folder = journal_of(place)
    kept = spent.counts or journal.touched
    goes_on = kept and _goes_on(folder, spent)
    if not goes_on:
        remove(folder)
    tidy(spent.path, made, kept if spent.payment is None else goes_on)
    command = "train" if settings["asked"]["clients"] is None else "federated server"
    hint = f"; `noisewise {command} --resume {shlex.quote(str(place))}` goes on"
    if kept:
        say(
            f"stopped; what was spent is written to {spent.where}{hint if goes_on and not isinstance(error, NothingLeft) else ''}"
        )


def _goes_on(folder: Path, spent: Spending) -> bool:
    """Whether something was released that a later process can resume from; lost bounds do not count."""
    with suppress(OSError, ValueError):
        return (folder / BOUNDS).exists() or any(map(_trains, spent.entries().values()))
    return True


def remove(folder: Path) -> None:
    """Remove a journal, its settings first: what is left after an interruption is not taken for a run."""
    with suppress(OSError):
        (folder / "settings.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
