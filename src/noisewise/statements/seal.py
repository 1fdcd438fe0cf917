"""The seal of a run folder: the SHA-256 of every file, and how its files are read. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..accounts.atomic import write_atomically

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
