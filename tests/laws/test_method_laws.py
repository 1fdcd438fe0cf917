"""What every method must keep, whatever it does: methods are found in the registry, so a new one joins by existing."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from pairs import pairwise

import noisewise as nw
import noisewise.train as loop
from noisewise.accounts import Terms, meter_from, open_meter
from noisewise.curator import Curator, PublicCurator
from noisewise.evidence.runs import verify
from noisewise.methods import registry
from noisewise.statements.statement import make_statement
from noisewise.tables.fit.fit import network_of
from noisewise.train import Records, kind_of, train
from noisewise.trusted.events import Repeated
from noisewise.trusted.facts import facts_of
from noisewise.trusted.features import TableColumn
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import MLP, Additive, Linear

pytestmark = pytest.mark.filterwarnings(
    "ignore::noisewise.protect.learned.zoo.OutsideRange"
)  # a few dozen records are few

N, FEATURES, CLASSES = 60, 3, 3
METHODS = [n for n, method in registry().items() if method.private and getattr(method, "asks_private", True)]
KINDS = ("linear", "mlp")
TABLE = tuple(TableColumn(f"x{i}", (-1.0, 1.0), (0.0, 1.0)) for i in range(FEATURES))
PROMISES = [("add_remove", True), ("add_remove", False), ("replace_one", True)]
QUESTIONS = {name for name in dir(Curator) if not name.startswith("_")}
FREE = {"change_basis", "in_first_basis", "prepare", "centre", "features"}  # release nothing: neither paid nor taped


# Pricing small batches takes seconds: these have larger ones here, and their own in make test-slow.
LARGER = {"growing_batch": {"first_rate": 0.25, "stages": 2}, "projected_sgd": {"batch_size": 12.0}}


def a_method(name):
    """The method with its defaults, but few steps."""
    kind = registry()[name]
    few = {"steps": 6} if "steps" in {field.name for field in fields(kind)} else {}
    return kind(**few, **LARGER.get(name, {}))


def kinds(name):
    """The kinds of models to train: one that makes features of columns has a table's alone."""
    return ("table",) if registry()[name].table else KINDS


def a_model(loss_name, kind):
    loss = LOSSES[loss_name]
    outputs = CLASSES if loss.task == "classes" else 1
    if kind == "table":
        return Additive(1, loss, outputs, columns=TABLE)
    return Linear(FEATURES, loss, outputs) if kind == "linear" else MLP((FEATURES, 4, outputs), loss)


# Even so they are not asked while tests are collected, but held to this below.
DEAR = {"growing_batch": (), "projected_sgd": (("add_remove", False),)}


def refuses(name, model, adjacency, size_is_public):
    """Whether the method names no terms for such a model and promise."""
    if name in DEAR:
        return (adjacency, size_is_public) in DEAR[name]
    budget = nw.Budget(2.0, 1e-5, adjacency=adjacency)
    facts = facts_of(model, budget, size=float(N) if size_is_public else None, row_bound=1.0)
    try:
        a_method(name).terms(facts)
    except ValueError:
        return True
    return False


def combinations():
    """Method, loss, kind of model, relation, whether the size is public; and whether the method refuses them."""
    for name in METHODS:
        for loss, kind, promise in product(registry()[name].losses, kinds(name), PROMISES):
            yield name, loss, kind, *promise, refuses(name, a_model(loss, kind), *promise)


COMBINATIONS = list(combinations())
TAKEN = [combination for *combination, refused in COMBINATIONS if not refused]


def of_pairs(names=METHODS):
    """What a method takes, as few as have each of its losses with each kind of model and each promise, and those together."""
    for name in names:
        taken = [(loss, kind, (relation, public)) for method, loss, kind, relation, public in TAKEN if method == name]
        yield from ((name, loss, kind, *promise) for loss, kind, promise in pairwise(among=taken))


def promises(name, kind=None):
    """The relations that a method takes with its first loss, each with whether the size is public."""
    kind = kind or kinds(name)[0]
    return [
        tuple(rest[2:]) for method, *rest in TAKEN if (method, *rest[:2]) == (name, registry()[name].losses[0], kind)
    ]


WITH_A_MODEL = [(name, kind) for name in METHODS for kind in kinds(name) if promises(name, kind)]
WITH_A_SIZE = [  # a public size and a bought one, under the first relation that the method takes
    (name, *taken[0])
    for name in METHODS
    for public in (True, False)
    if (taken := [p for p in promises(name) if p[1] is public])
]


def label(value):
    return {True: "public", False: "bought"}[value] if isinstance(value, bool) else str(value)


def rows_for(model, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True).clip(min=1)
    if model.loss.task == "classes":
        return X, rng.integers(CLASSES, size=n)
    return X, np.sign(X[:, 0] + 0.3 * rng.normal(size=n))


def run(name, model, adjacency="add_remove", size_is_public=True, *, seed=0, rows=None, method=None):
    """One training run; a method that refuses the combination must do so before it has asked anything."""
    method = method or a_method(name)
    X, y = rows_for(model) if rows is None else rows
    public = PublicCurator(*rows_for(model, 30, seed=1), model=model, seed=0) if method.needs_public else None
    budget = nw.Budget(2.0, 1e-5, adjacency=adjacency)
    records = Records(X, y, float(N) if size_is_public else None, row_bound=1.0)
    return train(method, records, model=model, budget=budget, public=public, seed=seed)


def at_the_end(model, result):
    """The model that was trained, which may have features of its own by then."""
    return model if result.features is None else model.of_width(result.features.width)


class Recorder:
    """A curator behind glass: lets its public names through and writes down what it answered."""

    def __init__(self, curator, answers):
        self.__dict__.update(_curator=curator, _answers=answers)

    def __setattr__(self, name, value):
        raise AssertionError(f"a method may not change the curator's {name}")

    def __getattr__(self, name):
        assert name in QUESTIONS, f"a method may not touch the curator's {name}"
        inside = getattr(self._curator, name)
        if not callable(inside) or name in FREE:
            return inside

        def ask(*args, **kwargs):
            answer = inside(*args, **kwargs)
            self._answers.append((kind_of(args[0]) if name == "ask" else name, answer))
            return answer

        return ask


class Replayer(Recorder):
    """Answers from a tape, having asked a curator of other records (so that meter, facts and trace move as before)."""

    def __getattr__(self, name):
        assert name in QUESTIONS
        inside = getattr(self._curator, name)
        if not callable(inside) or name in FREE:
            return inside

        def ask(*args, **kwargs):
            asked, answer = self._answers.pop(0)
            assert asked == (kind_of(args[0]) if name == "ask" else name)
            inside(*args, **kwargs)
            if name == "release_size":  # facts hold the released size
                self._curator._Curator__facts = replace(self._curator.facts, size=answer)
            return answer

        return ask


@pytest.fixture
def answers(monkeypatch):
    """Every question that a run asks, with its answer."""
    tape = []
    monkeypatch.setattr(loop, "Curator", lambda *args, **kwargs: Recorder(Curator(*args, **kwargs), tape))
    return tape


REFUSALS = [
    ("objective_perturbation", "mlp", PROMISES, "its loss is not convex"),
    ("output_perturbation", "mlp", PROMISES, "its loss is not convex"),
    ("pnsgd", "linear", PROMISES[:2], "pass 'replace_one'"),
    ("pnsgd", "mlp", PROMISES[:2], "pass 'replace_one'"),
    ("pnsgd", "mlp", PROMISES[2:], "its loss is not convex"),
    ("projected_sgd", "linear", PROMISES[1:2], "would leak it"),
    ("projected_sgd", "mlp", PROMISES[1:2], "would leak it"),
    ("sgd_adv", "linear", PROMISES[1:2], "which this budget cannot pay"),
    ("sgd_adv", "mlp", PROMISES[1:2], "which this budget cannot pay"),
    ("sgd_ma", "linear", PROMISES[2:], "stated for adjacency='add_remove'"),
    ("sgd_ma", "mlp", PROMISES[2:], "stated for adjacency='add_remove'"),
    ("sufficient_statistics", "mlp", PROMISES, "needs a linear model"),
]


@pytest.mark.parametrize("name, kind, refused, reason", REFUSALS)
def test_what_a_method_cannot_do_is_refused_before_anything_is_asked(name, kind, refused, reason, answers):
    for loss, promise in product(registry()[name].losses, refused):
        with pytest.raises(ValueError, match=reason):
            run(name, a_model(loss, kind), *promise)
    assert answers == []


def test_methods_of_this_package_refuse_nothing_else():
    ours = {name for name in METHODS if registry()[name].__module__.startswith("noisewise.methods.")}
    refused = {(name, kind, *promise) for name, _, kind, *promise, no in COMBINATIONS if no and name in ours}
    assert refused == {(name, kind, *promise) for name, kind, several, _ in REFUSALS for promise in several}


def test_every_method_takes_something():
    assert {name for name, *_ in TAKEN} == set(METHODS)


@pytest.mark.sample(80)
@pytest.mark.parametrize("name, loss, kind, adjacency, size_is_public", [*of_pairs()], ids=label)
def test_a_run_stays_within_its_budget_and_says_what_it_did(name, loss, kind, adjacency, size_is_public, answers):
    model = a_model(loss, kind)
    result = run(name, model, adjacency, size_is_public)
    meter, budget = result.meter, nw.Budget(2.0, 1e-5, adjacency=adjacency)

    assert answers, "a private method that asks nothing learns nothing"
    assert result.theta.shape == (at_the_end(model, result).dimension,)
    assert np.isfinite(result.theta).all()
    assert not np.array_equal(result.theta, at_the_end(model, result).start())
    assert result.steps >= 1

    assert meter.budget == budget
    terms = a_method(name).terms(facts_of(model, budget, size=float(N) if size_is_public else None, row_bound=1.0))
    assert type(terms) is Terms and open_meter(budget, terms).describe() == meter.describe()
    assert 0 < meter.spent_fraction <= 1
    assert Counter(line.event for line in result.trace) == meter.events
    assert len(result.trace) == len(answers) == sum(meter.events.values())
    events = [Repeated(leaf, count) for leaf, count in meter.events.items()]
    replayed = meter_from(budget, meter.describe())
    for event in events:
        replayed.spend(event)
    if not meter.adaptive:
        assert nw.epsilon(events, delta=1e-5, adjacency=adjacency) <= 2.0 * (1 + 1e-9)
    with pytest.raises(Exception):  # noqa: B017  the same run again does not fit: the budget is really used
        for _ in range(200):
            for event in events:
                replayed.spend(event)

    bought = [asked for asked, _ in answers if asked == "release_size"]
    assert len(bought) == (0 if size_is_public else 1)
    assert result.facts.size_is_public == size_is_public


@pytest.mark.slow
@pytest.mark.parametrize("name, loss, kind, adjacency, size_is_public", [c for c in TAKEN if c[0] in LARGER], ids=label)
def test_so_does_a_run_with_small_batches(name, loss, kind, adjacency, size_is_public, answers, monkeypatch):
    monkeypatch.delitem(LARGER, name)
    test_a_run_stays_within_its_budget_and_says_what_it_did(name, loss, kind, adjacency, size_is_public, answers)


@pytest.mark.parametrize("name, adjacency, size_is_public", WITH_A_SIZE, ids=label)
def test_theta_depends_on_released_answers_alone(name, adjacency, size_is_public, monkeypatch, answers):
    """The same answers on other records give the same theta to the last bit; other answers another."""
    model = a_model(registry()[name].losses[0], kinds(name)[0])
    first = run(name, model, adjacency, size_is_public)
    tape = list(answers)
    X, y = rows_for(model, 17, seed=5)

    monkeypatch.setattr(loop, "Curator", lambda *args, **kwargs: Replayer(Curator(*args, **kwargs), tape))
    other = run(name, model, adjacency, size_is_public, seed=99, rows=(X, y))
    assert tape == []
    assert np.array_equal(first.theta, other.theta)
    monkeypatch.setattr(loop, "Curator", Curator)
    assert not np.array_equal(first.theta, run(name, model, adjacency, size_is_public, seed=99, rows=(X, y)).theta)


@pytest.mark.sample(14)
@pytest.mark.parametrize("name, kind", WITH_A_MODEL)
def test_a_seed_decides_everything_and_no_seed_nothing(name, kind):
    model = a_model(registry()[name].losses[0], kind)
    promise = promises(name, kind)[0]
    one, same, other, *private = (
        tuple(run(name, model, *promise, seed=seed).theta.tolist()) for seed in (3, 3, 4, None, None, None)
    )
    assert one == same != other
    assert len({*private}) > 1  # two may be the same: three numbers on a grid of the noise / 32, once in a million


@pytest.mark.parametrize("name, adjacency, size_is_public", WITH_A_SIZE, ids=label)
def test_the_statement_of_a_run_verifies_and_a_forged_one_does_not(name, adjacency, size_is_public):
    model = a_model(registry()[name].losses[0], kinds(name)[0])

    def stated(seed):
        result = run(name, model, adjacency, size_is_public, seed=seed)
        method = a_method(name)
        shape = network_of(at_the_end(model, result)).to_dict()
        statement = make_statement(
            method=name, settings=method.settings(), run=result, model=shape, assumed=["settings"]
        )
        return json.loads(statement.to_json())

    private, simulated = stated(None), stated(1)
    assert verify(private).holds
    assert verify(private).epsilon == 2.0
    assert not verify(simulated).holds
    assert "simulation" in verify(simulated).reason
    assert verify({**simulated, "simulation": False}).holds
    more = [{**event, "count": event["count"] * 50} for event in private["events"]]
    assert not verify({**private, "events": more}).holds
    assert not verify({**private, "promise": {**private["promise"], "epsilon": 0.2}}).holds
    assert not verify({**private, "promise": {**private["promise"], "delta": 1e-9}}).holds
    other = "replace_one" if adjacency == "add_remove" else "add_remove"
    assert not verify({**private, "promise": {**private["promise"], "adjacency": other}}).holds


@pytest.mark.sample(14)
@pytest.mark.parametrize("name, kind", WITH_A_MODEL)
def test_spoiled_records_neither_stop_nor_spoil_a_run(name, kind):
    promise = promises(name, kind)[0]
    for loss in registry()[name].losses:
        model = a_model(loss, kind)
        X, y = rows_for(model)
        X[0], X[1, 1], X[2], X[3] = math.nan, math.inf, 1e30, -math.inf
        if y.dtype.kind == "f":
            y[5] = math.nan
        spoiled, clean = run(name, model, *promise, rows=(X, y)), run(name, model, *promise)
        assert np.isfinite(spoiled.theta).all()
        nothing = run(name, model, *promise, rows=(np.full_like(X, math.nan), y))
        empty = run(name, model, *promise, rows=(X[:0], y[:0]))
        for odd in (spoiled, nothing, empty):
            assert np.isfinite(odd.theta).all()
            if not registry()[
                name
            ].adaptive:  # else what is asked depends on released answers, and those on the records
                assert odd.meter.events == clean.meter.events
                assert odd.steps == clean.steps


SAMPLED = [
    (name, sampling, adjacency)
    for name in METHODS
    if "sampling" in {field.name for field in fields(registry()[name])}
    for sampling, adjacency in (("poisson", "add_remove"), ("poisson", "replace_one"), ("fixed", "replace_one"))
    if (adjacency, True) in promises(name)
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("name, sampling, adjacency", SAMPLED)
def test_sampled_runs_stay_within_their_budget(name, sampling, adjacency):
    model = a_model(registry()[name].losses[0], kinds(name)[0])
    result = run(name, model, adjacency, method=a_method(name).with_settings(sampling=(sampling, 0.2)))
    events = [Repeated(leaf, count) for leaf, count in result.meter.events.items()]
    assert Counter(line.event for line in result.trace) == result.meter.events
    assert {type(leaf).__name__ for leaf in result.meter.events} == {
        "Poisson" if sampling == "poisson" else "FixedBatch"
    }
    if not result.meter.adaptive:
        assert nw.epsilon(events, delta=1e-5, adjacency=adjacency) <= 2.0 * (1 + 1e-9)
    with pytest.raises(ValueError):
        run(name, model, "add_remove", method=a_method(name).with_settings(sampling=("fixed", 0.2)))


def test_a_method_without_privacy_promises_nothing():
    assert [name for name, kind in registry().items() if not kind.private] == ["nonprivate"]
    for name, kind in registry().items():
        if kind.private:
            continue
        model = a_model(kind.losses[0], "linear")
        result = run(name, model)
        assert result.meter is None
        assert result.trace == ()
        statement = make_statement(method=name, settings={}, run=result, model=network_of(model).to_dict(), assumed=[])
        assert statement.data["promise"] is None
        assert not verify(statement.data).holds
        assert "promises nothing" in str(statement)
