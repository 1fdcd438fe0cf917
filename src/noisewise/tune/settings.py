"""The list of candidates that a person writes: settings, a grid of them, or a file. Fixed and public before a search."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ..guest import method_named
from ..methods import Method

MAX_CANDIDATES = 10_000
FIXED = {
    "epsilon", "delta", "adjacency", "random_state", "bounds", "schema", "classes", "target_bounds", "size_is_public",
    "unit", "rows_per_unit", "class_weight",
}  # fmt: skip
EXAMPLE = '[{"method": "descent"}, {"method": "additive", "max_grad_norm": 0.5}]'


def listed(candidates: Any) -> list[dict[str, Any]]:
    """Candidates as a list of settings: a list as it is, or every combination of a mapping from names to lists.

    >>> listed({"method": ["descent"], "max_grad_norm": [0.5, 1.0]})
    [{'method': 'descent', 'max_grad_norm': 0.5}, {'method': 'descent', 'max_grad_norm': 1.0}]
    """
    if isinstance(candidates, Mapping):
        lists = [_values(name, values) for name, values in candidates.items()]
        found = [dict(zip(candidates, combination, strict=True)) for combination in product(*lists)]
    elif isinstance(candidates, Iterable) and not isinstance(candidates, str | bytes):
        found = [dict(one) if isinstance(one, Mapping) else _no_mapping(one) for one in candidates]
    else:
        raise ValueError(f"candidates is a {type(candidates).__name__}; pass a list of settings, e.g. {EXAMPLE}")
    if not 1 <= len(found) <= MAX_CANDIDATES:
        raise ValueError(f"there are {len(found)} candidates; pass from 1 to {MAX_CANDIDATES}")
    for one in found:
        for name in one:
            if name in FIXED:
                raise ValueError(f"a candidate sets {name!r}, which is no setting to tune; set it in the estimator")
    return found


def _values(name: str, values: Any) -> Sequence[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
        raise ValueError(f"candidates[{name!r}] is {values!r}; pass a list of values to try")
    return values


def _no_mapping(one: Any) -> dict[str, Any]:
    raise ValueError(f"a candidate is a {type(one).__name__}; pass settings by name, e.g. {EXAMPLE}")


def applied(settings: Mapping[str, Any], parameters: Iterable[str], method: str | Method) -> dict[str, Any]:
    """The parameters of an estimator that a candidate's settings stand for; what is none of them goes to its method."""
    own = {*parameters}
    values = {name: value for name, value in settings.items() if name in own}
    others = {name: value for name, value in settings.items() if name not in own}
    if not others:
        return values
    chosen = values.get("method", method)
    if isinstance(chosen, str) and chosen == "auto":
        raise ValueError(
            f"a candidate sets {', '.join(sorted(others))} of a method, but its method is 'auto'; name the method in it too"
        )
    made = method_named(chosen)
    if unknown := sorted({*others} - {*made.settings()}):
        raise ValueError(
            f"a candidate sets {unknown[0]!r}, which neither the estimator nor {made.name} has; {made.name} has "
            f"{', '.join(made.settings())}"
        )
    return {**values, "method": made.with_settings(**others)}


def read_candidates(path: Path) -> list[dict[str, Any]]:
    """Candidates from a file: TOML with [[candidate]] tables or a [grid] of lists, or JSON with a list or a grid.

    Example: ``[[candidate]]`` / ``method = "descent"`` / ``max_grad_norm = 0.5``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); pass a file of candidates") from None
    except (ValueError, RecursionError):
        raise ValueError(
            f"{path}: is neither TOML nor JSON; write [[candidate]] tables, or {EXAMPLE} in a .json"
        ) from None
    if isinstance(data, Mapping) and path.suffix != ".json":
        if {*data} not in ({"candidate"}, {"grid"}):
            raise ValueError(
                f"{path}: has {', '.join(data) or 'nothing'}; write [[candidate]] tables, or one [grid] of lists"
            )
        data = data.get("candidate") or data.get("grid")
    try:
        return listed(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
