"""The power of an audit: how near its lower bound comes to the truth for a correct Gaussian mechanism.

One run is one answer of a real curator: the gradient of a data set that holds the canary alone, or nothing. The noise is
calibrated to (epsilon, delta), so the true epsilon is the claimed one (less the 0.2 % that the curator keeps for rounding).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from noisewise.accounts import AdditiveMeter, Budget
from noisewise.asking import Curator
from noisewise.evidence.audit.error_bounds import Floats, confirm
from noisewise.evidence.audit.lower_bound import Audit, judged
from noisewise.trusted.accountants.calibrate import calibrate
from noisewise.trusted.losses import Squared
from noisewise.trusted.models import Linear

from .threads import use_threads

GOAL, SHARE = 0.7, 0.95
AT_ONCE = 10_000  # questions to one curator
FRESH = 10**9  # seeds of audits are smaller, so fresh runs have seeds of their own


def answers(budget: Budget, sigma: float, records: int, runs: int, seed: int) -> Floats:
    """So many noised gradients of a data set with the canary (1 record) or without it (0)."""
    model, theta = Linear(1, Squared()), np.zeros(1)
    # Each question is a run of its own and may spend the whole budget, so the meter of all of them is far larger.
    meter = AdditiveMeter(Budget(1e6, budget.delta, budget.adjacency), "gdp")
    X, y = np.ones((records, 1)), np.full(records, -1e6)
    answers = np.empty(runs)
    for start in range(0, runs, AT_ONCE):  # a trace of millions of questions would fill the memory
        curator = Curator(X, y, model=model, meter=meter, size=1.0, seed=seed * FRESH + start)
        for i in range(start, min(start + AT_ONCE, runs)):
            answers[i] = curator.gradient(theta, clip=1.0, noise_multiplier=sigma).value[0]
    return answers


def one_audit(epsilon: float, delta: float, runs: int, seed: int) -> tuple[Audit, float]:
    """The audit of one Gaussian mechanism with so many runs in all, an alarm tried on more, and the seconds it took."""
    use_threads(1)
    started, budget, half = time.perf_counter(), Budget(epsilon, delta), runs // 4
    sigma = float(calibrate(budget, steps=1))

    def scores(runs: int, seed: int) -> Floats:
        return np.stack([answers(budget, sigma, records, runs, 2 * seed + records) for records in (0, 1)])[:, :, None]

    def fresh(start: int, stop: int) -> Floats:
        return scores(stop - start, seed + (start + 1) * FRESH)

    first = scores(2 * half, seed)
    audit = judged(first[:, :half], first[:, half:], budget=budget, method="Gaussian", gaussian=True)
    return confirm(audit, fresh), time.perf_counter() - started


def power_rows(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    runs: int = 40_000,
    audits: int = 100,
    jobs: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """One row: the distribution of the lower bound over many audits, and how long one takes."""
    from joblib import Parallel, delayed

    work = (delayed(one_audit)(epsilon, delta, runs, seed) for seed in range(audits))
    bounds, violations, seconds = [], [], []
    for done, (audit, took) in enumerate(Parallel(n_jobs=jobs, return_as="generator")(work), 1):
        bounds.append(audit.lower_bound)
        violations.append(audit.violation)
        seconds.append(took)
        if progress is not None:
            progress(done, audits)
    lower = np.array(bounds)
    return [
        {
            "epsilon": epsilon,
            "delta": delta,
            "runs": runs,
            "audits": audits,
            "goal": GOAL * epsilon,
            "reached": float((lower >= GOAL * epsilon).mean()),
            "lowest_5_percent": float(np.quantile(lower, 0.05)),
            "median": float(np.median(lower)),
            "first_alarms": float((lower > epsilon).mean()),
            "false_violations": float(np.mean(violations)),
            "seconds_per_audit": float(np.median(seconds)),
        }
    ]
