"""The audit: an honest confidence, canaries that show all there is, and answers in every case a user may ask."""

from __future__ import annotations

import json

import joblib
import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise as nw
import noisewise.faces.cli.audit
from noisewise.accounts import AdditiveMeter, PlanMeter, Terms, open_meter
from noisewise.evidence.audit import epsilon_lower_bound, power_against_half_noise, worst_case
from noisewise.evidence.audit.lower_bound import _Plan, _Prepared, best_test, claims_gaussian_dp, judged
from noisewise.faces.cli.main import app
from noisewise.methods import registry
from noisewise.methods.dpsgd import DpSgd
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.events import ADJACENCIES, Gaussian, Poisson, Repeated

EPSILON, DELTA = 2.0, 0.25
MU = mu_of(EPSILON, DELTA)
BUDGET = nw.Budget(EPSILON, DELTA)


def gaussian_scores(rng, half, mu, kinds=1):
    """Scores of a mechanism that is mu-GDP exactly, and some that know nothing."""
    scores = rng.normal(size=(2, half, kinds))
    scores[1, :, 0] += mu
    return scores


def test_the_confidence_is_honest_however_many_scores_and_thresholds_were_tried():
    """A tight mechanism is accused in at most 5 % of 400 audits (99.9 % of the time at most 35 of them)."""
    rng = np.random.default_rng(0)
    accused = cheated = 0
    for _ in range(400):
        first, second = (gaussian_scores(rng, 50, MU, kinds=5) for _ in range(2))
        judge = {"budget": BUDGET, "method": "", "gaussian": True}
        accused += judged(first, second, **judge).alarm
        cheated += judged(first, first, **judge).alarm
    assert accused <= 35
    assert cheated > 35, "measuring on the runs that chose the threshold would accuse the innocent"


def test_the_bound_comes_near_the_truth_with_many_runs():
    rng = np.random.default_rng(1)
    scores = gaussian_scores(rng, 40_000, MU)
    audit = judged(scores[:, :20_000], scores[:, 20_000:], budget=BUDGET, method="", gaussian=True)
    assert 0.9 * EPSILON < audit.lower_bound < EPSILON
    exact = judged(scores[:, :20_000], scores[:, 20_000:], budget=BUDGET, method="", gaussian=False)
    assert exact.interval == "exact"
    assert set(exact.bounds) == {"exact"}
    assert 0.8 * EPSILON < exact.lower_bound < EPSILON


def test_a_plain_score_is_chosen_when_it_tells_all():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(2, 100, 3))
    scores[0, :, 2] = 5.0
    scores[1, :, 2] = 2.0
    number, sign, threshold, _ = best_test(scores, 1e-5, 0.95, ("exact",))
    assert (number, sign) == (2, -1.0)
    assert -5.0 <= threshold < -2.0


LOSSES = ("logistic", "hinge", "huber_hinge", "squared", "softmax")


@pytest.mark.sample(3)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_canary_shows_as_much_as_the_claim_allows(loss, adjacency):
    """The mean log-likelihood ratio of mu-GDP is mu^2/2 with the record; 300 runs know it to about 0.11."""
    budget = nw.Budget(EPSILON, DELTA, adjacency)
    worlds = worst_case("dpsgd", adjacency=adjacency, loss=loss)
    prepared = _Prepared(_Plan(DpSgd(steps=2), budget, worlds, 0))
    ratios = np.array([prepared.run(1, i)[0] for i in range(150)] + [-prepared.run(0, i)[0] for i in range(150)])
    assert ratios.mean() == pytest.approx(MU**2 / 2, abs=0.4)
    assert ratios.std() == pytest.approx(MU, rel=0.2)


@pytest.mark.parametrize("name, more", [("dpsgd", {}), ("descent", {}), ("dynamic", {"steps": 4})])
def test_a_bought_size_is_part_of_what_is_heard(name, more):
    method = registry()[name](**{"steps": 3, **more})
    audit = epsilon_lower_bound(
        method, epsilon=EPSILON, delta=DELTA, size_is_public=False, runs=200, confidence=0.999
    )  # fmt: skip
    assert not audit.violation
    prepared = _Prepared(_Plan(method, BUDGET, worst_case(method, size_is_public=False), 0))
    public = _Prepared(_Plan(method, BUDGET, worst_case(method), 0))
    assert prepared.run(1, 0)[2] == public.run(1, 0)[2] + 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("sampling, adjacency", [(("poisson", 0.5), "add_remove"), (("fixed", 0.5), "replace_one")])
def test_sampled_batches_of_both_kinds_are_heard(sampling, adjacency):
    """A sampled record shows in the likelihood ratio; no test of 400 runs shows it beyond the claim."""
    method = DpSgd(steps=1, sampling=sampling)
    audit = epsilon_lower_bound(method, epsilon=EPSILON, delta=DELTA, adjacency=adjacency, runs=400)
    assert not audit.violation
    assert audit.interval == "exact"
    without, with_it = audit.scores
    assert with_it.mean() - without.mean() > 5 * np.hypot(with_it.std(), without.std()) / np.sqrt(audit.trials)


def in_turn(work):
    """What several processes would do, in this one: starting them takes longer than the audit."""
    return (function(*arguments, **named) for function, arguments, named in work)


def test_a_seed_decides_everything_and_the_number_of_jobs_nothing(monkeypatch):
    same = {"epsilon": EPSILON, "delta": DELTA, "runs": 120}
    told = []
    once = epsilon_lower_bound(DpSgd(steps=2), **same, seed=3, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (120, 120)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    monkeypatch.setattr(joblib, "Parallel", lambda **_: in_turn)
    twice = epsilon_lower_bound(DpSgd(steps=2), **same, seed=3, jobs=2)
    for first, second in zip(once.scores, twice.scores, strict=True):
        assert np.array_equal(first, second)
    other = epsilon_lower_bound(DpSgd(steps=2), **same, seed=4)
    assert not np.array_equal(once.scores[0], other.scores[0])


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(ValueError, match="promises nothing"):
        epsilon_lower_bound("nonprivate", epsilon=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="runs"):
        epsilon_lower_bound("dpsgd", epsilon=1.0, delta=1e-5, runs=4)
    with pytest.raises(ValueError, match="confidence"):
        epsilon_lower_bound("dpsgd", epsilon=1.0, delta=1e-5, confidence=0.4)
    with pytest.raises(ValueError, match="loss is"):
        epsilon_lower_bound("sufficient_statistics", epsilon=1.0, delta=1e-5, loss="hinge")


@pytest.mark.parametrize("terms", [Terms.plan(Repeated(Gaussian(5.0), 2)), Terms.adaptive("gdp")])
def test_every_run_of_an_audit_opens_a_meter_of_its_own(terms):
    first = open_meter(BUDGET, terms)
    first.spend(Gaussian(5.0))
    second = open_meter(BUDGET, terms)
    assert second.spent_fraction == 0 and not second.events
    assert second.describe() == first.describe()
    second.spend(Gaussian(5.0))
    assert first.events == second.events == {Gaussian(5.0): 1}


def test_the_meter_that_says_what_is_claimed_pays_for_no_run():
    prepared = _Prepared(_Plan(DpSgd(steps=2), BUDGET, worst_case(DpSgd(steps=2)), 0))
    assert prepared.run(0, 0) != prepared.run(1, 0)
    assert prepared.meter.spent_fraction == 0 and not prepared.meter.events


def test_only_gaussian_claims_get_gaussian_intervals():
    assert claims_gaussian_dp(AdditiveMeter(BUDGET, "gdp"))
    assert not claims_gaussian_dp(AdditiveMeter(BUDGET, "gdp", one_shot_delta=0.01))
    assert not claims_gaussian_dp(AdditiveMeter(BUDGET, "zcdp"))
    assert claims_gaussian_dp(PlanMeter(BUDGET, Gaussian(5.0)))
    assert not claims_gaussian_dp(PlanMeter(BUDGET, Poisson(0.5, Gaussian(5.0))))


def test_power_grows_with_runs():
    powers = [power_against_half_noise(EPSILON, DELTA, runs=runs, trials=60) for runs in (24, 80, 320)]
    assert powers == sorted(powers)
    assert powers[0] < 0.5 < 0.95 <= powers[-1]


def run_command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_tells_its_verdict_and_draws_it(tmp_path):
    plot = tmp_path / "audit.png"
    told = run_command("audit", "dpsgd", "--epsilon", 2, "--delta", 0.25, "--runs", 80, "--jobs", 1, "--plot", plot)
    assert told.exit_code == 0, told.output
    assert "no violation found: lower bound" in told.stdout
    assert "at 95 %, claimed 2" in told.stdout
    assert "half the noise" in told.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_command_as_json_and_a_violation_by_its_exit_code():
    import broken_variants as broken

    command = ("audit", "dpsgd", "--epsilon", 2, "--delta", 0.25, "--runs", 160, "--jobs", 1, "--json")
    good = run_command(*command)
    with broken.less_noise(0.2):
        bad = run_command(*command)
    fine, found = json.loads(good.stdout), json.loads(bad.stdout)
    assert {"lower_bound", "claimed", "confidence", "runs"} <= set(fine)
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert found["verdict"].startswith("VIOLATION: lower bound")
    assert found["lower_bound"] > found["claimed"] == 2.0
    assert (fine["confidence"], fine["runs"]) == (0.95, 160)


def test_the_command_says_what_it_does_not_know():
    told = run_command("audit", "no_such_thing", "--runs", 8)
    assert isinstance(told.exception, ValueError)
    assert "neither the folder of a run nor a method" in str(told.exception)


def test_a_run_is_audited_at_its_own_promise_and_keeps_the_entry(tmp_path):
    from noisewise.evidence import runs

    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(60, 2)), rng.integers(2, size=60)
    model = nw.PrivateClassifier(
        epsilon=EPSILON, delta=0.01, method=DpSgd(steps=3), loss="logistic", bounds=(0.0, 1.0), classes=[0, 1],
        size_is_public=True,
    )  # fmt: skip
    folder = nw.save(model.fit(X, y), tmp_path / "run")
    told = run_command("audit", folder, "--runs", 80, "--jobs", 1, "--json")
    assert told.exit_code == 0, told.output
    (entry,) = json.loads((folder / "audit.json").read_text())
    assert entry["kind"] == "epsilon_lower_bound" and entry["unit"] == "one record"
    assert (entry["claimed"], entry["delta"], entry["method"], entry["runs"]) == (EPSILON, 0.01, "dpsgd", 80)
    runs.check_seal(folder)
    refused = run_command("audit", folder, "--epsilon", 1)
    assert "states its own promise" in str(refused.exception)
