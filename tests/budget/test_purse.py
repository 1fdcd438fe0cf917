"""One budget for several runs: never more than it, written down before a record is touched, whatever happens then."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted, PlanMeter, Terms, meter_from
from noisewise.accounts.purse import Purse
from noisewise.accounts.spending_file import Amount, PurseEntry, left_of
from noisewise.statements.statement import training_budget
from noisewise.trusted.accountants import gdp
from noisewise.trusted.accountants.base import currencies
from noisewise.trusted.events import ApproximateDP, FixedBatch, Gaussian, Poisson, Repeated

BUDGET = Budget(1.0, 1e-6)
GDP = Terms.adaptive("gdp")


def counted(purse):
    """What all runs take of the purse, exactly."""
    return sum(Fraction(entry.counted.cost) for entry in purse.entries)


def spend(meter, share=0.5):
    event = Gaussian(meter.noise_for(share))
    meter.spend(event)
    return event


# -- what may be spent --------------------------------------------------------------------------------------------


def test_promises_add_up_and_no_more_than_the_budget_is_reserved():
    purse = Purse(BUDGET)
    with purse.part(GDP, Budget(0.25, 2.5e-7), what="bounds") as bounds:
        assert type(bounds.meter) is AdditiveMeter and bounds.meter.budget == Budget(0.25, 2.5e-7)
        spend(bounds.meter)
    with purse.part(Terms.plan(Gaussian(50.0)), what="training") as training:
        assert type(training.meter) is PlanMeter and training.meter.budget == training_budget(
            BUDGET, {"epsilon": 0.25, "delta": 2.5e-7}
        )
        training.meter.spend(Gaussian(50.0))
    assert [entry.state for entry in purse.entries] == ["spent", "spent"] and purse.spent_fraction == 1.0
    for asked in ({}, {"budget": Budget(1e-3, 1e-9)}, {"share": 1e-3}):
        with pytest.raises(BudgetExhausted):
            purse.part(GDP, **asked)


def test_a_promise_does_not_come_back_in_part_but_whole_when_nothing_was_asked():
    purse = Purse(BUDGET)
    with purse.part(GDP, Budget(0.5, 5e-7)) as run:
        spend(run.meter, 0.01)
    assert purse.spent_fraction == 0.5
    with pytest.raises(RuntimeError), purse.part(GDP, share=1.0):
        raise RuntimeError("before the first question")
    assert purse.spent_fraction == 0.5 and purse.entries[1].state == "failed"
    assert purse.entries[1].spent == Amount(0.0, 0.0)


def test_a_filter_takes_what_was_charged_and_gives_back_the_rest():
    purse = Purse(BUDGET, GDP)
    with purse.part(GDP, share=0.5) as run:
        event = spend(run.meter)
        reserved = purse.entries[0].reserved.cost
        assert counted(purse) == Fraction(reserved)
    taken = purse.entries[0].spent.cost
    assert gdp.cost(event, "add_remove") <= taken <= reserved * 0.51
    with purse.part(GDP) as run:
        spend(run.meter, 1.0)
    assert 1 - 1e-6 < purse.spent_fraction <= 1


def test_a_filter_takes_a_plan_whole_unless_nothing_was_asked():
    purse = Purse(BUDGET, GDP)
    plan = Terms.plan(Repeated(Gaussian(50.0), 10))
    with purse.part(plan):
        pass
    assert purse.spent_fraction == 0.0
    with purse.part(plan) as run:
        run.meter.spend(Gaussian(50.0))
    assert purse.entries[1].spent.cost >= 10 * gdp.cost(Gaussian(50.0), "add_remove")
    dear = Purse(Budget(3.0, 1e-5), Terms.adaptive("gdp"))
    with pytest.raises(BudgetExhausted):  # a fair price by PLD, and far too much in the currency of the purse
        dear.part(Terms.plan(Repeated(Poisson(0.001, Gaussian(1.0)), 100)))


@pytest.mark.parametrize("name", currencies())
@settings(max_examples=15, deadline=None, derandomize=True)
@given(moves=st.lists(st.tuples(st.floats(0.01, 1.0), st.lists(st.floats(0.01, 1.0), max_size=3)), max_size=8))
def test_no_sequence_of_runs_exceeds_the_cap_of_a_filter(name, moves):
    terms = Terms.adaptive(name, order=30 if name == "rdp" else None)
    purse = Purse(Budget(2.0, 1e-6), terms)
    whole = AdditiveMeter(Budget(2.0, 1e-6), name, order=terms.order)
    for share, asked in moves:
        paid = []
        with contextlib.suppress(BudgetExhausted), purse.part(terms, share=share) as run:
            for one in asked:
                paid.append(spend(run.meter, one))
        for event in paid:
            whole.spend(event)  # never refused: all runs together are one run under the filter
        assert counted(purse) <= Fraction(whole.currency.cap)
        assert counted(purse) >= whole.charged[0] * (1 - Fraction(1, 2**90))


def test_one_shot_deltas_are_counted_too():
    terms = Terms.adaptive("gdp", one_shot_delta=4e-7)
    purse = Purse(BUDGET, terms)
    part = Terms.adaptive("gdp", one_shot_delta=3e-7)
    with purse.part(part, share=0.5) as run:
        run.meter.spend(ApproximateDP(0.01, 1e-7))
    assert purse.entries[0].spent.delta == 1e-7
    with purse.part(part, share=0.5), pytest.raises(BudgetExhausted):
        purse.part(part, share=0.5)


@pytest.mark.parametrize("name", currencies())
def test_what_is_too_little_for_a_currency_is_nothing(name):
    terms = Terms.adaptive(name, order=30 if name == "rdp" else None)
    purse = Purse(Budget(2.0, 1e-6), terms)
    with purse.part(terms) as run:
        spend(run.meter, 1.0)
    with pytest.raises(BudgetExhausted, match="too little"):
        purse.part(terms, share=1e-9)
    with pytest.raises(ValueError, match="one_shot_delta"):
        Purse(Budget(2.0, 1e-6), terms).part(replace(terms, one_shot_delta=1e-3))


@pytest.mark.parametrize(
    ("terms", "budget", "message"),
    [(Terms.adaptive("zcdp"), None, "filter of gdp"), (GDP, Budget(0.5, 1e-7, "replace_one"), "replace_one"),
     (Terms.plan(Gaussian(0.01)), None, "more than the budget"), (Terms.adaptive("abacus"), None, "pass one of")],
)  # fmt: skip
def test_a_part_on_other_terms_is_refused(terms, budget, message):
    with pytest.raises(ValueError, match=message):
        Purse(BUDGET, GDP).part(terms, budget)


def test_a_part_keeps_the_order_and_the_omega_of_the_purse():
    with pytest.raises(ValueError, match="order 20"):
        Purse(BUDGET, Terms.adaptive("rdp", order=20)).part(Terms.adaptive("rdp", order=21), Budget(0.9, 1e-6))
    budget = Budget(0.5, 1e-8, "replace_one")
    purse = Purse(budget, Terms.adaptive("tcdp"))
    with pytest.raises(ValueError, match="omega"):
        purse.part(Terms.adaptive("tcdp"), replace(budget, delta=1e-2))
    with purse.part(Terms.adaptive("tcdp"), share=0.5) as run:
        run.meter.spend(FixedBatch(0.01, Gaussian(run.meter.noise_for(0.5, ("fixed", 0.01)))))
    with pytest.raises(ValueError, match="several runs need a filter"):
        Purse(BUDGET, Terms.plan(Gaussian(50.0)))


def test_strangers_terms_are_read_once_and_only_if_they_are_exactly_terms():
    class Mine(Terms):
        pass

    for wrong in (Mine("adaptive", "gdp"), None, AdditiveMeter(BUDGET, "gdp")):
        with pytest.raises(TypeError, match="return exactly"):
            Purse(BUDGET).part(wrong)
    terms = Terms.plan(Gaussian(50.0))
    run = Purse(BUDGET).part(terms)
    object.__setattr__(terms.events[0], "noise_multiplier", 0.01)
    with pytest.raises(BudgetExhausted):
        run.meter.spend(Gaussian(0.01))


# -- the end of a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [GDP, Terms.plan(Gaussian(500.0))])
def test_a_settled_meter_pays_for_nothing(terms):
    purse = Purse(BUDGET)
    run = purse.part(terms)
    assert run.meter.affords(Gaussian(500.0))
    run.settle()
    assert not run.meter.affords(Gaussian(500.0))
    with pytest.raises(BudgetExhausted, match="settled"):
        run.meter.spend(Gaussian(500.0))
    with pytest.raises(ValueError, match="settled before"):
        run.settle()
    assert purse.spent_fraction == 0


def test_a_purse_is_not_copied_and_stays_in_its_process():
    import copy
    import pickle

    purse = Purse(BUDGET)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="twice"):
            attempt(purse)
    run = purse.part(GDP)
    purse._process = (0, 0, 0)
    for attempt in (lambda: purse.part(GDP), run.settle):
        with pytest.raises(RuntimeError, match="another process"):
            attempt()


def test_what_is_written_can_be_replayed(tmp_path):
    purse = Purse(BUDGET, store=tmp_path / "spending.json")
    with purse.part(GDP, Budget(0.25, 2.5e-7), what="bounds") as run:
        spend(run.meter)
    document = json.loads((tmp_path / "spending.json").read_text())
    assert set(document) == {"terms", "entries"}
    (entry,) = document["entries"]
    assert set(entry) == {"terms", "reserved", "spent", "state", "claimed"} and entry["state"] == "spent"
    promise = {name: entry["terms"][name] for name in ("epsilon", "delta", "adjacency")}
    again = meter_from(Budget(**promise), entry["terms"]["meter"])
    for event in purse.entries[0].events:
        again.spend(event)
    assert again.spent_fraction == run.meter.spent_fraction


# -- the file -----------------------------------------------------------------------------------------------------


def test_a_file_is_shared_by_purses_that_agree_and_refused_to_others(tmp_path):
    path = tmp_path / "spending.json"
    with Purse(BUDGET, store=path).part(GDP, Budget(0.5, 5e-7)) as run:
        spend(run.meter)
    assert Purse(BUDGET, store=str(path)).spent_fraction == 0.5
    for other in (lambda: Purse(Budget(2.0, 1e-6), store=path), lambda: Purse(BUDGET, GDP, store=path)):
        with pytest.raises(ValueError, match="other terms"):
            other()


def test_two_at_once_never_both_get_the_last_of_it(tmp_path):
    got = []

    def ask():
        purse = Purse(BUDGET, store=tmp_path / "spending.json")
        with contextlib.suppress(BudgetExhausted):
            got.append(purse.part(GDP, Budget(0.3, 3e-7)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 3 and len(Purse(BUDGET, store=tmp_path / "spending.json").entries) == 3


DAMAGE = {
    "empty": lambda text: "",
    "cut": lambda text: text[: len(text) // 2],
    "a list": lambda text: "[]",
    "no entries": lambda text: json.dumps({"terms": json.loads(text)["terms"]}),
    "an unknown state": lambda text: text.replace('"spent",', '"gone",').replace('"state": "spent"', '"state": "gone"'),
    "not a number": lambda text: text.replace('"cost": 0.5', '"cost": NaN'),
    "a text": lambda text: text.replace('"cost": 0.5', '"cost": "0.5"'),
    "negative": lambda text: text.replace('"cost": 0.5', '"cost": -0.5'),
    "more than all": lambda text: text.replace('"cost": 0.5', '"cost": 5.0'),
    "spent more than reserved": lambda text: text.replace('"cost": 0.5', '"cost": 0.25', 1),
    "another key": lambda text: text.replace('"what"', '"why"'),
    "no such event": lambda text: text.replace('"kind": "Gaussian"', '"kind": "Laplace"'),
    "settled and not": lambda text: text.replace('"state": "spent"', '"state": "reserved"'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path, damage):
    path = tmp_path / "spending.json"
    purse = Purse(BUDGET, store=path)
    with purse.part(GDP, Budget(0.5, 5e-7)) as run:
        spend(run.meter)
    text = path.read_text()
    broken = DAMAGE[damage](text)
    assert broken != text
    path.write_text(broken)
    for attempt in (
        lambda: Purse(BUDGET, store=path),
        lambda: purse.part(GDP, Budget(0.1, 1e-7)),
        lambda: purse.entries,
    ):
        with pytest.raises(ValueError, match="do not delete it"):
            attempt()
    assert path.read_text() == broken


def test_a_link_is_not_followed(tmp_path):
    Purse(BUDGET, store=tmp_path / "real.json").part(GDP)
    (tmp_path / "spending.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(ValueError, match="not a spending file"):
        Purse(BUDGET, store=tmp_path / "spending.json")


# -- what goes wrong ----------------------------------------------------------------------------------------------

STEPS = ["mkstemp", "fsync", "fchmod", "replace", "fsync of the folder"]


def break_at(step, how, patch):
    """Make one step of writing the file fail; ``how`` it fails."""
    module = tempfile if step == "mkstemp" else os
    name = step.split()[0]
    real, calls = getattr(module, name), []

    def broken(*args, **options):
        calls.append(1)
        if step != "fsync of the folder" or len(calls) == 2:
            how()
        return real(*args, **options)

    patch(module, name, broken)


def no_space():
    raise OSError("no space left")


@pytest.mark.parametrize("step", STEPS)
def test_a_write_that_fails_never_hands_out_a_meter_or_forgets_a_run(tmp_path, step, monkeypatch):
    path = tmp_path / "spending.json"
    purse = Purse(BUDGET, GDP, store=path)
    with purse.part(GDP, share=0.25) as run:
        spend(run.meter, 1.0)
    before, text = counted(purse), path.read_text()
    with monkeypatch.context() as patched:
        break_at(step, no_space, patched.setattr)
        with pytest.raises(OSError, match="no space"):
            purse.part(GDP, share=0.5)
    assert counted(purse) >= before and (path.read_text() == text) == (step != STEPS[-1])
    run = purse.part(GDP, share=0.5)
    spend(run.meter)
    with monkeypatch.context() as patched:
        break_at(step, no_space, patched.setattr)
        with pytest.raises(OSError, match="no space"):
            run.settle()
    assert counted(purse) >= before + run.meter.charged[0]
    with pytest.raises(BudgetExhausted):
        spend(run.meter)
    assert {name.name for name in tmp_path.iterdir()} == {"spending.json", "spending.json.lock"}


CHILD = """
import os, sys
sys.path.insert(0, {tests!r})
from test_purse import *
for folder, step, broken_write in json.loads(sys.argv[1]):  # each in a process of its own
    if (forked := os.fork() if step else 0):
        print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), flush=True)
    else:
        break
else:
    sys.exit()
path, log = folder + "/spending.json", os.open(folder + "/released", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
purse = Purse(Budget(3.0, 1e-6), GDP, store=path)
if step:
    writes = []
    from noisewise.accounts import spending_file as store
    real = store.write_atomically
    def counting(*args, **options):
        writes.append(1)
        if len(writes) == broken_write:
            break_at(step, lambda: os._exit(9), setattr)
        real(*args, **options)
    store.write_atomically = counting
while True:
    with purse.part(GDP, share=0.02) as run:
        for share in (0.1, 0.5, 1.0):
            os.write(log, repr(spend(run.meter, share).noise_multiplier).encode() + b"\\n")
"""


def child(*asked):
    """A process that spends in a folder until it is killed; or, for each folder, one that ends in a step of a write."""
    script = CHILD.format(tests=os.path.dirname(__file__))
    command = [sys.executable, "-c", script, json.dumps(asked)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_after_death(folder):
    """The file can be read, keeps the cap, and says at least what was released."""
    lines = (folder / "released").read_bytes().split(b"\n")[:-1] if (folder / "released").exists() else []
    released = sum(Fraction(gdp.cost(Gaussian(float(line)), "add_remove")) for line in lines)
    purse = Purse(Budget(3.0, 1e-6), GDP, store=folder / "spending.json")
    assert counted(purse) >= released * (1 - Fraction(1, 10**12))
    return len(lines)


def test_killed_at_any_moment_the_file_says_at_least_what_was_released(tmp_path):
    chance = random.Random(0)
    before = 0
    for _ in range(5):
        with child((str(tmp_path), "", 0)) as running:
            deadline = time.monotonic() + 600
            while check_size(tmp_path / "released") <= before and time.monotonic() < deadline:
                assert running.poll() is None, running.stderr.read()
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.05))
            running.send_signal(signal.SIGKILL)
        check_after_death(tmp_path)
        assert check_size(tmp_path / "released") > before
        before = check_size(tmp_path / "released")


def check_size(path):
    return path.stat().st_size if path.exists() else 0


WRITES = (3, 4)  # the second run's reservation, and its settlement


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder and exit code of each process that was killed in a step of a write."""
    cases = {(step, write): tmp_path_factory.mktemp("killed") for write in WRITES for step in STEPS}
    with child(*((str(folder), *case) for case, folder in cases.items())) as running:
        out, errors = running.communicate()
    assert running.returncode == 0, errors
    return dict(zip(cases, zip(cases.values(), map(int, out.split()), strict=True), strict=True))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step_of_a_write_the_file_is_the_old_one_or_the_new_one(killed, step):
    for write in WRITES:
        folder, code = killed[step, write]
        assert code == 9
        assert check_after_death(folder) == (3 if write == 3 else 6)
        runs = Purse(Budget(3.0, 1e-6), GDP, store=folder / "spending.json").entries
        states = [run.state for run in runs]
        new = step == STEPS[-1]
        assert states == (
            [["spent"], ["spent", "reserved"]][new] if write == 3 else ["spent", ["reserved", "spent"][new]]
        )


def test_any_store_will_do_that_keeps_the_protocol():
    class Kept(dict):
        """A store of somebody else."""

        def entries(self, terms):
            return tuple(self.values())

        def reserve(self, terms, entry):
            cost, delta = left_of(Amount(**terms["cap"]), self.entries(terms))
            assert entry.reserved.cost <= cost and entry.reserved.delta <= delta
            self[len(self)] = entry
            return len(self) - 1

        def settle(self, terms, number, settled):
            self[number] = settled

        def left(self, terms):
            return left_of(Amount(**terms["cap"]), self.entries(terms))

    kept = Kept()
    with Purse(BUDGET, store=kept).part(GDP, Budget(0.5, 5e-7)) as run:
        assert kept[0].state == "reserved" and kept[0].reserved == Amount(0.5, 5e-7)
        spend(run.meter)
    assert type(kept[0]) is PurseEntry and kept[0].state == "spent"


def test_neither_epsilon_nor_delta_alone_can_be_overdrawn():
    purse = Purse(BUDGET)
    purse.part(GDP, Budget(0.9, 1e-7))
    for asked in (Budget(0.2, 1e-8), Budget(0.05, 9.5e-7)):
        with pytest.raises(BudgetExhausted, match="are left of the purse"):
            purse.part(GDP, asked)
    purse.part(GDP, Budget(0.05, 1e-8))
    assert len(purse.entries) == 2
