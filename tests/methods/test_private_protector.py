"""A protector that is trained on the private records: what it costs, what it says, what it leaves behind."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from desk import laid_out, shell_of

import noisewise as nw
from noisewise.curator import Answer
from noisewise.evidence.runs import verify
from noisewise.methods.l2p import L2P
from noisewise.protect.learned.private import CLIP, MetaPlan, MetaRun, planned, shrunk
from noisewise.protect.learned.zoo import load_protector, named
from noisewise.train import Records, train
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.events import Gaussian, leaves
from noisewise.trusted.events import from_dict as event_from
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.units import Unit

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")
N, D = 2000, 4
PRIVATE = L2P(protector="private", steps=6)


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X[:, -1] = 1.0
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def run(method=PRIVATE, *, size=float(N), adjacency="add_remove", seed=0, model=None, epsilon=1.0, **more):
    records = Records(*rows(), size, row_bound=1.0, **more)
    budget = nw.Budget(epsilon, 1e-6, adjacency=adjacency)
    return train(method, records, model=model or Linear(D, Logistic()), budget=budget, seed=seed)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_the_share_is_spent_first_and_training_has_the_rest(share, adjacency):
    """mu_meta^2 = share mu^2, in the one filter of the run."""
    result = run(L2P(protector="private", steps=6, protector_share=share), adjacency=adjacency)
    asked = [line for line in result.trace if line.question == "MetaGradient"]
    factor = 2 if adjacency == "replace_one" else 1
    cost = sum((factor / line.event.noise_multiplier) ** 2 for line in asked)
    assert cost == pytest.approx(share * mu_of(1.0, 1e-6) ** 2, rel=1e-6)
    first = next(i for i, line in enumerate(result.trace) if line.question == "gradient")
    assert all(line.question != "MetaGradient" for line in result.trace[first:])
    assert result.meter.spent_fraction == pytest.approx(1.0, abs=1e-6) and result.arithmetic.grade == "assumed"


@pytest.mark.parametrize("size", [None, float(N)])
def test_it_learns_and_says_what_it_made(size):
    result = run(size=size, epsilon=8.0)
    assert result.protector.header["recipe"]["start"] == "zero"
    X, y = rows()
    assert ((X @ result.theta > 0) == (y > 0)).mean() > 0.8


@pytest.mark.parametrize("start", ["zero", "auto", "clear"])
@pytest.mark.parametrize("weights", ["few", "whole"])
def test_every_start_and_number_of_weights(start, weights):
    if weights == "whole" and start != "zero":
        pytest.skip("a shard at a time, which takes long for a protector of the package")
    method = L2P(protector="private", steps=4, start=start, protector_weights=weights)
    result = run(method, epsilon=50.0)
    settings = method.settings()
    assert settings["start"] == start and settings["protector_share"] == 0.2
    assert np.isfinite(result.theta).all() and result.protector.header["recipe"]["few"] == (weights == "few")
    if start == "clear":
        assert settings["sha256"] == named("clear").digest != result.protector.digest


def test_a_simulation_is_reproducible_and_a_private_run_is_not():
    first, second, other = (run(seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.theta, second.theta) and first.protector.digest == second.protector.digest
    assert not np.array_equal(first.theta, other.theta)
    assert not np.array_equal(*(run(seed=None).theta for _ in range(2)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"protector_share": 0.0},
        {"protector_share": 1.0},
        {"protector_share": math.nan},
        {"protector_share": "0.2"},
        {"protector_weights": "many"},
        {"start": 3},
        {"max_grad_norm": 1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="; "):
        L2P(protector="private", **wrong)


def test_what_cannot_be_trained_on_is_refused_before_anything_is_paid():
    with pytest.raises(ValueError, match="linear model"):
        run(model=MLP((D, 3, 1), Logistic()))
    with pytest.raises(ValueError, match="persons"):
        run(unit=Unit(2))
    with pytest.raises(ValueError, match="no such file"):
        run(L2P(protector="private", start="nowhere"))


def test_other_protectors_say_nothing_about_private_training():
    assert not {"start", "protector_share", "protector_weights"} & set(L2P().settings())
    assert run(L2P(steps=4)).protector is None


# --- the rules --------------------------------------------------------------------------------------------------------


def test_shards_and_steps_follow_from_public_facts():
    for size in (1.0, 100.0, 3e4, 1e7):
        for mu in (1e-3, 0.1, 3.0):
            plan = planned(size, mu, 53)
            assert 1 <= plan.steps <= 6 and 2 <= plan.shards <= 2**16 and plan.shards & (plan.shards - 1) == 0
    assert planned(3e4, 0.1, 10**6).shards == 2


def test_noise_alone_moves_nothing_and_a_clear_vote_does():
    rng = np.random.default_rng(0)
    noise = [np.linalg.norm(shrunk(0.3 * rng.standard_normal(4), 0.3)) for _ in range(2000)]
    assert np.mean(noise) < 0.25 and np.mean(np.array(noise) == 0) > 0.5  # noise itself is 0.6 long
    assert shrunk(np.array([0.9, 0.0, 0.0, 0.0]), 0.01) == pytest.approx([0.9, 0, 0, 0], rel=1e-3)
    assert np.linalg.norm(shrunk(np.full(4, 5.0), 0.01)) <= 1 + 1e-9


def test_a_vote_for_longer_steps_makes_steps_longer():
    before = MetaRun(np.zeros(0), 1, np.zeros(4), MetaPlan(16, 2))
    after = before.moved(Answer(np.array([-1.0, 0, 0, 0]) * 16 * CLIP, 1e-9))
    assert after.added[0] == pytest.approx(0.5, rel=1e-3) and after.step == 1 and not after.done


# --- faces ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nw.PrivateClassifier(1.0, 1e-6, method=PRIVATE, bounds=(-1, 1)).fit(X, X[:, 0] > 0)


def test_the_statement_lists_and_pays_for_it(fitted):
    stated = json.loads(fitted.statement_.to_json())
    verdict = verify(stated)
    assert verdict.holds and verdict.arithmetic == "assumed" and "inside a shard" in str(fitted.statement_)
    assert stated["method"]["settings"]["protector"] == "private"
    spent = leaves([event_from(event) for event in stated["events"]])
    assert all(isinstance(event, Gaussian) for event in spent)
    asked = [line for line in fitted.trace_ if line.question == "MetaGradient"]
    assert asked and all(line.event in spent for line in asked)
    cheaper = json.loads(fitted.statement_.to_json())
    cheaper["events"] = [
        {**e, "event": {**e["event"], "noise_multiplier": e["event"]["noise_multiplier"] / 1.3}}
        for e in stated["events"]
    ]
    assert not verify(cheaper).holds


def test_the_run_folder_keeps_the_protector_and_it_can_be_used_again(fitted, tmp_path):
    folder = nw.save(fitted, tmp_path / "run")
    assert nw.verify(folder).holds
    own = load_protector(folder / "protector.safetensors")
    assert own.digest == fitted.fitted_.protector.digest and own.name == "private"
    again = nw.load(folder)
    assert again.fitted_.protector.digest == own.digest
    nw.save(again, tmp_path / "copy")
    assert (tmp_path / "copy" / "protector.safetensors").read_bytes() == (folder / "protector.safetensors").read_bytes()
    assert run(L2P(protector=str(folder / "protector.safetensors"))).protector is None
    (folder / "protector.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="was changed"):
        nw.load(folder)


def test_standard_errors_replay_it_from_released_answers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 3))
    method = L2P(protector="private", steps=25)
    face = nw.PrivateClassifier(4.0, 1e-6, method=method, bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)
    errors = face.fitted_.errors()
    assert errors is not None and np.isfinite(errors).all() and (errors > 0).all()


def test_a_stranger_returns_no_protector_but_one_of_ours():
    class Odd(L2P):
        def made(self, state):
            return {"weights": print}

    with pytest.raises(TypeError, match="made returned"):
        run(Odd(steps=3))


def test_the_command_line_trains_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # and back again
    laid_out(tmp_path)
    shell = shell_of(monkeypatch, capsys)
    common = ("train", "private.csv", "--schema", "schema.toml", "--epsilon", 1, "--delta", 1e-6)
    done = shell(*common, "--protector", "private", "--protector-share", 0.3, "--out", "run", "--seed", 1)
    assert done.code == 0, done.err
    stated = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert stated["method"]["settings"]["protector_share"] == 0.3 and stated["method"]["name"] == "l2p"
    assert (tmp_path / "run" / "protector.safetensors").is_file()
    for wrong, word in (
        (("--method", "descent", "--protector", "private"), "no protector"),
        (("--protector", "clear", "--protector-share", 0.2), "--protector private"),
        (("--protector-share", 0.2), "--protector private"),
        (("--protector", "private", "--protector-share", 3), "protector_share"),
    ):
        refused = shell(*common, *wrong, "--out", "other")
        assert refused.code != 0 and word in refused.err and not (tmp_path / "other").exists()
    assert shell(*common, "--protector", "clear", "--out", "third", "--seed", 1).code == 0
