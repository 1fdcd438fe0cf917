"""How much privacy a method is seen to lose: a lower bound on epsilon from many trainings on neighbouring data sets.

Half of the runs use the data set without the canary, half the one with it. Every run is scored by what it released. On
the first half of the runs of each world a score, a threshold and a kind of interval are chosen, those that would give the
largest bound; on the second half, which had no part in the choice, the errors of that test are counted and turned into
the bound (:mod:`noisewise.evidence.audit.error_bounds`). So the confidence is what it says, however many scores and thresholds were
tried. A bound above the claim is an alarm; it is called a violation when fresh runs confirm it
(:mod:`noisewise.evidence.audit.error_bounds`).
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...accounts import AdditiveMeter, Budget, PlanMeter, open_meter
from ...asking import PublicCurator
from ...guest import method_named
from ...methods import Method
from ...train import Records, train
from ...trusted import validate
from ...trusted.accountants.gdp import mu_of
from ...trusted.events import Adjacency, Gaussian
from ...trusted.facts import facts_of
from .canaries import Neighbours, worst_case
from .error_bounds import KINDS, LOOKS, Confirmation, confirm, epsilon_at, epsilon_bound, scores_named, strength
from .finished_run import SCORES, Overheard, Witness, laid_out

Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]
RUNS_PER_TASK = 50
THRESHOLDS = 199
STRICTER = 1e-3
ALIKE = 0.25
CANDIDATES = ("exact", "pooled")  # "gdp" asks more of the counts than "pooled" does; letting it compete costs power


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found. ``lower_bound`` holds with probability ``confidence`` over the audit's own randomness.

    ``interval``, ``score`` and ``threshold`` were chosen on the first half of the runs. ``bounds`` has what each kind of
    interval gives at that threshold, each at ``confidence`` by itself; the verdict is that of ``interval``. ``gaussian``: whether the claim is one of Gaussian
    DP, which the kinds "gdp" and "pooled" rest on. ``scores``: of the measured runs, without and with the canary.
    ``confirmation``: what fresh runs, which ``runs`` does not count, said of an alarm; None without one.
    """

    method: str
    lower_bound: float
    claimed: float
    delta: float
    adjacency: Adjacency
    confidence: float
    runs: int
    interval: str
    score: str
    threshold: float
    false_positives: int
    false_negatives: int
    trials: int
    gaussian: bool
    bounds: dict[str, float]
    scores: tuple[Floats, Floats] = field(repr=False)
    confirmation: Confirmation | None = None

    @property
    def alarm(self) -> bool:
        """Whether the lower bound exceeds the claim, which chance alone does in 1 - ``confidence`` of all audits."""
        return self.lower_bound > self.claimed

    @property
    def violation(self) -> bool:
        """Whether fresh runs confirmed the alarm."""
        return self.confirmation is not None and self.confirmation.confirmed

    @property
    def outcome(self) -> str:
        """One of "no alarm", "alarm not confirmed" and "violation"."""
        return "violation" if self.violation else "alarm not confirmed" if self.alarm else "no alarm"

    @property
    def verdict(self) -> str:
        """One line in words."""
        at, fresh = f"at {100 * self.confidence:g} %", self.confirmation
        if not self.alarm:
            return f"no violation found: lower bound {self.lower_bound:.2g} {at}, claimed {self.claimed:.3g}"
        first = f"lower bound {self.lower_bound:.3g} {at}, above the claimed {self.claimed:.3g}"
        if fresh is None:
            return f"first alarm, not tried on fresh runs: {first}"
        again = f"{fresh.runs:,} fresh runs give {fresh.lower_bound:.3g} at {100 * fresh.confidence:g} %"
        if fresh.confirmed:
            return f"VIOLATION: {first}; confirmed, {again}"
        return f"no violation found: a first alarm was not confirmed ({first}; {again})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a report: everything but the scores."""
        hidden = ("scores", "confirmation")
        return {name: value for name, value in vars(self).items() if name not in hidden} | {
            "kind": "epsilon_lower_bound",
            "alarm": self.alarm,
            "confirmation": None if self.confirmation is None else asdict(self.confirmation),
            "outcome": self.outcome,
            "violation": self.violation,
            "verdict": self.verdict,
        }


def epsilon_lower_bound(
    method: str | Method,
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    runs: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
    loss: str | None = None,
    size_is_public: bool = True,
    neighbours: Neighbours | None = None,
    rows_per_unit: int | None = None,
) -> Audit:
    """Train ``runs`` times in all, half on each of two neighbouring data sets, and bound epsilon at ``delta`` from below.

    The runs are simulations. ``neighbours`` replaces the worst case of :func:`noisewise.evidence.audit.canaries.worst_case`;
    ``progress(done, total)`` is called as runs are finished. An alarm is tried on at most four times as many fresh runs,
    which raise ``total``; without an alarm there are none. ``rows_per_unit``: the promise is to a person with so many
    rows, all of which the canary has.

    >>> audit = epsilon_lower_bound("sufficient_statistics", epsilon=0.5, delta=0.25, runs=80)
    >>> audit.violation, audit.claimed, audit.runs
    (False, 0.5, 80)
    """
    method = method_named(method)
    if not method.private:
        raise ValueError(f"{method.name} promises nothing, so there is nothing to audit; pass a private method")
    validate.whole(at_least=8, runs=runs)
    validate.whole(jobs=jobs)
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence is {confidence!r}; pass a number from 0.5 to below 1, e.g. 0.95")
    budget = Budget(epsilon, delta, adjacency)
    worlds = neighbours or worst_case(
        method, adjacency=adjacency, loss=loss, size_is_public=size_is_public, rows_per_unit=rows_per_unit
    )
    half = runs // 4
    prepared = _Prepared(_Plan(method, budget, worlds, seed))
    scores = prepared.scores(0, 2 * half, jobs, progress)
    first, second, gaussian = scores[:, :half], scores[:, half:], claims_gaussian_dp(prepared.meter)
    audit = judged(first, second, budget=budget, method=method.name, gaussian=gaussian, confidence=confidence)
    last = (2 + LOOKS[-1]) * half

    def fresh(start: int, stop: int) -> Floats:
        """Runs whose numbers, and so whose seeds, come after those of the first stage."""
        return prepared.scores(2 * half + start, 2 * half + stop, jobs, progress, last)

    return confirm(audit, fresh)


def judged(
    first: Floats, second: Floats, *, budget: Budget, method: str, gaussian: bool, confidence: float = 0.95
) -> Audit:
    """The audit from scores of shape (2 worlds, runs, kinds of score): chosen on ``first``, measured on ``second``.

    An alarm of it is not confirmed yet.
    """
    delta = budget.delta
    number, sign, threshold, kind = best_test(first, delta, confidence, CANDIDATES if gaussian else ("exact",))
    score = SCORES[number] if sign > 0 else f"- {SCORES[number]}"
    without, with_it = scores_named(second, score)
    trials = second.shape[1]
    fp, fn = int((without > threshold).sum()), int((with_it <= threshold).sum())
    bounds = {name: epsilon_bound(name, fp, fn, trials, delta, confidence) for name in KINDS}
    return Audit(
        method=method,
        lower_bound=bounds[kind],
        claimed=budget.epsilon,
        delta=delta,
        adjacency=budget.adjacency,
        confidence=confidence,
        runs=2 * (first.shape[1] + trials),
        interval=kind,
        score=score,
        threshold=threshold,
        false_positives=fp,
        false_negatives=fn,
        trials=trials,
        gaussian=gaussian,
        bounds=bounds if gaussian else {"exact": bounds["exact"]},
        scores=(without, with_it),
    )


def best_test(scores: Floats, delta: float, confidence: float, kinds: tuple[str, ...]) -> tuple[int, float, float, str]:
    """The score, its sign, the threshold and the kind of bound that do best on these runs.

    The plain scores are judged at a far stricter level than the likelihood ratio, so that they win by being right, as they
    are when a claim is false, and not by luck.
    """
    trials, best, choice = scores.shape[1], (-1.0, 0), (0, 1.0, 0.0, "exact")
    for number in range(scores.shape[2]):
        level = 1 - (1 - confidence) * (STRICTER if number else 1)
        for sign in (1.0, -1.0) if number else (1.0,):  # a likelihood ratio knows its direction
            without, with_it = np.sort(sign * scores[0, :, number]), np.sort(sign * scores[1, :, number])
            both = np.unique(np.concatenate([without, with_it]))
            at = both[np.unique(np.linspace(0, len(both) - 1, THRESHOLDS).astype(int))]
            fp = trials - np.searchsorted(without, at, side="right")
            fn = np.searchsorted(with_it, at, side="right")
            for kind in kinds:
                values = strength(kind, fp, fn, trials, delta, level)
                if kind == "pooled":  # at its best where both errors are alike; elsewhere it is ahead by luck
                    values = np.where(np.abs(fp - fn) <= trials * ALIKE, values, 0.0)
                top = int(np.argmax(values)) if values.max() > 0 else int(np.argmin(fp + fn))
                value = float(values[top]) if kind == "exact" else epsilon_at(float(values[top]), delta)
                rank = (value, -int(fp[top] + fn[top]) if number == 0 else -2 * trials)  # among equals: fewest errors
                if rank > best:
                    best, choice = rank, (number, sign, float(at[top]), kind)
    return choice


@dataclass(frozen=True, eq=False)
class _Plan:
    """Everything that the runs of one audit share."""

    method: Method
    budget: Budget
    worlds: Neighbours
    seed: int

    def records(self, world: int) -> Records:
        worlds = self.worlds
        return Records(worlds.X[world], worlds.y[world], worlds.size, worlds.row_bound, unit=worlds.unit)


class _Prepared:
    """One process's share: what does not depend on the records is worked out once, not before every run."""

    def __init__(self, plan: _Plan) -> None:
        self.plan, worlds = plan, plan.worlds
        self.public = None if worlds.public is None else PublicCurator(*worlds.public, model=worlds.model, seed=0)
        facts = facts_of(worlds.model, plan.budget, size=worlds.size, row_bound=worlds.row_bound, unit=worlds.unit)
        self.terms, self.records = plan.method.terms(facts), laid_out(worlds)
        self.meter = open_meter(plan.budget, self.terms)  # says what is claimed; each run gets its own
        self.state = None
        if (
            worlds.size is not None and not plan.method.elsewhere
        ):  # else the first state depends on the size that was bought
            start = worlds.model.start() if worlds.start is None else worlds.start
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a handful of records is outside every learned protector's range
                self.state = plan.method.init(start, facts, self.public)

    def scores(self, first: int, end: int, jobs: int, progress: Progress | None, last: int | None = None) -> Floats:
        """(2 worlds, runs, kinds of score) of the runs numbered ``first`` to below ``end``, out of ``last`` to come."""
        chunks = [(w, i, min(i + RUNS_PER_TASK, end)) for i in range(first, end, RUNS_PER_TASK) for w in (0, 1)]
        result, done = np.empty((2, end - first, len(SCORES))), 2 * first
        for (world, start, stop), rows in zip(chunks, self._work(chunks, jobs), strict=True):
            result[world, start - first : stop - first] = rows
            done += stop - start
            if progress is not None:
                progress(done, 2 * (last or end))
        return np.nan_to_num(result)

    def _work(self, chunks: list[tuple[int, int, int]], jobs: int) -> Iterator[Floats]:
        if jobs == 1:
            yield from (self.chunk(*chunk) for chunk in chunks)
            return
        from joblib import Parallel, delayed  # one process does without

        yield from Parallel(n_jobs=jobs, return_as="generator")(
            delayed(_in_process)(self.plan, *chunk) for chunk in chunks
        )

    def chunk(self, world: int, start: int, stop: int) -> Floats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.array([self.run(world, i) for i in range(start, stop)])

    def run(self, world: int, number: int) -> tuple[float, ...]:
        """The scores of one training, in the order of ``SCORES``."""
        plan, worlds = self.plan, self.plan.worlds
        witness = Witness(worlds, self.records)
        result = train(
            Overheard(plan.method, witness, self.terms, self.state),
            plan.records(world),
            model=worlds.model,
            budget=plan.budget,
            public=self.public,
            theta=worlds.start,
            seed=_seed(plan.seed, world, number),
        )
        along = worlds.along(result.theta)
        return witness.ratio, along, float(witness.answers), witness.residual, witness.change


def claims_gaussian_dp(meter: AdditiveMeter | PlanMeter) -> bool:
    """Whether the claim is one of Gaussian DP: priced by it, or a plan of full-batch Gaussians alone."""
    if isinstance(meter, PlanMeter):
        return meter.accountant == "gdp" or all(isinstance(leaf, Gaussian) for leaf in meter.remaining)
    return meter.name == "gdp" and not meter.describe().get("one_shot_delta")


def _in_process(plan: _Plan, world: int, start: int, stop: int) -> Floats:
    os.environ["OMP_NUM_THREADS"] = "1"
    return _prepared(plan).chunk(world, start, stop)


_KEPT: list[tuple[str, _Prepared]] = []


def _prepared(plan: _Plan) -> _Prepared:
    """The prepared plan of this process; a plan that comes a second time is not prepared again."""
    name = repr((plan.method, plan.budget, plan.seed, plan.worlds.X, plan.worlds.y, plan.worlds.size, plan.worlds.unit))
    if not _KEPT or _KEPT[0][0] != name:
        _KEPT[:] = [(name, _Prepared(plan))]
    return _KEPT[0][1]


def _seed(seed: int, world: int, run: int) -> int:
    return int.from_bytes(hashlib.sha256(f"audit {seed} {world} {run}".encode()).digest()[:8], "big")


def power_against_half_noise(
    epsilon: float, delta: float, *, runs: int, confidence: float = 0.95, trials: int = 100, seed: int = 0
) -> float:
    """How often an audit of a Gaussian DP claim with so many runs finds and confirms half the noise; by simulation.

    >>> power_against_half_noise(0.5, 0.25, runs=400, trials=20) > 0.9
    True
    """
    budget, mu, half = Budget(epsilon, delta), mu_of(epsilon, delta), max(runs // 4, 1)
    rng = np.random.default_rng(seed)
    caught = 0

    def scores(start: int, stop: int) -> Floats:
        return rng.normal(size=(2, stop - start, 1)) + np.array([0.0, 2 * mu])[:, None, None]

    for _ in range(trials):
        first, second = scores(0, half), scores(0, half)
        audit = judged(first, second, budget=budget, method="", gaussian=True, confidence=confidence)
        caught += confirm(audit, scores).violation
    return caught / trials
