"""What the tests of commands on files share: the command line as the shell calls it, and files to work on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from noisewise.faces.cli import main as entry

SCHEMA = """format = "noisewise-schema/1"
target = "income"
[columns.age]
kind = "number"
low = 17
high = 90
[columns.hours]
kind = "number"
low = 0
high = 99
missing = 40
[columns.job]
kind = "category"
categories = ["clerk", "farmer", "nurse"]
[columns.income]
kind = "category"
categories = ["low", "high"]
"""


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    """Ages, hours and jobs, and an income that follows from them."""
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(17, 90, rows).round(1), rng.normal(40, 12, rows).clip(1, 99).round()
    job = rng.choice(["clerk", "farmer", "nurse"], rows)
    high = (age - 50) / 20 + (hours - 40) / 10 + (job == "nurse") + rng.normal(0, 0.5, rows) > 0.3
    return pd.DataFrame({"age": age, "hours": hours, "job": job, "income": np.where(high, "high", "low")})


class Told(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


def shell_of(monkeypatch, capsys) -> Callable[..., Told]:
    """``shell("train", path, ...)``: the entry point itself, as the shell calls it."""

    def call(*arguments: object) -> Told:
        monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, arguments)])
        code = 0
        try:
            entry()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Told(code, *capsys.readouterr())

    return call


def laid_out(folder: Path) -> Path:
    """private.csv, public.csv and a complete schema.toml in a folder, which is where we are from now on."""
    os.chdir(folder)
    people(400, 1).to_csv("private.csv", index=False)
    people(200, 2).to_csv("public.csv", index=False)
    Path("schema.toml").write_text(SCHEMA)
    return folder
