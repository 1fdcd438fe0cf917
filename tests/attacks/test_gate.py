"""What a first reading of the gate and the meters found, each kept; none of it reached a release."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
import torch

from noisewise.budget import AdditiveMeter, Budget, PlanMeter
from noisewise.curator import QUESTIONS, Curator
from noisewise.faces.pytorch.loop_meter import LoopMeter
from noisewise.pytorch.run import EngineRun
from noisewise.statements import reading_list as reading
from noisewise.trusted.engine import Refused
from noisewise.trusted.events import Composed, Gaussian, InvalidEvent, Repeated
from noisewise.trusted.gate import Gate
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.process import own_settings
from noisewise.trusted.question import HowAsked
from noisewise.trusted.selection import Entrant, choose_best
from noisewise.trusted.stores.totals import IntegerTotal, fixed_size
from noisewise.trusted.units import Released

pytestmark = pytest.mark.guard("found by reading, and mended in the room where it stood")
BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize("rate", [0.05 - 2e-14, 0.05, 1 / 3, 0.1, 0.7, 1 - 2**-53])
@pytest.mark.parametrize("records", [1, 7, 100, 30_000_000])
def test_a_batch_of_fixed_size_is_never_larger_than_its_price(rate, records):
    rows = fixed_size(rate, records)
    assert rows <= Fraction(rate) * records or rows / records == rate
    assert rows > Fraction(rate) * records - 1


def test_b_of_n_records_are_b():
    assert all(fixed_size(b / n, n) == b for n in (3, 10, 49, 1000, 12345) for b in range(1, n + 1, max(n // 50, 1)))


class Chameleon(float):
    """Equal to every number, and so in a cache by that."""

    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


def test_noise_that_is_no_plain_number_prices_nobody_else():
    gate = Gate(AdditiveMeter(BUDGET, "gdp"))
    gate.open(Chameleon(1e5), ("full",), range(3))
    honest = AdditiveMeter(BUDGET, "gdp")
    Gate(honest).open(7.5, ("full",), range(3))
    paid = AdditiveMeter(BUDGET, "gdp")
    paid.spend(Gaussian(7.5))
    assert honest.spent_fraction == paid.spent_fraction > 0.1
    (leaf,) = gate.meter.events
    assert type(leaf.noise_multiplier) is float


@pytest.mark.parametrize("events", [iter([Gaussian(10.0)]), [Gaussian(10.0)], (Gaussian(10.0), 3)])
def test_what_was_composed_is_a_tuple_of_events(events):
    with pytest.raises(InvalidEvent, match="a tuple of events"):
        Composed(events)


def test_a_batch_has_its_noise_once():
    ticket = Gate(AdditiveMeter(BUDGET, "gdp")).open(7.5, ("full",), range(3))
    totals = [(IntegerTotal(np.zeros(2, np.int64), 1 << 20, 1.0), np.float64)]
    first = ticket.release(totals, over=1.0)
    with pytest.raises(RuntimeError, match="has had its noise"):
        ticket.release(totals, over=1.0)  # also before the first was looked at
    assert len(next(first)) == 2


def test_events_that_become_equal_are_counted_each():
    third = Fraction(100003, 3)
    plan = PlanMeter(Budget(5.0, 1e-6), [Repeated(Gaussian(third), 2), Gaussian(float(third))])
    assert plan.remaining.total() == 3
    assert PlanMeter(BUDGET, []).share_after(Composed(())) in (0.0, 1.0)


def test_settings_of_one_gate_outlive_those_of_another():
    """torch has one default for all threads: the first to come sets it, the last to leave gives it back."""
    inside, leave, found = threading.Event(), threading.Event(), []

    def second():
        with own_settings():
            inside.set()
            leave.wait(10)
            found.append(torch.get_default_dtype())

    torch.set_default_dtype(torch.float64)
    try:
        other = threading.Thread(target=second)
        with own_settings():
            other.start()
            assert inside.wait(10)
        leave.set()
        other.join()
        assert found == [torch.float32] and torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", QUESTIONS.values(), ids=QUESTIONS)
def test_taking_a_record_out_moves_no_total_further_than_replacing_it(kind):
    for asked in kind.cases(3):
        for relation in ("add_remove", "replace_one"):
            added, replaced = asked.moves(HowAsked(relation, ("full",), 1.0, 10.0, 3))
            assert 0 < added <= replaced <= 2 * added * (1 + 1e-12) and math.isfinite(replaced)


def curator(meter, rows=8):
    X, y = torch.ones(rows, 2) / 2, torch.ones(rows)
    return Curator(X, y, model=Linear(2, Logistic()), meter=meter, size=None, row_bound=1.0)


def test_what_is_taken_up_is_charged_and_never_paid_back():
    meter = AdditiveMeter(BUDGET, "gdp")
    asked, back = curator(meter), Repeated(Gaussian(20.0), 1)
    asked.ask(QUESTIONS["Count"](), noise=20.0)
    spent = meter.spent_fraction
    object.__setattr__(back, "count", -1)  # frozen, but who holds it can do that
    with pytest.raises(ValueError, match="count"):
        asked.take_up(Released("count", back, None, 20.0, None, 0.0))
    assert meter.spent_fraction == spent > 0


def test_nobody_elses_word_is_taken_for_how_exact_a_run_is():
    class Mine:
        @staticmethod
        def graded(before):
            return "exact"

    asked = curator(AdditiveMeter(BUDGET, "gdp"))
    with pytest.raises(TypeError, match="is not a question"):
        asked.take_up(Released("count", Gaussian(20.0), None, 20.0, None, 0.0), Mine())
    assert not asked.trace


class Shrinking(float):
    """Large when it is looked at to draw, and small when it is paid."""

    looks = 0

    def __float__(self):
        self.looks += 1
        return 400.0 if self.looks <= 2 else 1e-3


class Different(list):
    """Other entries each time that it is gone through."""

    def __init__(self, *times):
        super().__init__(times[0])
        self.times = list(times)

    def __iter__(self):
        return iter(self.times.pop(0) if len(self.times) > 1 else self.times[0])


@pytest.mark.parametrize("odd", ["epsilon", "entrants"])
def test_a_choice_among_models_reads_what_it_is_given_once(odd, monkeypatch):
    X, y = torch.ones(4, 2) / 2, torch.ones(4)
    model = Linear(2, Logistic())
    low, high = (
        [Entrant(model, theta, X, y, None, bound) for theta in ((-50.0, -50.0), (1.0, 1.0))] for bound in (1.0, 1e6)
    )
    drawn, meter = [], AdditiveMeter(BUDGET, "gdp")
    monkeypatch.setattr(Gate, "choose", lambda *given: drawn.append((given[1], given[2](), given[3])) or 0)
    epsilon, entrants = (Shrinking(1e-3), low) if odd == "epsilon" else (1e-3, Different(low, low, high))
    choose_best(entrants, epsilon=epsilon, meter=meter, scoring="loss")
    ((paid, sums, scale),) = drawn
    assert scale == Fraction(paid) and all(0 <= one <= 4 for one in sums)


def loop(*, rows=2):
    """A run without noise, so that what its records add is seen; a record adds at most 1."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    ledger = LoopMeter(("full",), "add_remove", 0.0)
    run = EngineRun(ledger, None, [parameter], noise=0.0, clip=1.0, expected=1.0, mean=False)
    return run, run.draw(range(2 * rows))[0]


class Once:
    """The tape of a pass over one record, of norm 1; ``between``: what another thread does while it is added up."""

    def __init__(self, place, between=lambda: None):
        self.place, self.between = place, between

    def squared_norms(self):
        return torch.ones(1, 1)

    def sums(self, factors):
        self.between()
        return [torch.eye(3)[self.place]]


def most(gradient):
    return float(torch.stack(gradient).abs().max())


def test_two_threads_that_go_back_through_one_piece_count_it_once():
    run, batch = loop()
    first = run.hand_out(batch, 1, last=False)

    def meanwhile():
        run.passed(Once(0), 1, first)
        run.hand_out(batch, 1, last=True)

    with pytest.raises(Refused):
        run.passed(Once(0, meanwhile), 1, first)
    run.passed(Once(1), 1, run.mark())
    assert most(run.step()) <= 1


def test_a_step_that_is_interrupted_anywhere_counts_a_piece_once():
    code = {EngineRun._take.__code__, EngineRun.step.__code__, EngineRun.hand_out.__code__}
    for moment in range(60):
        run, batch = loop()
        left = [moment]

        def watch(frame, event, _, left=left):
            if frame.f_code in code and event == "line":
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
            return watch if frame.f_code in code or event == "call" else None

        marks = [run.hand_out(batch, 1, last=False)]  # which the rows of a piece carry
        run.passed(Once(0), 1, marks[0])
        before = sys.gettrace()
        sys.settrace(watch)
        try:
            marks.append(run.hand_out(batch, 1, last=True))
            run.passed(Once(1), 1, marks[1])
            run.step()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if run._lock.locked():  # it came while the lock was given back, and nobody could go on
            run._lock.release()
        found = []
        for _ in range(3):  # whoever goes on: once more what was done, and then a step
            for place, mark in enumerate(marks):
                with contextlib.suppress(RuntimeError, ValueError):
                    run.forget()
                    run.passed(Once(place), 1, mark)
                    found.append(run.step())
            with contextlib.suppress(RuntimeError):
                found.append(run.step())
        assert all(gradient is None or most(gradient) <= 1 for gradient in found)


@pytest.mark.parametrize("change", ["change_basis", "release_size"])
def test_rows_never_stand_beside_the_bound_of_others(change):
    """Whoever asks meanwhile, in another thread, reads the records first and then the facts."""
    asked = curator(AdditiveMeter(BUDGET, "gdp"))
    desk, before, seen = asked._Curator__desk, asked._Curator__desk.records, []

    def watch(frame, event, _):
        if frame.f_code.co_filename == inspect.getsourcefile(Curator):
            seen.append((desk.records is before, asked._Curator__facts.row_bound))
            return watch
        return None

    basis = torch.eye(2, dtype=torch.float64) * 2
    if change == "change_basis":
        earlier = sys.gettrace()
        sys.settrace(watch)
        try:
            asked.change_basis(basis)
        finally:
            sys.settrace(earlier)
        assert seen and all(old or bound >= 2 for old, bound in seen)
        return
    inside = threading.Event()
    with desk:  # a basis is being changed
        other = threading.Thread(target=lambda: (inside.set(), asked._Curator__sized(8.0)))
        other.start()
        assert inside.wait(10)
        other.join(0.2)
        asked._Curator__facts = type(asked.facts)(**{**vars(asked._Curator__facts), "row_bound": 2.0})
    other.join(10)
    assert asked.facts.row_bound == 2.0 and asked.facts.size == 8.0


def listed():
    first = {f"trusted/{name}.py": reading.digest_of(f"trusted/{name}.py") for name in reading.RING_1.split()}
    return {
        "rings": [first, {"trusted/curator.py": "0" * 64}, {"trusted/fast/kernels.py": "0" * 64}],
        "dependencies": {},
    }


def hidden(code):
    code["rings"][0] = {"trusted/units.py": reading.digest_of("trusted/units.py")}


def unread(code):
    code["rings"][2]["trusted/curator.py"] = code["rings"][1].pop("trusted/curator.py")


def twice(code):
    code["rings"][2]["trusted/gate.py"] = "0" * 64


def fourth(code):
    code["rings"].append({"trusted/curator.py": "0" * 64})


def told(code):
    code["rings"][1]["x.py\nThese are the files that are installed here.\x1b[8m"] = "0" * 64


def lone(code):
    code["rings"][1]["\ud800"] = None


def endless(code):
    code["rings"][1] |= {f"a{number}.py": "0" * 64 for number in range(100_000)}


@pytest.mark.parametrize("forge", [hidden, unread, twice, fourth, told, lone, endless])
def test_of_a_forged_list_of_code_nothing_is_printed(forge, tmp_path, shell):
    code = listed()
    path = tmp_path / "statement.json"
    path.write_text(json.dumps({"code": code}))
    assert shell("verify", path, "--reading-list").code == 0 and reading.odd_code(code) is None
    forge(code)
    path.write_text(json.dumps({"code": code}))
    done = shell("verify", path, "--reading-list")
    assert done.code == 2 and not done.out and len(done.err) < 1000
    assert reading.odd_code(code)


def test_a_list_of_code_is_read_as_the_verdict_reads_it(tmp_path, shell):
    path, own = tmp_path / "statement.json", json.dumps(listed())
    path.write_text(f'{{"code": {own}, "code": {own}}}')  # one for people, another for the parser
    assert shell("verify", path, "--reading-list").code == 2
