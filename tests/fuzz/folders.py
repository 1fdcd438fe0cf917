"""Run folders, statements, spending files, checkpoints and protectors, as somebody hands them on who may seal anew."""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import noisewise as nw
from noisewise.accounts import Budget, BudgetExhausted, Terms
from noisewise.accounts.journal.folder import FORMAT as JOURNAL
from noisewise.accounts.journal.folder import Journal
from noisewise.accounts.purse import Purse
from noisewise.evidence.export.plain_model import plain_model
from noisewise.evidence.export.standalone import Scores
from noisewise.evidence.report.page import report_page
from noisewise.evidence.runs import fitted_in, load
from noisewise.learned.trained import read_checkpoint, write_checkpoint
from noisewise.protect.learned.zoo import as_bytes, load_protector, shipped
from noisewise.statements.seal import SEALED, reseal
from noisewise.statements.statement import verify_data
from noisewise.statements.verify import verify, verify_contents
from noisewise.trusted.events import Gaussian, to_dict

from .core import target
from .mutate import as_json, flipped, odd, reshaped
from .places import emptied, folder, laid

EVALUATION = [{
    "metric": "accuracy", "value": 0.8, "interval": [0.7, 0.9], "rows": "private", "epsilon": 0.5, "delta": 1e-7, "when": "2026-01-01",
    "file": "test.csv", "unit": "record", "metrics": {"accuracy": {"value": 0.8, "interval": [0.7, 0.9]}}, "verdict": "fair",
    "confusion": {"classes": ["low", "high"], "counts": [[10.0, 2.0], [3.0, 9.0]]},
    "calibration": [{"predicted": 0.2, "observed": 0.25, "share": 0.5}],
}]  # fmt: skip
AUDIT = [{
    "kind": "membership", "lower_bound": 0.3, "claimed": 1.0, "confidence": 0.95, "runs": 100, "verdict": "consistent",
    "when": "2026-01-01", "unit": "record",
}]  # fmt: skip
COMPARISON = {
    "epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove", "size": 400, "repeats": 3, "metric": "accuracy",
    "rows": [{"method": "descent", "mean": 0.8, "standard_error": 0.01, "refused": None, "public": False}],
}  # fmt: skip


@cache
def runs() -> tuple[dict[str, bytes], ...]:
    """The files of three small runs: a table, an array by DP-SGD, and a perceptron; each with all that may be added."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 3))
    y = X[:, 0] > 0
    common: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "random_state": 0}
    made = []
    for how in ({}, {"method": "dpsgd"}, {"method": "descent", "model": (3,)}):
        place = folder(0) / f"seed-{len(made)}"
        shutil.rmtree(place, ignore_errors=True)
        nw.save(nw.PrivateClassifier(**common, **how).fit(X, y), place)
        for name, document in (("evaluation", EVALUATION), ("audit", AUDIT), ("comparison", COMPARISON)):
            (place / f"{name}.json").write_text(json.dumps(document))
        reseal(place)
        made.append({name: (place / name).read_bytes() for name in ("seal.json", *SEALED) if (place / name).exists()})
    return tuple(made)


@cache
def documents() -> tuple[dict[str, Any], ...]:
    return tuple({name: json.loads(text) for name, text in run.items() if name.endswith(".json")} for run in runs())


def changed_run(rng: Random) -> dict[str, bytes]:
    """The files of a run with one or two changed: a field of a document, or bytes."""
    at = rng.randrange(len(runs()))
    contents = dict(runs()[at])
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([*contents] if contents else ["run.json"])
        if name.endswith(".json") and rng.random() < 0.85 and name in documents()[at]:
            contents[name] = as_json(reshaped(documents()[at][name], rng), rng)
        elif rng.random() < 0.1:
            contents.pop(name, None)
        elif name in contents:
            contents[name] = flipped(contents[name], rng)
    return contents


def needed(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {**runs()[0], **contents}


@target("run folder, loaded (files sealed anew)", changed_run, weight=1.5)
def loaded(contents: dict[str, bytes]) -> None:
    fitted_in(Path("run"), needed(contents))


@target("run folder, verified (files sealed anew)", changed_run, weight=1.5)
def verified(contents: dict[str, bytes]) -> None:
    str(verify_contents(Path("run"), needed(contents)))


def on_disk(contents: dict[str, bytes], rng: Random) -> Path:
    """The files in a folder, with a seal that holds or one that does not."""
    place = emptied("run")
    for name, content in contents.items():
        (place / name).write_bytes(content)
    if rng.random() < 0.8:
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if name in SEALED}
        (place / "seal.json").write_text(json.dumps({"format": "noisewise-seal/1", "sha256": digests}))
    return place


def changed_folder(rng: Random) -> tuple[dict[str, bytes], int]:
    return changed_run(rng), rng.randrange(2**32)


@target("run folder on disk: load, verify", changed_folder, weight=0.3)
def whole_folder(given: tuple[dict[str, bytes], int]) -> None:
    place = on_disk(given[0], Random(given[1]))
    str(verify(place))
    load(place)


@target("report of a run folder", changed_folder, weight=0.1)
def report(given: tuple[dict[str, bytes], int]) -> None:
    page = report_page(on_disk(given[0], Random(given[1])))
    assert "<script>" not in page.lower(), "a text of the folder became part of the page"


@target("statement, verified", lambda rng: reshaped(rng.choice(documents())["statement.json"], rng), weight=2)
def statement(data: Any) -> None:
    str(verify_data(data))


@target("statement, a file", lambda rng: as_json(reshaped(documents()[0]["statement.json"], rng), rng))
def statement_file(content: bytes) -> None:
    str(verify(laid("statement.json", content)))


# -- spending files --------------------------------------------------------------------------------------------------

BUDGET, FILTER = Budget(1.0, 1e-6), Terms.adaptive("gdp", one_shot_delta=1e-7)


@cache
def spending_seed(filtered: bool) -> Any:
    path = folder(0) / f"seed-{filtered}.spending.json"
    path.unlink(missing_ok=True)
    purse = Purse(BUDGET, FILTER if filtered else None, store=path)
    with purse.part(Terms.adaptive("gdp"), share=0.25, what="bounds") as part:
        part.meter.spend(Gaussian(part.meter.noise_for(0.5)))
    purse.part(Terms.adaptive("gdp"), share=0.25, what="training")
    return json.loads(path.read_text())


def changed_spending(rng: Random) -> tuple[bool, bytes]:
    filtered = rng.random() < 0.5
    return filtered, as_json(reshaped(spending_seed(filtered), rng), rng)


@target("spending file", changed_spending, weight=2, also=(BudgetExhausted,))
def spending(given: tuple[bool, bytes]) -> None:
    """Whatever the file says, a purse over it is refused, or never has more than its cap."""
    purse = Purse(BUDGET, FILTER if given[0] else None, store=laid("own.spending.json", given[1]))
    assert min(purse.left) >= 0 and purse.left[0] <= 1
    purse.largest(0.5)


# -- checkpoints -----------------------------------------------------------------------------------------------------

SETTINGS = {"module": "abc", "epsilon": 1.0}
HELD = bytes(range(24))
LINES: list[Any] = [
    {"part": 0},
    {"block": 0.25},
    {"charged": "gradient", "event": to_dict(Gaussian(3.0))},
    {"answered": {"clip": 1.0, "noise_std": 3.0, "norm": None}, "at": 0, "count": 4, "dtype": "float32", "shape": [2, 2],
     "noise_std": 3.0, "below": None, "crc": zlib.crc32(HELD[:16])},
    {"charged": "Count", "event": to_dict(Gaussian(9.0))},
    {"answered": {"clip": None, "noise_std": 9.0, "norm": None}, "at": 16, "count": 1, "dtype": "float64", "shape": [],
     "noise_std": 9.0, "below": 0.5, "crc": zlib.crc32(HELD[16:])},
    {"forfeited": 0.25},
    {"block": 0.5},
    {"charged": "gradient", "event": to_dict(Gaussian(3.0))},
    {"refused": True},
    {"closed": 0.4},
    {"finished": True},
]  # fmt: skip


def changed_journal(rng: Random) -> dict[str, bytes]:
    settings = {"format": JOURNAL, **SETTINGS}
    lines, answers = LINES, HELD
    if rng.random() < 0.2:
        settings = reshaped(settings, rng)
    else:
        lines = reshaped(LINES[: rng.randrange(1, len(LINES) + 1)], rng)
    written = b"".join(json.dumps(line).encode() + b"\n" for line in (lines if isinstance(lines, list) else [lines]))
    if rng.random() < 0.2:
        written = flipped(written, rng)
    if rng.random() < 0.1:
        answers = flipped(answers, rng)
    return {"settings.json": as_json(settings, rng), "journal.jsonl": written, "answers.bin": answers}


@target("checkpoint of a module", changed_journal, weight=2, also=(RuntimeError,))
def checkpoint(files: dict[str, bytes]) -> None:
    place = folder(0) / "checkpoint"
    place.mkdir(exist_ok=True)
    for name, content in files.items():
        (place / name).write_bytes(content)
    Journal(place, SETTINGS).close()


# -- protectors ------------------------------------------------------------------------------------------------------


@cache
def protector_seed() -> tuple[bytes, Any]:
    learned = shipped("clear")
    return as_bytes(learned), learned.header


def changed_protector(rng: Random) -> bytes:
    content, header = protector_seed()
    if rng.random() < 0.3:
        return flipped(content, rng)
    length = int.from_bytes(content[:8], "little")
    outer = json.loads(content[8 : 8 + length])
    if rng.random() < 0.7:
        outer["__metadata__"] = {"noisewise": json.dumps(reshaped(header, rng))}
    else:
        outer = reshaped(outer, rng)
    made = json.dumps(outer).encode()
    made += b" " * (-len(made) % 8)
    return (
        (len(made) if rng.random() < 0.95 else rng.choice((0, 2**40, 2**63))).to_bytes(8, "little")
        + made
        + content[8 + length :]
    )


@target("protector", changed_protector, weight=0.5)
def protector(content: bytes) -> None:
    learned = load_protector(laid("p.safetensors", content))
    learned.outside(size=1000.0, dimension=10.0, epsilon=1.0, horizon=20.0)


@cache
def training_seed() -> tuple[bytes, Any]:
    path = folder(0) / "p.checkpoint"
    write_checkpoint(path, {"recipe": {"rate": 0.1}}, ({"weight.a": torch.zeros(2)}, {"epoch": 3}))
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return content, json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["noisewise"])


def changed_training(rng: Random) -> bytes:
    content, header = training_seed()
    if rng.random() < 0.3:
        return flipped(content, rng)
    length = int.from_bytes(content[:8], "little")
    outer = json.loads(content[8 : 8 + length])
    outer["__metadata__"] = {"noisewise": json.dumps(reshaped(header, rng))}
    made = json.dumps(outer).encode()
    made += b" " * (-len(made) % 8)
    return len(made).to_bytes(8, "little") + made + content[8 + length :]


@target("checkpoint of a protector", changed_training, weight=0.5)
def training(content: bytes) -> None:
    read_checkpoint(laid("p.checkpoint", content), {"recipe": {"rate": 0.1}})


# -- exported models score whatever rows they are given ----------------------------------------------------------------


@cache
def exported() -> dict[str, Any]:
    return json.loads(json.dumps(plain_model(fitted_in(Path("run"), runs()[0]))))


def odd_rows(rng: Random) -> Any:
    if rng.random() < 0.5:
        return [[odd(rng) for _ in range(rng.choice((3, 3, 3, 2, 0)))] for _ in range(rng.randrange(3))]
    return {f"x{i}": [odd(rng) for _ in range(2)] for i in range(rng.choice((3, 3, 2)))}


@target("exported model scores rows", odd_rows, weight=0.5)
def scores(rows: Any) -> None:
    Scores(exported())(rows)
