"""Which files a path, a folder, a glob or the address of a storage names."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path

from .addresses import Address, Place, identity, place_of
from .refusal import Refusal

Paths = str | Place | Iterable[str | Place]
LOST = re.compile(r"(s3|gs|gcs|abfss?|hdfs|viewfs):/")
TABLES = (".csv", ".tsv", ".parquet", ".pq")


def find_files(paths: Paths) -> list[Place]:
    """The files that a path, a folder, a glob, an address or a list of these names; none twice."""
    several = [paths] if isinstance(paths, str | Path | Address) else list(paths)
    if not several:
        raise Refusal("no file is named; pass a CSV or Parquet file, a folder or a glob")
    files: list[Place] = []
    for place in map(place_of, several):
        files += _in_storage(place) if isinstance(place, Address) else _on_disk(place, str(place))
    seen: set[Path | str] = set()
    for file in files:
        if (real := identity(file)) in seen:
            raise Refusal(f"{file}: is named twice; its records would count twice, name it once")
        seen.add(real)
    return files


def _in_storage(address: Address) -> list[Address]:
    files = address.files()
    if files is None:
        return [address]
    if not (tables := [file for file in files if _named_as_table(file.name)]):
        raise Refusal(f"{address}: is a folder without CSV or Parquet files; pass a file")
    return tables


def _on_disk(path: Path, text: str) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _is_table(file))
        if not files:
            raise Refusal(f"{path}: is a folder without CSV or Parquet files; pass a file or a glob of files")
        return files
    if not path.exists() and any(letter in text for letter in "*?["):
        files = sorted(Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file())
        if not files:
            raise Refusal(f"{text}: no file matches; check the pattern")
        return files
    if not path.exists():
        lost = "; pass an address as text, a Path loses one of its slashes" if LOST.match(text) else ""
        raise Refusal(f"{path}: no such file; check the name{lost}")
    if not path.is_file():
        raise Refusal(f"{path}: is not a plain file; write the table to a file first")
    return [path]


def _is_table(path: Path) -> bool:
    return path.is_file() and _named_as_table(path.name)


def _named_as_table(name: str) -> bool:
    return not name.startswith((".", "_")) and name.lower().removesuffix(".gz").endswith(TABLES)
