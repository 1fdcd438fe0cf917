"""Learning to Protect: a protector that was learned on public tasks spends the budget and makes the steps.

    buy a basis in which the mean row is small, if that can be told            (or take it from public rows)
    for t = 1 .. T:
        C_t, share_t = clip(signal), schedule(signal)                          (LSTMs that see released facts)
        g_t = clipped mean gradient + noise that costs share_t of what is left (the curator)
        theta <- projector(g_t, theta)                                         (a coordinate-wise LSTM)

``protector`` is "auto" (the rule of ``protect.learned.zoo.pick``), the name of a protector in the package, or a file's path.
A protector may want the norm of the gradient before it chooses the noise (Algorithm 2, line 1); that question is paid
first, also when the run stops after it.

*Guarantee*: a GDP filter on full batches (Smith & Thakurta 2022): noise, clip norm and horizon may depend on anything
released. Whatever the weights, a share is at most what is left. The protector was trained on public data alone.

Hong, Wang, Wang & Zhou 2021, Learning Model-Based Privacy Protection under Budget Constraints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from .. import _validate
from ..accounting.choose import choose_terms
from ..budget import Terms
from ..curator import Curator, Facts, PublicCurator
from ..curator.question import CLIPS
from ..late import Tensor, torch
from ..protect.brake import Asked, Brake
from ..protect.clips import longest_step
from ..protect.learned.fast import fast
from ..protect.learned.zoo import LONGEST, Learned, named, names, pick, warn_outside
from ..protect.protector import Protector, Run, begin, finished, step
from ..protect.signal import first_signal, one, signal_to_noise
from .base import Method
from .descent import bought_basis, public_basis

LARGEST_CLIP = 1e6
NOTHING_LEFT = 1e-6  # of the training budget: less would buy only noise


class State(NamedTuple):
    protector: Protector
    horizon: int
    run: Run | None
    theta: Tensor
    before: float  # the share of the whole budget that was spent before the first step
    brake: Brake = Brake()


@dataclass(frozen=True)
class L2P(Method):
    """``steps`` is the horizon, by default the protector's; ``max_grad_norm`` scales its clip norms."""

    protector: str = "auto"
    steps: int | None = None
    max_grad_norm: float | None = None
    deflate: bool = True

    name: ClassVar[str] = "l2p"
    summary: ClassVar[str] = "a protector learned on public tasks: noise, clip and steps by LSTMs"
    paper: ClassVar[str] = "Hong et al. 2021"
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.protector, str):
            raise ValueError(f"protector is {self.protector!r}; pass 'auto', a name from the package, or a path")
        if self.steps is not None:
            _validate.whole(steps=self.steps)
            if self.steps > LONGEST:
                raise ValueError(f"steps is {self.steps}; pass at most {LONGEST}")
        if self.max_grad_norm is not None and not CLIPS[0] <= self.max_grad_norm <= LARGEST_CLIP:
            raise ValueError(
                f"max_grad_norm is {self.max_grad_norm!r}; pass a number from {CLIPS[0]} to {LARGEST_CLIP:g}"
            )

    @cached_property
    def _chosen(self) -> Learned | None:
        """The protector that was asked for, read once: what runs is what the statement names."""
        return None if self.protector == "auto" else named(self.protector)

    def learned(self, facts: Facts) -> Learned:
        """The protector of this run, from public or released facts."""
        if self._chosen is not None:
            return self._chosen
        return named(pick(facts.loss, signal_to_noise(facts), dimension=facts.dimension, layers=len(facts.groups)))

    def settings(self) -> dict[str, Any]:
        settings, chosen = super().settings(), self._chosen
        if chosen is None:
            return {**settings, "sha256": {name: named(name).digest for name in names()}}
        horizon = self.steps or chosen.horizon
        return {**settings, "sha256": chosen.digest, "design": chosen.design.to_dict(), "horizon": horizon}

    def terms(self, facts: Facts) -> Terms:
        self.learned(facts)  # a protector that is not there is refused before anything is asked
        return choose_terms(facts.budget, adaptive=True)

    def init(self, theta: Tensor, facts: Facts, public: PublicCurator | None) -> State:
        learned = self.learned(facts)
        horizon = self.steps or learned.horizon
        warn_outside(
            learned, size=facts.size or 1.0, dimension=facts.dimension, epsilon=facts.budget.epsilon, horizon=horizon
        )
        return State(fast(learned.protector()), horizon, None, theta, 0.0)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
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

    def _begin(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        if self.deflate:
            free = public_basis(public, private.facts)
            basis = bought_basis(private) if free is None else free
            if basis is not None:
                private.change_basis(torch.from_numpy(basis.matrix))
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


class Paid(NamedTuple):
    """The answers of a curator; ``before`` is the share of the whole budget that was spent before the first step."""

    private: Curator
    before: float
    squared: bool

    def norm(self, run: Run, share: float) -> tuple[Tensor, Tensor]:
        clip, sigma = _allowed(run.signal.clip), self.private.meter.noise_for(share)
        answer = self.private.gradient_norm(run.thetas[0], clip=clip, noise_multiplier=sigma, squared=self.squared)
        value = max(float(answer.value), 0.0)
        return one(math.sqrt(value) / clip if self.squared else value / clip), self._left()

    def gradient(self, run: Run, clip: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        limit, sigma = _allowed(clip), self.private.meter.noise_for(min(max(share.item(), 1e-7), 1.0))
        answer = self.private.gradient(run.thetas[0], clip=limit, noise_multiplier=sigma)
        return answer.value[None] / limit, one(answer.noise_std / limit), one(limit), self._left()

    def _left(self) -> Tensor:
        """The share of the training budget that is left."""
        return one(max(1 - self.private.meter.spent_fraction, 0.0) / (1 - self.before))


def _braked(state: State, run: Run, before: Tensor) -> tuple[State, Run]:
    """The run with its last step, from ``before``, no longer than released gradients show that it may be."""
    signal, theta = run.signal, before[0].double().numpy()
    clip = signal.clip.item()
    asked = Asked(signal.gradient[0].double().numpy() * clip, signal.noise_std.item() * clip, theta)
    brake = state.brake.seen(asked)
    if brake.held:
        moved = theta + brake.braked(asked, run.thetas[0].double().numpy() - theta)
        run = run._replace(thetas=torch.from_numpy(moved).float()[None])
    return state._replace(brake=brake), run


def _allowed(clip: Tensor) -> float:
    return min(max(clip.item(), CLIPS[0]), LARGEST_CLIP)
