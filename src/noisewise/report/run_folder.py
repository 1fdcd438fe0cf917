"""Reading a run folder for the report: checked once, so that the page need not doubt what it draws."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs import checked_contents
from ..shapes import check_shape
from ..statement import Verdict, verify_data

NUMBER = (int, float)
MAYBE = (int, float, type(None))

RUN: dict[str, tuple[type, ...]] = {
    "estimator": (str,),
    "settings": (dict,),
    "target": (str,),
    "classes": (list, type(None)),
    "features": (list,),
    "preprocessing": (dict,),
    "model": (dict,),
    "created": (str,),
    "software": (dict,),
    "warnings": (list,),
    "coefficients": (list, type(None)),
}
ROW = {"question": (str,), "event": (dict,), "clip": MAYBE, "noise_std": NUMBER, "norm": MAYBE, "spent": NUMBER}
COEFFICIENT = {"output": (str, type(None)), "feature": (str,), "value": NUMBER, "standard_error": MAYBE}
EVALUATION = {
    "metric": (str,),
    "value": NUMBER,
    "interval": (list, type(None)),
    "rows": (str,),
    "epsilon": MAYBE,
    "delta": MAYBE,
    "when": (str,),
    "file": (str,),
}
COMPARISON = {
    "epsilon": NUMBER,
    "delta": NUMBER,
    "adjacency": (str,),
    "size": MAYBE,
    "repeats": NUMBER,
    "metric": (str,),
    "rows": (list,),
}
METHOD = {"method": (str,), "mean": MAYBE, "standard_error": MAYBE, "refused": (str, type(None)), "public": (bool,)}
AUDIT = {
    "kind": (str,),
    "lower_bound": MAYBE,
    "claimed": MAYBE,
    "confidence": MAYBE,
    "runs": MAYBE,
    "verdict": (str,),
    "when": (str,),
}


@dataclass(frozen=True)
class RunFolder:
    """What a run folder says; parts that are not there are empty."""

    path: Path
    run: Mapping[str, Any]
    statement: Mapping[str, Any]
    verdict: Verdict
    trace: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    comparison: Mapping[str, Any] | None
    audits: Sequence[Mapping[str, Any]]

    @property
    def simulation(self) -> bool:
        return bool(self.statement["simulation"])

    @property
    def promise(self) -> Mapping[str, Any] | None:
        promise: Mapping[str, Any] | None = self.statement["promise"]
        return promise


def read_run(path: Path) -> RunFolder:
    """Everything the report needs from a run folder; a ValueError names the file that is not as it should be."""
    contents = checked_contents(path)
    run = _fields(_document(path, contents, "run.json", dict), RUN, path / "run.json")
    if run.get("format") != "noisewise-run/1":
        raise ValueError(
            f"{path / 'run.json'} has the format {run.get('format')!r}; this version reads noisewise-run/1"
        )
    _fields(run["model"], {"kind": (str,), "loss": (str,), "parameters": (int,)}, path / "run.json")
    _rows(run["coefficients"] or [], COEFFICIENT, path / "run.json")
    statement = _document(path, contents, "statement.json", dict)
    try:
        check_shape(statement)
    except ValueError as error:
        raise ValueError(f"{path / 'statement.json'}: {error}; pass a run folder as noisewise wrote it") from None
    verdict = verify_data(statement)
    if statement["promise"] is not None and verdict.epsilon is None:
        raise ValueError(
            f"{path / 'statement.json'} does not hold: {verdict.reason}; a report would repeat its promise"
        )
    trace = _document(path, contents, "trace.json", dict)
    comparison = _document(path, contents, "comparison.json", dict, missing=None)
    if comparison is not None:
        _rows(_fields(comparison, COMPARISON, path / "comparison.json")["rows"], METHOD, path / "comparison.json")
    evaluations = _rows(
        _document(path, contents, "evaluation.json", list, missing=[]), EVALUATION, path / "evaluation.json"
    )
    for row in evaluations:
        _check_cost(row, path / "evaluation.json")
    return RunFolder(
        path,
        run,
        statement,
        verdict,
        _rows(trace.get("rows"), ROW, path / "trace.json"),
        evaluations,
        comparison,
        _rows(_document(path, contents, "audit.json", list, missing=[]), AUDIT, path / "audit.json"),
    )


def _check_cost(row: Mapping[str, Any], file: Path) -> None:
    """An evaluation on private rows was paid for, or its number may not be shown."""
    if row["rows"] not in ("public", "private"):
        raise ValueError(f"{file}: the rows of an evaluation are {row['rows']!r}; they are 'public' or 'private'")
    if row["interval"] is not None and not (len(row["interval"]) == 2 and all(map(_is_number, row["interval"]))):
        raise ValueError(f"{file}: the interval of an evaluation is not a pair of numbers")
    epsilon, delta = row["epsilon"], row["delta"] or 0.0
    if row["rows"] == "private" and not (epsilon is not None and 0 < epsilon < math.inf and 0 <= delta < 1):
        raise ValueError(
            f"{file}: an evaluation on private rows does not say what it cost; evaluate again with --epsilon"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_REQUIRED = object()


def _document(path: Path, contents: Mapping[str, bytes], name: str, kind: type, missing: Any = _REQUIRED) -> Any:
    file = path / name
    if name not in contents and missing is not _REQUIRED:
        return missing
    try:
        document = json.loads(contents[name], parse_int=_whole)
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is not a JSON document; pass a run folder as noisewise wrote it") from None
    if not isinstance(document, kind):
        raise ValueError(
            f"{file} is not a JSON {'object' if kind is dict else 'array'}; pass a run folder of noisewise"
        )
    return document


def _whole(digits: str) -> int:
    """A whole number that a float can hold: charts and words compute with floats."""
    if len(digits) > 300:
        raise ValueError("a number is beyond reason")
    return int(digits)


def _rows(rows: Any, fields: Mapping[str, tuple[type, ...]], file: Path) -> list[Mapping[str, Any]]:
    if not isinstance(rows, list):
        raise ValueError(f"{file} has no list of rows; pass a run folder as noisewise wrote it")
    return [_fields(row, fields, file) for row in rows]


def _fields(document: Any, fields: Mapping[str, tuple[type, ...]], file: Path) -> Mapping[str, Any]:
    """A document that has these fields, each of its kind; what else it has is not shown."""
    if not isinstance(document, dict):
        raise ValueError(f"{file} has a row without fields; pass a run folder as noisewise wrote it")
    for name, kinds in fields.items():
        value = document.get(name, _REQUIRED)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(
                f"{file}: the field {name!r} is missing or of the wrong kind; pass a run folder of noisewise"
            )
    return document
