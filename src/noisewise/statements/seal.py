"""The seal of a run folder: the SHA-256 of every file, and how its files are read. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..accounts.atomic import write_atomically
from ..trusted.arithmetic import GRADES
from .reading_list import CODE

FORMAT, TRACE_FORMAT, SEAL_FORMAT = "noisewise-run/1", "noisewise-trace/1", "noisewise-seal/1"
NEEDED = ("run.json", "model.safetensors", "statement.json", "trace.json")
PROTECTOR = "protector.safetensors"  # where the run has trained one
SEALED = (*NEEDED, "statement.txt", "evaluation.json", "comparison.json", "audit.json", PROTECTOR)
MAX_FILE_BYTES = 1 << 30  # a larger one is not read


def put_json(path: Path, document: Any) -> None:
    """Write a JSON document, all of it or nothing; never through a link that somebody has laid out."""
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False, default=_plain) + "\n"
    write_atomically(path, text.encode())


def checked_contents(place: Path) -> dict[str, bytes]:
    """Every sealed file, read once, so that what was checked is what is used."""
    if not place.is_dir():
        raise ValueError(f"{place}: no such run folder; pass the folder that noisewise train wrote")
    seal = json_of(place, {"seal.json": _bytes(place, "seal.json")}, "seal.json")
    digests = seal.get("sha256") if isinstance(seal, dict) and seal.get("format") == SEAL_FORMAT else None
    if not isinstance(digests, dict):
        raise ValueError(f"{place}: seal.json is not a seal; pass the folder that noisewise train wrote")
    contents = {}
    for name in SEALED:
        if name in digests or name in NEEDED or (place / name).exists():
            contents[name] = _bytes(place, name)
            if _digest(contents[name]) != digests.get(name):
                raise ValueError(f"{place}: {name} was changed since it was sealed; train again or restore the folder")
    return contents


def _bytes(place: Path, name: str) -> bytes:
    path = place / name
    if not path.is_file():
        raise ValueError(f"{place}: lacks {name}; pass the folder that noisewise train wrote")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{place}: {name} is too large to be one of a run")
    return path.read_bytes()


class DuplicateField(ValueError):
    """A JSON object with the same field twice."""


def parsed(content: bytes) -> Any:
    """A JSON document; a field written twice would be read one way by people and another way by the parser."""

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(document := dict(pairs)) < len(pairs):
            raise DuplicateField("a field is written twice")
        return document

    return json.loads(content.decode("utf-8-sig"), object_pairs_hook=no_repeats)


def json_of(place: Path, contents: Mapping[str, bytes], name: str) -> Any:
    """One of the files as JSON."""
    try:
        return parsed(contents[name])
    except DuplicateField as error:
        raise ValueError(f"{place}: {name}: {error}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{place}: {name} is not a JSON document") from None


def check_seal(folder: str | Path) -> None:
    """Raise ValueError unless this is a run folder whose files are as they were sealed."""
    checked_contents(Path(folder))


def reseal(folder: str | Path) -> None:
    """Write the seal of the files as they are now; for commands that add an evaluation, a comparison or an audit."""
    place = Path(folder)
    digests = {name: _digest((place / name).read_bytes()) for name in SEALED if (place / name).is_file()}
    put_json(place / "seal.json", {"format": SEAL_FORMAT, "sha256": digests})


def formatted(place: Path, contents: Mapping[str, bytes], name: str, form: str) -> dict[str, Any]:
    """A JSON object of a format that this version reads."""
    document = json_of(place, contents, name)
    if not isinstance(document, dict) or document.get("format") != form:
        raise ValueError(f"{place}: {name} is not of the format {form}, which this version reads")
    return document


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(value: Any) -> Any:
    """numpy numbers as JSON has them."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to a run folder")


# Shapes of JSON documents: which fields there are, and of which kind each is; first of all, of a statement.


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
