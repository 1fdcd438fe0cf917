"""Which files a path, a folder or a glob names."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from .refusal import Refusal

Paths = str | Path | Iterable[str | Path]
TABLES = (".csv", ".tsv", ".parquet", ".pq")


def find_files(paths: Paths) -> list[Path]:
    """The files that a path, a folder, a glob or a list of these names; none twice."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not several:
        raise Refusal("no file is named; pass a CSV or Parquet file, a folder or a glob")
    files = [file for path in several for file in _expand(str(path))]
    seen: set[Path] = set()
    for file in files:
        if (real := file.resolve()) in seen:
            raise Refusal(f"{file}: is named twice; its records would count twice, name it once")
        seen.add(real)
    return files


def _expand(text: str) -> list[Path]:
    path = Path(text)
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
        raise Refusal(f"{path}: no such file; check the name")
    if not path.is_file():
        raise Refusal(f"{path}: is not a plain file; write the table to a file first")
    return [path]


def _is_table(path: Path) -> bool:
    hidden = path.name.startswith((".", "_"))
    return path.is_file() and not hidden and path.name.lower().removesuffix(".gz").endswith(TABLES)
