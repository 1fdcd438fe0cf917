"""Journals attacked: ways to draw noise that nobody pays for, by crashes, copies, other purses and a method's own doing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from noisewise.budget import Budget, BudgetExhausted, Terms
from noisewise.budget.purse import Purse
from noisewise.curator import Curator, SecondMoment
from noisewise.events import Gaussian, Repeated
from noisewise.journal import Journal, Journalled, paid
from noisewise.losses import LOSSES
from noisewise.models import Linear

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
    with paid(kept(tmp_path, RUN), GDP, RUN, None) as meter:
        meter.spend(Gaussian(meter.noise_for(1.0)))  # it runs still, or was killed now
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
