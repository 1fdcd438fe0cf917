"""What golden runs run: every registered method on two small tables, and commands one after the other in a folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import struct
import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from golden_text import HOME, normal

from noisewise import PrivateClassifier, PrivateRegressor
from noisewise.faces.cli import main as entry
from noisewise.methods import registry
from noisewise.tables.schema import read_schema
from noisewise.trusted.events import to_dict

TABLES = ("numbers", "mixed")
SHORT = {"steps": 6, "rank": 3}  # of the methods that have such settings; directions beyond are rounding errors
BUDGET = {"epsilon": 2.0, "delta": 1e-5}
# The first promise that a method does not refuse is recorded, with the refusals: the two tables begin at other ends.
PROMISES = {
    "numbers": [("add_remove", False), ("add_remove", True), ("replace_one", False)],
    "mixed": [("replace_one", False), ("add_remove", True), ("add_remove", False)],
}
SCHEMA = """format = "noisewise-schema/1"
target = "{target}"
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
{income}
[columns.group]
{group}
[columns.rich]
{rich}
"""
TARGETS = {
    "income": 'kind = "number"\nlow = 0\nhigh = 10',
    "group": 'kind = "category"\ncategories = ["low", "middle", "high"]',
    "rich": 'kind = "category"\ncategories = ["no", "yes"]',
}


def numbers(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four columns of numbers in [-1, 1] and a binary target."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 4)).round(3)
    return X, (X @ [1.5, -1.0, 0.5, 0.0] + rng.normal(0, 0.3, rows) > 0.2).astype(int)


def people(rows: int, seed: int) -> pd.DataFrame:
    """Numbers, a category and some missing hours; three targets: a number, three classes, two classes."""
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(17, 90, rows).round(1), rng.normal(40, 12, rows).clip(1, 99).round()
    job = rng.choice(["clerk", "farmer", "nurse"], rows)
    income = (
        (5 + (age - 50) / 20 + (hours - 40) / 10 + (job == "nurse") + rng.normal(0, 0.5, rows)).clip(0, 10).round(2)
    )
    hours[::17] = np.nan
    return pd.DataFrame({
        "age": age, "hours": hours, "job": job, "income": income,
        "group": np.select([income < 4, income < 6], ["low", "middle"], "high"),
        "rich": np.where(income > 5.3, "yes", "no"),
    })  # fmt: skip


def laid_out(folder: Path) -> Path:
    """private.csv, public.csv, new.csv and a schema for each target."""
    for name, rows, seed in (("private", 260, 1), ("public", 60, 2), ("new", 12, 3)):
        people(rows, seed).to_csv(folder / f"{name}.csv", index=False)
    for target in TARGETS:
        kinds = {name: kind if name == target else 'kind = "ignore"' for name, kind in TARGETS.items()}
        (folder / f"{target}.toml").write_text(SCHEMA.format(target=target, **kinds))
    no_bounds = (folder / "income.toml").read_text().replace("low = 17\nhigh = 90\n", "")
    (folder / "bought.toml").write_text(no_bounds)
    return folder


# Ways through the code that no method takes by default: other models, losses, batches, weights and accountants.
VARIANTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "mlp-softmax": ("dpsgd", "mixed", {}, {"model": (4,)}),
    "mlp-deep": ("descent", "numbers", {}, {"model": (4, 3)}),
    "mlp-learned": ("l2p", "numbers", {"steps": 2}, {"model": (4,)}),  # more steps would blow up a rounding error
    "mlp-squared": ("adaptive_clip", "numbers", {}, {"model": (3,), "loss": "squared"}),
    "hinge": ("dpsgd", "numbers", {}, {"loss": "hinge", "max_grad_norm": 0.5}),
    "huber-hinge": ("objective_perturbation", "numbers", {}, {"loss": "huber_hinge"}),
    "fixed-batch": ("dpsgd", "mixed", {"sampling": ("fixed", 0.2), "optimizer": "adam"}, {}),
    "poisson": ("dynamic", "numbers", {"sampling": ("poisson", 0.2)}, {}),
    "class-weight": ("descent", "mixed", {}, {"class_weight": {"low": 1.0, "middle": 2.0, "high": 0.5}}),
    "softmax-of-two": ("dpsgd", "numbers", {}, {"loss": "softmax", "size_is_public": True}),
    "ppsgd-published": ("ppsgd", "mixed", {"accounting": "paper", "sampling": ("fixed", 0.1), "steps": 14}, {}),
    "agd-published": ("agd", "numbers", {"accounting": "zcdp"}, {}),
}


def of_method(name: str, table: str, folder: Path, changes: Any = (), face: Any = ()) -> dict[str, Any]:
    """One seeded run: theta, statement, trace, steps, what it warned of, and the promises that it refused before."""
    kind, refused = registry()[name], []
    short = {field.name: SHORT[field.name] for field in fields(kind) if field.name in SHORT}
    for adjacency, size_is_public in PROMISES[table]:
        settings = {
            **BUDGET, "method": kind(**short | dict(changes)), "adjacency": adjacency,
            "size_is_public": size_is_public, "random_state": 7, **dict(face),
        }  # fmt: skip
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                fitted = (_on_numbers if table == "numbers" else _on_people)(kind, settings, folder)
        except ValueError as refusal:
            refused.append(f"{adjacency}, size {'public' if size_is_public else 'private'}: {refusal}")
            continue
        return {
            "theta": [f"torch.{fitted.fitted_.theta.dtype}", *(float(str(value)) for value in fitted.fitted_.theta)],
            "statement": _without_code(json.loads(normal(fitted.statement_.to_json()))),
            "trace": [json.dumps({**row._asdict(), "event": to_dict(row.event)}) for row in fitted.trace_],
            "steps": fitted.n_iter_,
            "warnings": [str(told.message) for told in heard if told.category.__module__.startswith("noisewise.")],
            "refused": refused,
        }
    raise AssertionError(f"{name} refuses every promise: {refused}")


def _on_numbers(kind: Any, settings: dict[str, Any], folder: Path) -> Any:
    loss = "logistic" if "logistic" in kind.losses else kind.losses[0]
    public = numbers(40, 5) if kind.needs_public else None
    return PrivateClassifier(**{"loss": loss, "bounds": (-1, 1)} | settings).fit(*numbers(240, 4), public=public)


def _on_people(kind: Any, settings: dict[str, Any], folder: Path) -> Any:
    """Three classes where the method can, else two; else a number, by regression."""
    target = "group" if "softmax" in kind.losses else "rich" if "logistic" in kind.losses else "income"
    face = PrivateRegressor if target == "income" else PrivateClassifier
    estimator = face(schema=read_schema(folder / f"{target}.toml"), **settings)
    return estimator.fit_files(folder / "private.csv", public=folder / "public.csv" if kind.needs_public else None)


def method_runs() -> dict[str, tuple[Any, ...]]:
    """The name of every run of a method, with the arguments of :func:`of_method` beside the folder."""
    plain = {f"{name} on {table}": (name, table) for name in registry() for table in TABLES}
    return plain | {f"{name} ({run[0]} on {run[1]})": run for name, run in VARIANTS.items()}


def _without_code(statement: dict[str, Any]) -> dict[str, Any]:
    """The list of code is in the recorded run folder, and not in every run again."""
    return {name: part for name, part in statement.items() if name != "code"}


def made_run(name: str, folder: Path) -> dict[str, Any]:
    method, table, *rest = method_runs()[name]
    return of_method(method, table, folder, *rest)


OLD = HOME / "folders"
PROMISE = ("--epsilon", "2", "--delta", "1e-5")
TRAIN = ("train", "private.csv", "--schema", "group.toml", *PROMISE, "--seed", "3")
# In this order, in one folder: later ones use what earlier ones wrote. No bench: what it measures moves.
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "help-train": ("train", "--help"),
    "help-evaluate": ("evaluate", "--help"),
    "help-schema": ("schema", "init", "--help"),
    "help-theory": ("theory", "--help"),
    "methods": ("methods",),
    "methods-json": ("methods", "--json"),
    "schema-init": ("schema", "init", "private.csv", "--target", "rich", "--out", "made.toml"),
    "schema-init-public": ("schema", "init", "public.csv", "--public", "--target", "rich", "--out", "filled.toml"),
    "schema-check": ("schema", "check", "made.toml", "private.csv"),
    "train-dry": (*TRAIN, "--dry-run"),
    "train": (*TRAIN, "--out", "run"),
    "train-json": ("train", "private.csv", "--schema", "rich.toml", *PROMISE, "--seed", "4", "--method", "dpsgd",
                   "--model", "4", "--json", "--out", "mlp"),
    "train-bought": ("train", "private.csv", "--schema", "bought.toml", *PROMISE, "--seed", "5",
                     "--method", "sufficient_statistics", "--bounds-epsilon", "0.5", "--out", "bought"),
    "predict": ("predict", "run", "new.csv"),
    "predict-json": ("predict", "mlp", "new.csv", "--json"),
    "evaluate-bought": ("evaluate", "run", "public.csv", "--epsilon", "1", "--seed", "6"),
    "evaluate": ("evaluate", "run", "public.csv", "--public-test"),
    "verify": ("verify", "run"),
    "verify-json": ("verify", "run", "--json"),
    "verify-statement": ("verify", "run/statement.json"),
    "audit": ("audit", "dpsgd", "--runs", "40", "--steps", "3", "--jobs", "1", "--seed", "2"),
    "report": ("report", "run", "--out", "page.html"),
    "plan": ("plan", *PROMISE, "--size", "2000", "--features", "10", "--steps", "10,100"),
    "plan-json": ("plan", *PROMISE, "--size", "2000", "--features", "10", "--steps", "10", "--rates", "0.1", "--json"),
    "compare": ("compare", "public.csv", "--schema", "group.toml", *PROMISE, "--size", "300", "--methods",
                "dpsgd,descent,only_public", "--repeats", "2", "--jobs", "1"),
    "theory-erm": ("theory", "erm"),
    "theory-tails": ("theory", "tails", "--points", "6"),
    "theory-momentum": ("theory", "momentum", "--steps", "6", "--json"),
    "theory-bounds": ("theory", "bounds", "--largest", "8", "--draws", "20", "--json"),
    "error-column": ("train", "private.csv", "--target", "wealth", *PROMISE, "--out", "never"),
    "error-budget": ("train", "private.csv", "--schema", "group.toml", "--epsilon", "0", "--delta", "1e-5"),
    "error-delta": (*TRAIN, "--delta", "0.5", "--size-is-public", "--out", "never"),
    "error-method": (*TRAIN, "--method", "magic", "--out", "never"),
    "error-loss": (*TRAIN, "--method", "objective_perturbation", "--out", "never"),
    "error-public": (*TRAIN, "--method", "ppsgd", "--out", "never"),
    "error-exists": (*TRAIN, "--out", "run"),
    "error-option": ("train", "private.csv", "--colour", "red"),
    "error-no-run": ("predict", "nowhere", "new.csv"),
    "error-evaluate": ("evaluate", "run", "public.csv"),
}  # fmt: skip
RUN = "run"  # the folder of "train" as all commands leave it
RUN_FILES = ("model.safetensors", "run.json", "statement.json", "statement.txt", "trace.json", "evaluation.json",
             "seal.json", "report.html")  # fmt: skip


def shell(*arguments: str, folder: Path) -> dict[str, Any]:
    """A command as the shell calls it, 100 columns wide, without colours: exit code and both outputs."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with _in(folder), _like_a_shell(arguments), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _told
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                entry()
            except SystemExit as stop:
                code = int(stop.code or 0)
            except Exception as error:  # a bug; the other commands are run all the same
                code, _ = 70, err.write(f"{type(error).__name__}: {error}\n")
    lines = [normal(stream.getvalue(), folder).splitlines() for stream in (out, err)]
    return {"command": " ".join(["noisewise", *arguments]), "code": code, "out": lines[0], "err": lines[1]}


def _told(message: Any, category: type[Warning], *_: Any) -> None:
    """noisewise's own warnings, without the line that they came from; those of libraries are not ours."""
    if category.__module__.startswith("noisewise."):
        sys.stderr.write(f"{category.__name__}: {message}\n")


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _like_a_shell(arguments: tuple[str, ...]) -> Iterator[None]:
    argv, environment, script = sys.argv, dict(os.environ), sys.modules["__main__"]
    package = script.__package__
    sys.argv, script.__package__ = ["noisewise", *arguments], None  # else help would name "python -m pytest"
    os.environ.update(COLUMNS="100", LINES="50", NO_COLOR="1", TERM="dumb")
    for name in ("FORCE_COLOR", "PY_COLORS", "TERMINAL_WIDTH"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        sys.argv, script.__package__ = argv, package
        os.environ.clear()
        os.environ.update(environment)


def of_commands(folder: Path) -> dict[str, dict[str, Any]]:
    """Every command, in order; of the page that ``report`` writes, a hash of its text."""
    laid_out(folder)
    told = {name: shell(*arguments, folder=folder) for name, arguments in COMMANDS.items()}
    told["compare"]["out"] = [re.sub(r"\d+\.\d $", "SECONDS ", line) for line in told["compare"]["out"]]
    page = "\n".join(of_file(folder / "page.html"))
    told["report"]["sha256"] = sha256(page.encode()).hexdigest()
    return told


def of_file(path: Path) -> list[str]:
    """The lines of a file of a run folder; tensors as numbers, and of a seal whether each sum is that of its file."""
    if path.suffix == ".safetensors":
        content = path.read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        theta = np.frombuffer(content[8 + length :], dtype=np.float32)
        return [content[8 : 8 + length].decode(), *(str(value) for value in theta)]
    if path.name == "seal.json":  # run.json holds the moment, so sums vary
        seal = json.loads(path.read_text())
        right = {
            name: sha256((path.parent / name).read_bytes()).hexdigest() == sum_ for name, sum_ in seal["sha256"].items()
        }
        return [json.dumps({**seal, "sha256": right})]
    text = normal(path.read_text(encoding="utf-8"), path.parent.parent)
    return (text.replace("><", ">\n<") if path.suffix == ".html" else text).splitlines()


def old_folders() -> list[str]:
    return sorted(place.name for place in OLD.iterdir() if place.is_dir())


def of_old(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """What today's commands make of a folder of an earlier version: verdict, predictions, whether it is reported."""
    place = str(OLD / name)
    asked = {
        "verify": ("verify", place, "--json"),
        "predict": ("predict", place, str(OLD / "rows.csv")),
        "report": ("report", place, "--out", f"{name}.html"),
    }
    told = {command: shell(*arguments, folder=folder) for command, arguments in asked.items()}
    return {command: {key: said[key] for key in ("code", "out", "err")} for command, said in told.items()}


torch.set_num_threads(1)  # sums of floats depend on how many threads share them
