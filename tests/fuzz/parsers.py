"""Documents that people and strangers write: schemas, codebooks, answers, candidates, tasks, events, statements."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random
from typing import Any

from noisewise.learned.tasks import load_tasks
from noisewise.tables.codebook import codes_in, pair_in, read_book
from noisewise.tables.schema import Schema, gaps, read_schema
from noisewise.tables.wizard import Wizard, answered
from noisewise.trusted.events import from_dict, leaves, to_dict
from noisewise.tune.candidates import read_candidates

from .core import target
from .mutate import TEXTS, as_json, as_toml, deep, flipped, odd, reshaped
from .places import laid

SCHEMA: dict[str, Any] = {
    "format": "noisewise-schema/1",
    "target": "income",
    "target_missing": "drop",
    "unit": "person",
    "rows_per_unit": 3,
    "columns": {
        "age": {"kind": "number", "low": 17, "high": 90, "missing": 40, "knots": [30, 50.5]},
        "wealth": {"kind": "number", "low": 1.0, "high": 1e6, "scale": "log"},
        "born": {"kind": "number", "unit": "years", "low": "1920-01-01", "high": "2010-01-01", "since": "1900-01-01"},
        "job": {"kind": "category", "categories": ["clerk", "farmer", 3], "unknown": "missing", "rare": ["farmer"]},
        "name": {"kind": "ignore"},
        "open": {},
        "income": {"kind": "category", "categories": ["low", "high"]},
    },
}
ANSWERS: dict[str, Any] = {
    "target": "income",
    "target_missing": "refuse",
    "public": True,
    "columns": {"age": {"kind": "number", "low": 0, "high": 120}, "job": ["clerk", "nurse"], "name": "ignore"},
}
CANDIDATES: dict[str, Any] = {
    "candidate": [{"method": "descent"}, {"method": "additive", "max_grad_norm": 0.5, "loss": "logistic"}]
}
GRID: dict[str, Any] = {"grid": {"method": ["descent", "dpsgd"], "max_grad_norm": [0.5, 1.0]}}
TASKS: dict[str, Any] = {
    "name": "tables",
    "epsilon": [0.0125, 1.0],
    "delta": 1e-8,
    "size": [2000, 60000],
    "ratio": [10, 400],
    "horizon": [20, 80],
    "rows": 300,
    "copies": 2,
    "source": [
        {"data": "gaussian", "columns": [5, 20], "losses": ["logistic", "hinge"], "basis": 0.5, "weight": 2.0},
        {"data": "census", "rescale": [0.3, 1.0], "model": "mlp", "hidden": 5, "losses": ["logistic"]},
        {"data": "table", "file": "table.csv", "label": "y", "licence": "CC0", "where": {"x": 1}, "drop": ["z"]},
        {"data": "digits", "pairs": [[3, 5]], "without": [1], "components": [4, 9]},
    ],
}
EVENTS: tuple[dict[str, Any], ...] = (
    {"kind": "Gaussian", "noise_multiplier": 2.0},
    {"kind": "Repeated", "count": 3, "event": {"kind": "Poisson", "rate": 0.01, "event": {"kind": "Gaussian", "noise_multiplier": 1.0}}},
    {"kind": "Composed", "events": [{"kind": "BoundedRange", "epsilon": 0.1}, {"kind": "ApproximateDP", "epsilon": 0.1, "delta": 1e-6}]},
    {"kind": "Selection", "candidates": [{"kind": "AtOrder", "order": 8, "rdp": 0.1}],
     "repetitions": {"kind": "TruncatedNegativeBinomial", "eta": 1.0, "gamma": 0.1}},
    {"kind": "FixedBatch", "rate": 0.5, "event": {"kind": "Gaussian", "noise_multiplier": 4.0}},
)  # fmt: skip
CODEBOOKS = (
    b"name,kind,low,high,categories,label\nage,number,0,120,,years\njob,category,,,\"1 = clerk|2 = farmer\",work\nborn,date,1920-01-01,2010-01-01,,\n",
    b"variable;code;label\nsex;1;woman\nsex;2;man\nplace;01;north\nplace;02;south\n",
    b"age        int64\njob     category\nborn    datetime64[ns]\ngood    bool\ndtype: object\n",
    b"name\ttype\tmin\tmax\tunit\tscale\nwealth\tfloat\t1\t1e6\t\tlog\nid\tid\t\t\t\t\nincome\ttarget\t\t\t\t\n",
)  # fmt: skip


def schema_text(rng: Random) -> bytes:
    return as_toml(reshaped(SCHEMA, rng), rng)


@target("schema (TOML)", schema_text, weight=3)
def schema(content: bytes) -> None:
    made = read_schema(laid("schema.toml", content))
    gaps(made)
    again = tomllib.loads(made.to_toml())
    assert again["format"] == "noisewise-schema/1"
    Schema.from_dict(made.to_dict())


def schema_data(rng: Random) -> Any:
    columns = [{"name": name, **fields} for name, fields in SCHEMA["columns"].items()]
    return reshaped({**SCHEMA, "columns": columns}, rng)


@target("schema (plain data)", schema_data, weight=3)
def schema_from_dict(data: Any) -> None:
    made = Schema.from_dict(data)
    assert Schema.from_dict(made.to_dict()).to_dict() == made.to_dict()


@target("codebook", lambda rng: flipped(rng.choice(CODEBOOKS), rng), weight=2)
def codebook(content: bytes) -> None:
    read_book(laid("codebook.csv", content))


@target(
    "pasted codes",
    lambda rng: flipped(rng.choice((b"1 = clerk\n2 = farmer, own land", b"S|M|L", b"0 to 120", *CODEBOOKS)), rng),
)
def pasted(content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    codes_in(text)
    pair_in(text)


@target("answers to the wizard (file)", lambda rng: reshaped(ANSWERS, rng), weight=2)
def answers(said: Any) -> None:
    if isinstance(said, dict):  # TOML has no other documents
        answered(Schema(age=(17, 90), job=["clerk"], name="ignore", income=["low", "high"]).columns, None, said)


WORDS = (
    *("", "number", "n", "category", "c", "date", "ignore", "rest", "back", "stop", "?", "0 120", "1e400 2", "5 1", "nan 3"),
    *("yes, no", "1 = a", "1920-01-01 2010-01-01", "years", "log", "income", "age", "drop", "refuse", *TEXTS),
)  # fmt: skip


def typed_words(rng: Random) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randrange(60))]


@target("answers to the wizard (typed)", typed_words, also=(EOFError,))
def typed(words: list[str]) -> None:
    left = iter(words)

    def ask(question: str) -> str:
        for word in left:
            return word
        raise EOFError  # as input() does

    columns = Schema(age="number", job="category", name="ignore", income=["low", "high"]).columns
    Wizard(columns, None if len(words) % 3 else "income", ask, lambda line: None).run()


def candidate_file(rng: Random) -> tuple[str, bytes]:
    document = reshaped(rng.choice((CANDIDATES, GRID)), rng)
    if rng.random() < 0.5:
        return "toml", as_toml(document, rng)
    inside = next(iter(document.values()), None) if isinstance(document, dict) else document
    return "json", as_json(inside, rng)


@target("candidates (TOML, JSON)", candidate_file)
def candidates(file: tuple[str, bytes]) -> None:
    read_candidates(laid(f"candidates.{file[0]}", file[1]))


@target("tasks (TOML)", lambda rng: as_toml(reshaped(TASKS, rng), rng), weight=2)
def tasks(content: bytes) -> None:
    path = laid("tasks.toml", content)
    laid("table.csv", b"x,y\n1,0\n")
    made = load_tasks(path)
    for source in made.sources:
        if source.file is not None:
            inside = Path(made.folder, source.file).resolve()
            assert inside.is_relative_to(made.folder.resolve()), "names a file outside of its folder"


@target("events", lambda rng: reshaped(rng.choice(EVENTS), rng), weight=3)
def events(data: Any) -> None:
    event = from_dict(data)
    assert from_dict(to_dict(event)) == event
    leaves(event)


@target("events (anything)", lambda rng: deep(rng) if rng.random() < 0.01 else odd(rng))
def events_of_anything(data: Any) -> None:
    from_dict(data)
