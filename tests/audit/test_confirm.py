"""An alarm is called a violation when fresh runs confirm it, hardly ever without cause, and nearly always with one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace

import broken_variants as broken
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom
from typer.testing import CliRunner

import noisewise as nw
from noisewise.evidence.audit import epsilon_lower_bound, lower_bound
from noisewise.evidence.audit.error_bounds import LEVEL, LOOKS, confirm, epsilon_bound, scores_named
from noisewise.evidence.audit.lower_bound import _Prepared, judged
from noisewise.evidence.report.about_promise import refutes
from noisewise.faces.cli.main import app
from noisewise.methods import registry
from noisewise.methods.dpsgd import DpSgd
from noisewise.trusted.accountants.gdp import mu_of

METHODS = sum(kind.private for kind in registry().values())
EPSILON, DELTA = 2.0, 0.25
SMALL = {"epsilon": EPSILON, "delta": DELTA, "runs": 80}


def most_errors(trials, epsilon, delta, confidence):
    """The largest number of errors, in both worlds together, at which the pooled bound still exceeds epsilon."""
    low, high = -1, trials
    while high - low > 1:
        middle = (low + high) // 2
        above = epsilon_bound("pooled", middle, 0, trials, delta, confidence) > epsilon
        low, high = (middle, high) if above else (low, middle)
    return low


def chance_of_violation(trials, epsilon, delta, mu):
    """Exactly, of a mu-GDP mechanism met by its best test: (first stage alarms, fresh runs confirm an alarm).

    All errors are coin flips of probability Phi(-mu/2). The number of errors is followed from look to look; what
    confirms leaves.
    """
    error = ndtr(-mu / 2)
    alarms = float(binom.cdf(most_errors(trials, epsilon, delta, 0.95), 2 * trials, error))
    still, seen, confirmed = np.ones(1), 0, 0.0
    for look in LOOKS:
        more = 2 * (look * trials - seen)
        still = np.convolve(still, binom.pmf(np.arange(more + 1), more, error))
        seen = look * trials
        few = most_errors(seen, epsilon, delta, 1 - LEVEL / len(LOOKS)) + 1
        confirmed += float(still[:few].sum())
        still[:few] = 0.0
    return alarms, confirmed


@pytest.mark.parametrize("trials", [20, 90, 500])
@pytest.mark.parametrize("epsilon, delta", [(1.0, 1e-5), (2.0, 0.25)])
def test_over_all_methods_a_false_violation_is_rarer_than_one_percent(epsilon, delta, trials):
    """Of mechanisms that use their whole budget, which is the worst case. The sum over methods needs no independence."""
    alarms, confirmed = chance_of_violation(trials, epsilon, delta, mu_of(epsilon, delta))
    assert alarms <= 0.05
    assert METHODS * alarms > 0.1, "without the second stage the word is used often"
    assert 0 < confirmed <= LEVEL
    assert METHODS * alarms * confirmed <= METHODS * 0.05 * LEVEL < 0.01
    assert METHODS * (1 - 0.5) * LEVEL <= 0.01, "whatever confidence is asked for"


def test_what_the_first_stage_finds_the_second_confirms():
    """Half the noise: mu is twice the claimed one. At 1.5 times it the first stage finds half of the cases."""
    mu = mu_of(1.0, 1e-5)
    assert chance_of_violation(500, 1.0, 1e-5, 2 * mu)[1] > 0.9999
    alarms, confirmed = chance_of_violation(500, 1.0, 1e-5, 1.5 * mu)
    assert 0.4 < alarms < 0.7
    assert confirmed > 0.8


def gaussian(rng, mu):
    def fresh(start, stop):
        return rng.normal(size=(2, stop - start, 1)) + np.array([0.0, mu])[:, None, None]

    return fresh


def an_alarm(trials=50, *, mu, is_gaussian=True):
    """The audit of a mechanism with no noise to speak of, made to alarm at the best threshold of a mu-GDP one."""
    sure = np.arange(2.0)[:, None, None] + np.zeros((2, trials, 1))
    audit = judged(sure, sure, budget=nw.Budget(EPSILON, DELTA), method="", gaussian=is_gaussian)
    assert audit.alarm
    return replace(audit, threshold=mu / 2, interval="pooled" if is_gaussian else "exact")


@pytest.mark.parametrize("is_gaussian", [True, False])
def test_the_second_stage_alone_errs_in_one_of_two_thousand(is_gaussian):
    """At most 1.5 of 3,000 alarms of a tight mechanism are expected to be confirmed; more than 8 in 3e-5 of cases."""
    rng, mu = np.random.default_rng(0), mu_of(EPSILON, DELTA)
    alarm = an_alarm(mu=mu, is_gaussian=is_gaussian)
    assert sum(confirm(alarm, gaussian(rng, mu)).violation for _ in range(3000)) <= 8
    assert sum(confirm(alarm, gaussian(rng, 2 * mu)).violation for _ in range(100)) == 100


def test_looks_double_and_stop_when_they_know():
    asked = []

    def fresh(errs):
        def scores(start, stop):
            asked.append((start, stop))
            return np.stack([np.zeros((stop - start, 1)), np.full((stop - start, 1), 0.0 if errs else 1.0)])

        return scores

    alarm = an_alarm(40, mu=1.0)
    sure = confirm(alarm, fresh(errs=False))
    assert asked == [(0, 40)] and sure.violation
    assert (sure.confirmation.runs, sure.confirmation.trials, sure.confirmation.confidence) == (80, 40, 1 - LEVEL)
    asked.clear()
    chance = confirm(alarm, fresh(errs=True))
    assert asked == [(0, 40), (40, 80), (80, 160), (160, 320)]
    assert not chance.violation and chance.outcome == "alarm not confirmed"
    assert (chance.confirmation.false_positives, chance.confirmation.false_negatives) == (0, 320)
    calm = replace(alarm, lower_bound=EPSILON)
    asked.clear()
    assert confirm(calm, fresh(errs=False)) is calm and not asked and calm.outcome == "no alarm"


def test_a_score_that_points_the_other_way_is_read_the_other_way():
    scores = np.arange(2 * 3 * 5.0).reshape(2, 3, 5)
    assert np.array_equal(scores_named(scores, "theta"), scores[:, :, 1])
    assert np.array_equal(scores_named(scores, "- residuals"), -scores[:, :, 3])


def alarmed(*scores, **settings):
    """A first stage that alarms whatever it sees."""
    return replace(judged(*scores, **settings), lower_bound=3.0, interval="pooled")


@pytest.fixture
def numbers(monkeypatch):
    """The runs that are made, as (world, number)."""
    made, run = [], _Prepared.run
    monkeypatch.setattr(_Prepared, "run", lambda self, *which: made.append(which) or run(self, *which))
    return made


def test_an_honest_method_whose_first_stage_alarms_is_not_accused(monkeypatch, numbers):
    progress = []
    quiet = epsilon_lower_bound(DpSgd(steps=2), **SMALL)
    assert (quiet.outcome, quiet.confirmation, len(numbers)) == ("no alarm", None, 80)
    monkeypatch.setattr(lower_bound, "judged", alarmed)
    numbers.clear()
    audit = epsilon_lower_bound(DpSgd(steps=2), **SMALL, progress=lambda *at: progress.append(at))
    assert audit.alarm and not audit.violation
    assert "VIOLATION" not in audit.verdict and "a first alarm was not confirmed" in audit.verdict
    assert (audit.lower_bound, audit.confidence, audit.runs) == (3.0, 0.95, 80)
    assert len(set(numbers)) == len(numbers) == 80 + audit.confirmation.runs == 400, "fresh runs are other runs"
    assert progress[-1] == (400, 400) and (80, 80) in progress
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)


def command(*more):
    words = ("audit", "dpsgd", "--epsilon", EPSILON, "--delta", DELTA, "--runs", 80, "--jobs", 1, *more)
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_shows_that_it_is_confirming(monkeypatch):
    shown = []

    @contextmanager
    def bar(text):
        yield lambda done, total, news: shown.append((done, news))

    monkeypatch.setattr(lower_bound, "judged", alarmed)
    monkeypatch.setattr("noisewise.faces.cli.audit.bar", bar)
    command("--json")
    assert [news for done, news in shown if done <= 80] == [""] * 2
    assert {news for done, news in shown if done > 80} == {"confirming an alarm"}


def test_the_command_says_that_an_alarm_was_not_confirmed(monkeypatch):
    monkeypatch.setattr(lower_bound, "judged", alarmed)
    monkeypatch.setattr("noisewise.faces.cli.audit._power", lambda found: None)
    said, data = command(), command("--json")
    assert (said.exit_code, data.exit_code) == (0, 0)
    assert "VIOLATION" not in said.output and "a first alarm was not confirmed" in said.stdout
    assert "the same test on fresh runs" in said.stdout
    found = json.loads(data.stdout)
    assert (found["alarm"], found["violation"], found["outcome"]) == (True, False, "alarm not confirmed")
    assert found["confirmation"]["confirmed"] is False
    assert found["confirmation"]["lower_bound"] <= found["claimed"] < found["lower_bound"]
    assert (found["confirmation"]["confidence"], found["confirmation"]["runs"]) == (0.9995, 320)
    assert not refutes(found), "nor does a report have a banner"


def test_the_command_says_violation_of_a_broken_method():
    with broken.less_noise(0.2):
        said, data = command(), command("--json")
    assert (said.exit_code, data.exit_code) == (1, 1)
    assert said.stdout.startswith("VIOLATION: lower bound") and "confirmed" in said.stdout
    found = json.loads(data.stdout)
    assert (found["alarm"], found["violation"], found["outcome"]) == (True, True, "violation")
    assert found["confirmation"]["confirmed"] is True
    assert found["confirmation"]["lower_bound"] > found["claimed"]
    assert refutes(found)
