"""Methods as another package would write them."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from noisewise.budget import Terms
from noisewise.curator import Count, FirstMoment
from noisewise.methods import Method
from noisewise.trusted.events import Gaussian, Poisson, Repeated


class State(NamedTuple):
    step: int
    theta: Any
    seen: tuple = ()


@dataclass(frozen=True)
class Descent(Method):
    """Noisy descent that spends a share of what is left at every step."""

    steps: int = 12
    max_grad_norm: float = 1.0
    rate: float = 0.5
    name: ClassVar[str] = "visiting_descent"
    summary: ClassVar[str] = "noisy descent of another package"
    paper: ClassVar[str] = "nobody 2026"
    adaptive: ClassVar[bool] = True
    kind: ClassVar[Any] = staticmethod(np.asarray)  # of array that it holds and asks with

    def total_steps(self):
        return self.steps

    def terms(self, facts):
        return Terms.adaptive("gdp")

    def init(self, theta, facts, public):
        return State(0, self.kind(theta))

    def step(self, state, private, public):
        noise = private.meter.noise_for(1 / (self.steps - state.step))
        answer = private.gradient(state.theta, clip=self.max_grad_norm, noise_multiplier=noise)
        assert type(answer.value) is type(state.theta)
        return State(state.step + 1, state.theta - self.rate * answer.value)


@dataclass(frozen=True)
class Sampled(Descent):
    """A plan of Poisson batches, with its noise fixed beforehand."""

    sampling: tuple = ("poisson", 0.25)
    adaptive: ClassVar[bool] = False

    def terms(self, facts):
        return Terms.plan(Repeated(Poisson(0.25, Gaussian(6.0)), self.steps))

    def step(self, state, private, public):
        answer = private.gradient(state.theta, clip=1.0, noise_multiplier=6.0, sampling=self.sampling)
        return State(state.step + 1, state.theta - self.rate * answer.value)


@dataclass(frozen=True)
class Curious(Descent):
    """Asks everything that a method may ask, public rows included."""

    needs_public: ClassVar[bool] = True
    losses: ClassVar[tuple[str, ...]] = ("logistic", "squared")

    def init(self, theta, facts, public):
        assert facts.size is None or facts.size > 0
        theta = self.kind(theta)
        return State(0, theta - 0.1 * public.gradient(theta).value)

    def step(self, state, private, public):
        facts, meter = private.facts, private.meter
        noise = meter.noise_for(0.05)
        count = private.statistic(Count(), noise_multiplier=noise)
        mean = private.statistic(FirstMoment(), noise_multiplier=noise).value
        norm = private.gradient_norm(state.theta, clip=1.0, noise_multiplier=noise)
        best = private.choose([state.theta, state.theta * 0], loss_bound=1.0, epsilon=0.01)
        both = private.gradient(
            state.theta, clip=1.0, noise_multiplier=noise, quantile_at=0.5, count_noise_multiplier=9.0
        )
        assert type(norm.value) is type(both.value) is type(state.theta)
        assert meter.share_after(Gaussian(noise)) > meter.spent_fraction > 0
        assert sum(meter.events.values()) == len(private.trace) and private.trace[-1].question == "gradient"
        assert meter.budget == facts.budget and len(mean) == facts.features
        seen = (float(count.value), float(norm.value), best, both.below, public.loss(state.theta))
        return State(state.step + 1, state.theta - 0.1 * both.value, (*state.seen, seen))

    def spread(self, state):
        return 0 * state.theta + 0.25


@dataclass(frozen=True)
class Greedy(Descent):
    """Asks until nothing is left."""

    def done(self, state):
        return False

    def step(self, state, private, public):
        answer = private.gradient(state.theta, clip=1.0, noise_multiplier=private.meter.noise_for(0.3))
        private.gradient(state.theta, clip=1.0, noise_multiplier=4.0)
        return State(state.step + 1, state.theta - self.rate * answer.value)


@dataclass(frozen=True)
class Whole(Descent):
    """Asks for the end of a walk."""

    losses: ClassVar[tuple[str, ...]] = ("logistic",)

    def step(self, state, private, public):
        from noisewise.curator import Descent as Walk

        walk = Walk(state.theta, steps=5, step_size=0.5, noise_multiplier=private.meter.noise_for(1.0), l2=0.1)
        return State(self.steps, private.last_iterate(walk).value)


@dataclass(frozen=True)
class Turned(Descent):
    """Changes the basis of the rows, and turns back at the end."""

    def step(self, state, private, public):
        if state.step == 0:
            private.change_basis(self.kind(2 * np.eye(private.facts.features, dtype=np.float32)))
        state = super().step(state, private, public)
        return state if state.step < self.steps else State(state.step, private.in_first_basis(state.theta))


@dataclass(frozen=True)
class OnTable(Descent):
    """Makes features of a table's columns."""

    table: ClassVar[bool] = True

    def step(self, state, private, public):
        from noisewise.trusted.features import Hats, even

        if state.step == 0:
            made = even([Hats(at, column.points, column.ranks, 4) for at, column in enumerate(private.facts.table)])
            private.prepare(made)
            private.centre(self.kind(np.zeros(made.width)), 0.5)
            state = State(0, self.kind(np.zeros(private.facts.dimension, np.float32)))
        return super().step(state, private, public)
