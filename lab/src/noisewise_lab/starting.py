"""How long commands take from a fresh process to their answer, in processor seconds of that process and its children, and
the most memory that the process holds.

Each is run in turns and the least of the runs counts: what other programs of the machine do can only slow one down. Modules
and kernels were compiled by a run before, as after the first use of an installed package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROWS = 40_000
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
ALIKE = ("census.csv", "--schema", "schema.toml")  # what is trained on


class Cost(NamedTuple):
    """What a process took: processor seconds, its children's included, and the most memory that it held.

    The system counts memory of the process that started it, too, until it begins: no figure is below that.
    """

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Start:
    """A command, what it should take at most, and whether it is to be refused."""

    name: str
    arguments: tuple[str, ...]
    goal: float
    refused: bool = False

    def cost(self, folder: Path, number: int) -> Cost:
        """Of one fresh process; ``number`` tells the runs of a command apart."""
        words = [word.format(number=number) for word in self.arguments]
        with tempfile.TemporaryFile("w+") as said:
            started = subprocess.Popen(
                [sys.executable, "-m", "noisewise", *words],
                cwd=folder,
                env=plain_environment(),
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            _, status, used = os.wait4(started.pid, 0)
            started.returncode = os.waitstatus_to_exitcode(status)
            if started.returncode != (2 if self.refused else 0):
                said.seek(0)
                raise RuntimeError(
                    f"noisewise {' '.join(words)} ended with {started.returncode}: {said.read().strip()}"
                )
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


STARTS = (
    Start("--help", ("--help",), 1.0),
    Start("train --epsilon -1", ("train", *ALIKE, "--epsilon", "-1", "--delta", "1e-6"), 1.0, refused=True),
    Start("train --out FOLDER, which exists", ("train", *ALIKE, *BUDGET, "--out", "run"), 1.0, refused=True),
    Start("train --target, which is not there", ("train", *ALIKE, *BUDGET, "--target", "incom"), 1.0, refused=True),
    Start("train --dry-run", ("train", *ALIKE, *BUDGET, "--dry-run"), 2.0),
    Start("verify", ("verify", "run"), 2.0),
    Start("predict", ("predict", "run", "new.csv", "--out", "predicted-{number}.csv"), 2.0),
    Start("evaluate --public-test", ("evaluate", "run", "new.csv", "--public-test"), 2.0),
    Start("report", ("report", "run"), 2.0),
    Start("train", ("train", *ALIKE, *BUDGET, "--out", "run-{number}"), 2.2),
)


def starting_rows(
    *, rounds: int = 5, only: Sequence[str] = (), progress: Callable[[int, int], None] | None = None
) -> list[dict[str, Any]]:
    """A row per command: the least processor seconds and memory of ``rounds`` fresh processes, in turns, and the goal.

    ``only``: beginnings of names of commands to time, instead of all.
    """
    chosen = [one for one in STARTS if not only or any(one.name.startswith(name) for name in only)]
    if not chosen:
        raise ValueError(f"no command of this name; pass some of {', '.join(one.name for one in STARTS)}")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _prepare(folder)
        taken: list[list[Cost]] = []
        for number in range(rounds + 1):
            taken.append([one.cost(folder, number) for one in chosen])
            if progress is not None:
                progress(number + 1, rounds + 1)
    least = [
        Cost(*map(min, zip(*each, strict=True))) for each in zip(*taken[1:], strict=True)
    ]  # the first round compiles
    return [
        {
            "command": one.name,
            "seconds": round(cost.seconds, 2),
            "goal": one.goal,
            "met": "yes" if cost.seconds < one.goal else "no",
            "megabytes": round(cost.megabytes),
        }
        for one, cost in zip(chosen, least, strict=True)
    ]


def plain_environment() -> Mapping[str, str]:
    """As users have it: what Python compiles is kept."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _prepare(folder: Path) -> None:
    """The census as files, and a finished run."""
    from noisewise.faces.cli.demo import write_census

    write_census(folder, private=ROWS)
    Start("train", ("train", *ALIKE, *BUDGET, "--out", "run"), 0.0).cost(folder, 0)
