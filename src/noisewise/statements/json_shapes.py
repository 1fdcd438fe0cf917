"""Shapes of JSON documents: which fields there are, and of which kind each is; first of all, of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..trusted.arithmetic import GRADES
from .reading_list import CODE


@dataclass(frozen=True)
class Nullable:
    """A field that may be null."""

    shape: Any


@dataclass(frozen=True)
class Optional:
    """A field that not every statement has; older ones lack it."""

    shape: Any


ISOLATIONS = ("shipped", "caller's own code", "sandbox", "process")  # how a method's code is kept apart from records
TUNED_RUN = {"epsilon": float, "delta": float, "meter": dict, "events": [dict]}
TUNING: dict[str, Any] = {
    "how": frozenset(("public", "selection", "exponential", "online", "none")),
    "candidates": int,
    "settings": [str],
    "price": Nullable({"epsilon": float, "delta": float}),
    "words": str,
    "run": Nullable(TUNED_RUN),
}
FEDERATED: dict[str, Any] = {
    "unit": frozenset(("record", "client")),
    "availability": frozenset(("required", "independent")),
    "local_steps": int,
    "local_rate": float,
    "wait": Nullable(float),
}
SHAPE: dict[str, Any] = {
    "format": str,
    "setting": str,
    "promise": Nullable({"epsilon": float, "delta": float, "adjacency": str, "unit": str}),
    "guarantee": str,
    "simulation": bool,
    "accounting": Nullable({"type": str, "assumptions": [str]}),
    "arithmetic": Optional({"grade": frozenset(GRADES), "assumptions": [str]}),
    "account": Optional({"dataset": str, "epsilon": float, "delta": float, "adjacency": str}),
    "federated": Optional(FEDERATED),
    "isolation": Optional(frozenset(ISOLATIONS)),
    "meter": Nullable(dict),
    "events": [dict],
    "preparation": Nullable({"epsilon": float, "delta": float, "meter": dict, "events": [dict], "what": str}),
    "prepared": Optional([{"part": str, "words": str, "events": [dict], "share": Nullable(float)}]),
    "size": str,
    "method": {"name": str, "settings": dict},
    "model": {"kind": str, "shape": [int], "loss": str, "parameters": int},
    "hyper_parameters": str,
    "tuning": Optional(TUNING),
    "assumed": [str],
    "covers": [str],
    "does_not_cover": [str],
    "trusted": str,
    "software": {"noisewise": str},
    "code": Optional(CODE),
}


def check_shape(data: Any, shape: Any = None, place: str = "the statement") -> None:
    """Exactly the fields a statement has, each of its kind: what nobody checks, nobody should read."""
    shape = SHAPE if shape is None else shape
    if isinstance(shape, Nullable):
        if data is not None:
            check_shape(data, shape.shape, place)
    elif isinstance(shape, Optional):
        check_shape(data, shape.shape, place)
    elif isinstance(shape, frozenset):
        if not isinstance(data, str) or data not in shape:
            raise ValueError(f"{place} is not one of {', '.join(sorted(shape))}")
    elif isinstance(shape, type):
        kinds = (float, int) if shape is float else (Mapping,) if shape is dict else (shape,)
        if not isinstance(data, kinds) or (isinstance(data, bool) and shape is not bool):
            raise ValueError(f"{place} is not a {shape.__name__}")
    elif isinstance(shape, list):
        check_shape(data, list, place)
        for number, item in enumerate(data):
            check_shape(item, shape[0], f"{place}[{number}]")
    else:
        if not isinstance(data, Mapping):
            raise ValueError(f"{place} is not a document with the fields {', '.join(shape)}")
        old = {name for name, inner in shape.items() if isinstance(inner, Optional) and name not in data}
        if odd := ({*shape} - old) ^ {*map(str, data)}:
            what = "lacks" if sorted(odd)[0] in shape else "has an unknown field"
            raise ValueError(f"{place} {what} {sorted(odd)[0]!r}")
        for name, inner in shape.items():
            if name in old:
                continue
            check_shape(data[name], inner, f"{place}.{name}")
