"""Reading a run folder for the report: checked once, so that the page need not doubt what it draws."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...statements.rules import verify_statement
from ...statements.seal import SHAPE, Nullable, Optional, check_shape
from ...statements.statement import Verdict
from ...statements.verify import ROW
from ...tables.fit.effects import Effects
from ...tables.fit.fitted import Fitted
from ..runs import checked_contents, fitted_in

RUN = {
    "estimator": str,
    "settings": dict,
    "target": str,
    "classes": Nullable(list),
    "features": list,
    "preprocessing": dict,
    "model": dict,
    "created": str,
    "software": dict,
    "warnings": list,
    "coefficients": Nullable(list),
    "data": Optional([str]),  # names of files, where a command trained on some
}
MODEL = {"kind": str, "loss": str, "parameters": int}
COEFFICIENT = {"output": Nullable(str), "feature": str, "value": float, "standard_error": Nullable(float)}
EVALUATION = {
    "metric": str,
    "value": float,
    "interval": Nullable(list),
    "rows": str,
    "epsilon": Nullable(float),
    "delta": Nullable(float),
    "when": str,
    "file": str,
    "unit": Optional(Nullable(str)),  # what the price protects; older ones do not say
}
FIGURES = {  # of an evaluation; older ones have none
    "metrics": dict,
    "verdict": Nullable(str),
    "confusion": Nullable({"classes": [str], "counts": [[float]]}),
    "calibration": Nullable([{"predicted": float, "observed": float, "share": float}]),
}
METRIC = {"value": Nullable(float), "interval": Nullable([float])}
COMPARISON = {
    "epsilon": float,
    "delta": float,
    "adjacency": str,
    "size": Nullable(float),
    "repeats": float,
    "metric": str,
    "rows": list,
}
METHOD = {
    "method": str,
    "mean": Nullable(float),
    "standard_error": Nullable(float),
    "refused": Nullable(str),
    "public": bool,
}
AUDIT = {
    "kind": str,
    "lower_bound": Nullable(float),
    "claimed": Nullable(float),
    "confidence": Nullable(float),
    "runs": Nullable(float),
    "verdict": str,
    "when": str,
    "unit": Optional(str),
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
    fitted: Fitted | None = None  # of a model of the effects of columns

    @cached_property
    def effects(self) -> Effects | None:
        """What such a model found, computed once."""
        return None if self.fitted is None else self.fitted.effects()

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
    run = _document(path, contents, "run.json", dict)
    _check_fields(run, RUN, path / "run.json")
    if run.get("format") != "noisewise-run/1":
        raise ValueError(
            f"{path / 'run.json'} has the format {run.get('format')!r}; this version reads noisewise-run/1"
        )
    _check_fields(run["model"], MODEL, f"{path / 'run.json'}: model")
    _check_rows(run["coefficients"] or [], COEFFICIENT, f"{path / 'run.json'}: coefficients")
    statement = _document(path, contents, "statement.json", dict)
    _check(statement, SHAPE, f"{path / 'statement.json'}: the statement")
    verdict = verify_statement(statement)
    if statement["promise"] is not None and verdict.epsilon is None:
        raise ValueError(
            f"{path / 'statement.json'} does not hold: {verdict.reason}; a report would repeat its promise"
        )
    trace = _document(path, contents, "trace.json", dict).get("rows")
    _check_rows(trace, ROW, f"{path / 'trace.json'}: rows")
    comparison = _document(path, contents, "comparison.json", dict, missing=None)
    if comparison is not None:
        _check_fields(comparison, COMPARISON, path / "comparison.json")
        _check_rows(comparison["rows"], METHOD, f"{path / 'comparison.json'}: rows")
        for row in comparison["rows"]:
            _check_metrics(row.get("metrics", {}), path / "comparison.json")
    evaluations = _document(path, contents, "evaluation.json", list, missing=[])
    _check_rows(evaluations, EVALUATION, path / "evaluation.json")
    for row in evaluations:
        _check_cost(row, path / "evaluation.json")
        _check_figures(row, path / "evaluation.json")
    audits = _document(path, contents, "audit.json", list, missing=[])
    _check_rows(audits, AUDIT, path / "audit.json")
    fitted = fitted_in(path, contents) if run["preprocessing"].get("features") is not None else None
    return RunFolder(path, run, statement, verdict, trace, evaluations, comparison, audits, fitted)


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


def _check_figures(row: Mapping[str, Any], file: Path) -> None:
    """What an evaluation says beside its score, if it says anything, is of its kind."""
    if "metrics" not in row:
        return
    _check_fields(row, FIGURES, file)
    _check_metrics(row["metrics"], file)
    confusion = row["confusion"]
    if confusion is not None and any(
        len(counts) != len(confusion["classes"]) for counts in (confusion["counts"], *confusion["counts"])
    ):
        raise ValueError(f"{file}: its table of labels and predictions is not square")


def _check_metrics(metrics: Any, file: Path) -> None:
    _check(metrics, dict, f"{file}: metrics")
    for name, metric in metrics.items():
        _check(metric, METRIC, f"{file}: {name}")
        if metric["interval"] is not None and len(metric["interval"]) != 2:
            raise ValueError(f"{file}: the interval of {name} is not a pair of numbers")


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


def _check(document: Any, shape: Any, place: Path | str) -> None:
    try:
        check_shape(document, shape, str(place))
    except ValueError as error:
        raise ValueError(f"{error}; pass a run folder as noisewise wrote it") from None


def _check_fields(document: Any, fields: Mapping[str, Any], place: Path | str) -> None:
    """These fields are there, each of its kind; what else there is is not shown."""
    shown = {name: document[name] for name in fields if name in document} if isinstance(document, dict) else document
    _check(shown, fields, place)


def _check_rows(rows: Any, fields: Mapping[str, Any], place: Path | str) -> None:
    _check(rows, list, place)
    for number, row in enumerate(rows):
        _check_fields(row, fields, f"{place}[{number}]")
