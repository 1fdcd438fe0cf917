"""Twelve broken variants, each caught by an audit or a law that its right version passes.

Audits run at a confidence of 99.9 % (the noisy-min: 99 %), so that a right version is hardly ever accused by chance.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import broken_variants as broken
import numpy as np
import pytest
from purse import with_purse
from scipy.special import ndtr
from scipy.stats import binomtest, chi2

import noisewise as nw
from noisewise.accounts import AdditiveMeter
from noisewise.evidence.audit import Neighbours, epsilon_lower_bound, worst_case
from noisewise.evidence.audit.canaries import FAR_LABEL, U
from noisewise.methods.dpsgd import DpSgd
from noisewise.train import Records, train
from noisewise.trusted.accountants.gdp import mu_of
from noisewise.trusted.events import Gaussian, Poisson
from noisewise.trusted.losses import Hinge, Squared
from noisewise.trusted.models import Linear

STEPS = DpSgd(steps=3)
SAMPLED = DpSgd(steps=3, sampling=("poisson", 0.2))


def audit(method, **more):
    settings = {"epsilon": 2.0, "delta": 0.25, "runs": 360, "confidence": 0.999, "seed": 1, **more}
    return epsilon_lower_bound(method, **settings)


def two_worlds(rest, labels, canary, label, *, loss=None, **more):
    """The same rows without and with one more at the end."""
    X, y = np.array(rest, np.float32).reshape(-1, 2), np.array(labels, np.float32)
    row, last = np.array(canary, np.float32)[None], np.array([label], np.float32)
    return Neighbours(
        model=Linear(2, loss or Squared()), X=(X, np.concatenate([X, row])), y=(y, np.concatenate([y, last])), common=len(y),
        size=float(len(y) + 1), direction=U, **more,
    )  # fmt: skip


def scaled(worlds, scale):
    """Both worlds after preparing their rows, each by itself, as a data holder would."""
    return replace(worlds, X=tuple(scale(X) for X in worlds.X))


OPPOSED = two_worlds([U.tolist()], [-FAR_LABEL], U, 3 * FAR_LABEL)
CROWD = two_worlds([U.tolist()] * 10, [FAR_LABEL] * 10, U, -FAR_LABEL)
OUTLIER = two_worlds([[0.6, 0.8]] * 10, [1.0] * 10, [1e6, 0.0], 1.0)
FLIPPING = two_worlds([[0.0, 0.0]] * 3, [0.0] * 3, 1000 * U, 0.0, start=0.01 * U)
VOTERS = two_worlds([[1.0, 0.0]], [-1.0], [10.0, 0.0], 1.0, loss=Hinge())

CHOICE = {"neighbours": VOTERS, "epsilon": 3.0, "delta": 1e-5, "runs": 1600, "confidence": 0.99}

# what is broken, what is audited when it is, and what is audited when it is not
AUDITED = {
    "noise halved": (broken.noise_halved, (STEPS, {}), (STEPS, {})),
    "clip after the sum": (
        broken.clip_after_the_sum,
        (STEPS, {"neighbours": OPPOSED}),
        (STEPS, {"neighbours": OPPOSED}),
    ),
    "division by the realised batch size": (
        broken.realised_batch_size,
        (STEPS, {"neighbours": CROWD, "runs": 600}),
        (STEPS, {"neighbours": CROWD, "runs": 600}),
    ),
    "private min-max scaling": (
        nullcontext,
        (STEPS, {"neighbours": scaled(OUTLIER, broken.scaled_by_private_bounds)}),
        (STEPS, {"neighbours": scaled(OUTLIER, broken.scaled_by_declared_bounds)}),
    ),
    "noise reused between steps": (
        broken.noise_reused,
        (STEPS, {"neighbours": FLIPPING}),
        (STEPS, {"neighbours": FLIPPING}),
    ),
    "sensitivity of the wrong adjacency": (
        broken.meter_of_the_wrong_adjacency,
        (broken.WrongAdjacency(steps=3), {"adjacency": "replace_one"}),
        (STEPS, {"adjacency": "replace_one"}),
    ),
    "noisy-min with the noise's sign wrong": (
        broken.noisy_min_with_the_wrong_sign,
        (broken.OneChoice(), CHOICE),
        (broken.OneChoice(), CHOICE),
    ),
    "uncharged norm query": (
        broken.uncharged_norms,
        (broken.AsksNorms(paid=False), {"neighbours": worst_case(STEPS)}),
        (broken.AsksNorms(paid=True), {"neighbours": worst_case(STEPS)}),
    ),
    "subsampling claimed but not done": (broken.subsampling_not_done, (SAMPLED, {}), (SAMPLED, {})),
    "early stop on private loss": (
        nullcontext,
        (broken.StopsEarly(steps=3), {}),
        (broken.StopsEarly(steps=3, peeks=False), {}),
    ),
}


LONG = "noisy-min with the noise's sign wrong"  # needs many runs; the others of its kind are audited in every test run


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == LONG else name for name in AUDITED]
)
def test_an_audit_catches_it_and_clears_the_right_version(name):
    breaks, (wrong, wrong_case), (right, right_case) = AUDITED[name]
    with breaks():
        caught = audit(wrong, **wrong_case)
    cleared = audit(right, **right_case)
    assert caught.violation, caught.verdict
    assert not cleared.violation, cleared.verdict


def test_the_law_that_the_best_adaptive_choice_stays_within_delta_catches_a_pld_price_for_adaptive_noise():
    """A Gaussian answer, then the answer's own choice between a full batch and a sampled one, computed exactly."""
    budget = nw.Budget(1.0, 1e-4)
    rdp = adaptive_delta(lambda: AdditiveMeter(budget, "rdp", order=16), budget)
    assert rdp <= budget.delta
    assert adaptive_delta(lambda: AdditiveMeter(budget, "gdp"), budget) <= budget.delta * (1 + 1e-6)
    assert adaptive_delta(lambda: broken.PldFilter(budget), budget) > 1.3 * budget.delta


def adaptive_delta(new_meter, budget, share=0.5, q=0.1):
    """The delta at ``budget.epsilon`` that is reached by choosing the second event by the outcome of the first.

    E over the loss l of the first answer of max(delta_full(epsilon - l), delta_sampled(epsilon - l)), where both second
    events have the least noise that the meter lets through.
    """
    mu = mu_of(budget.epsilon, budget.delta) * math.sqrt(share) / 1.02
    meter = new_meter()
    meter.spend(Gaussian(1 / mu))
    full = least_noise(meter, Gaussian)
    sampled = least_noise(meter, lambda sigma: Poisson(q, Gaussian(sigma)))
    loss = np.linspace(mu**2 / 2 - 9 * mu, mu**2 / 2 + 9 * mu, 20_001)
    weight = np.exp(-((loss - mu**2 / 2) ** 2) / (2 * mu**2)) / mu / math.sqrt(2 * math.pi) * (loss[1] - loss[0])
    left = budget.epsilon - loss
    either = np.maximum(delta_full(1 / full, left), delta_sampled(q, sampled, left))
    return float((weight * either).sum())


def least_noise(meter, event):
    low, high = 0.05, 500.0
    for _ in range(26):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if meter.affords(event(middle)) else (middle, high)
    return high


def delta_full(mu, epsilon):
    return ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)


def delta_sampled(q, sigma, epsilon):
    """(1-q) N(0) + q N(1) against N(0): integrate where the log-ratio exceeds epsilon."""
    inner = (np.exp(epsilon) - (1 - q)) / q
    at = 0.5 + sigma**2 * np.log(np.maximum(inner, 1e-300))
    tail = (1 - q) * ndtr(-at / sigma) + q * ndtr((1 - at) / sigma) - np.exp(epsilon) * ndtr(-at / sigma)
    return np.where(inner > 0, tail, -np.expm1(epsilon))


def a_curator(seed=3):
    """One record of gradient norm 1 in a room where everything is affordable."""
    purse = broken.anything(budget=nw.Budget(1.0, 1e-5), spent_fraction=0.0, spend=lambda self, event: None)
    return with_purse(np.ones((1, 1)), -np.ones(1), model=Linear(1, Squared()), meter=purse, size=2.0, seed=seed)


def test_the_law_that_two_questions_draw_two_batches_catches_one_batch_for_two():
    """In half of all pairs of questions the record is in both batches or in none; the error rate is 1e-6."""
    pairs = 400

    def independent():
        share = broken.batches_shared(a_curator(), pairs)
        return binomtest(round(share * pairs), pairs, 0.5).pvalue > 1e-6

    assert independent()
    with broken.one_batch_for_two():
        assert not independent()


def test_the_law_that_two_answers_have_independent_noise_catches_reused_noise():
    """The difference of two answers to one question has variance 2 s^2; the error rate is 1e-6."""

    def independent():
        curator = a_curator()
        ask = [curator.gradient(np.zeros(1), clip=1.0, noise_multiplier=1.0) for _ in range(400)]
        apart = np.diff(np.concatenate([answer.value for answer in ask]))[::2] / ask[0].noise_std
        return 5e-7 < chi2.cdf(float(apart @ apart) / 2, len(apart)) < 1 - 5e-7

    assert independent()
    with broken.noise_reused():
        assert not independent()


def test_the_law_that_every_answer_is_paid_catches_uncharged_norms():
    def paid(method):
        worlds = worst_case(STEPS)
        records = Records(worlds.X[1], worlds.y[1], worlds.size, worlds.row_bound)
        run = train(method, records, model=worlds.model, budget=nw.Budget(2.0, 0.25), seed=0)
        return len(run.trace) == sum(run.meter.events.values())

    assert paid(broken.AsksNorms(paid=True))
    with broken.uncharged_norms():
        assert not paid(broken.AsksNorms(paid=False))


def test_a_method_cannot_choose_the_adjacency_of_its_meter():
    with pytest.raises(ValueError, match="more than the budget's"):
        audit(broken.WrongAdjacency(steps=3), adjacency="replace_one")


def test_all_twelve_are_here():
    by_law = {"PLD price for adaptive noise", "two answers from one batch priced as two batches"}
    assert len(set(AUDITED) | by_law) == 12
