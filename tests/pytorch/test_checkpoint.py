"""Checkpoints: a run that was killed goes on from its journal; no noise is drawn twice, and what was charged stays charged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from noisewise.accounts import Budget, Terms
from noisewise.accounts.journal import Journal
from noisewise.accounts.purse import Purse
from noisewise.curator import Curator
from noisewise.evidence.runs import verify
from noisewise.faces.pytorch.fit import fit

BUDGET, LAST, N, STEPS = Budget(2.0, 1e-5), nn.CrossEntropyLoss(), 100, 6


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def records():
    g = torch.Generator().manual_seed(0)
    X = torch.randn(N, 4, generator=g)
    return X, (X[:, 0] > 0).long()


def fitted(folder, **options):
    given = {
        "budget": BUDGET,
        "size_is_public": True,
        "steps": STEPS,
        "progress": False,
        "checkpoint": folder,
        **options,
    }
    return fit(net(), LAST, records(), **given)


def lines(folder):
    return [json.loads(line) for line in (Path(folder) / "journal.jsonl").read_text().splitlines()]


def answers(folder):
    return [line for line in lines(folder) if "answered" in line]


class Stopped(Exception):
    pass


def stop_at(step):
    def progress(done, steps, spent):
        if done == step:
            raise Stopped

    return progress


def drawn(monkeypatch):
    """What records answer; a charge that is refused is no answer."""
    asked, true = [], Curator.ask

    def ask(self, question, *, noise, sampling=("full",)):
        answer = true(self, question, noise=noise, sampling=sampling)
        asked.append(type(question).__name__)
        return answer

    monkeypatch.setattr(Curator, "ask", ask)
    return asked


@pytest.mark.parametrize(
    "options", [{}, {"method": "descent"}, {"size_is_public": False}], ids=["plan", "filter", "bought"]
)
def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch, options):
    with pytest.raises(Stopped):
        fitted(tmp_path, progress=stop_at(3), **options)
    before = answers(tmp_path)
    asked = drawn(monkeypatch)
    run = fitted(tmp_path, **options)
    after = answers(tmp_path)
    assert after[: len(before)] == before and len(asked) == len(after) - len(before) == 3
    assert run.steps == STEPS and len(run.trace) == len(after) and verify(run.statement).holds
    again = fitted(tmp_path, **options)  # a finished one is only read
    assert len(asked) == 3 and answers(tmp_path) == after
    assert all(torch.equal(a, b) for a, b in zip(run.module.parameters(), again.module.parameters(), strict=True))


SCRIPT = """
import os, sys, signal
sys.path.insert(0, sys.argv[3])
import test_checkpoint as t
from noisewise.accounts.journal import Journal
true, seen = Journal.answered, []
def answered(self, *given):
    seen.append(1)
    if len(seen) == 3 and sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    true(self, *given)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.answered = answered
t.fitted(sys.argv[1] + "/run", purse=t.purse(sys.argv[1]), **(dict(method="descent") if sys.argv[4] == "filter" else {}))
"""


def purse(folder):
    return Purse(BUDGET, store=f"{folder}/spending.json")


@pytest.mark.parametrize("when, meter", [("before", "filter"), pytest.param("after", "plan", marks=pytest.mark.slow)])
def test_after_a_kill_no_noise_is_drawn_again_and_the_charge_stays(tmp_path, monkeypatch, when, meter):
    """Killed between drawing the third answer and writing it down, or right after."""
    given = [str(tmp_path), when, str(Path(__file__).parent), meter]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *given], env=os.environ, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, kept = tmp_path / "run", 2 if when == "before" else 3
    before = answers(folder)
    assert len(before) == kept and [entry.state for entry in purse(tmp_path).entries] == ["reserved"]
    asked = drawn(monkeypatch)
    run = fitted(folder, purse=purse(tmp_path), **({"method": "descent"} if meter == "filter" else {}))
    assert answers(folder)[:kept] == before
    lost = sum(line.question == "lost" for line in run.trace)
    assert lost == (when == "before")  # so large an event is a block of its own
    assert len(asked) == run.steps - kept  # what was lost is asked again, as a further event, while the filter has room
    assert verify(run.statement).holds and verify(run.save(tmp_path / "saved")).holds
    assert [entry.state for entry in purse(tmp_path).entries] == ["spent"]  # one part, taken up, not two


def test_a_line_that_was_not_written_to_its_end_never_happened(tmp_path, monkeypatch):
    with pytest.raises(Stopped):
        fitted(tmp_path, progress=stop_at(3))
    path = tmp_path / "journal.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    assert "closed" in whole[-1]
    path.write_text("".join(whole[:-1])[:-20])  # the third answer's line is torn: charged, without an answer
    asked = drawn(monkeypatch)
    run = fitted(tmp_path)
    assert len(asked) == STEPS - 3 and run.trace[2].question == "lost"


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    with pytest.raises(Stopped):
        fitted(tmp_path, progress=stop_at(2))
    for other in ({"steps": 7}, {"budget": Budget(1.0, 1e-5)}, {"method": "dynamic"}, {"learning_rate": 0.3}):
        with pytest.raises(ValueError, match="another"):
            fitted(tmp_path, **other)
    (tmp_path / "journal.jsonl").write_text("{}\n[1]\n")
    with pytest.raises(ValueError, match="changed"):
        fitted(tmp_path)


def test_one_process_at_a_time(tmp_path):
    journal = Journal(tmp_path, {"a": 1})
    with pytest.raises(RuntimeError, match="another process"):
        Journal(tmp_path, {"a": 1})
    journal.close()
    Journal(tmp_path, {"a": 1}).close()


def test_a_refused_charge_is_no_charge(tmp_path):
    """A filter that has too little left refuses; the journal does not take that for an answer that was lost."""
    spent = Purse(BUDGET, Terms.adaptive("gdp"))
    fitted(tmp_path, method="descent", purse=spent)
    kinds = ("charged", "answered", "refused", "block")
    assert all(any(kind in line for kind in kinds) for line in lines(tmp_path)[1:-1])
    charged = sum("charged" in line for line in lines(tmp_path)) - sum("refused" in line for line in lines(tmp_path))
    assert charged == len(answers(tmp_path)) == STEPS


def test_a_simulation_has_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="random_state"):
        fitted(tmp_path, random_state=1)


def test_resume_takes_up_a_run_that_is_there_and_no_other(tmp_path, monkeypatch):
    place = tmp_path / "run"
    for folder in (place, Path(__file__)):
        with pytest.raises(ValueError, match="no run to go on with"):
            fitted(None, resume=folder)
    assert not place.exists()
    with pytest.raises(Stopped):
        fitted(place, progress=stop_at(3))
    with pytest.raises(ValueError, match="both name a folder"):
        fitted(place, resume=place)
    with pytest.raises(ValueError, match="random_state"):
        fitted(None, resume=place, random_state=1)
    asked = drawn(monkeypatch)
    run = fitted(None, resume=place)
    assert len(asked) == STEPS - 3 and run.steps == STEPS and verify(run.statement).holds
