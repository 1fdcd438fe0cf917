"""Finished work in a file of JSON lines, so that an interrupted study goes on where it stopped.

A cell is a frozen dataclass of plain values; its ``repr`` is its key, so whatever changes a result belongs in the cell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

C = TypeVar("C")
Row = dict[str, Any]
Report = Callable[[Any], None]


def read_rows(path: Path) -> dict[str, Row]:
    """Rows by their key. A last line that was cut off by an interruption is not a row."""
    rows: dict[str, Row] = {}
    if not path.exists():
        return rows
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows[row["key"]] = row
        except (ValueError, KeyError, TypeError):
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: not a finished cell; delete the file to start anew") from None
    return rows


def _key(cell: object) -> str:
    """A cell of any study, by its settings."""
    return repr(cell).replace(type(cell).__name__, "Cell", 1)


def unfinished(cells: Sequence[C], out: Path) -> list[C]:
    """Those of the cells that are not in the file ``out``."""
    done = read_rows(out)
    return [cell for cell in cells if _key(cell) not in done]


def run_cells(cells: Sequence[C], work: Callable[[C], Row], *, out: Path, jobs: int, report: Report) -> list[Row]:
    """``work(cell)`` of every cell, in the order of ``cells``; those in the file ``out`` are not run again.

    A row is what ``work`` returned, with the fields of the cell and its key. ``work`` runs in ``jobs`` processes (in
    this one for 1), each with one thread; ``report((done, total))`` is called at the start and after each cell.
    """
    from joblib import Parallel, delayed

    done = read_rows(out)
    todo = [cell for cell in cells if _key(cell) not in done]
    finished = len(cells) - len(todo)
    report((finished, len(cells)))
    if todo:
        out.parent.mkdir(parents=True, exist_ok=True)
        _mend(out)
        results = Parallel(n_jobs=jobs, return_as="generator")(delayed(_one)(work, cell) for cell in todo)
        with out.open("a", encoding="utf-8") as file:
            for cell, result in zip(todo, results, strict=True):
                row = {"key": _key(cell), **vars(cell), **result}
                line = json.dumps(row)
                file.write(line + "\n")
                file.flush()
                done[_key(cell)] = json.loads(line)  # as a resumed run would read it
                finished += 1
                report((finished, len(cells)))
    return [done[_key(cell)] for cell in cells]


def _one(work: Callable[[C], Row], cell: C) -> Row:
    from .threads import use_threads

    use_threads(1)
    return work(cell)


def _mend(path: Path) -> None:
    """Take a cut-off last line out, so that what is appended starts on a line of its own."""
    if path.exists():
        text = path.read_text(encoding="utf-8")
        whole = "".join(line + "\n" for line in text.splitlines() if _is_json(line))
        if whole != text:
            path.write_text(whole, encoding="utf-8")


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
