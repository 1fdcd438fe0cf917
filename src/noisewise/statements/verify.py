"""Whether the files of a run folder are as sealed and agree: statement, its text, settings and trace.

The seal finds damage and careless edits. Edits under a new seal are found where one file contradicts another; a folder
in which all of them were rewritten alike agrees with itself, and only a ledger kept elsewhere could tell.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..asking import Count
from ..methods.preparation.choices import parts_of
from ..trusted.events import Leaf, from_dict, leaves
from ..trusted.features import Features
from ..trusted.units import CLIENT, Released, Unit
from .rules import odd_answers, verify_statement
from .seal import (
    FORMAT,
    NEEDED,
    SEALED,
    TRACE_FORMAT,
    DuplicateField,
    Nullable,
    check_shape,
    checked_contents,
    formatted,
    json_of,
    parsed,
)
from .search_price import traced
from .statement import Statement, Verdict, text, training_meter

SETTINGS = {
    "epsilon": float,
    "delta": float,
    "adjacency": str,
    "method": str,
    "size_is_public": bool,
    "max_grad_norm": Nullable(float),
}
ROW = {
    "question": str,
    "event": dict,
    "clip": Nullable(float),
    "noise_std": float,
    "norm": Nullable(float),
    "spent": float,
}
SEEDS = ("random_state", "seed")


class Unreadable(ValueError):
    """Neither a statement nor a run folder."""


class _Contradiction(ValueError):
    """Two files of a folder say different things."""


def verify(statement: Statement | Mapping[str, Any] | str | os.PathLike[str]) -> Verdict:
    """Recompute the promise of a statement from its events alone; for a run folder, check all its files against it too.

    This checks arithmetic and agreement, not honesty: no document shows whether the software ran as stated, and a folder
    whose files were all rewritten alike and sealed anew agrees with itself.
    """
    if isinstance(statement, str | os.PathLike):
        try:
            return verify_path(Path(statement))
        except Unreadable as error:
            return Verdict(False, f"this is no statement: {error}")
    return verify_statement(statement.data if isinstance(statement, Statement) else statement)


def verify_path(path: Path) -> Verdict:
    """The verdict on a statement.json, or on a run folder with everything in it."""
    try:
        if path.is_dir() and any((path / name).exists() for name in ("seal.json", *NEEDED)):
            return verify_folder(path)
        data = parsed(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: {_unreadable(error)}; pass a statement.json written by noisewise") from None
    return verify_statement(data)


def verify_folder(place: Path) -> Verdict:
    """The verdict on a run folder: the seal, the promise, and whether its files agree."""
    try:
        for name in ("seal.json", *SEALED):
            if (place / name).is_symlink():
                raise ValueError(f"{place}: {name} is a link, not a file of the run")
        contents = checked_contents(place)
        if "statement.txt" not in contents:
            raise ValueError(f"{place}: lacks statement.txt; pass the folder that noisewise train wrote")
    except OSError as error:
        return Verdict(False, f"{place}: cannot be read ({error.strerror})", seal="broken")
    except ValueError as error:
        return Verdict(False, str(error), seal="broken")
    return verify_contents(place, contents)


def verify_contents(place: Path, contents: Mapping[str, bytes]) -> Verdict:
    """The verdict on files whose seal holds."""
    try:
        statement = json_of(place, contents, "statement.json")
        verdict = verify_statement(statement)
        if verdict.epsilon is not None:
            _check_text(statement, contents["statement.txt"])
            run = formatted(place, contents, "run.json", FORMAT)
            _check_settings(statement, run)
            trace = formatted(place, contents, "trace.json", TRACE_FORMAT)
            _check_trace(traced(statement), trace.get("rows"), run)
            _check_prepared(statement, trace["rows"], run)
        return replace(verdict, seal="intact")
    except _Contradiction as error:
        return Verdict(False, f"its files contradict each other: {error}", seal="intact")
    except ValueError as error:
        return Verdict(False, f"its files are not as noisewise writes them: {error}", seal="intact")
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return Verdict(False, "its files are not as noisewise writes them", seal="intact")


def _check_text(statement: Mapping[str, Any], written: bytes) -> None:
    if written.decode(errors="replace").replace("\r\n", "\n") != text(statement) + "\n":
        raise _Contradiction("statement.txt is not the text of statement.json")


def _check_settings(statement: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    settings, promise, method = run.get("settings"), statement["promise"], statement["method"]
    if not isinstance(settings, Mapping) or "random_state" not in settings:
        raise ValueError("run.json has no settings with a random_state")
    used = {name: value for name, value in settings.items() if name in SETTINGS}
    check_shape(used, SETTINGS, "run.json: settings")
    seeded = any(place.get(name) is not None for place in (run, settings) for name in SEEDS)
    if seeded != statement["simulation"]:
        difference = "a private run, but run.json has a seed" if seeded else "a simulation, but run.json has no seed"
        raise _Contradiction(f"statement.json states {difference}")
    schema = (run.get("preprocessing") or {}).get("schema") or {}
    rows = [place.get("rows_per_unit") for place in (settings, schema)]
    check_shape(rows, [Nullable(int)], "run.json: rows_per_unit")
    unit = Unit(rows[1] if rows[0] is None else rows[0])
    federated = settings.get("federated")
    client = isinstance(federated, Mapping) and federated.get("unit") == "client"
    public = used["size_is_public"] or unit.fixes_size(used["adjacency"])
    clip = used["max_grad_norm"]
    pairs = {
        "epsilon": (used["epsilon"], promise["epsilon"]),
        "delta": (used["delta"], promise["delta"]),
        "adjacency": (used["adjacency"], promise["adjacency"]),
        "unit": (CLIENT if client else unit.words, promise["unit"]),
        "way to ask clients": (federated, statement.get("federated")),
        "method": (used["method"], method["name"]),
        "model": (run.get("model"), statement["model"]),
        "kind of model": (
            settings.get("model") in ("auto", "linear"),
            statement["model"]["kind"] in ("Linear", "Additive"),
        ),
        "size of the data": ("public" if public else "bought", statement["size"]),
        "max_grad_norm": (clip, clip if clip is None else method["settings"].get("max_grad_norm")),
    }
    for name, (asked, stated) in pairs.items():
        if not _same(asked, stated):
            raise _Contradiction(f"run.json and statement.json differ in the {name}")


def _check_trace(statement: Mapping[str, Any], rows: Any, run: Mapping[str, Any]) -> None:
    """The answered questions are the events that were paid for, with the stated noise."""
    size = run.get("size")
    check_shape(rows, [ROW], "trace.json: rows")
    check_shape(size, Nullable(float), "run.json: size")
    events = [from_dict(row["event"]) for row in rows]
    if not all(isinstance(event, Leaf) for event in events):
        raise ValueError("trace.json has an event that is not one answer")
    if Counter(events) != leaves([from_dict(event) for event in statement["events"]]):
        raise _Contradiction("the events of trace.json are not those of statement.json")
    if statement["size"] == "bought" and not any(row["question"] == Count.name for row in rows):
        raise _Contradiction("the size was bought, but no question of trace.json is a count")
    shares, meter = [0.0, *(row["spent"] for row in rows)], statement["meter"]
    if meter["meter"] == "plan":  # which needs no second pricing
        spent = float(len(rows) / sum(item["count"] for item in meter["plan"]))
    else:
        spent = training_meter(statement).spent_fraction
    rising = all(low <= high for low, high in pairwise(shares))  # which no NaN is
    if not rising or not _same(shares[-1], spent):
        raise _Contradiction("what trace.json says was spent is not what its events cost")
    if reason := odd_answers(statement, rows, run):
        raise _Contradiction(reason)


def _check_prepared(statement: Mapping[str, Any], rows: list[Mapping[str, Any]], run: Mapping[str, Any]) -> None:
    """The stated preparation and its price agree with the trace; an older statement has none."""
    if "prepared" not in statement:
        return
    saved = (run.get("preprocessing") or {}).get("features")
    plan = traced(statement)["meter"]["meter"] == "plan"
    features = None if saved is None else Features.from_dict(saved)
    trace = [Released(**{**row, "event": from_dict(row["event"])}) for row in rows]
    if statement["prepared"] != parts_of(trace, features, bounds=statement["preparation"], plan=plan):
        raise _Contradiction("what statement.json says was prepared is not what trace.json shows")


def _same(one: Any, other: Any) -> bool:
    """Equal; numbers up to rounding, since a total of two budgets is rounded up."""
    if isinstance(one, float | int) and isinstance(other, float | int) and not isinstance(one, bool):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and bool(one == other)


def _unreadable(error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return "no such file"
        case IsADirectoryError():
            return "is a folder"
        case DuplicateField():
            return str(error)
        case OSError():
            return error.strerror or str(error)
    return "not a JSON document"
