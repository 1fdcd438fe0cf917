"""Learning to Protect: a protector that was learned on public tasks spends the budget and makes the steps.

    buy a basis in which the mean row is small, if that can be told            (or take it from public rows)
    for t = 1 .. T:
        C_t, share_t = clip(signal), schedule(signal)                          (LSTMs that see released facts)
        g_t = clipped mean gradient + noise that costs share_t of what is left (the curator)
        theta <- projector(g_t, theta)                                         (a coordinate-wise LSTM)

``protector`` is "auto" (the rule of ``protect.learned.zoo.pick``), the name of a protector in the package, a file's path, or
"private": ``protector_share`` of the budget first trains it on the private records themselves (``protect.learned.private``), from
``start`` ("zero" weights, "auto", a name or a path), in a ``few`` numbers or as a ``whole``.
A protector may want the norm of the gradient before it chooses the noise (Algorithm 2, line 1); that question is paid
first, also when the run stops after it.

*Guarantee*: a GDP filter on full batches (Smith & Thakurta 2022): noise, clip norm and horizon may depend on anything
released. Whatever the weights, a share is at most what is left. The protector was trained on public data alone, or by paid
answers of the same filter: its share is spent first, and training has the rest.

Hong, Wang, Wang & Zhou 2021, Learning Model-Based Privacy Protection under Budget Constraints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..accounts import Terms
from ..asking import Curator, Facts, PublicCurator
from ..protect.learned.private import WEIGHTS, MetaRun, begun, refuse_design, start_of
from ..protect.learned.private import finished as meta_trained
from ..protect.learned.zoo import MAX_STEPS, Learned, named, names, pick_for, warn_outside
from ..protect.optimizers import Array, Brake, ReleasedGradient
from ..protect.protector import Protector, ProtectorRuns, begin, finished, step
from ..protect.schedules import longest_step
from ..protect.signal import first_signal, one, signal_to_noise, worth
from ..trusted import validate
from ..trusted.accountants.choose import choose_terms
from ..trusted.question import CLIP_RANGE
from .base import Method
from .descent import bought_basis, public_basis

MAX_CLIP = 1e6
NOTHING_LEFT = 1e-6  # of the training budget: less would buy only noise
PRIVATE, MAX_PROTECTOR_SHARE = "private", 0.9
OF_PRIVATE = (
    "protector_share",
    "protector_weights",
    "start",
)  # settings of a protector that is trained on private records


class State(NamedTuple):
    protector: Protector
    horizon: int
    run: ProtectorRuns | None
    theta: Array
    before: float  # the share of the whole budget that was spent before the first step
    brake: Brake = Brake()
    meta: MetaRun | None = None  # of a protector that is trained on private records
    made: Learned | None = None  # that protector, when it is trained


@dataclass(frozen=True)
class L2P(Method):
    """``steps`` is the horizon, by default the protector's; ``max_grad_norm`` scales its clip norms."""

    protector: str = "auto"
    steps: int | None = None
    max_grad_norm: float | None = None
    deflate: bool = True
    protector_share: float = 0.2
    protector_weights: str = "few"
    start: str = "zero"

    name: ClassVar[str] = "l2p"
    summary: ClassVar[str] = "a protector learned on public tasks: noise, clip and steps by LSTMs"
    paper: ClassVar[str] = "Hong et al. 2021"
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.protector, str):
            raise ValueError(f"protector is {self.protector!r}; pass 'auto', a name from the package, or a path")
        validate.one_of(WEIGHTS, protector_weights=self.protector_weights)
        if not isinstance(self.protector_share, float) or not 0 < self.protector_share <= MAX_PROTECTOR_SHARE:
            raise ValueError(
                f"protector_share is {self.protector_share!r}; pass a number above 0, at most {MAX_PROTECTOR_SHARE}"
            )
        if not isinstance(self.start, str):
            raise ValueError(f"start is {self.start!r}; pass 'zero', 'auto', a name from the package, or a path")
        if self.trains and self.max_grad_norm is not None:
            raise ValueError(
                "max_grad_norm is given, but a private protector learns its clip norm; leave one of them out"
            )
        if self.steps is not None:
            validate.whole(steps=self.steps)
            if self.steps > MAX_STEPS:
                raise ValueError(f"steps is {self.steps}; pass at most {MAX_STEPS}")
        validate.positive_or_none(max_grad_norm=self.max_grad_norm)
        if self.max_grad_norm is not None and not CLIP_RANGE[0] <= self.max_grad_norm <= MAX_CLIP:
            raise ValueError(
                f"max_grad_norm is {self.max_grad_norm!r}; pass a number from {CLIP_RANGE[0]} to {MAX_CLIP:g}"
            )

    @property
    def trains(self) -> bool:
        """Whether the protector is trained on the private records."""
        return self.protector == PRIVATE

    @property
    def walks(self) -> bool:
        return self.trains  # inside shards

    @cached_property
    def _chosen(self) -> Learned | None:
        """The protector that was asked for, read once: what runs is what the statement names."""
        asked = self.start if self.trains else self.protector
        return None if asked == "auto" or (self.trains and asked == "zero") else named(asked)

    def learned(self, facts: Facts) -> Learned:
        """The protector of this run, or what its training starts from, from public or released facts."""
        if self._chosen is not None:
            return self._chosen
        return start_of(self.start, facts) if self.trains else named(pick_for(facts))

    def settings(self) -> dict[str, Any]:
        settings, chosen = super().settings(), self._chosen
        if not self.trains:
            settings = {name: value for name, value in settings.items() if name not in OF_PRIVATE}
        if chosen is None:
            return {**settings, "sha256": {name: named(name).digest for name in names()}}
        horizon = self.steps or chosen.horizon
        return {**settings, "sha256": chosen.digest, "design": chosen.design.to_dict(), "horizon": horizon}

    def terms(self, facts: Facts) -> Terms:
        learned = self.learned(facts)  # a protector that is not there is refused before anything is asked
        if self.trains:
            refuse_training(facts)
            refuse_design(learned)
        return choose_terms(facts.budget, adaptive=True)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        learned = self.learned(facts)
        horizon = self.steps or learned.horizon
        warn_outside(
            learned, size=facts.size or 1.0, dimension=facts.dimension, epsilon=facts.budget.epsilon, horizon=horizon
        )
        meta = begun(learned, facts, self.protector_share, self.protector_weights) if self.trains else None
        return State(learned.protector(), horizon, None, theta, 0.0, meta=meta)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        if state.meta is not None and not state.meta.done:
            return self._trained_on(state, state.meta, private, public)
        if state.run is None:
            state = self._begin(state, private, public)
        run, protector = state.run, state.protector
        assert run is not None
        before = run.thetas
        run = step(protector, run, Paid(private, state.before, protector.squared_norm))
        if private.facts.linear:
            state, run = _braked(state, run, before)
        state = state._replace(run=run)
        thetas = finished(protector, run, before) if self.done(state) else run.thetas
        return state._replace(theta=private.in_first_basis(thetas[0]))

    def _trained_on(self, state: State, meta: MetaRun, private: Curator, public: PublicCurator | None) -> State:
        """One meta-step; rows are in their new basis by then, as training will have them."""
        if meta.step == 0:
            self._in_new_basis(private, public)
        facts, meter = private.facts, private.meter
        left = 1 - meter.spent_fraction
        asked = self.protector_share / meta.plan.steps
        training = max(left - asked * (meta.plan.steps - meta.step), 1e-3)
        question = meta.question(state.horizon, (facts.size or 1.0) * worth(facts) * math.sqrt(training))
        meta = meta.moved(private.ask(question, noise=meter.noise_for(min(asked / left, 1.0))))
        if not meta.done:
            return state._replace(meta=meta)
        made = meta_trained(meta, self.learned(facts), facts, self.protector_share)
        return state._replace(meta=meta, made=made, protector=made.protector())

    def made(self, state: State) -> Learned | None:
        return state.made

    def _in_new_basis(self, private: Curator, public: PublicCurator | None) -> None:
        if self.deflate:
            free = public_basis(public, private.facts)
            basis = bought_basis(private) if free is None else free
            if basis is not None:
                private.change_basis(basis.matrix)

    def _begin(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        if state.meta is None:
            self._in_new_basis(private, public)
        before, facts = private.meter.spent_fraction, private.facts
        ratio = signal_to_noise(facts) * math.sqrt(1 - before)
        clip = self.max_grad_norm or facts.typical_clip
        signal = first_signal(
            1,
            facts.dimension,
            horizon=state.horizon,
            ratio=one(ratio),
            typical_clip=clip,
            longest_step=longest_step(facts.lipschitz, clip, len(facts.groups)),
            groups=facts.groups,
        )
        return state._replace(run=begin(state.protector, state.theta[None], signal), before=before)

    def done(self, state: State) -> bool:
        run = state.run
        return run is not None and (run.signal.step >= state.horizon or run.signal.remaining.item() <= NOTHING_LEFT)


def refuse_training(facts: Facts) -> None:
    """Refuse, from public facts, what cannot be asked of shards, and without torch all of it: MissingTorch."""
    if not facts.linear or facts.unit.persons:
        raise ValueError("protector is 'private', which needs a linear model and records, not persons; pass 'auto'")
    import_module("noisewise.trusted.torch_extra")


class Paid(NamedTuple):
    """The answers of a curator; ``before`` is the share of the whole budget that was spent before the first step."""

    private: Curator
    before: float
    squared: bool

    def norm(self, run: ProtectorRuns, share: float) -> tuple[Array, Array]:
        clip, sigma = _allowed(run.signal.clip), self.private.meter.noise_for(share)
        answer = self.private.gradient_norm(run.thetas[0], clip=clip, noise_multiplier=sigma, squared=self.squared)
        value = max(float(answer.value), 0.0)
        return one(math.sqrt(value) / clip if self.squared else value / clip), self._left()

    def gradient(self, run: ProtectorRuns, clip: Array, share: Array) -> tuple[Array, Array, Array, Array]:
        limit, sigma = _allowed(clip), self.private.meter.noise_for(min(max(share.item(), 1e-7), 1.0))
        answer = self.private.gradient(run.thetas[0], clip=limit, noise_multiplier=sigma)
        return answer.value[None] / limit, one(answer.noise_std / limit), one(limit), self._left()

    def _left(self) -> Array:
        """The share of the training budget that is left."""
        return one(max(1 - self.private.meter.spent_fraction, 0.0) / (1 - self.before))


def _braked(state: State, run: ProtectorRuns, before: Array) -> tuple[State, ProtectorRuns]:
    """The run with its last step, from ``before``, no longer than released gradients show that it may be."""
    signal, theta = run.signal, before[0].astype(np.float64)
    clip = signal.clip.item()
    asked = ReleasedGradient(signal.gradient[0] * clip, signal.noise_std.item() * clip, theta)
    brake = state.brake.seen(asked)
    if brake.held:
        moved = theta + brake.braked(asked, run.thetas[0] - theta)
        run = run._replace(thetas=moved.astype(np.float32)[None])
    return state._replace(brake=brake), run


def _allowed(clip: Array) -> float:
    return min(max(clip.item(), CLIP_RANGE[0]), MAX_CLIP)
