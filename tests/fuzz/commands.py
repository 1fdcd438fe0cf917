"""The command line in this process: whatever the options, it ends with 0, 1 or 2 and one clear line, and shows no cell."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from noisewise.faces.cli import main

from .core import SECRETS, target
from .folders import runs
from .mutate import NUMBERS, TEXTS
from .parsers import schema_text
from .places import folder
from .tables import HEAD, PLANTED, ROWS, csv_of

WORDS = (
    *("private.csv", "odd.csv", "schema.toml", "odd.toml", "run", "none", "run/statement.json", "tasks.toml", "/etc", ".", "out"),
    *(repr(number) for number in NUMBERS[:-3] if len(repr(number)) < 60),
    *(text for text in TEXTS if "\0" not in text and "\ud800" not in text and len(text) < 100),
)  # fmt: skip
OPTIONS = (
    *("--epsilon", "--delta", "--schema", "--target", "--method", "--loss", "--model", "--adjacency", "--out", "--separator"),
    *("--decimal", "--json", "--size", "--columns", "--steps", "--rate", "--seed", "--bounds-epsilon", "--public", "--cache"),
    *("--max-grad-norm", "--force", "--answers", "--to", "--help", "--unit", "--rows-per-unit", "--tune", "--candidates"),
    *("--protector", "--jobs", "--private", "--no-open", "--kind", "--runs", "--rows", "--repeats", "--data", "--classes"),
)  # fmt: skip
COMMANDS = (
    ("train", "odd.csv", "--schema", "schema.toml", "--epsilon", "2", "--delta", "1e-6", "--out", "out"),
    ("train", "private.csv", "--schema", "odd.toml", "--epsilon", "2", "--delta", "1e-6", "--out", "out"),
    ("verify", "run"), ("verify", "run/statement.json"), ("report", "run", "--out", "page.html"), ("methods",), ("methods", "descent"),
    ("predict", "run", "odd.csv", "--out", "out.csv"), ("evaluate", "run", "odd.csv", "--epsilon", "1"), ("export", "run", "--to", "json"),
    ("schema", "init", "odd.csv", "--target", "income", "--out", "new.toml"), ("schema", "check", "odd.toml", "odd.csv"),
    ("schema", "wizard", "odd.csv", "--answers", "odd.toml", "--out", "new.toml"), ("protector", "list"), ("effects", "run"),
    ("plan", "--epsilon", "1", "--delta", "1e-6", "--size", "1000", "--columns", "4"), ("protector", "show", "clear"),
)  # fmt: skip


@cache
def desk(process: int) -> Path:
    """A folder with files to name; commands run inside of it."""
    place = folder(process) / "desk"
    shutil.rmtree(place, ignore_errors=True)
    (place / "run").mkdir(parents=True)
    for name, content in runs()[1].items():
        (place / "run" / name).write_bytes(content)
    (place / "private.csv").write_bytes(b"\n".join([HEAD, *ROWS, *PLANTED[:1]]) + b"\n")
    (place / "schema.toml").write_text(
        'format = "noisewise-schema/1"\ntarget = "income"\n[columns.age]\nkind = "number"\nlow = 17\nhigh = 90\n'
        '[columns.job]\nkind = "category"\ncategories = ["clerk", "nurse"]\n[columns.hours]\nkind = "number"\nlow = 0\nhigh = 99\n'
        '[columns.name]\nkind = "ignore"\n[columns.income]\nkind = "category"\ncategories = ["low", "high"]\n'
    )
    return place


def command(rng: Random) -> tuple[list[str], bytes, bytes]:
    words = list(rng.choice(COMMANDS))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        kind = rng.random()
        if kind < 0.4 and len(words) > 1:
            words[rng.randrange(1, len(words))] = rng.choice(WORDS)
        elif kind < 0.5:
            del words[rng.randrange(len(words))]
            words = words or ["--version"]
        else:
            words += [rng.choice(OPTIONS), rng.choice(WORDS)][: rng.choice((1, 2, 2, 2))]
    file = csv_of(rng)[1]
    first = file.replace(b"\r", b"\n").split(b"\n", 1)[0]
    if any(secret.encode() in first for secret in SECRETS) or file[:1] != HEAD[:1]:  # else a header may be quoted
        file = HEAD + b"\n" + b"\n".join(rng.sample(PLANTED, 3)) + b"\n"
    return words, file, schema_text(rng)


def main_of(words: list[str]) -> tuple[Any, str]:
    """The exit code, and all that was said."""
    said, before = io.StringIO(), sys.argv
    sys.argv = ["noisewise", *words]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as stop:
        return stop.code or 0, said.getvalue()
    finally:
        sys.argv = before
    return 0, said.getvalue()


def ran(given: tuple[list[str], bytes, bytes]) -> None:
    words, file, schema = given
    place, before = desk(os.getpid()), os.getcwd()
    (place / "odd.csv").write_bytes(file)
    (place / "odd.toml").write_bytes(schema)
    os.chdir(place)
    stdin, sys.stdin = sys.stdin, io.StringIO("")
    try:
        code, said = main_of(words)
    finally:
        sys.stdin = stdin
        os.chdir(before)
        for name in ("out", "out.csv", "new.toml", "page.html", "model.json"):
            path = place / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert code in (0, 1, 2, 130), f"exit code {code}"
    assert "Traceback" not in said, "a traceback"
    public = "init" in words or "wizard" in words or "--public" in words  # rows that are said to be public may be shown
    assert public or not any(secret in said for secret in SECRETS), "shows a cell"
    if code:
        raise ValueError("refused")


@target("command line", command, weight=0.03)
def command_line(given: tuple[list[str], bytes, bytes]) -> None:
    try:
        ran(given)
    except ValueError as refused:
        if str(refused) != "refused":
            raise
