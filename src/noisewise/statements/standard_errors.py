"""Standard errors of privacy noise: a run is replayed on its own released answers with fresh noise on top.

A method is a function of the answers it was given and of public data, so running it again on recorded answers asks the
records nothing: it is post-processing and free. Each gradient is answered with

    recorded answer + curvature (theta' - theta) + fresh noise of the recorded standard deviation

where theta' is the replay's point and theta the run's. Without the curvature term the records would not react to the drift of the replay; for plain descent and heavy
ball on a convex loss the spread would be too large, for long runs far too large. :func:`curvature` estimates the
curvature from the released path, so standard errors are estimates too (``docs/standard-errors.md``).

*Guarantee*: nothing here holds a record or spends anything. A tape holds released answers and where they were asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ..accounts import Budget, BudgetExhausted
from ..asking import Answer, Asking, Curator, Descent, OnePass, PublicCurator, array, in_kind
from ..methods import Method
from ..train import MAX_RECORDED_NUMBERS, Array, RecordedAnswers, TapeEntry, follow, kind_of
from ..trusted.events import FULL, Event, Leaf, Sampling

SINGLE_DRAWS, SINGLE_NULLS = 40, 8  # replays of a method that cannot run many side by side
NULL_DRAWS = 24  # replays that show the path of noise alone
PART = 0.5  # of the recorded noise, scaled up again: the recorded answers contain one draw of it already
MIN_GRADIENTS = 20  # with fewer the curvature is guesswork
WINDOW = 0.75  # share of a run, its end, from which the curvature is estimated
MAX_CURVED_PARAMETERS = 1000  # with more the curvature is not estimated
MAX_REPLAYED_NUMBERS = 4_000_000  # in all thetas of replays side by side
UNKNOWN = {  # by question: what a replay omits or cannot do
    "choose": "a part of the noise is in choices among candidates, which a replay does not draw anew",
    "minimise": "the noise goes through the curvature of the records, which is not released",
}


@dataclass
class _RecordedMeter:
    """Repeats the answers of the run's own meter; spends nothing."""

    replayed: Replayed
    name: str = "replay"
    adaptive: bool = True
    events: Counter[Leaf] = field(default_factory=Counter)

    @property
    def budget(self) -> Budget:
        return self.replayed.facts.budget

    @property
    def spent_fraction(self) -> float:
        tape, place = self.replayed.tape, self.replayed.place
        return tape.entries[place - 1].spent if place else tape.spent

    def affords(self, event: Event) -> bool:
        return True

    def spend(self, event: Event) -> None:
        return None

    def noise_for(self, share: float, sampling: Sampling = FULL) -> float:
        return self.replayed.upcoming().noise_multiplier

    def describe(self) -> dict[str, Any]:
        return {}


class Replayed(Asking):
    """Answers a method from a tape, with fresh noise: ``copies`` replays side by side, or one of them.

    Side by side, answers have a leading dimension of copies; ``only`` names the one that is answered alone.
    """

    def __init__(
        self,
        tape: RecordedAnswers,
        *,
        seed: int,
        copies: int = 1,
        only: int | None = None,
        reaction: Array | None = None,
        part: float = 1.0,
        watch: bool = False,
    ) -> None:
        self.tape, self.facts, self.place, self.trace, self.simulation = tape, tape.facts, 0, (), True
        self.meter = _RecordedMeter(self)
        self._noise = np.random.default_rng(seed)
        self._copies, self._only, self._reaction, self._part, self._watch = copies, only, reaction, part, watch
        self._basis: Array | None = None
        questions = [entry.question for entry in tape.entries]
        self._held = len(questions) - questions[::-1].index("change_basis") if "change_basis" in questions else 0
        self.moved: list[tuple[Array, Array]] = []  # if watched: shifts of theta at each gradient, and its noise

    def upcoming(self) -> TapeEntry:
        """The next entry; a replay that asks for more answers than the run had ends."""
        if self.place >= len(self.tape.entries):
            raise BudgetExhausted("the tape of this run ends here")
        return self.tape.entries[self.place]

    def _next(self, question: str) -> TapeEntry:
        entry = self.upcoming()
        if entry.question != question:
            raise BudgetExhausted(f"the run asked {entry.question} here")
        self.place += 1
        return entry

    def _fresh(self, like: Array, std: float) -> Array:
        kind: Any = like.dtype
        noise: Array = self._part * std * self._noise.standard_normal((self._copies, *like.shape), kind)
        return noise if self._only is None else noise[self._only]

    def gradient(self, theta: Any, **how: Any) -> Answer:
        answer = self._gradient(array(theta))
        return answer._replace(value=in_kind(theta, answer.value))

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        if question.name == "gradient":
            return self._gradient(question.theta.astype(np.float32))
        kind = kind_of(question)
        entry = self._next(kind)
        return self._statistic(entry) if kind == "statistic" else Answer(entry.value, entry.noise_std)

    def gradient_norm(self, theta: Any, **how: Any) -> Answer:
        entry = self._next("gradient_norm")
        return Answer(in_kind(theta, entry.value), entry.noise_std)

    def choose(self, thetas: Sequence[Any], **how: Any) -> int:
        return int(self._next("choose").value)

    def _gradient(self, theta: Array) -> Answer:
        entry = self._next("gradient")
        if entry.basis is not None:
            noise = self._fresh(entry.basis[0], entry.noise_std) @ entry.basis.T
        else:
            noise = self._fresh(entry.value, entry.noise_std)
            noise = noise if entry.scale is None else noise * entry.scale
        away = theta - entry.theta
        if self._watch:
            self.moved.append((away, noise))
        value = entry.value + noise
        if self._reaction is not None:
            value = value + away @ self._reaction
        return Answer(value, entry.noise_std, entry.below)

    def _statistic(self, entry: TapeEntry) -> Answer:
        """With fresh noise, unless it went into a basis: gradients on the tape are in the recorded one."""
        if self.place <= self._held:
            return Answer(entry.value, entry.noise_std)
        noise = self._fresh(entry.value, entry.noise_std)
        if entry.value.ndim == 2:
            noise = np.triu(noise) + np.swapaxes(np.triu(noise, 1), -1, -2)
        return Answer(entry.value + noise, entry.noise_std)

    def last_iterate(self, walk: Any) -> Answer:
        entry = self._next("last_iterate")
        std = entry.noise_std
        if isinstance(walk, OnePass):  # noise of every step, none of it forgotten but for l2
            steps = math.ceil(self.facts.size or 1.0) + walk.passes * len(walk.public_rows)
            shrink = (1 - walk.step_size * walk.l2) ** 2
            std *= math.sqrt(steps if shrink == 1 else (1 - shrink**steps) / (1 - shrink))
        else:
            assert isinstance(walk, Descent)
        return Answer(entry.value + self._fresh(entry.value, std), entry.noise_std)

    def change_basis(self, matrix: Any) -> None:
        moved = self._next("change_basis").value
        self._basis = moved if self._basis is None else self._basis @ moved

    def in_first_basis(self, theta: Any) -> Any:
        if self._basis is None:
            return theta
        now = array(theta)
        rows = now.reshape(-1, self.facts.features) @ self._basis.T
        return in_kind(theta, rows.reshape(now.shape).astype(now.dtype))


@dataclass(frozen=True)
class _Replays:
    """Replays of one run; ``state`` is the method's first one, which no noise has touched."""

    method: Method
    tape: RecordedAnswers
    public: PublicCurator | None
    state: Any
    seed: int

    def run(self, **how: Any) -> tuple[Array, Replayed]:
        """One theta, or as many as there are copies."""
        curator = Replayed(self.tape, **{"seed": self.seed, **how})
        state, _ = follow(self.method, self.state, cast(Curator, curator), self.public)
        return array(self.method.finish(state, self.public)), curator

    def side_by_side(self) -> bool:
        """Whether the method takes a leading dimension of copies for independent runs: tried on a few."""
        try:
            few, _ = self.run(copies=NULL_DRAWS)
            few = np.broadcast_to(few, (NULL_DRAWS, len(self.tape.start)))
        except (RuntimeError, ValueError, TypeError, AssertionError, IndexError):
            return False
        alone = np.stack([self.run(copies=NULL_DRAWS, only=copy)[0] for copy in range(2)])
        return np.allclose(few[:2], alone, rtol=1e-3, atol=1e-5)

    def many(self, draws: int, one_by_one: int, **how: Any) -> list[tuple[Array, Replayed]]:
        """This many replays side by side; or ``one_by_one`` single ones, if that is not 0."""
        if not one_by_one:
            return [self.run(copies=draws, **how)]
        return [self.run(copies=1, only=0, **{**how, "seed": self.seed + i}) for i in range(min(draws, one_by_one))]


def why_unknown(method: Method, tape: RecordedAnswers | None) -> str | None:
    """Why a run has no standard errors, for a reader; None when it has them."""
    if not method.private:
        return "nothing was noised"
    if getattr(method, "elsewhere", False):
        return "the method runs in a process of its own, where it is not replayed"
    if tape is None:
        return f"the model is not linear, or the run released more than {MAX_RECORDED_NUMBERS:,} numbers"
    if 0 < sum(entry.question == "gradient" for entry in tape.entries) < MIN_GRADIENTS:
        return f"fewer than {MIN_GRADIENTS} gradients are too few to tell how the records pull theta back"
    return next((UNKNOWN[entry.question] for entry in tape.entries if entry.question in UNKNOWN), None)


@np.errstate(all="ignore")  # a replay may run away, and is then not shown
def standard_errors(
    method: Method,
    tape: RecordedAnswers | None,
    public: PublicCurator | None = None,
    *,
    draws: int = 200,
    seed: int = 0,
) -> Array | None:
    """The standard deviation that privacy noise gives each coordinate of theta; None where it is not known.

    :func:`why_unknown` says where that is. The sampling error of the records and the bias of clipping are not in it.
    """
    if tape is None or why_unknown(method, tape) is not None:
        return None
    replays = _Replays(method, tape, public, method.init(tape.start, tape.facts, public), seed * 1_000_003)
    alone = not replays.side_by_side()
    d = len(tape.start)
    draws = min(draws, max(MAX_REPLAYED_NUMBERS // d, 20))
    reaction = None
    if d <= MAX_CURVED_PARAMETERS and any(entry.question == "gradient" for entry in tape.entries):
        reaction = curvature(
            tape, [curator for _, curator in replays.many(NULL_DRAWS, alone * SINGLE_NULLS, watch=True)]
        )
    parts = [
        theta.reshape(-1, d) for theta, _ in replays.many(draws, alone * SINGLE_DRAWS, reaction=reaction, part=PART)
    ]
    thetas = np.concatenate(parts).astype(np.float64)
    spread = thetas.std(0, ddof=1) / PART if len(thetas) > 1 else np.zeros(d)
    return spread if bool(np.isfinite(spread).all()) else None


def curvature(tape: RecordedAnswers, nulls: Sequence[Replayed]) -> Array | None:
    """How the mean gradient changes with theta near the end of a run, from released gradients; None where unknown.

    Released gradients are g_t = c + H theta_t + noise. In the principal axes of the last ``WINDOW`` of the path, the
    regression of g on theta gives h_k for each axis. Noise alone imitates a curvature: past noise has moved theta, so
    a path that returns by chance looks as if it had been pulled back (Dickey & Fuller 1979; Kendall 1954). ``nulls``
    are replays in which the records do not react: the average result of the same regression there is subtracted, and
    a negative rest counts as 0. This is an estimate, not a bound: docs/standard-errors.md says how good it is.
    """
    asked = [entry for entry in tape.entries if entry.question == "gradient"]
    start = int(len(asked) * (1 - WINDOW))
    asked = asked[start:]
    shifts = [_stacked(null.moved[start:]) for null in nulls if len(null.moved) == start + len(asked)]
    if len(asked) < 4 or not shifts:
        return None
    weights = np.array([1 / entry.noise_std for entry in asked])
    thetas = np.array([entry.theta for entry in asked], np.float64)
    gradients = np.array([entry.value for entry in asked], np.float64)
    lengths, axes, seen = _regressed(thetas[None], gradients[None], weights)
    pretended = np.concatenate([_regressed(away, noise, weights)[2] for away, noise in shifts]).mean(0)
    h = np.maximum((seen[0] - pretended) / np.maximum(lengths[0], 1e-12), 0.0)
    reaction: Array = ((axes[0].T * h) @ axes[0]).astype(np.float32)
    return reaction


def _stacked(moved: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Shifts of theta and noises as (copies, steps, dimension)."""
    noises = np.stack([noise for _, noise in moved], -2, dtype=np.float64)
    away = np.stack([np.broadcast_to(shift, noise.shape) for shift, noise in moved], -2, dtype=np.float64)
    return away.reshape(-1, *away.shape[-2:]), noises.reshape(-1, *noises.shape[-2:])


def _regressed(thetas: Array, gradients: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Lengths s_k of the path along its principal axes v_k, the axes, and s_k h_k, for (copies, steps, dimension)."""
    share = weights**2 / (weights**2).sum()
    thetas, gradients = (
        (part - (share[:, None] * part).sum(1, keepdims=True)) * weights[:, None] for part in (thetas, gradients)
    )
    left, lengths, axes = np.linalg.svd(thetas, full_matrices=False)
    count = min(thetas.shape[1] - 1, thetas.shape[2])
    left, lengths, axes = left[..., :count], lengths[..., :count], axes[..., :count, :]
    return lengths, axes, ((np.swapaxes(left, -1, -2) @ gradients) * axes).sum(-1)
