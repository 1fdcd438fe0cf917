"""``noisewise train --resume RUN``: the options of the stopped run, read from its journal, which is checked like untrusted input."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..._version import __version__
from .keeping import digests, journal_of, remove, tidy
from .request import TrainingOptions


def refuse_others(context: Any, allowed: Sequence[str] = ()) -> None:
    """Refuse options beside --resume: a run is resumed with the options that it was started with."""
    given = [
        option.metavar if option.param_type_name == "argument" else option.opts[0]
        for option in context.command.params
        if option.name not in ("resume", "ledger", "json_output", *allowed)
        and context.get_parameter_source(option.name).name == "COMMANDLINE"
    ]
    if given:
        raise ValueError(f"--resume goes on with what the run was asked; leave {', '.join(given)} out")


def taken_up(place: Path) -> tuple[TrainingOptions, str | dict[str, Any]]:
    """The options of the stopped run of ``place``, and its spending file or the account that pays for it."""
    from ...accounts.journal import settings_in

    folder = journal_of(place)
    there = settings_in(folder)
    if there is None:
        raise ValueError(f"{place}: {_why_not(place, folder)}")
    refused = f"{folder}: settings.json was changed"
    name: Any = there.get("spending")
    if not _is_account(name) and not _is_file(name, place):
        raise ValueError(f"{refused}: it names no file of what was spent beside {place}")
    if folder.is_symlink() or not _own(folder):
        raise ValueError(f"{folder}: is a link, or somebody else's folder; go on with runs of your own")
    if there.get("run") != str(place.absolute()):
        raise ValueError(
            f"{folder}: was copied or moved, its run is another folder's; go on there: of two copies both would spend"
        )
    if there.get("noisewise") != __version__:
        raise ValueError(f"{folder}: the run was begun by another version of noisewise; go on with that one")
    try:
        asked = TrainingOptions.from_dict(there.get("asked"))
    except ValueError as error:
        raise ValueError(f"{refused}: {error}") from None
    before, now = there.get("declared"), digests(asked)
    if not isinstance(before, dict):
        raise ValueError(f"{refused}: it does not say which files were declared")
    if changed := sorted(path for path in {**before, **now} if before.get(path) != now.get(path)):
        raise ValueError(
            f"{changed[0]}: has changed since the run began, and the answers belong to what it was; bring that back"
        )
    return asked, name


def _is_file(name: Any, place: Path) -> bool:
    return isinstance(name, str) and bool(re.fullmatch(re.escape(place.name) + r"\.spending(-\d+)?\.json", name))


def _is_account(name: Any) -> bool:
    """Whether this is what a journal records of an account that pays."""
    if not isinstance(name, dict) or set(name) != {"dataset", "ledger", "run"}:
        return False
    return all(type(one) is str for one in name.values()) and bool(re.fullmatch("[0-9a-f]{24}", name["run"]))


def _own(folder: Path) -> bool:
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def _why_not(place: Path, folder: Path) -> str:
    spent = place.with_name(f"{place.name}.spending.json")
    if folder.is_dir():
        return "was stopped before anything was spent; start it anew"
    if spent.exists():
        return (
            f"what was spent is in {spent}, but there is no journal to go on from: a search (--tune) keeps none, since all it "
            "releases is its winner"
        )
    return f"no stopped run is there ({folder} is missing); pass the --out of a run that was stopped"


def is_whole(place: Path) -> bool:
    """Whether the run folder was complete before the process was killed. What is left beside it is then removed."""
    if not place.is_dir() or not any(place.iterdir()):
        return False
    from ...accounts.journal import settings_in

    folder = journal_of(place)
    there = settings_in(folder)
    name: Any = (there or {}).get("spending") or f"{place.name}.spending.json"
    beside = None if _is_account(name) else place.with_name(Path(str(name)).name)
    left = folder.exists() or (beside is not None and beside.exists())
    if not left:
        raise ValueError(f"{place}: is a finished run; there is nothing to go on with")
    # the spending file is removed last, so without settings the folder has a copy of it
    same = _is_what_it_wrote(place / "spending.json", name if beside is None else beside)
    if not (there is None if same is None else same):
        raise ValueError(
            f"{place} exists already, and is not what the stopped run would write; move it away, then go on"
        )
    with _alone(folder):
        remove(folder)
        tidy(beside, [], kept=False)
    return True


def _is_what_it_wrote(inside: Path, spent: Path | dict[str, Any]) -> bool | None:
    """Whether a finished folder records the spending of the stopped run; None where one of the two records nothing."""
    if not inside.exists() or (isinstance(spent, Path) and not spent.exists()):
        return None
    if isinstance(spent, Path):
        return spent.read_bytes() == inside.read_bytes()
    try:
        keys = [entry["key"] for entry in json.loads(inside.read_bytes())["entries"]]
        return bool(keys) and all(key.startswith(spent["run"]) for key in keys)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a journal, so that no other process runs its run meanwhile."""
    import fcntl

    if not (folder / "lock").exists():
        yield
        return
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ValueError(f"{folder}: another process is running this run; wait for it") from None
    finally:
        os.close(descriptor)
