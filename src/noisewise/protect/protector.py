"""A protector: how to clip, how much of what is left to spend, and how to move. Learned or designed by hand.

    C_t = clip(signal)                       the clip norm of the next question
    share_t = schedule(signal)               of the budget that is left; the meter turns it into noise
    theta_{t+1} = projector(signal, theta)   after the answer is in the signal

Each part reads the :class:`~noisewise.protect.signal.Signal`, which holds released facts only, and carries its own
memory. *Guarantee*: none of them can overspend or see a record. A share is at most what is left, whatever produced it,
and the curator clips and noises by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from .optimizers import Array, Optimizer, filled
from .projectors import Projector, Stepped
from .schedules import Clip, FixedClip, Schedule, Uniform
from .signal import Signal, next_step, with_answer


class ClipAndShares(Protocol):
    """Clip norms (R,) and shares (R,) of the next question, at once."""

    def init(self, copies: int, dimension: int) -> Any: ...
    def __call__(self, signal: Signal, memory: Any) -> tuple[Array, Array, Any]: ...


class Scale(Protocol):
    """Factors (R,) for the last thetas, from the last signal and what the clip remembers."""

    def __call__(self, signal: Signal, memory: Any) -> Array: ...


@dataclass(frozen=True)
class Protector:
    """Clip, schedule and projector.

    ``norm_share`` of each step's even part of the budget buys a gradient norm first. ``scale`` multiplies the last
    theta: a classifier that ranks well may still be too sure of itself. ``together`` stands for clip and schedule where
    one part does both in less time; its memory is kept in the clip's place. ``settle``: of a model with layers, whose long
    steps go to and fro, the mean of the last two thetas is released.
    """

    clip: Clip
    schedule: Schedule
    projector: Projector
    norm_share: float = 0.0
    squared_norm: bool = False
    scale: Scale | None = None
    together: ClipAndShares | None = None
    settle: bool = False


class ProtectorRuns(NamedTuple):
    """Where R runs side by side have come: what they know, where they are, and what each part remembers."""

    signal: Signal
    thetas: Array
    clip_memory: Any
    schedule_memory: Any
    projector_memory: Any


def begin(protector: Protector, thetas: Array, signal: Signal) -> ProtectorRuns:
    """Before the first question."""
    shape, together = thetas.shape, protector.together
    projector_memory = protector.projector.init(*shape)
    if together is not None:
        return ProtectorRuns(signal, thetas, together.init(*shape), None, projector_memory)
    return ProtectorRuns(signal, thetas, protector.clip.init(*shape), protector.schedule.init(*shape), projector_memory)


def next_question(protector: Protector, run: ProtectorRuns) -> tuple[Array, Array, ProtectorRuns]:
    """The clip norms (R,) and shares of what is left (R,) of the next question."""
    if protector.together is not None:
        clip, share, memory = protector.together(run.signal, run.clip_memory)
        return clip, share, run._replace(clip_memory=memory)
    clip, clip_memory = protector.clip(run.signal, run.clip_memory)
    share, schedule_memory = protector.schedule(run.signal, run.schedule_memory)
    return clip, share, run._replace(clip_memory=clip_memory, schedule_memory=schedule_memory)


def answered(
    protector: Protector, run: ProtectorRuns, gradient: Array, noise_std: Array, clip: Array, remaining: Array
) -> ProtectorRuns:
    """One step on: a released gradient (in units of ``clip``, as its noise) joins the signal, and the projector moves."""
    signal = with_answer(run.signal, gradient, noise_std, clip, remaining)
    thetas, memory = protector.projector(signal, run.thetas, run.projector_memory)
    return run._replace(signal=next_step(signal), thetas=thetas, projector_memory=memory)


class Answers(Protocol):
    """Where the answers of a step come from: a curator, or public rows that stand for private ones."""

    def norm(self, run: ProtectorRuns, share: float) -> tuple[Array, Array]:
        """A gradient norm in units of the clip norm for a share of what is left, and what is left then."""

    def gradient(self, run: ProtectorRuns, clip: Array, share: Array) -> tuple[Array, Array, Array, Array]:
        """A gradient, its noise (both in units of the clip norm), the clip norm, and what is left then."""


def step(protector: Protector, run: ProtectorRuns, answers: Answers) -> ProtectorRuns:
    """One step of R runs; Algorithm 2, line 1: a protector that wants a norm pays for it before it chooses the noise."""
    if protector.norm_share:
        norm, left = answers.norm(run, protector.norm_share / max(run.signal.horizon - run.signal.step, 1))
        run = run._replace(signal=run.signal._replace(paid_norm=norm, remaining=left))
    clip, share, asked = next_question(protector, run)
    return answered(protector, asked, *answers.gradient(run, clip, share))


def finished(protector: Protector, run: ProtectorRuns, before: Array | None = None) -> Array:
    """The thetas (R, dimension) to release; ``before`` are those before the last step."""
    thetas, groups = run.thetas, run.signal.groups
    if protector.settle and before is not None and len(groups) > 1:
        thetas = (before + thetas) / 2
    if protector.scale is None:
        return thetas
    return with_scores_scaled(thetas, protector.scale(run.signal, run.clip_memory), groups)


def with_scores_scaled(thetas: Array, factors: Array, groups: tuple[int, ...]) -> Array:
    """The thetas whose scores are ``factors`` (R,) times as large: of a perceptron, only the last layer changes."""
    each = filled(thetas, thetas.shape, 1.0)
    each[:, sum(groups[:-1]) :] = factors[:, None]
    return thetas * each


def by_hand(rule: Optimizer[Any], *, clip_factor: float = 1.0) -> Protector:
    """A designed protector: an ordinary optimiser with equal noise and a fixed clip norm."""
    return Protector(FixedClip(clip_factor), Uniform(), Stepped(rule))
