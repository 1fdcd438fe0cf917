"""Runs that no curator made: method, size and trace of a folder; and what was paid for, forgotten by a copy or a refusal."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.accounts.journal import Journal, closed_journal
from noisewise.accounts.journal.chain import Chain
from noisewise.budget import Terms
from noisewise.budget.purse import Purse
from noisewise.guest.isolation import refuse_readable
from noisewise.statements.wording import derived_words, format_of
from noisewise.trusted.events import Gaussian, to_dict

from .test_journals import SIGMA, Run, kept
from .test_rules import forged, saved
from .test_searches import honest


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("made")
    return {
        "walk": saved(home / "walk", "output_perturbation", size_is_public=True),
        "descent": saved(home / "descent", "descent", size_is_public=True),
    }


def where(name, isolation):
    """Where the method is said to have run."""

    def change(statement, run):
        statement["method"]["name"] = run["settings"]["method"] = name
        statement["isolation"] = isolation

    return change


METHODS = {
    "a stranger's method that is shipped": ("descent", where("strangers.one:Method", "shipped")),
    "a stranger's method in the caller's own code": ("descent", where("strangers.one:Method", "caller's own code")),
    "a guest with the name of a shipped method": ("descent", where("dpsgd", "sandbox")),
    "a shipped method in a process": ("walk", where("output_perturbation", "process")),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("alone", [False, True], ids=["folder", "statement alone"])
def test_a_method_that_did_not_run_where_it_is_said_is_refused(made, tmp_path, name, alone):
    which, change = METHODS[name]
    folder = forged(Path(shutil.copytree(made[which], tmp_path / "run")), change)
    verdict = nw.verify(folder / "statement.json" if alone else folder)
    assert not verdict.holds and "the method" in verdict.reason, verdict


WITH_CLIENTS = {"unit": "record", "availability": "required", "local_steps": 1, "local_rate": 1.0, "wait": None}


@pytest.mark.parametrize(
    ("how", "said", "why"),
    [
        ("selection", {"isolation": "sandbox"}, "hides its runs"),
        ("selection", {"federated": WITH_CLIENTS}, "not with clients"),
        ("exponential", {"federated": WITH_CLIENTS}, "not with clients"),
    ],
)
def test_a_private_search_is_of_records_in_one_place_and_hides_them_from_guests(how, said, why):
    data = copy.deepcopy(honest(how)) | said
    if "isolation" in said:
        data["method"]["name"] = "strangers.one:Method"
    data["format"] = format_of(data["promise"], federated="federated" in data, code="code" in data)
    assert why in nw.verify(data | derived_words(data)).reason


def changed(folder: Path, change, kept=lambda statement, run: None) -> Path:
    """A folder with other lines in its trace, under a new seal."""
    trace = json.loads((folder / "trace.json").read_text())
    change(trace["rows"])
    (folder / "trace.json").write_text(json.dumps(trace))
    return forged(folder, kept)


def other_noise(rows):
    rows[-1]["noise_std"] /= 100


def lost(rows):
    for row in rows:
        row |= {"question": "lost", "noise_std": 0.0, "norm": None, "clip": None}


def lost_with_an_answer(rows):
    rows[-1] |= {"question": "lost"}


def with_clip(rows):
    rows[0]["clip"] = 1.0


def sized(size):
    """Sums divided by another size, and noise that fits."""

    def change(statement, run):
        run["size"] = size

    def lines(rows):
        for row in rows:
            row["noise_std"] *= 300 / size if row["question"] == "gradient" else 1

    return lines, change


LINES = {
    "noise of one line, and no size": ("descent", other_noise, lambda statement, run: run.pop("size")),
    "a size beyond all data": ("descent", *sized(1e17)),
    "a walk that was lost": ("walk", lost),
    "a lost answer with a norm": ("descent", lost_with_an_answer),
    "a walk with a clip": ("walk", with_clip),
    "a moment with a clip": ("descent", with_clip),
}


@pytest.mark.parametrize("name", LINES)
def test_a_trace_that_no_curator_writes_is_refused(made, tmp_path, name):
    which, change, *rest = LINES[name]
    folder = changed(Path(shutil.copytree(made[which], tmp_path / "run")), change, *rest)
    verdict = nw.verify(folder)
    assert not verdict.holds and "contradict" in verdict.reason, verdict


@pytest.mark.guard("it holds, as it did: an older folder does not say what its sums were divided by")
def test_a_trace_of_sums_that_were_divided_alike_needs_no_size(made, tmp_path):
    folder = Path(shutil.copytree(made["descent"], tmp_path / "run"))
    assert nw.verify(changed(folder, lambda rows: None, lambda statement, run: run.pop("size"))).holds


def test_a_method_that_is_refused_in_a_run_taken_up_again_drops_nothing_that_was_paid(tmp_path):
    """It asks otherwise than before and goes on after each refusal, until the journal had nothing left to charge for."""
    run = Run(tmp_path / "b", kept(tmp_path))
    first = run.ask(3)
    run.killed()
    again = Run(tmp_path / "b", kept(tmp_path))
    for _ in range(10):
        with pytest.raises(ValueError, match="answers are to other questions"):
            again.ask(noise=SIGMA / 2)
    assert again.meter.spent_fraction == 0 and not again.asked.trace
    assert np.array_equal(again.ask()[0].value, first[0].value)
    assert again.meter.events == {Gaussian(SIGMA): 1}
    again.killed()


def test_what_was_answered_is_not_taken_back_by_a_closed_journal(tmp_path):
    charge = {"charged": "SecondMoment", "event": to_dict(Gaussian(SIGMA))}
    chain, honest = Chain(), Chain()
    told = [charge, {"answered": {}}, charge, {"refused": True}, {"finished": True}]
    lines = b"".join(map(honest.written, told))
    (tmp_path / "journal.jsonl").write_bytes(lines)
    assert closed_journal(tmp_path).events == {Gaussian(SIGMA): 1}
    with pytest.raises(ValueError, match=r"could have been refused|one that was changed"):
        lines = b"".join(map(chain.written, [charge, {"answered": {}}, {"refused": True}, {"finished": True}]))
        (tmp_path / "journal.jsonl").write_bytes(lines)
        closed_journal(tmp_path)


def test_records_behind_a_link_to_the_interpreter_are_refused(tmp_path, monkeypatch):
    for name in ("real", "package"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "link"))
    with pytest.raises(ValueError, match="move it elsewhere"):
        refuse_readable(tmp_path / "package", [tmp_path / "real" / "rows.csv"])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_parts_and_journals_are_not_copied(tmp_path, copied):
    """A copy forgets what the other claims and writes: what it settles with is another claim, and another chain."""
    journal = Journal(tmp_path / "run", {})
    with pytest.raises(TypeError, match="a journal is not copied"):
        copied(journal)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copied(Purse(nw.Budget(1.0, 1e-6)).part(Terms.adaptive("gdp")))
    journal.close()
