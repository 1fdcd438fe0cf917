"""Where commands write down what they may spend, before a record is touched: a file beside what they make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic import write_atomically
from .main import say

if TYPE_CHECKING:
    from ..budget import Budget
    from ..budget.purse import Purse


@dataclass(frozen=True)
class Spending:
    """A purse, and the file that it writes; None for a simulation, which spends nothing."""

    purse: Purse
    path: Path | None

    def into(self, folder: Path) -> None:
        """Put what was spent into a folder as ``spending.json``."""
        if self.path is not None:
            write_atomically(folder / "spending.json", self.path.read_bytes(), durable=True)


@contextmanager
def spending(place: Path, budget: Budget, *, simulation: bool) -> Iterator[Spending]:
    """A purse that is written to ``<place>.spending.json`` until all is done, and stays there when something was spent
    and the rest failed: killed at any moment, the file says at least what was released.
    """
    from ..budget.purse import Purse

    if simulation:
        yield Spending(Purse(budget), None)
        return
    made = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    path = _own(place)
    purse = Purse(budget, store=path)
    kept = True  # unless it is known that nobody needs it
    try:
        yield Spending(purse, path)
        kept = False
    except BaseException:
        if kept := counts(purse):
            say(f"stopped; what was spent is written to {path}")
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


def counts(purse: Purse) -> bool:
    """Whether something was spent, or may have been: a file that cannot be read stays."""
    try:
        return any(entry.counted.cost for entry in purse.entries)
    except (OSError, ValueError):
        return True


def tidy(path: Path, made: list[Path], kept: bool) -> None:
    """Remove what nobody needs: the lock, the file when its content is elsewhere or nothing was spent, empty folders."""
    if not kept:
        path.unlink(missing_ok=True)
    _lock(path).unlink(missing_ok=True)
    if not kept:
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
