"""Where commands write down what they may spend, before a record is touched: a file beside what they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .main import errors

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
            (folder / "spending.json").write_bytes(self.path.read_bytes())


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
    path, number = place.with_name(f"{place.name}.spending.json"), 2
    while path.exists():
        path, number = place.with_name(f"{place.name}.spending-{number}.json"), number + 1
    purse = Purse(budget, store=path)
    kept = False
    try:
        yield Spending(purse, path)
    except BaseException:
        if kept := any(entry.counted.cost for entry in purse.entries):
            errors.print(
                f"noisewise: stopped; what was spent is written to {path}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        raise
    finally:
        _tidy(path, made, kept)


def _tidy(path: Path, made: list[Path], kept: bool) -> None:
    """Remove what nobody needs: the lock, the file when its content is elsewhere or nothing was spent, empty folders."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if not kept:
        path.unlink(missing_ok=True)
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
