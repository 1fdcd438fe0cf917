"""Twelve ways to get privacy wrong, each small enough to slip through a review. For tests alone: nothing here is private.

Each is a context manager (or a method, or a meter) that breaks one thing; outside of it everything is as it was.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from scipy.stats import norm

import noisewise.accounts.purse as purses
import noisewise.evidence.audit.lower_bound as lower_bound
import noisewise.train as loop
import noisewise.trusted.gate as room
from noisewise.accounts import Budget, Terms, open_meter
from noisewise.curator import Asking, Curator
from noisewise.methods import Method
from noisewise.methods.dpsgd import DpSgd
from noisewise.trusted.accountants import pld
from noisewise.trusted.events import BoundedRange, Gaussian, Repeated
from noisewise.trusted.noise import Stream
from noisewise.trusted.stores.linear import FINE, LinearRecords
from noisewise.trusted.stores.totals import Drawn, IntegerTotal, expected_size


@contextmanager
def patched(*changes):
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in changes:
            patch.setattr(owner, name, value)
        yield


def less_noise(share):
    """Every draw of noise is multiplied by ``share``, and choices are as much clearer, unknown to the meter."""
    rounded, floats, choose = Stream.released, Stream._add_noise, Stream.choose
    return patched(
        (Stream, "released", lambda s, total, std, *worth: rounded(s, total, share * std, *worth)),
        (Stream, "_add_noise", lambda s, total, std, scale, dtype: floats(s, total, share * std, scale, dtype)),
        (Stream, "choose", lambda s, scores, scale: choose(s, scores, scale / Fraction(share))),
    )


def noise_halved():
    return less_noise(0.5)


def clip_after_the_sum():
    """The sum is clipped instead of each record's gradient."""

    def clipped_sum(self, drawn, theta, clip):
        parts = [
            self._slopes(here, theta).T @ self.rows.directions(here).astype(np.float64) for here in self.parts(drawn)
        ]
        total = np.sum(parts, axis=0).ravel() if parts else np.zeros(len(theta))
        share = min(1.0, clip / max(float(np.linalg.norm(total)), 1e-12))
        return IntegerTotal(np.rint(total * (share * FINE / clip)).astype(np.int64), FINE, clip)

    return patched((LinearRecords, "gradients", clipped_sum))


def realised_batch_size():
    """Sums are divided by how many records the batch happened to have."""
    drawn, draw = [], room.draw

    def remembered(sampling, records, stream):
        rows = draw(sampling, records, stream)
        drawn[:] = [len(records) if rows is None else len(rows)]
        return rows

    class Realised(Curator):
        gradient = Asking.gradient

        def ask(self, question, *, noise, sampling=("full",)):
            answer = super().ask(question, noise=noise, sampling=sampling)
            if question.name != "gradient":
                return answer
            expected = expected_size(sampling, self.facts.size)
            return answer._replace(value=answer.value * (expected / max(drawn[0], 1)))

    return patched((room, "draw", remembered), (loop, "Curator", Realised))


def scaled_by_private_bounds(X):
    """Rows scaled to [0, 1] by the smallest and largest entry that the records happen to have."""
    low, high = X.min(), X.max()
    return (X - low) / max(high - low, 1e-12)


def scaled_by_declared_bounds(X):
    """Rows scaled to [0, 1] by bounds that were declared; what lies outside is cut."""
    return X.clip(0.0, 1.0)


def noise_reused():
    """Every answer is noised with the same draws."""
    rounded, kept = Stream.on_grid, {}

    def again(self, total, std, worth, dtype=float):
        if kept.get("stream") is not self:
            kept.update(stream=self, noise=rounded(self, np.zeros(1024, np.int64), 2.0**40)[0] / 2.0**40)
        step = 2.0 ** math.floor(math.log2(std / 32))
        noise = kept["noise"][: len(total)] * 2.0**35 * std
        return (np.rint((total + noise) / step) * (step * worth)).astype(dtype)

    return patched((Stream, "released", again))


@dataclass(frozen=True)
class WrongAdjacency(DpSgd):
    """Noise for one record more or less, promised for one record replaced; only a wrong meter lets it run."""

    def noise_multiplier(self, facts):
        return super().noise_multiplier(replace(facts, budget=replace(facts.budget, adjacency="add_remove")))

    def terms(self, facts):
        return super().terms(replace(facts, budget=replace(facts.budget, adjacency="add_remove")))


def meter_of_the_wrong_adjacency():
    """The trusted side makes the meter for one record more or less, whatever was promised."""

    def wrong(budget, terms):
        return open_meter(replace(budget, adjacency="add_remove"), terms)

    return patched((purses, "open_meter", wrong), (lower_bound, "open_meter", wrong))


def noisy_min_with_the_wrong_sign():
    """Noise is added to the losses where it should be taken off; Gumbel noise is not symmetric."""

    def wrong(self, scores, scale):
        uniforms = norm.cdf(self.noised(np.zeros(len(scores)), 1.0))
        return int(np.argmin(np.asarray(scores) * float(scale) - np.log(-np.log(uniforms))))

    return patched((Stream, "choose", wrong))


class PldFilter:
    """A meter that lets events through while the privacy loss distribution of all so far stays within the budget."""

    adaptive = True

    def __init__(self, budget: Budget) -> None:
        self.budget, self.promise, self.spent = budget, (budget.delta, budget.adjacency), []

    def affords(self, event):
        return pld.epsilon_of([*self.spent, event], *self.promise, bins=4096) <= self.budget.epsilon

    def spend(self, event):
        assert self.affords(event)
        self.spent.append(event)


def uncharged_norms():
    """Norms of the gradient are answered without being paid for."""

    class Generous(Curator):
        def ask(self, question, **how):
            desk = self._Curator__desk
            meter = desk.meter
            if question.name == "gradient_norm":
                desk.meter = _Purse(meter)
            try:
                return super().ask(question, **how)
            finally:
                desk.meter = meter

    return patched((loop, "Curator", Generous))


class _Purse:
    """Says yes to everything."""

    def __init__(self, meter):
        self.spent_fraction = meter.spent_fraction

    def spend(self, event):
        pass


def one_batch_for_two():
    """The second of two questions is answered on the batch of the first, and paid as one of its own."""
    kept, draw = [], room.draw

    def shared(sampling, records, stream):
        if kept:
            return kept.pop()
        kept.append(draw(sampling, records, stream))
        return kept[0]

    return patched((room, "draw", shared))


def subsampling_not_done():
    """Every record joins every batch, paid as if each joined by chance."""
    return patched((room, "draw", lambda sampling, records, stream: None))


@dataclass(frozen=True)
class StopsEarly(DpSgd):
    """Stops when the private loss is small, looking at the records for nothing."""

    peeks: bool = True
    enough: ClassVar[float] = 1.0

    def step(self, state, private, public):
        state = super().step(state, private, public)
        while not isinstance(private, Curator):
            private = private._asked
        records = private._Curator__desk.records
        loss = records.losses(Drawn(), [state.walk.theta.astype(np.float64)], 1e3)
        if self.peeks and float(loss.values[0]) * loss.worth < self.enough * len(records):
            return state._replace(walk=state.walk._replace(step=self.steps))
        return state


class Asked(NamedTuple):
    step: int
    theta: np.ndarray


@dataclass(frozen=True)
class AsksNorms(Method):
    """One gradient with most of the budget, then norms with a hundredth of it each, all paid for in the plan."""

    norms: int = 8
    paid: bool = True

    name: ClassVar[str] = "asks_norms"

    def sigma(self, facts):
        from noisewise.trusted.accountants.calibrate import calibrate

        return float(calibrate(facts.budget, steps=self.norms + 1 if self.paid else 1))

    def terms(self, facts):
        return Terms.plan(Repeated(Gaussian(self.sigma(facts)), self.norms + 1 if self.paid else 1))

    def init(self, theta, facts, public):
        return Asked(0, theta)

    def step(self, state, private, public):
        sigma = self.sigma(private.facts)
        theta = state.theta - private.gradient(state.theta, clip=1.0, noise_multiplier=sigma).value
        for _ in range(self.norms):
            private.gradient_norm(state.theta, clip=1.0, noise_multiplier=sigma)
        return Asked(1, theta)

    def done(self, state):
        return state.step > 0

    def finish(self, state, public):
        return state.theta


@dataclass(frozen=True)
class OneChoice(Method):
    """One candidate out of nine by noisy-min: the first is worse for the canary by the whole loss bound."""

    loss_bound: float = 4.0

    name: ClassVar[str] = "one_choice"

    def terms(self, facts):
        return Terms.plan(BoundedRange(facts.budget.epsilon))

    def init(self, theta, facts, public):
        return Asked(0, theta)

    def step(self, state, private, public):
        epsilon = private.facts.budget.epsilon
        winner = private.choose(self.candidates(), loss_bound=self.loss_bound, epsilon=epsilon)
        return Asked(1, np.array([float(winner == 0), 0.0]))

    @staticmethod
    def candidates():
        return [np.array([-1.0, 0.0])] + [np.array([1.0, 0.0])] * 8

    def done(self, state):
        return state.step > 0

    def finish(self, state, public):
        return state.theta


def batches_shared(curator: Curator, pairs: int) -> float:
    """How often two questions in a row meet the same record, out of ``pairs``; the noise is too small to matter."""
    seen = [curator.gradient(np.zeros(1), clip=1.0, noise_multiplier=1e-3, sampling=("poisson", 0.5)).value
            for _ in range(2 * pairs)]  # fmt: skip
    there = np.array(seen).reshape(pairs, 2) > 0.5
    return float((there[:, 0] == there[:, 1]).mean())


def anything(**fields: Any) -> Any:
    """A bare object with these fields."""
    return type("Anything", (), fields)()
