"""Where commands write down what they may spend, before a record is touched: a file beside what they make, or a ledger."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ...accounts.atomic import read_plain, write_atomically
from .main import say

if TYPE_CHECKING:
    from ...accounts import Budget
    from ...accounts.account import Account
    from ...accounts.ledger.receipt import Payment
    from ...accounts.purse import Purse
    from ...accounts.store import PurseEntry


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
