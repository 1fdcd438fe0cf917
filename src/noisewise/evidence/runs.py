"""Run folders: a trained model with its preprocessing, statement and trace, as safetensors and JSON.

Reading one never runs code from it. ``seal.json`` holds the SHA-256 of every file: a folder in which one was changed is
refused. The seal finds damage and careless edits; whoever changes a file on purpose can seal it again, so a folder from
a stranger is worth what the stranger's word is worth.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as tensors_in
from safetensors.numpy import save as as_tensors

from ..accounts.atomic import force_to_disk, locked, umask
from ..statements.seal import (
    FORMAT,
    PROTECTOR,
    TRACE_FORMAT,
    check_shape,
    checked_contents,
    formatted,
    json_of,
    put_json,
    reseal,
)
from ..statements.seal import check_seal as check_seal
from ..statements.statement import Statement
from ..statements.verify import verify as verify
from ..tables.fit.fitted import Fitted
from ..trusted.events import from_dict, to_dict
from ..trusted.units import Released

SOFTWARE = ("noisewise", "torch", "numpy", "scikit-learn", "pyarrow")
BAD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, SafetensorError)


def save(fitted: Fitted, folder: str | Path, *, warnings: Sequence[str] = ()) -> Path:
    """Write a fitted thing to a new folder, all of it or nothing."""
    with new_folder(folder) as place:
        write(fitted, place, warnings=warnings)
    return Path(folder)


def write(fitted: Fitted, place: Path, *, warnings: Sequence[str] = (), data: Sequence[str] = ()) -> None:
    """The files of a run, sealed, into an empty folder; ``data``: names of the files it was trained on, for its report."""
    document = {
        "format": FORMAT,
        **fitted.to_dict(),
        **({"data": list(data)} if data else {}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "software": {name: version(name) for name in SOFTWARE if name != "torch" or name in sys.modules},
        "warnings": list(warnings),
    }
    rows = [{**row._asdict(), "event": to_dict(row.event)} for row in fitted.trace]
    theta = np.ascontiguousarray(fitted.theta, dtype=np.float32)
    (place / "model.safetensors").write_bytes(as_tensors({"theta": theta}))
    if fitted.protector is not None:
        from ..protect.learned.zoo import as_bytes

        (place / PROTECTOR).write_bytes(as_bytes(fitted.protector))
    put_json(place / "run.json", document)
    put_json(place / "trace.json", {"format": TRACE_FORMAT, "rows": rows})
    (place / "statement.json").write_text(fitted.statement.to_json() + "\n", encoding="utf-8")
    (place / "statement.txt").write_text(f"{fitted.statement}\n", encoding="utf-8")
    reseal(place)


def load(folder: str | Path) -> Fitted:
    """What was fitted in a run folder. Nothing in it is executed; one whose files were changed is refused."""
    place = Path(folder)
    return fitted_in(place, checked_contents(place))


def fitted_in(place: Path, contents: Mapping[str, bytes]) -> Fitted:
    """What was fitted, from the files of a run folder whose seal holds."""
    document = formatted(place, contents, "run.json", FORMAT)
    trace = formatted(place, contents, "trace.json", TRACE_FORMAT)
    statement = json_of(place, contents, "statement.json")
    with readable(place):
        check_shape(statement)
        theta = tensors_in(contents["model.safetensors"])["theta"]
        rows = tuple(Released(**{**row, "event": from_dict(row["event"])}) for row in trace["rows"])
        fitted = Fitted.from_dict(document, theta, Statement(statement), rows)
        if PROTECTOR not in contents:
            return fitted
        from ..protect.learned.zoo import from_content

        return replace(fitted, protector=from_content(contents[PROTECTOR]))


@contextmanager
def readable(folder: str | Path) -> Iterator[None]:
    """Whatever is wrong with what a folder says is one clear error."""
    try:
        yield
    except BAD as error:
        text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(text.split())[:200]
        raise ValueError(f"{Path(folder)}: not a run that this version can read ({reason})") from None


def append(folder: str | Path, name: str, entry: Mapping[str, Any]) -> None:
    """Add an entry to a list of the folder (evaluation.json, audit.json) and seal it again."""
    place = Path(folder)
    with _alone(place):
        contents = checked_contents(place)
        entries = json_of(place, contents, name) if name in contents else []
        if not isinstance(entries, list):
            raise ValueError(f"{place}: {name} is not a list; pass the folder that noisewise train wrote")
        put_json(place / name, [*entries, dict(entry)])
        reseal(place)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Nobody else appends to the folder meanwhile: two scores at once must both be counted."""
    if os.name != "posix" or not place.is_dir():
        yield
        return
    with locked(os.open(place, os.O_RDONLY)):
        yield


def document_of(folder: str | Path) -> dict[str, Any]:
    """run.json of a folder whose seal holds."""
    place = Path(folder)
    return formatted(place, checked_contents(place), "run.json", FORMAT)


@contextmanager
def new_folder(folder: str | Path, *, draft: Path | None = None) -> Iterator[Path]:
    """A folder to fill that becomes ``folder`` when all went well, and is gone otherwise.

    ``draft``: where it is on the same disk until then, for who removes what a killed process leaves; all of it is on the disk
    before it gets its name.
    """
    place = vacant(folder)
    made = [parent for parent in place.parents if not parent.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    lasting = draft is not None
    if draft is None:
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    else:
        draft.mkdir(mode=0o700)
    try:
        yield draft
        if lasting:
            for path in (*draft.iterdir(), draft):
                force_to_disk(path)
        draft.chmod(0o777 & ~umask())
        if place.is_dir():
            place.rmdir()
        draft.replace(place)
        if lasting:
            force_to_disk(place.parent)
        made = []
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        for parent in made:
            with suppress(OSError):
                parent.rmdir()


def vacant(folder: str | Path) -> Path:
    """The folder, if nothing is there that would be overwritten (an empty folder is nothing)."""
    place = Path(folder)
    empty = place.is_dir() and not place.is_symlink() and not any(place.iterdir())
    if not place.name or (not empty and (place.exists() or place.is_symlink())):
        raise ValueError(f"{place} exists already; pass another folder, or remove it first")
    return place


def writable(folder: str | Path) -> None:
    """Refuse a folder that could not be written later, when its content has been paid for."""
    parent = next(parent for parent in Path(folder).absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=parent, prefix=".noisewise-"):  # without a name: killed here, nothing stays
            pass
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}); pass another folder") from None
