"""Every private method of the registry is audited at one small setting, and so is its twin with half the noise.

The setting, its number of runs and its confidence come from ``small_setting``; a new method joins by existing. At that
setting the lower bound may not exceed the claim, and the twin must be caught, so that an audit without power cannot pass.
How often twins are caught is measured for all methods by ``power_of_every_method.py`` (docs/results/audits.md).
"""

from __future__ import annotations

import math

import broken_variants as broken
import pytest

import noisewise as nw
from noisewise.curator import PublicCurator
from noisewise.evidence.audit import epsilon_lower_bound, small_setting
from noisewise.evidence.audit.canaries import worst_case
from noisewise.evidence.audit.finished_run import Overheard, Witness
from noisewise.evidence.audit.lower_bound import _Plan, _Prepared
from noisewise.methods import registry
from noisewise.train import Records, train
from noisewise.trusted.events import Gaussian
from noisewise.trusted.facts import facts_of

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")
PRIVATE = [name for name, kind in registry().items() if kind.private]
# Methods whose twin with half the noise cannot be caught, and why. Nothing else may be missed.
NOT_CAUGHT = {
    "only_public": "it asks the private records nothing, so it adds no noise that could be halved",
    "sgd_adv": "advanced composition asks for so much noise that half of it still keeps the promise; a twentieth is caught",
}
DEAR = {  # what takes long, and the quicker test that notices the same fault
    "objective_perturbation": "the audit of its one question in tests/curator/test_oneshot.py",
    "additive": "the noise of its questions in tests/laws/test_curator_laws.py",
    "agd_avg": "the twin of agd, from which it differs in one average",
    "growing_batch": "the twin of dpsgd, which is one stage of it",
    "online": "the twin of descent, whose steps it takes",
    "projected_sgd": "the twin of sgd_ma, which draws the same batches",
}
OWN_AUDIT = "objective_perturbation"  # that one takes in what is promised, and half the noise, at 40,000 runs
TRIALS, AT_LEAST = 20, 19


def audited(name, seed=0):
    setting = small_setting(name)
    return epsilon_lower_bound(
        setting.method, epsilon=setting.epsilon, delta=setting.delta, adjacency=setting.adjacency, runs=setting.runs,
        confidence=setting.confidence, seed=seed,
    )  # fmt: skip


# Those that ask what another asks: the bound of that one (DEAR names its twin) is quicker.
ALIKE = {"agd_avg", "growing_batch", "online", "projected_sgd"}


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == OWN_AUDIT or n in ALIKE)) for n in PRIVATE]
)
def test_the_lower_bound_does_not_exceed_the_claim(name):
    audit = audited(name)
    assert not audit.violation, audit.verdict
    assert audit.runs == small_setting(name).runs


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in DEAR)) for n in PRIVATE if n not in NOT_CAUGHT],
)
def test_half_the_noise_is_caught(name):
    with broken.noise_halved():
        audit = audited(name)
    assert audit.violation, audit.verdict


@pytest.mark.slow
def test_half_the_noise_is_caught_in_95_percent_of_trials():
    with broken.noise_halved():
        caught = sum(audited("dpsgd", seed=seed).violation for seed in range(TRIALS))
    assert caught >= AT_LEAST


def test_a_method_that_asks_nothing_shows_nothing():
    with broken.noise_halved():
        assert audited("only_public").lower_bound == 0


def test_half_the_noise_of_advanced_composition_keeps_the_promise_and_a_twentieth_is_caught():
    setting = small_setting("sgd_adv")
    worlds = worst_case(setting.method)
    budget = nw.Budget(setting.epsilon, setting.delta)
    facts = facts_of(worlds.model, budget, size=6.0, row_bound=math.inf)
    half = Gaussian(setting.method.noise_multiplier(facts) / 2)
    assert nw.epsilon(half, delta=setting.delta, adjacency="add_remove") <= setting.epsilon
    with broken.less_noise(1 / 20):
        assert audited("sgd_adv").violation


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", PRIVATE)
def test_what_is_worked_out_once_changes_nothing(name):
    """A run with the shared meter and first state is, to the last bit, the run that works everything out anew."""
    setting = small_setting(name)
    worlds = worst_case(setting.method, adjacency=setting.adjacency)
    budget = nw.Budget(setting.epsilon, setting.delta, setting.adjacency)
    prepared = _Prepared(_Plan(setting.method, budget, worlds, 0))
    for _ in range(2):
        quick = prepared.run(1, 0)
    witness = Witness(worlds)
    public = None if worlds.public is None else PublicCurator(*worlds.public, model=worlds.model, seed=0)
    from noisewise.evidence.audit.lower_bound import _seed

    slow = train(
        Overheard(setting.method, witness), Records(worlds.X[1], worlds.y[1], worlds.size, worlds.row_bound),
        model=worlds.model, budget=budget, public=public, theta=worlds.start, seed=_seed(0, 1, 0),
    )  # fmt: skip
    assert quick[0] == witness.ratio
    assert quick[1] == worlds.along(slow.theta)
    assert quick[2] == witness.answers == len(slow.trace)
