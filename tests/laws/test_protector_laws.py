"""The guarantee of learned protectors: whatever the weights, no run overspends and no private value is seen unpaid.

Weights are random, huge, not finite, or made to misbehave (spend everything at once, hoard, step as far as they can).
They are saved to a file, loaded, and used in private runs, as anyone's weights would be.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_method_laws import Recorder, Replayer

import noisewise as nw
import noisewise.train as loop
from noisewise.accounts import AdditiveMeter, BudgetExhausted, meter_from
from noisewise.asking import array
from noisewise.curator import Curator, Gradient
from noisewise.methods.l2p import L2P
from noisewise.methods.preparation.basis import worth_buying
from noisewise.protect import protector
from noisewise.protect.learned import zoo
from noisewise.protect.learned.parts import new_weights
from noisewise.protect.learned.weights import Design, weights_from
from noisewise.protect.signal import BETA, Signal
from noisewise.train import Records, train
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.events import Repeated
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.question import CLIP_RANGE
from noisewise.trusted.questions import Question

N, FEATURES, STEPS = 40, 3, 5
EVERYWHERE = {"size": [1e-9, 1e12], "dimension": [1, 1e9], "epsilon": [1e-9, 1e9], "horizon": [1, 1e9]}
KINDS = ("fresh", "random", "huge", "astronomic", "nan", "infinite", "grabs", "hoards", "leaps", "narrows")
NORMS = [(0.0, False), (0.2, False), (0.2, True)]
PROMISES = [("add_remove", True), ("add_remove", False), ("replace_one", True)]
MODELS = {
    "logistic": Linear(FEATURES, LOSSES["logistic"]),
    "squared": Linear(FEATURES, LOSSES["squared"]),
    "softmax": Linear(FEATURES, LOSSES["softmax"], 3),
    "mlp": MLP((FEATURES, 4, 1), LOSSES["logistic"]),
}


def weights_of(kind, design, seed=0):
    rng = np.random.default_rng(seed)
    sizes = {"random": 1.0, "huge": 1e6, "astronomic": 1e35}
    tensors = {
        name: array(weight) if kind == "fresh" else np.float32(sizes.get(kind, 1.0) * rng.normal(size=weight.shape))
        for name, weight in new_weights(design, seed).tensors().items()
    }
    match kind:
        case "nan" | "infinite":
            for weight in tensors.values():
                weight.fill(math.nan if kind == "nan" else math.inf)
        case "grabs":
            tensors["scheduler.head_bias"].fill(1e9)
        case "hoards":
            tensors["scheduler.head_bias"].fill(-1e9)
        case "leaps":
            tensors["projector.head_bias"].fill(1e9)
            tensors["clip.head_bias"].fill(1e9)
            tensors["rate"].fill(1e9)
        case "narrows":
            tensors["clip.head_bias"].fill(-1e9)
    return weights_from(tensors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("protectors")


def saved(folder, kind="random", seed=0, **design):
    """The path of a protector with such weights."""
    made = Design(units=3, **design)
    path = folder / f"{kind}.safetensors"
    zoo.save_protector(path, weights_of(kind, made, seed), made, {"name": kind, "horizon": STEPS, "ranges": EVERYWHERE})
    return str(path)


def rows_for(model, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, FEATURES)) + 0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(3, size=n) if model.outputs > 1 else np.sign(X[:, 0] - 0.3)
    return X, y


def run(method, model, adjacency="add_remove", size_is_public=True, *, budget=None, rows=None, seed=0):
    X, y = rows_for(model) if rows is None else rows
    records = Records(X, y, float(N) if size_is_public else None, row_bound=1.0)
    budget = budget or nw.Budget(1.0, 1e-5, adjacency=adjacency)
    return train(method, records, model=model, budget=budget, seed=seed)


def replayed(result):
    """The share of a fresh meter that is used after each line of the trace; raises if the lines do not fit in it."""
    meter, used = meter_from(result.meter.budget, result.meter.describe()), []
    for line in result.trace:
        meter.spend(line.event)
        used.append(meter.spent_fraction)
    return used


def stays_within_its_budget(result):
    meter = result.meter
    assert 0 < meter.spent_fraction <= 1
    assert Counter(line.event for line in result.trace) == meter.events, "every answer is in the trace and paid"
    assert [line.spent for line in result.trace] == replayed(result), "each line was paid when it was answered"
    events = [Repeated(leaf, count) for leaf, count in meter.events.items()]
    budget = meter.budget
    assert nw.epsilon(events, delta=budget.delta, adjacency=budget.adjacency) <= budget.epsilon * (1 + 1e-9)
    assert np.isfinite(result.theta).all()


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_no_weights_overspend(folder, data):
    design = {
        "form": data.draw(st.sampled_from(["exact", "open"])),
        "inputs": data.draw(st.sampled_from(["normalised", "paper"])),
        "norm_share": data.draw(st.sampled_from([0.0, 0.1, 0.9, 1 - 1e-9])),
        "squared_norm": data.draw(st.booleans()),
        **{part: data.draw(st.booleans()) for part in ("clip", "scheduler", "projector")},
    }
    path = saved(folder, data.draw(st.sampled_from(KINDS)), data.draw(st.integers(0, 999)), **design)
    adjacency, size_is_public = data.draw(st.sampled_from(PROMISES))
    budget = nw.Budget(
        data.draw(st.sampled_from([1e-3, 0.05, 1.0, 30.0])), data.draw(st.sampled_from([1e-8, 1e-3])), adjacency
    )
    method = L2P(
        protector=path,
        steps=data.draw(st.integers(1, 8)),
        max_grad_norm=data.draw(st.sampled_from([None, 1e-4, 3.0, 1e6])),
        deflate=data.draw(st.booleans()),
    )
    model = MODELS[data.draw(st.sampled_from(sorted(MODELS)))]
    result = run(method, model, size_is_public=size_is_public, budget=budget, seed=data.draw(st.integers(0, 99)))
    stays_within_its_budget(result)
    assert result.steps <= method.steps
    asked = Counter(line.question for line in result.trace)
    assert asked["Count"] == (0 if size_is_public else 1)
    size = result.facts.size or 1.0
    mu = mu_of(budget.epsilon, budget.delta) / (2 if adjacency == "replace_one" else 1)
    worth = method.deflate and worth_buying(size, mu, model.features)
    assert asked["FirstMoment"] == asked["SquaredLength"] == int(worth)
    norms = asked["gradient_norm"]
    assert norms == 0 if not design["norm_share"] else asked["gradient"] <= norms <= asked["gradient"] + 1
    assert set(asked) <= {"Count", "FirstMoment", "SquaredLength", "gradient_norm", "gradient"}


@pytest.mark.parametrize("norm", NORMS, ids=str)
@pytest.mark.parametrize("inputs", ["normalised", "paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_exact_form_spends_everything_whatever_the_weights(kind, inputs, norm, folder):
    path = saved(folder, kind, inputs=inputs, norm_share=norm[0], squared_norm=norm[1])
    result = run(L2P(protector=path, steps=STEPS), MODELS["logistic"])
    stays_within_its_budget(result)
    assert result.meter.spent_fraction > 1 - 2e-6
    if kind == "grabs":
        assert result.steps == 1, "all was taken at once, and the run ends there"
    if kind in ("fresh", "hoards", "nan"):
        assert result.steps == STEPS


@pytest.mark.parametrize("kind", KINDS)
def test_the_open_form_stops_where_nothing_is_left(kind, folder):
    path = saved(folder, kind, form="open")
    result = run(L2P(protector=path, steps=STEPS), MODELS["logistic"])
    stays_within_its_budget(result)
    if kind == "grabs":
        assert result.steps == 1 and result.meter.spent_fraction > 1 - 2e-6
    if kind == "hoards":
        assert result.steps == STEPS and result.meter.spent_fraction < 0.06


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_the_records_are_touched_only_after_paying(name, norm, folder, monkeypatch):
    """Every look at the records (a clipped sum, a statistic) has its own payment before it."""
    diary, model = [], MODELS[name]
    pay, look, measure = AdditiveMeter.spend, Gradient.totals, Question.totals

    def noted(what, inside, before):
        def call(*args, **kwargs):
            if before:
                diary.append(what)
            answer = inside(*args, **kwargs)
            if not before:
                diary.append(what)
            return answer

        return call

    monkeypatch.setattr(AdditiveMeter, "spend", noted("pay", pay, before=False))
    monkeypatch.setattr(Gradient, "totals", noted("look", look, before=True))
    monkeypatch.setattr(Question, "totals", noted("look", measure, before=True))
    path = saved(folder, norm_share=norm[0], squared_norm=norm[1])
    result = run(L2P(protector=path, steps=STEPS), model, size_is_public=False)
    assert diary == ["pay", "look"] * len(result.trace)
    asked = [line for line in result.trace if line.question in ("gradient", "gradient_norm")]
    assert len(asked) == STEPS * (2 if norm[0] else 1)


class Spied:
    """Every signal, clip norm, share and theta of a run, in order."""

    def __init__(self, monkeypatch):
        self.asked, self.moved, self.signals = [], [], []
        ask, hear = protector.next_question, protector.answered

        def question(part, run):
            self.signals.append(run.signal)
            clip, share, after = ask(part, run)
            self.asked.append((clip.item(), share.item()))
            return clip, share, after

        def answered(part, run, *args):
            after = hear(part, run, *args)
            self.moved.append(after.thetas.copy())
            self.signals.append(after.signal)
            return after

        monkeypatch.setattr(protector, "next_question", question)
        monkeypatch.setattr(protector, "answered", answered)


def taped(monkeypatch, curator_class, tape):
    monkeypatch.setattr(loop, "Curator", lambda *args, **kwargs: curator_class(Curator(*args, **kwargs), tape))


def same(one, other):
    """The same signal to the last bit."""
    for name in Signal._fields:
        a, b = getattr(one, name), getattr(other, name)
        if not (np.array_equal(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a == b):
            return False
    return True


@pytest.mark.sample(24)
@pytest.mark.parametrize("size_is_public", [True, False], ids=["public", "bought"])
@pytest.mark.parametrize("norm", NORMS, ids=str)
@pytest.mark.parametrize("form", ["exact", "open"])
@pytest.mark.parametrize("kind, inputs", [("random", "normalised"), ("random", "paper"), ("huge", "normalised")])
@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_the_same_answers_on_other_records_give_the_same_run(
    name, kind, inputs, form, norm, size_is_public, folder, monkeypatch
):
    """Thetas, clip norms, shares and signals are bit-identical when the answers are, whatever the records hold."""
    model = MODELS[name]
    path = saved(folder, kind, form=form, inputs=inputs, norm_share=norm[0], squared_norm=norm[1])
    method, tape = L2P(protector=path, steps=STEPS), []
    spies = []

    def once(curator_class, rows, seed):
        with monkeypatch.context() as patch:
            spies.append(Spied(patch))
            taped(patch, curator_class, tape)
            return run(method, model, size_is_public=size_is_public, rows=rows, seed=seed)

    first = once(Recorder, None, 0)
    kept = list(tape)
    X, y = rows_for(model, 17, seed=5)
    X[0], X[1] = math.nan, 1e30
    other = once(Replayer, (-X, -y), 99)
    assert tape == [] and kept
    assert np.array_equal(first.theta, other.theta)
    one, again = spies
    assert one.asked == again.asked and one.asked
    assert all(np.array_equal(a, b) for a, b in zip(one.moved, again.moved, strict=True))
    assert all(same(a, b) for a, b in zip(one.signals, again.signals, strict=True))
    assert first.meter.events == other.meter.events
    third = once(Recorder, (-X, -y), 99)
    assert not np.array_equal(first.theta, third.theta), "other answers give another theta"


def expected_signals(result, tape, model, method, budget, seen):
    """The signals a run must have shown its protector, from the tape of answers, the trace and public facts alone."""
    spent = dict(enumerate(replayed(result)))
    size = next((answer for name, answer in tape if name == "release_size"), float(N))
    start = sum(name in ("release_size", "statistic") for name, _ in tape)
    before = spent[start - 1] if start else 0.0
    mu = mu_of(budget.epsilon, budget.delta) / (2 if budget.adjacency == "replace_one" else 1)
    clip = method.max_grad_norm or model.loss.typical_clip
    base = {
        "horizon": STEPS,
        "ratio": np.array([size * mu / math.sqrt(model.dimension) * math.sqrt(1 - before)]),
        "typical_clip": clip,
        "longest_step": 30.0 if len(model.groups) == 1 else 10.0,
        "groups": model.groups,
    }
    heard, stds, left, norm = [], [], 1.0, None
    used, signals = np.array([clip]), []

    def signal(step, with_norm):
        w = np.array([(1 - BETA) * BETA ** (len(heard) - 1 - i) for i in range(len(heard))])
        average = (
            (w[:, None] * np.stack(heard).astype(np.float64)).sum(0) / w.sum() if heard else np.zeros(model.dimension)
        )
        std = np.linalg.norm(w * stds) / w.sum() if heard else 1.0
        squared = float(np.square(average).sum()) - model.dimension * std**2
        return {
            **base, "step": step, "remaining": np.array([left]), "clip": used,
            "gradient": heard[-1][None] if heard else np.zeros((1, model.dimension)),
            "noise_std": np.array([stds[-1] if stds else 0.0]), "average": average[None].astype(np.float32),
            "average_std": np.array([std]), "norm": np.array([math.sqrt(max(squared, 1e-6)) if heard else 1.0]),
            "sum_weight": 1 - BETA ** len(heard), "paid_norm": np.array([norm]) if with_norm else None,
        }  # fmt: skip

    step = 0
    for number, (name, answer) in enumerate(tape[start:], start):
        left = (1 - spent[number]) / (1 - before)
        if name == "gradient_norm":
            value = max(float(answer.value), 0.0)
            norm = math.sqrt(value) / used.item() if seen.squared_norm else value / used.item()
            continue
        after, left = left, (1 - spent.get(number - 1, 0.0)) / (1 - before)
        signals.append(signal(step, with_norm=bool(seen.norm_share)))
        left = after
        limit = result.trace[number].clip
        used = np.array([limit])
        heard.append(answer.value / limit)
        stds.append(answer.noise_std / limit)
        step += 1
        signals.append(signal(step, with_norm=False))
    return signals


@pytest.mark.parametrize("adjacency, size_is_public", PROMISES)
@pytest.mark.parametrize("norm", NORMS, ids=str)
@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_a_signal_is_made_of_released_answers_and_public_facts(
    name, norm, adjacency, size_is_public, folder, monkeypatch
):
    """Each field of each signal is computed again, by other formulas, from the tape of what was released."""
    model, design = MODELS[name], Design(units=3, norm_share=norm[0], squared_norm=norm[1])
    path = saved(folder, "random", norm_share=norm[0], squared_norm=norm[1])
    method, tape, budget = L2P(protector=path, steps=STEPS), [], nw.Budget(30.0, 1e-5, adjacency)
    spied = Spied(monkeypatch)
    taped(monkeypatch, Recorder, tape)
    result = run(method, model, size_is_public=size_is_public, budget=budget)
    expected = expected_signals(result, tape, model, method, budget, design)
    assert len(expected) == len(spied.signals) >= 2
    for signal, made in zip(spied.signals, expected, strict=True):
        assert set(made) == set(Signal._fields), "a new field must be shown to be released"
        for field in Signal._fields:
            mine, theirs = made[field], getattr(signal, field)
            if isinstance(mine, np.ndarray):
                assert np.allclose(mine.astype(np.float32), theirs, rtol=1e-3, atol=1e-5), (field, mine, theirs)
            else:
                assert theirs == pytest.approx(mine), field


@pytest.mark.parametrize("squared", [False, True], ids=["direct", "squared"])
def test_a_norm_is_paid_before_the_gradients_noise_is_chosen(squared, folder, monkeypatch):
    diary = []
    choose, pay = AdditiveMeter.noise_for, AdditiveMeter.spend
    monkeypatch.setattr(AdditiveMeter, "noise_for", lambda *a, **k: diary.append("choose") or choose(*a, **k))
    monkeypatch.setattr(AdditiveMeter, "spend", lambda *a, **k: diary.append("pay") or pay(*a, **k))
    path = saved(folder, norm_share=0.3, squared_norm=squared)
    result = run(L2P(protector=path, steps=STEPS, deflate=False), MODELS["logistic"])
    assert [line.question for line in result.trace] == ["gradient_norm", "gradient"] * STEPS
    assert diary == ["choose", "pay", "choose", "pay"] * STEPS
    norms = [line for line in result.trace if line.question == "gradient_norm"]
    spent = [0.0, *(line.spent for line in result.trace)]
    for t, line in enumerate(norms):
        cost = line.spent - spent[2 * t]
        assert cost == pytest.approx(0.3 / (STEPS - t) * (1 - spent[2 * t]), rel=1e-6)
    assert all(later.spent > earlier.spent for earlier, later in pairwise(result.trace))


@pytest.mark.parametrize("deflate", [True, False])
@pytest.mark.parametrize("squared", [False, True], ids=["direct", "squared"])
def test_a_norm_is_paid_also_when_the_run_stops_right_after_it(squared, deflate, folder):
    """A norm that takes nearly all there is: no gradient can be bought, and the norm stays paid and in the trace."""
    path = saved(folder, norm_share=1 - 1e-9, squared_norm=squared)
    model = MODELS["logistic"]
    result = run(L2P(protector=path, steps=1, deflate=deflate), model)
    questions = [line.question for line in result.trace]
    assert questions == [*(["FirstMoment", "SquaredLength"] if deflate else []), "gradient_norm"]
    assert result.trace[-1].event in result.meter.events
    assert 1 - 1e-8 < result.meter.spent_fraction <= 1
    assert np.array_equal(result.theta, model.start()) and result.steps == 0
    stays_within_its_budget(result)
    with pytest.raises(BudgetExhausted):
        result.meter.noise_for(1.0)


@pytest.mark.parametrize("kind, factor", [("leaps", math.e), ("narrows", math.exp(-4))])
def test_the_clip_is_what_the_curator_used_and_stays_in_its_range(kind, factor, folder):
    path = saved(folder, kind, norm_share=0.1)
    for typical, expected in [
        (0.5, 0.5 * factor),
        (CLIP_RANGE[0], max(CLIP_RANGE[0] * factor, CLIP_RANGE[0])),
        (1e6, min(1e6 * factor, 1e6)),
    ]:
        result = run(L2P(protector=path, steps=STEPS, max_grad_norm=typical), MODELS["logistic"])
        clips = {line.question: line.clip for line in result.trace}
        assert clips["gradient"] == pytest.approx(expected, rel=1e-5) and clips["gradient_norm"] == clips["gradient"]
        assert result.trace[2].clip == pytest.approx(min(max(typical, CLIP_RANGE[0]), 1e6)), (
            "the first norm: public facts"
        )
