"""Whether the files of a run folder are as sealed and say the same: statement, its text, settings and trace.

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

from ..accounting.common import unsampled
from ..events import ApproximateDP, BoundedRange, FixedBatch, Gaussian, Leaf, Poisson, from_dict, leaves
from ..prepare.choices import LEVELS
from ..prepare.features import Features
from ..prepare.parts import parts_of
from ..prepare.ranks import Ranks
from ..shapes import Nullable, check_shape
from ..statement import Statement, Verdict, text, training_meter, verify_data
from ..trace import Released
from ..tuning import traced
from ..units import CLIENT, rows_of_unit, unit_of
from .seal import FORMAT, NEEDED, SEALED, TRACE_FORMAT, DuplicateField, checked_contents, formatted, json_of, parsed

CLOSE = 1e-3  # noise is rounded up onto grids; a forger gains nothing from a thousandth
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
MECHANISMS = {
    "gradient": Gaussian,
    "gradient_norm": Gaussian,
    "choose": BoundedRange,
    "PerturbedObjective": ApproximateDP,
}
ITS_OWN = (  # questions whose unit depends on what only they know
    *("Correct", "CrossMoment", "NormAtMost", "SquaredError", "histograms", "Descent", "OnePass", "PerturbedObjective"),
    "lost",  # an answer that was charged and never written down
)
RANKS, MOST_LEVELS = Ranks.questions[0], 20
UNITS = {  # of statistics whose unit is a number: added or removed, and half of what a replaced record moves
    "Count": (1.0, 0.5),
    "FirstMoment": (1.0, 1.0),
    "SquaredLength": (1.0, 0.5),
    "SecondMoment": (1.0, math.sqrt(0.5)),
    "MinEigenvalue": (1.0, 0.5),
}


class Unreadable(ValueError):
    """Neither a statement nor a run folder."""


class _Contradiction(ValueError):
    """Two files of a folder say different things."""


def verify(statement: Statement | Mapping[str, Any] | str | os.PathLike[str]) -> Verdict:
    """Recompute the promise of a statement from its events alone; of a run folder, check all files against it too.

    It checks arithmetic and agreement, not honesty: whether the software ran as stated is not in the document, and who
    rewrites every file of a folder alike and seals it anew has a folder that agrees with itself.
    """
    if isinstance(statement, str | os.PathLike):
        try:
            return verify_path(Path(statement))
        except Unreadable as error:
            return Verdict(False, f"this is no statement: {error}")
    return verify_data(statement.data if isinstance(statement, Statement) else statement)


def verify_path(path: Path) -> Verdict:
    """The verdict on a statement.json, or on a run folder with everything in it."""
    try:
        if path.is_dir() and any((path / name).exists() for name in ("seal.json", *NEEDED)):
            return verify_folder(path)
        data = parsed(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: {_unreadable(error)}; pass a statement.json written by noisewise") from None
    return verify_data(data)


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
        verdict = verify_data(statement)
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
    """What the run was told is what the statement says."""
    settings, promise, method = run.get("settings"), statement["promise"], statement["method"]
    if not isinstance(settings, Mapping) or "random_state" not in settings:
        raise ValueError("run.json has no settings with a random_state")
    used = {name: value for name, value in settings.items() if name in SETTINGS}
    check_shape(used, SETTINGS, "run.json: settings")
    seeded = any(place.get(name) is not None for place in (run, settings) for name in SEEDS)
    if seeded != statement["simulation"]:
        difference = "a private run, but run.json has a seed" if seeded else "a simulation, but run.json has no seed"
        raise _Contradiction(f"statement.json states {difference}")
    rows = _rows_per_unit(run)
    public = used["size_is_public"] or (used["adjacency"] == "replace_one" and (rows or 1) == 1)
    clip = used["max_grad_norm"]
    pairs = {
        "epsilon": (used["epsilon"], promise["epsilon"]),
        "delta": (used["delta"], promise["delta"]),
        "adjacency": (used["adjacency"], promise["adjacency"]),
        "unit": (_unit(run, rows), promise["unit"]),
        "way to ask clients": (settings.get("federated"), statement.get("federated")),
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


def _unit(run: Mapping[str, Any], rows: int | None) -> str:
    """What is protected, as the run was told."""
    federated = run["settings"].get("federated")
    return CLIENT if isinstance(federated, Mapping) and federated.get("unit") == "client" else unit_of(rows)


def _rows_per_unit(run: Mapping[str, Any]) -> int | None:
    """How many rows of a person count, as the run was told by its settings or its schema; None: what counts is a row."""
    schema = (run.get("preprocessing") or {}).get("schema") or {}
    told = [place.get("rows_per_unit") for place in (run["settings"], schema)]
    check_shape(told, [Nullable(int)], "run.json: rows_per_unit")
    return told[1] if told[0] is None else told[0]


def _check_trace(statement: Mapping[str, Any], rows: Any, run: Mapping[str, Any]) -> None:
    """The questions that were answered are the events that were paid for, with the noise that they name."""
    size = run.get("size")
    check_shape(rows, [ROW], "trace.json: rows")
    check_shape(size, Nullable(float), "run.json: size")
    events = [from_dict(row["event"]) for row in rows]
    if not all(isinstance(event, Leaf) for event in events):
        raise ValueError("trace.json has an event that is not one answer")
    if Counter(events) != leaves([from_dict(event) for event in statement["events"]]):
        raise _Contradiction("the events of trace.json are not those of statement.json")
    if statement["size"] == "bought" and not any(row["question"] == "Count" for row in rows):
        raise _Contradiction("the size was bought, but no question of trace.json is a count")
    shares = [0.0, *(row["spent"] for row in rows)]
    rising = all(low <= high for low, high in pairwise(shares))
    if not rising or not _same(shares[-1], _spent(statement, len(rows))):
        raise _Contradiction("what trace.json says was spent is not what its events cost")
    count_share = statement["method"]["settings"].get("count_share")
    persons = rows_of_unit(statement["promise"]["unit"]) or 1
    for number, (row, event) in enumerate(zip(rows, events, strict=True), 1):
        if row["question"] == RANKS:
            fits = _levels_fit(row, event, statement, run, persons)
        else:
            fits = _noise_fits(row, event, statement["promise"]["adjacency"], size, count_share, persons)
        if not fits:
            raise _Contradiction(f"question {number} of trace.json has another noise or clip than its event")


def _check_prepared(statement: Mapping[str, Any], rows: list[Mapping[str, Any]], run: Mapping[str, Any]) -> None:
    """What the statement says was prepared, and its price, is what the trace shows; an older one does not say."""
    if "prepared" not in statement:
        return
    saved = (run.get("preprocessing") or {}).get("features")
    plan = traced(statement)["meter"]["meter"] == "plan"
    features = None if saved is None else Features.from_dict(saved)
    trace = [Released(**{**row, "event": from_dict(row["event"])}) for row in rows]
    if statement["prepared"] != parts_of(trace, features, bounds=statement["preparation"], plan=plan):
        raise _Contradiction("what statement.json says was prepared is not what trace.json shows")


def _spent(statement: Mapping[str, Any], answers: int) -> float:
    """The share of the budget that all answers took; that of a plan needs no second pricing."""
    meter = statement["meter"]
    if meter["meter"] == "plan":
        return float(answers / sum(item["count"] for item in meter["plan"]))
    return training_meter(statement).spent_fraction


def _noise_fits(
    row: Mapping[str, Any], event: Any, adjacency: str, size: float | None, count_share: Any, persons: int
) -> bool:
    """Whether the standard deviation of the noise follows from event, clip and size, as the curator computes it.

    ``persons``: how many rows of one count; the noise of a question is for so many.
    """
    mechanism, question, clip, std = unsampled(event), row["question"], row["clip"], float(row["noise_std"])
    if not (0 <= std < math.inf and (clip is None or 0 < clip < math.inf) and math.isfinite(row["norm"] or 0.0)):
        return False
    if question in MECHANISMS and not (isinstance(mechanism, MECHANISMS[question])):
        return False
    if question in UNITS:
        added, replaced = UNITS[question]
        poisson = isinstance(event, Poisson)
        unit = added if adjacency == "add_remove" else max(added, replaced) if poisson else replaced
        return isinstance(mechanism, Gaussian) and _close(std, mechanism.noise_multiplier * unit * persons)
    if question in ITS_OWN:
        return True
    if question not in ("gradient", "gradient_norm", "choose"):
        return registered(question) is not None  # its unit is its own
    if clip is None:
        return False
    if isinstance(mechanism, BoundedRange):
        return _close(std, persons * clip / mechanism.epsilon * (2 if adjacency == "replace_one" else 1))
    if size is None or not isinstance(mechanism, Gaussian):
        return size is None  # an older folder does not say what sums were divided by
    plain = mechanism.noise_multiplier * clip / _batch(event, size)
    if question == "gradient_norm":
        return _close(std, plain) or _close(std, 2 * clip * plain / persons)  # the norm, or its square
    # A count of short gradients from the same batch is part of the event; it may take a share of the price.
    share = max(0.5, float(count_share)) if isinstance(count_share, float) and count_share < 1 else 0.5
    return plain * (1 - CLOSE) <= std <= plain / math.sqrt(1 - share) * (1 + CLOSE)


def _levels_fit(
    row: Mapping[str, Any], event: Any, statement: Mapping[str, Any], run: Mapping[str, Any], persons: int
) -> bool:
    """Whether the noise on counts of columns is for as many columns and levels as there can be.

    A record is in one part of each of K columns on each of L levels, so the unit is sqrt(K L); half of what a replaced
    one moves is sqrt(K L / 2). The library's own method asks about every number without declared knots, on 16 levels.
    """
    mechanism, std = unsampled(event), float(row["noise_std"])
    if not isinstance(mechanism, Gaussian) or not 0 < std < math.inf:
        return False
    halved = statement["promise"]["adjacency"] == "replace_one" and not isinstance(event, Poisson)
    cells = (std / (mechanism.noise_multiplier * persons)) ** 2 * (2 if halved else 1)
    declared, open_ones = _number_columns(run)
    own = statement["method"]["name"] == "additive"
    known = {open_ones * LEVELS} if own else {k * n for k in range(1, declared + 1) for n in range(1, MOST_LEVELS + 1)}
    return any(math.isclose(cells, product, rel_tol=2 * CLOSE) for product in known)


def _number_columns(run: Mapping[str, Any]) -> tuple[int, int]:
    """How many number columns the table of a run has, and how many of them declare no knots."""
    prepared = run.get("preprocessing") or {}
    schema = prepared.get("schema")
    if schema is None:
        return len(prepared["low"]), len(prepared["low"])
    numbers = [
        column for column in schema["columns"] if column["kind"] == "number" and column["name"] != schema["target"]
    ]
    return len(numbers), sum(not column.get("knots") for column in numbers)


def _batch(event: Any, size: float) -> float:
    """The expected number of records in a batch, which sums are divided by."""
    if isinstance(event, Poisson):
        return max(event.rate * size, 1.0)
    if isinstance(event, FixedBatch):
        return max(float(min(round(size), int(event.rate * round(size) * (1 + 1e-12)))), 1.0)
    return max(size, 1.0)


def _close(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=CLOSE)


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


def registered(name: str) -> Any:
    """The question of that name in the curator's room, or None. The room needs torch: ask for what no table has."""
    from .. import curator

    return next((kind for kind in curator.QUESTIONS.values() if kind.name == name), None)
