"""Journals attacked: ways to draw noise that nobody pays for, by crashes, copies, other purses and a method's own doing."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
import torch

import noisewise.train as loop
from noisewise.accounts.journal import Journal, Journalled, paid
from noisewise.budget import Budget, BudgetExhausted, Terms
from noisewise.budget.purse import Purse
from noisewise.curator import Count, CrossMoment, Curator, SecondMoment
from noisewise.trusted.events import Gaussian, Repeated
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

GDP, RUN, ALL = Terms.adaptive("gdp"), Budget(2.0, 1e-5), Budget(4.0, 1e-4)
SIGMA, N = 40.0, 60


def rows():
    made = torch.Generator().manual_seed(0)
    X = torch.rand((N, 3), generator=made, dtype=torch.float64) * 2 - 1
    X = X / X.norm(dim=1, keepdim=True).clamp(min=1)
    return X, torch.where(X[:, 0] > 0, 1.0, -1.0).double()


class Run:
    """A run with a journal, one question after the other; ``size``: None where it is private."""

    def __init__(self, folder, purse, terms=GDP, size=float(N)):
        self.journal = Journal(folder, {"of": "a test"})
        self._paid = paid(purse, terms, RUN, self.journal)
        self.meter = self._paid.__enter__()
        X, y = rows()
        model = Linear(3, LOSSES["logistic"])
        self.curator = Curator(X, y, model=model, meter=self.meter, size=size, row_bound=1.0)
        self.asked = Journalled(self.curator, self.journal)

    def ask(self, times=1, noise=SIGMA):
        return [self.asked.ask(SecondMoment(), noise=noise) for _ in range(times)]

    def killed(self):
        self.journal._let_go()
        return self

    def finished(self):
        self._paid.__exit__(None, None, None)
        self.journal.close()
        return self


def kept(folder, budget=ALL):
    return Purse(budget, GDP, store=Path(folder) / "spending.json")


def test_a_finished_run_that_is_read_again_does_not_settle_another_one(tmp_path):
    other = Run(tmp_path / "a", kept(tmp_path))
    other.ask(200)
    other.killed()
    for _ in range(3):  # the second time its own part is settled, and the third it looked for that of the other
        run = Run(tmp_path / "b", kept(tmp_path))
        run.ask(5)
        run.finished()
    killed, done = kept(tmp_path).entries
    assert (killed.state, done.state) == ("reserved", "spent")
    assert killed.counted.cost >= 200 / SIGMA**2


def test_a_finished_run_with_the_purse_of_another_pays_for_what_that_one_drew(tmp_path):
    run = Run(tmp_path / "b", Purse(RUN, GDP))
    run.ask(5)
    run.finished()
    other = Run(tmp_path / "a", kept(tmp_path))
    other.ask(200)
    other.killed()
    run = Run(tmp_path / "b", kept(tmp_path))
    run.ask(5)
    run.finished()
    assert kept(tmp_path).entries[0].counted.cost >= 200 / SIGMA**2


def test_a_journal_does_not_take_the_part_of_a_run_that_keeps_none(tmp_path):
    run = Run(tmp_path / "a", Purse(RUN, GDP))  # forgotten with its process, where it was number 0
    run.ask(3)
    run.killed()
    what = getattr(loop, "AT_ONCE", "training")  # once both kinds of runs had one name
    with kept(tmp_path, RUN).part(GDP, RUN, what=what) as part:
        part.meter.spend(Gaussian(part.meter.noise_for(1.0)))  # it runs still, or was killed now
        with pytest.raises(ValueError, match="other terms"):
            Run(tmp_path / "a", kept(tmp_path, RUN))


@pytest.mark.parametrize("terms", [None, GDP], ids=["promises", "filter"])
def test_who_takes_up_a_part_by_number_does_not_settle_it_as_unused(tmp_path, terms):
    """Its holder may be drawing still, or may have been killed: what was drawn is known to a journal alone."""
    purse = Purse(RUN, terms, store=tmp_path / "spending.json")
    part = purse.part(GDP, RUN)
    part.meter.spend(Gaussian(part.meter.noise_for(0.9)))
    purse.part(GDP, RUN, number=part.number).settle("failed")
    assert purse.entries[0].counted == purse.entries[0].reserved


def test_a_finished_run_ends_when_it_is_read_as_it_ended(tmp_path):
    """It lost a block, so its last question was refused; killed before it was written, it is refused that again."""
    plan = Terms.plan(Repeated(Gaussian(SIGMA), 30))
    first = Run(tmp_path / "a", Purse(RUN, store=tmp_path / "s.json"), plan)
    first.ask(3)
    first.killed()
    for _ in range(2):
        run = Run(tmp_path / "a", Purse(RUN, store=tmp_path / "s.json"), plan)
        with pytest.raises(BudgetExhausted):
            run.ask(30)
        run.finished()


# --- a method's own doing --------------------------------------------------------------------------------------------------


def test_questions_of_several_threads_keep_their_own_answers(tmp_path, monkeypatch):
    run = Run(tmp_path / "a", kept(tmp_path))
    both, given = threading.Barrier(2), {}
    charged = Journal.charged

    def met(self, *what):
        charged(self, *what)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # as if the system had given the other one its turn just here

    monkeypatch.setattr(Journal, "charged", met)

    def asking(name, question, noise):
        given[name] = run.asked.ask(question, noise=noise).value

    asked = {"moment": (SecondMoment(), 40.0), "cross": (CrossMoment(1.0), 50.0)}
    threads = [threading.Thread(target=asking, args=(name, *how)) for name, how in asked.items()]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    run.killed()
    again = Journal(tmp_path / "a", {"of": "a test"})
    assert {entry.event.noise_multiplier: entry.answer.value.shape for entry in again.past} == {
        asked[name][1]: value.shape for name, value in given.items()
    }
    again.close()


def test_a_forked_process_writes_no_line(tmp_path):
    run = Run(tmp_path / "a", kept(tmp_path))
    run.ask(1)
    before = (tmp_path / "a" / "journal.jsonl").read_bytes()
    if (child := os.fork()) == 0:
        with suppress(Exception):
            run.ask(1)
        os._exit(0)
    os.waitpid(child, 0)
    run.killed()
    assert (tmp_path / "a" / "journal.jsonl").read_bytes() == before


def test_after_a_torn_line_nothing_is_drawn(tmp_path, monkeypatch):
    """The disk is full for a moment, and a method asks again: the next block would be part of a line that says nothing."""
    run = Run(tmp_path / "a", Purse(RUN, GDP))  # a purse that is forgotten: the journal alone knows of blocks
    drawn = 25  # 25 / SIGMA^2 is the first block, nearly
    run.ask(drawn - 1)
    write = os.write

    def half(descriptor, content):
        if b"answered" in content:
            write(descriptor, content[: len(content) // 2])
            raise OSError("no space is left")
        return write(descriptor, content)

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(OSError, match="no space"):
            run.ask(1)
    with suppress(OSError):
        for _ in range(15):
            run.ask(1)
            drawn += 1
    run.killed()
    again = Run(tmp_path / "a", Purse(RUN, GDP))
    again.ask(24)  # what has an answer
    assert again.meter.charged[0] >= Fraction(drawn) / Fraction(SIGMA) ** 2
    again.killed()


def test_a_count_that_was_asked_as_a_statistic_is_no_size_below_one(tmp_path):
    """The size that sums are divided by is at least 1; a walk with a negative one would have no bound."""
    run = Run(tmp_path / "a", kept(tmp_path), size=None)
    while float(run.asked.ask(Count(), noise=5000.0).value) >= 0:
        run.killed()
        for path in (tmp_path / "a").iterdir():
            path.unlink()
        run = Run(tmp_path / "a", Purse(ALL, GDP), size=None)
    run.killed()
    again = Run(tmp_path / "a", kept(tmp_path), size=None)
    again.asked.release_size(noise_multiplier=5000.0)
    assert again.asked.facts.size >= 1
    again.killed()


# --- the power fails ---------------------------------------------------------------------------------------------------


def test_that_there_is_a_journal_is_on_the_disk_before_anything_is_drawn(tmp_path, monkeypatch):
    """A new file whose folder was not forced to the disk may be gone, and the run would start anew."""
    forced, sync = [], os.fsync

    def noted(descriptor):
        forced.append((os.fstat(descriptor).st_ino, {path.name for path in (tmp_path / "a").iterdir()}))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    run = Run(tmp_path / "a", Purse(RUN, GDP))
    folder = (tmp_path / "a").stat().st_ino
    assert any(number == folder and "journal.jsonl" in there for number, there in forced)
    run.killed()
