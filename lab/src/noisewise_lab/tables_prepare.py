"""Five public data sets as tables for ``noisewise bench tables``: rows as they are, and a schema for each.

Bounds are round numbers as a codebook gives them. The files of ipums-br and bank name no columns: there, bounds are
those of the coding, which for these public files is what occurs, rounded outward. Categories are those that occur;
a question mark stands for a missing value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from noisewise.tables.schema import Column, Schema
from noisewise.tables.values import is_missing_word

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Source:
    """A file, what in it is the target, what is left out, and the bounds of its numbers (``other``: of all others)."""

    file: str
    target: str
    bounds: Mapping[str, Bounds]
    other: Bounds | None = None
    drop: Sequence[str] = ()
    ignore: Sequence[str] = ()
    note: str = ""
    classes: Sequence[int | str] = (0, 1)


CODES = "The published file names no columns: bounds are those of its coding, what occurs rounded outward."
SOURCES = {
    "adult": Source(
        "adult_uci.parquet",
        "y",
        {
            "age": (17, 90),
            "fnlwgt": (0, 1_500_000),
            "education_num": (1, 16),
            "capital_gain": (0, 100_000),
            "capital_loss": (0, 5_000),
            "hours_per_week": (1, 99),
        },
        drop=("income", "split"),
        note="UCI Adult, both parts; y = 1: income above 50,000. Bounds as in its codebook, or round.",
    ),
    "ipums-br": Source(
        "ipums_br.parquet",
        "y",
        {
            **dict.fromkeys(("x6", "x8", "x14", "x19", "x51"), (1, 2)),
            "x7": (0, 6),
            "x9": (1, 30),
            "x10": (1, 27),
            "x11": (0, 9),
            "x12": (0, 4),
            "x13": (10, 100),
            "x50": (0, 140),
            "x52": (0, 90),
        },
        other=(0, 1),
        note=f"Brazilian census (IPUMS-International), y = 1: monthly income above $300. {CODES}",
    ),
    "bank": Source(
        "bank_lee_kifer.parquet",
        "y",
        {
            "x1": (18, 100),
            "x19": (-10_000, 110_000),
            "x24": (0, 400),
            "x25": (0, 5_000),
            "x26": (1, 65),
            "x28": (0, 900),
            "x29": (0, 300),
        },
        other=(0, 1),
        note=f"UCI Bank marketing, coded by Lee and Kifer; y = 1: subscribed. {CODES}",
    ),
    "cadata": Source(
        "cadata.parquet",
        "median_house_value",
        {
            "longitude": (-125, -114),
            "latitude": (32, 42),
            "housing_median_age": (0, 52),
            "total_rooms": (0, 40_000),
            "total_bedrooms": (0, 6_500),
            "population": (0, 36_000),
            "households": (0, 6_500),
            "median_income": (0, 15),
            "median_house_value": (0, 500_001),
        },
        note="California housing (Pace and Barry); values above 500,000 are written 500,001. Round bounds.",
    ),
    "electrical": Source(
        "electrical_grid.parquet",
        "stab",
        {
            **{f"tau{i}": (0.5, 10) for i in (1, 2, 3, 4)},
            "p1": (1.5, 6),
            **{f"p{i}": (-2, -0.5) for i in (2, 3, 4)},
            **{f"g{i}": (0.05, 1) for i in (1, 2, 3, 4)},
            "stab": (-0.1, 0.12),
        },
        ignore=("stabf",),
        note="UCI Electrical grid stability (simulated): bounds of the simulation; stabf is the sign of stab.",
    ),
}


def schema_of(frame: pd.DataFrame, source: Source) -> Schema:
    """Declared bounds for numbers; the texts of any other column are its categories."""
    return Schema(tuple(_column(str(name), frame[name], source) for name in frame.columns), source.target)


def _column(name: str, cells: pd.Series, source: Source) -> Column:
    if name in source.ignore:
        return Column(name, "ignore")
    if name in source.bounds:
        return Column(name, "number", *source.bounds[name])
    if name == source.target:
        return Column(name, "category", categories=tuple(source.classes))
    if pd.api.types.is_numeric_dtype(cells.dtype):
        if source.other is None:
            raise ValueError(f"{source.file}: no bounds are known for the column {name!r}")
        return Column(name, "number", *source.other)
    texts = sorted(str(text) for text in cells.dropna().unique())
    return Column(name, "category", categories=tuple(text for text in texts if not is_missing_word(text)))


def write_table(frame: pd.DataFrame, schema: Schema, path: Path, note: str) -> None:
    """``path``.parquet and ``path``.toml."""
    frame.to_parquet(path.with_name(path.name + ".parquet"), index=False, compression="zstd")
    path.with_name(path.name + ".toml").write_text(schema.to_toml(top=[note]), encoding="utf-8")


def prepare(folder: Path, to: Path) -> list[str]:
    """Write every table whose file is in ``folder``; a line about each."""
    to.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, source in SOURCES.items():
        path = folder / source.file
        if not path.exists():
            lines.append(f"{name}: {source.file} is not in {folder}, left out")
            continue
        frame = pd.read_parquet(path).drop(columns=list(source.drop))
        write_table(frame, schema_of(frame, source), to / name, source.note)
        lines.append(f"{name}: {len(frame)} rows, {frame.shape[1]} columns, target {source.target}")
    return lines
