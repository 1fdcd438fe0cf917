"""Standard errors: replays reproduce runs, cost nothing, and say how far noise carries theta; neither less nor far more."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest

import noisewise as nw
import noisewise.statements.standard_errors as replay
from noisewise.accounts.choosing import choose_meter
from noisewise.curator import Curator, PublicCurator
from noisewise.methods import method_named, registry
from noisewise.statements.standard_errors import Replayed, curvature, standard_errors, why_unknown
from noisewise.tables.fit.fitted import Spread
from noisewise.train import RecordedAnswers, Recording, Records, train
from noisewise.trusted.losses import loss_named
from noisewise.trusted.models import MLP, Linear

pytestmark = pytest.mark.filterwarnings(
    "ignore::noisewise.protect.learned.zoo.OutsideRange"
)  # a few hundred records are few

PRIVATE = [  # a method of tables knows its own noise
    name for name, kind in registry().items() if kind.private and not kind.table and getattr(kind, "asks_private", True)
]
N, D = 300, 4


def generated(size, features, seed=0):
    """Unit rows with two correlated columns, a weak one and a constant one; labels -1 and 1 from a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (size, features))
    X[:, 1] = (X[:, 0] + X[:, 1]) / 2
    X[:, 2] *= 0.3
    X[:, -1] = 1.0
    weights = np.random.default_rng(1).normal(size=features) * 3
    y = np.where(rng.random(size) < 1 / (1 + np.exp(-X @ weights)), 1.0, -1.0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), y.astype(np.float32)


def quick(name, steps=24):
    kind = registry()[name]
    if name == "projected_sgd":  # pricing small batches takes long
        return kind(steps=steps, sampling=("full",))
    return kind(steps=steps) if "steps" in {field.name for field in fields(kind)} else kind()


def trained(name, *, seed=0, size_is_public=True, method=None, model=None):
    method = method or quick(name)
    loss = "logistic" if "logistic" in method.losses else method.losses[0]
    model = model or Linear(D, loss_named(loss))
    public = PublicCurator(*generated(40, D, seed=2), model=model, seed=0) if method.needs_public else None
    adjacency = "replace_one" if name == "pnsgd" else "add_remove"
    budget = nw.Budget(4.0, 1e-5, adjacency=adjacency)
    records = Records(*generated(N, D), float(N) if size_is_public else None, row_bound=1.0)
    return method, train(method, records, model=model, budget=budget, public=public, seed=seed), public


def replays(method, run, public, seed=0):
    return replay._Replays(method, run.tape, public, method.init(run.tape.start, run.tape.facts, public), seed)


PUBLIC_SIZE_ONLY = ("pnsgd", "sgd_adv")  # test_method_laws holds them to refusing a bought one


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    "name, size_is_public",
    [
        (name, size_is_public)
        for name in PRIVATE
        for size_is_public in (True, False)
        if name != "objective_perturbation" and (size_is_public or name not in PUBLIC_SIZE_ONLY)
    ],
)
def test_a_replay_without_fresh_noise_is_the_run_itself(name, size_is_public):
    method, run, public = trained(name, size_is_public=size_is_public)
    spent = run.meter.spent_fraction
    theta, curator = replays(method, run, public).run(copies=1, only=0, part=0.0, reaction=np.eye(D, dtype=np.float32))
    assert np.array_equal(theta, run.theta)
    assert curator.place == len(run.tape.entries)
    assert run.meter.spent_fraction == spent


@pytest.mark.parametrize("name", PRIVATE)
def test_standard_errors_are_there_or_their_absence_is_explained_and_nothing_is_charged(name):
    method, run, public = trained(name)
    spent, events = run.meter.spent_fraction, run.meter.events
    errors = standard_errors(method, run.tape, public, draws=20)
    assert (run.meter.spent_fraction, run.meter.events) == (spent, events)
    if errors is None:
        assert name in ("agd", "agd_avg", "objective_perturbation")
        assert why_unknown(method, run.tape)
    else:
        assert why_unknown(method, run.tape) is None
        assert errors.shape == (D,)
        assert bool((errors > 0).all())
        assert np.array_equal(errors, standard_errors(method, run.tape, public, draws=20))
        assert not np.array_equal(errors, standard_errors(method, run.tape, public, draws=20, seed=1))


def test_a_tape_holds_released_answers_and_where_they_were_asked():
    model, (X, y) = Linear(D, loss_named("logistic")), generated(N, D)
    meter = choose_meter(nw.Budget(4.0, 1e-5), adaptive=True)
    private = Recording(Curator(X, y, model=model, meter=meter, size=N, row_bound=1.0, seed=1))
    theta = np.ones(D, np.float32)
    answer = private.gradient(theta, clip=1.0, noise_multiplier=50.0)
    theta += 1  # what is on the tape does not change with what the method does next
    (entry,) = private.tape(model, np.zeros(D, np.float32)).entries
    assert np.array_equal(entry.value, answer.value)
    assert np.array_equal(entry.theta, np.ones(D, np.float32))
    assert entry.noise_std == answer.noise_std
    assert entry.spent == private.meter.spent_fraction > 0
    assert private.facts.size == N
    assert len(private.trace) == 1
    with pytest.raises(AttributeError):
        private.records  # noqa: B018


def test_a_run_that_releases_too_much_or_has_no_linear_model_has_no_tape():
    model, (X, y) = Linear(D, loss_named("logistic")), generated(N, D)
    meter = choose_meter(nw.Budget(4.0, 1e-5), adaptive=True)
    private = Recording(Curator(X, y, model=model, meter=meter, size=N, seed=1), most=3 * D)
    private.gradient(np.zeros(D, np.float32), clip=1.0, noise_multiplier=50.0)
    assert private.tape(model, np.zeros(D, np.float32)) is not None
    private.gradient(np.zeros(D, np.float32), clip=1.0, noise_multiplier=50.0)
    assert private.tape(model, np.zeros(D, np.float32)) is None
    method, run, public = trained("dpsgd", model=MLP((D, 3, 1), loss_named("logistic")))
    assert run.tape is None
    assert standard_errors(method, run.tape, public) is None
    assert "not linear" in why_unknown(method, run.tape)


@pytest.mark.parametrize("steps, known", [(replay.MIN_GRADIENTS - 1, False), (replay.MIN_GRADIENTS, True)])
def test_a_short_run_has_no_standard_errors(steps, known):
    method, run, _ = trained("dpsgd", method=quick("dpsgd", steps))
    assert (standard_errors(method, run.tape) is not None) == known
    assert ("too few" in (why_unknown(method, run.tape) or "")) == (not known)


@pytest.mark.parametrize("name, works", [("dpsgd", True), ("descent", True), ("projected_gd", True), ("agd", False)])
def test_replays_side_by_side_are_used_only_where_they_are_the_same_as_one_by_one(name, works):
    method = method_named(name).with_settings(radius=0.5) if name == "projected_gd" else quick(name)
    method, run, public = trained(name, method=method)
    assert replays(method, run, public).side_by_side() == works


def test_noise_on_the_answer_is_noise_on_theta_where_theta_is_the_answer():
    method, run, _ = trained("output_perturbation")
    louder = replace(run.tape, entries=tuple(e._replace(noise_std=e.noise_std * 1.5) for e in run.tape.entries))
    known, errors = run.tape.entries[-1].noise_std, standard_errors(method, run.tape, draws=4000)
    assert errors == pytest.approx(np.full(D, known), rel=0.06)
    assert standard_errors(method, louder, draws=4000) == pytest.approx(1.5 * errors, rel=1e-3)


def test_curvature_never_strengthens_what_noise_does_to_heavy_ball():
    """The proof of docs/standard-errors.md in numbers: the response to noise k steps ago is largest without curvature."""
    for beta in (0.0, 0.5, 0.9):
        h = np.linspace(0.0, 2 * (1 + beta), 201)  # times the step size
        before, now = np.zeros_like(h), np.ones_like(h)
        for _ in range(60):
            assert (np.abs(now) <= now[0] * (1 + 1e-9)).all()
            before, now = now, (1 + beta - h) * now - beta * before


def a_path(h, steps=200, rate=2.0, seed=0):
    """A tape of plain descent on h/2 ||theta - 1||^2 with noise 1, and the replays in which nothing reacts."""
    model, facts = Linear(D, loss_named("logistic")), trained("dpsgd")[1].facts
    noise, theta, entries = np.random.default_rng(seed), np.zeros(D, np.float32), []
    for _ in range(steps):
        g = h * (theta - 1) + noise.standard_normal(D, np.float32)
        entries.append(replay.TapeEntry("gradient", g, 1.0, None, 1.0, 0.0, theta, None, None))
        theta = theta - rate * g
    tape = RecordedAnswers(model, np.zeros(D, np.float32), facts, 0.0, tuple(entries))
    null = Replayed(tape, seed=1, copies=50, watch=True)
    away = np.zeros((50, D), np.float32)
    for entry in entries:
        answer = null.gradient(entry.theta + away)
        away = away - rate * (answer.value - entry.value)
    return tape, [null]


def test_curvature_is_found_where_it_matters_and_not_where_there_is_none():
    strong = np.stack([curvature(*a_path(0.2, seed=s)) for s in range(8)])
    assert float(strong.diagonal(axis1=1, axis2=2).mean()) == pytest.approx(0.2, rel=0.3)
    flat = np.stack([curvature(*a_path(0.0, seed=s)) for s in range(8)])
    none_felt = 0.01  # twice 1 / (rate times steps)
    assert float(flat.diagonal(axis1=1, axis2=2).mean()) < none_felt


def test_a_spread_is_computed_once_and_saved_without_its_tape():
    method, run, public = trained("dpsgd")
    spread = Spread(lambda: standard_errors(method, run.tape, public))
    copy = pickle.loads(pickle.dumps(spread))
    assert np.array_equal(copy.values(), standard_errors(method, run.tape, public))
    assert copy._compute is None
    assert len(pickle.dumps(spread)) < 5000


def test_estimators_have_standard_errors_in_the_shape_of_their_coefficients():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 3))
    y = rng.integers(3, size=600)
    three = nw.PrivateClassifier(2.0, 1e-5, method="dpsgd", bounds=(-1, 1), random_state=0).fit(X, y)
    assert three.coef_std_.shape == three.coef_.shape == (3, 3)
    assert three.intercept_std_.shape == three.intercept_.shape
    line = nw.PrivateRegressor(
        2.0, 1e-5, method="sufficient_statistics", bounds=(-1, 1), target_bounds=(-1, 1), random_state=0
    ).fit(X, X[:, 0])
    assert line.coef_std_.shape == line.coef_.shape == (3,)
    assert (line.coef_std_ > 0).all()
    assert line.intercept_std_ > 0
    silent = nw.PrivateClassifier(2.0, 1e-5, method="objective_perturbation", bounds=(-1, 1), random_state=0)
    assert silent.fit(X, y > 0).coef_std_ is None
