"""Folders that were edited: ``noisewise verify RUN`` once read statement.json alone and said yes to all of these."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)


def saved(place, epsilon=1.0, **settings):
    return nw.save(nw.PrivateClassifier(epsilon, 1e-6, bounds=(-1, 1), **settings).fit(X, Y), place)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A private run, one at a tenth of its epsilon, and a seeded one."""
    home = tmp_path_factory.mktemp("made")
    return {
        "loose": saved(home / "loose"),
        "strict": saved(home / "strict", 0.1),
        "seeded": saved(home / "seeded", random_state=7),
    }


def seal_again(run):
    """What anybody can do to a folder after editing it."""
    path = run / "seal.json"
    seal = json.loads(path.read_text())
    seal["sha256"] = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in seal["sha256"]}
    path.write_text(json.dumps(seal))


def edited(run, name, change):
    document = json.loads((run / name).read_text())
    change(document)
    (run / name).write_text(json.dumps(document, indent=2))


@pytest.fixture
def verified(shell):
    """Whether ``noisewise verify`` says yes to a folder."""

    def ask(run):
        told = shell("verify", run)
        assert told.err == "" and told.out.split(":")[0] == {0: "yes", 1: "no"}[told.code], told
        return told.code == 0

    return ask


def another_statement(run, made):
    shutil.copy(made["strict"] / "statement.json", run / "statement.json")


def another_statement_and_text(run, made):
    another_statement(run, made)
    shutil.copy(made["strict"] / "statement.txt", run / "statement.txt")


def another_text(run, made):
    text = (run / "statement.txt").read_text()
    (run / "statement.txt").write_text(text.replace("(1, 1e-06)", "(0.01, 1e-06)"))


def another_model(run, made):
    edited(run, "statement.json", lambda statement: statement["model"].update(loss="squared"))


def more_noise(run, made):
    def change(trace):
        for row in trace["rows"]:
            row["noise_std"] *= 10

    edited(run, "trace.json", change)


def more_noise_in_events(run, made):
    def change(trace):
        for row in trace["rows"]:
            row["event"]["noise_multiplier"] *= 10

    edited(run, "trace.json", change)


def fewer_questions(run, made):
    edited(run, "trace.json", lambda trace: trace["rows"].pop())


def another_epsilon(run, made):
    edited(run, "run.json", lambda document: document["settings"].update(epsilon=0.1))


def another_relation(run, made):
    edited(run, "run.json", lambda document: document["settings"].update(adjacency="replace_one"))


def another_method(run, made):
    edited(run, "run.json", lambda document: document["settings"].update(method="dpsgd"))


def a_seed(run, made):
    edited(run, "run.json", lambda document: document["settings"].update(random_state=7))


EDITS = [another_statement, another_statement_and_text, another_text, another_model, more_noise,
         more_noise_in_events, fewer_questions, another_epsilon, another_relation, another_method, a_seed]  # fmt: skip


@pytest.mark.sample(11)
@pytest.mark.parametrize("sealed_again", [False, True], ids=["", "sealed again"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edited_folder_is_refused(made, tmp_path, verified, edit, sealed_again):
    run = Path(shutil.copytree(made["loose"], tmp_path / "run"))
    assert verified(run)
    edit(run, made)
    if sealed_again:
        seal_again(run)
    assert not verified(run)


@pytest.mark.parametrize("sealed_again", [False, True], ids=["", "sealed again"])
def test_a_seeded_run_flipped_to_private_is_refused(made, tmp_path, verified, sealed_again):
    run = Path(shutil.copytree(made["seeded"], tmp_path / "run"))
    assert not verified(run)
    edited(run, "statement.json", lambda statement: statement.update(simulation=False))
    lines = (run / "statement.txt").read_text().splitlines(keepends=True)
    (run / "statement.txt").write_text("".join(line for line in lines if not line.startswith("NOT PRIVATE")))
    if sealed_again:
        seal_again(run)
    assert not verified(run)


@pytest.mark.parametrize("name", ["statement.txt", "run.json", "trace.json", "model.safetensors", "seal.json"])
def test_a_folder_that_lacks_a_file_is_refused(made, tmp_path, verified, name):
    run = Path(shutil.copytree(made["loose"], tmp_path / "run"))
    (run / name).unlink()
    assert not verified(run)


def test_the_model_of_another_run_is_refused(made, tmp_path, verified):
    run = Path(shutil.copytree(made["loose"], tmp_path / "run"))
    shutil.copy(made["strict"] / "model.safetensors", run / "model.safetensors")
    assert not verified(run)


@pytest.mark.guard("an edited promise alone was always refused")
def test_a_lowered_epsilon_is_refused(made, tmp_path, verified):
    run = Path(shutil.copytree(made["loose"], tmp_path / "run"))
    edited(run, "statement.json", lambda statement: statement["promise"].update(epsilon=0.1))
    assert not verified(run)
    seal_again(run)
    assert not verified(run)
