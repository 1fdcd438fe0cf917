"""Journals: every method goes on where it was; a crash costs at most a block; of two copies one goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from noisewise.accounts import Budget, BudgetExhausted, Terms, open_meter
from noisewise.accounts.journal import CLAIM_SHARE, Journal, Journalled, paid
from noisewise.accounts.journal.chain import Chain
from noisewise.accounts.purse import Purse
from noisewise.accounts.spending_file import Claimed
from noisewise.curator import Curator, MinEigenvalue, PublicCurator, SecondMoment
from noisewise.methods import registry
from noisewise.train import Records, train
from noisewise.trusted.events import Gaussian, Repeated
from noisewise.trusted.features import TableColumn
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Additive, Linear

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")

N = 60
BUDGET = Budget(2.0, 1e-5)
REPLACED = Budget(2.0, 1e-5, adjacency="replace_one")
SETTINGS = {"of": "a test"}
TABLE = tuple(TableColumn(f"x{i}", (-1.0, 1.0), (0.0, 1.0)) for i in range(3))
SLOW = {"growing_batch", "projected_sgd"}  # pricing their small batches takes seconds; they ask as the others do
METHODS = [n for n, kind in registry().items() if kind.private and n not in SLOW]


class Stopped(Exception):
    pass


def rows():
    X = np.random.default_rng(0).uniform(-1, 1, (N, 3))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def trained(name, folder, *, purse=None, stop=None):
    kind = registry()[name]
    few = {"steps": 6} if "steps" in kind.__dataclass_fields__ else {}
    loss = next(LOSSES[one] for one in ("logistic", "squared", *LOSSES) if one in kind.losses)
    model = Additive(1, loss, 1, columns=TABLE) if kind.table else Linear(3, loss)
    X, y = rows()
    X = X.astype(np.float32) if kind.table else X
    budget = REPLACED if name in ("pnsgd",) else BUDGET
    journal = Journal(folder, SETTINGS)

    def progress(step, *_):
        if step == stop:
            raise Stopped

    try:
        return train(
            kind(**few),
            Records(X, y, float(N), row_bound=1.0),
            model=model,
            budget=budget,
            public=PublicCurator(X[:20], y[:20], model=model),
            purse=purse if purse is not None else Purse(budget, store=Path(folder) / "spending.json"),
            progress=progress,
            journal=journal,
        )
    finally:
        journal.close()


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_goes_on_where_it_was(tmp_path, name):
    try:
        first = trained(name, tmp_path, stop=1)
    except Stopped:
        first = None
    past = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    answered = sum("answered" in line for line in past)
    done = trained(name, tmp_path)
    again = trained(name, tmp_path)  # a finished run is read, not asked
    assert np.array_equal(done.theta, again.theta) and done.arithmetic == again.arithmetic
    assert [row.event for row in done.trace] == [row.event for row in again.trace]
    assert len(done.trace) >= answered
    if first is None:
        lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
        assert lines[: len(past)] == past and not any("forfeited" in line for line in lines)
    whole = Purse(done.facts.budget, store=tmp_path / "spending.json").entries
    given_back = [entry for entry in whole if entry.state == "failed"]  # the part of a run that had asked nothing yet
    assert [entry.state for entry in whole[len(given_back) :]] == ["spent"]
    assert not given_back or (answered == 0 and given_back[0].counted.cost == 0)


# --- one question after the other ------------------------------------------------------------------------------------------


def desk(folder, purse, terms, *, before=None):
    """A journalled curator, as the loop makes it; ``before``: what to do once the part is known."""
    journal = Journal(folder, SETTINGS)
    X, y = rows()

    class Run:
        def __enter__(self):
            self.paid = paid(purse, terms, purse.budget, journal)
            self.meter = self.paid.__enter__()
            model = Linear(3, LOSSES["logistic"])
            curator = Curator(X, y, model=model, meter=self.meter, size=float(N), row_bound=1.0)
            self.asked = Journalled(curator, journal)
            return self

        def __exit__(self, *error):
            try:
                return self.paid.__exit__(*error)
            finally:
                journal.close()

        def ask(self, times=1):
            for _ in range(times):
                self.asked.ask(SecondMoment(), noise=SIGMA)

        def gone(self):
            """As if the process was gone: no word of an end."""
            journal._let_go()

    return Run()


SIGMA, EVENTS = 40.0, 100
PLAN = Terms.plan(Repeated(Gaussian(SIGMA), EVENTS))


def purse(folder):
    return Purse(Budget(2.0, 1e-5), store=Path(folder) / "spending.json")


def answered(folder):
    return sum("answered" in line for line in (Path(folder) / "journal.jsonl").read_text().splitlines())


def test_a_crash_costs_at_most_a_block_and_a_stop_nothing(tmp_path):
    place = tmp_path / "run"
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(10)
        raise Stopped
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(12)
        assert run.meter.spent_fraction == 12 / EVENTS  # ten of them from the journal
        run.gone()
        raise Stopped
    # two events were drawn since the stop, in a block of a sixteenth: all of it is given up
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(12)
        assert 12 / EVENTS < run.meter.spent_fraction <= 12 / EVENTS + CLAIM_SHARE
        raise Stopped
    assert answered(place) == 12


def test_lines_that_the_power_took_are_not_drawn_again(tmp_path):
    """Answers that were drawn and whose lines never reached the disk: the block says how many there may have been."""
    place = tmp_path / "run"
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(6)
        run.gone()
        raise Stopped
    journal = place / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if "block" in line)
    journal.write_text("".join(lines[: last + 1]))
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        assert run.meter.spent_fraction >= 6 / EVENTS
        raise Stopped


@pytest.mark.parametrize("ending", ["killed", "stopped"])
@pytest.mark.parametrize("terms", [PLAN, Terms.adaptive("gdp")], ids=["plan", "filter"])
def test_of_two_copies_that_are_taken_up_one_goes_on_and_all_drawn_is_paid(tmp_path, ending, terms):
    place, copy = tmp_path / "run", tmp_path / "copy"
    if ending == "stopped":
        with pytest.raises(Stopped), desk(place, purse(tmp_path), terms) as run:
            run.ask(8)
            raise Stopped
    else:
        with pytest.raises(Stopped), desk(place, purse(tmp_path), terms) as run:
            run.ask(8)
            run.gone()
            raise Stopped
    shutil.copytree(place, copy)
    drawn, going = 8, []
    runs = [desk(one, purse(tmp_path), terms) for one in (place, copy)]
    made = [run.__enter__() for run in runs]
    for run in made:
        run.ask(8)  # what both know
    stopped = set()
    for _ in range(3 * EVENTS):
        for i, run in enumerate(made):
            if i in stopped:
                continue
            try:
                run.ask()
                drawn += 1
                going.append(i)
            except Exception:
                stopped.add(i)
    meter = open_meter(Budget(2.0, 1e-5), terms)
    for _ in range(drawn):
        meter.spend(Gaussian(SIGMA))  # all that was drawn, by both, fits into what one of them paid
    assert len(set(going)) == 1  # whoever claimed first; the other one was told
    for run in made:
        run.gone()


def test_the_one_that_comes_later_is_told(tmp_path):
    place, copy = tmp_path / "run", tmp_path / "copy"
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(2)
        raise Stopped
    shutil.copytree(place, copy)
    first, second = (desk(one, purse(tmp_path), PLAN).__enter__() for one in (place, copy))
    first.ask(3)
    second.ask(2)
    with pytest.raises(Claimed, match="another process has taken up this run"):
        second.ask()
    first.gone(), second.gone()


def test_what_is_not_exact_stays_said_when_it_comes_from_the_journal(tmp_path):
    terms = Terms.adaptive("gdp")
    grades = []
    for _ in range(2):
        with pytest.raises(Stopped), desk(tmp_path / "run", purse(tmp_path), terms) as run:
            run.asked.ask(MinEigenvalue(), noise=50.0)
            grades.append(run.asked._asked.arithmetic)
            raise Stopped
    assert grades[0] == grades[1] and grades[0].grade == "bounded"


def test_a_journal_of_a_former_format_is_refused(tmp_path):
    (tmp_path / "settings.json").write_text(json.dumps({"format": "noisewise-journal/1", **SETTINGS}))
    with pytest.raises(ValueError, match="another format"):
        Journal(tmp_path, SETTINGS)


def test_files_of_a_journal_are_ones_own(tmp_path):
    place = tmp_path / "run"
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(2)
        raise Stopped
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir() if path.name != "settings.json"} == {0o600}


def test_an_answer_whose_bytes_are_others_is_lost_or_damage(tmp_path):
    place = tmp_path / "run"
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(3)
        run.gone()
        raise Stopped
    path = place / "answers.bin"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(2)  # the third was drawn, charged and lost
        assert run.asked.trace[-1].question == "lost"
        raise Stopped
    content[0] ^= 1
    path.write_bytes(content)  # one that was forced to the disk since
    with pytest.raises(ValueError, match="changed"):
        Journal(place, SETTINGS)


def test_a_run_that_ended_with_its_budget_is_read_again(tmp_path):
    """Its last question was refused, and left no line."""
    for _ in range(2):
        with desk(tmp_path / "run", purse(tmp_path), PLAN) as run:
            run.ask(EVENTS)
            with pytest.raises(BudgetExhausted):
                run.ask()
    assert answered(tmp_path / "run") == EVENTS


def rechained(lines):
    """What anybody can do after editing a journal."""
    chain, edited = Chain(), [json.loads(line) for line in lines]
    return b"".join(chain.written({name: line[name] for name in line if name != "chain"}) for line in edited)


def test_lines_that_somebody_took_out_stay_paid_for(tmp_path):
    place = tmp_path / "run"
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        run.ask(10)
        raise Stopped
    path = place / "journal.jsonl"
    kept = [
        line for line in path.read_text().splitlines(keepends=True) if "charged" not in line and "answered" not in line
    ]
    path.write_text("".join(kept))
    with pytest.raises(ValueError, match="was changed"), desk(place, purse(tmp_path), PLAN):
        pass
    path.write_bytes(rechained(kept))
    with pytest.raises(Stopped), desk(place, purse(tmp_path), PLAN) as run:
        assert 10 / EVENTS <= run.meter.spent_fraction <= 11 / EVENTS
        raise Stopped


def test_a_part_of_which_nothing_was_drawn_is_given_back(tmp_path):
    for _ in range(3):
        with pytest.raises(Stopped), desk(tmp_path / "run", purse(tmp_path), PLAN):
            raise Stopped
    assert [(entry.state, entry.counted.cost) for entry in purse(tmp_path).entries] == [("failed", 0.0)] * 3
    with desk(tmp_path / "run", purse(tmp_path), PLAN) as run:
        run.ask(3)
    assert purse(tmp_path).entries[-1].state == "spent"


def test_who_does_not_claim_last_does_not_settle(tmp_path):
    """The first has used up its last block when a copy goes on: what the copy draws is not settled away."""
    place, copy = tmp_path / "run", tmp_path / "copy"
    first = desk(place, purse(tmp_path), PLAN).__enter__()
    first.ask(2)
    shutil.copytree(place, copy)
    second = desk(copy, purse(tmp_path), PLAN).__enter__()
    second.ask(3)
    with pytest.raises(Claimed):
        first.paid.__exit__(None, None, None)
    assert purse(tmp_path).entries[0].state == "reserved"
    first.gone(), second.gone()
