"""What accounting costs: pricing 1,000 distinct noise levels as an adaptive run does, calibrating plans, and pricing searches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from noisewise import PrivateClassifier
from noisewise.accounts import AdditiveMeter, Budget
from noisewise.methods import Method, method_named
from noisewise.trusted.accountants.calibrate import calibrate
from noisewise.trusted.accountants.rdp import plan_epsilon
from noisewise.trusted.events import (
    FULL,
    Event,
    Gaussian,
    Repeated,
    Sampling,
    Selection,
    TruncatedNegativeBinomial,
    sampled,
)
from noisewise.tune.candidates import Candidate
from noisewise.tune.selection import agreement

BUDGET = Budget(2.0, 1e-6)
STEPS = 1000
CANDIDATES = 1000


def pricing_rows() -> list[dict[str, Any]]:
    """A row per job: its milliseconds, the median of five runs after a first one."""
    sigmas = np.linspace(300.0, 600.0, STEPS)
    poisson: Sampling = ("poisson", 0.01)
    budgets = new_budgets()

    def metered(name: str, sampling: Sampling, scale: float, order: int | None = None) -> Callable[[], None]:
        events = [sampled(sampling, Gaussian(scale * sigma)) for sigma in sigmas]

        def spend() -> None:
            meter = AdditiveMeter(BUDGET, name, order=order)
            for event in events:
                meter.spend(event)

        return spend

    jobs: dict[str, Callable[[], object]] = {
        "gdp meter, full batch, 1,000 distinct noise levels": metered("gdp", FULL, 1.0),
        "rdp meter, Poisson, 1,000 distinct noise levels": metered("rdp", poisson, 0.01, order=16),
        "calibrate 1,000 full-batch steps (gdp)": lambda: calibrate(next(budgets), steps=STEPS),
        "calibrate 1,000 Poisson steps (pld)": lambda: calibrate(next(budgets), steps=STEPS, sampling=poisson),
        "calibrate 1,000 Poisson steps of a given shape (pld)": lambda: calibrate(
            BUDGET, steps=STEPS, sampling=poisson, shape=np.linspace(2.0, 1.0, STEPS)
        ),
    }
    jobs |= search_jobs()
    return [{"job": job, "milliseconds": _median(run)} for job, run in jobs.items()]


def new_budgets() -> Iterator[Budget]:
    """Budgets that nobody asked for before: what is calibrated once is remembered."""
    return (Budget(BUDGET.epsilon * (1 + 1e-6 * number), BUDGET.delta) for number in count())


def search_jobs() -> dict[str, Callable[[], object]]:
    """Private selection among 1,000 candidates that share a plan: its price, and what each of them may spend."""
    law = TruncatedNegativeBinomial(1.0, 0.01)
    poisson = Repeated(sampled(("poisson", 0.01), Gaussian(1.0)), 100)
    budgets = new_budgets()

    def price(event: Event) -> Callable[[], object]:
        return lambda: plan_epsilon(Selection((event,) * CANDIDATES, law), 1e-6, "add_remove")

    def agree(method: Method) -> Callable[[], object]:
        listed = candidates(method)
        return lambda: agreement(listed, next(budgets), law)

    return {
        "price a selection of 1,000 full-batch candidates (rdp)": price(Gaussian(10.0)),
        "price a selection of 1,000 Poisson candidates (rdp)": price(poisson),
        "agree on 1,000 candidates of descent, a filter (gdp, rdp)": agree(method_named("descent")),
        "agree on 1,000 candidates of dpsgd, a full-batch plan (gdp, rdp)": agree(method_named("dpsgd")),
    }


def candidates(method: Method) -> list[Candidate]:
    """1,000 clip norms of one method for a linear model, on a few rows that nothing is read of."""
    X = np.zeros((100, 3))
    ready = PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), size_is_public=True, method=method).ready(
        X, np.arange(100) % 2, None
    )
    return [
        Candidate({"max_grad_norm": clip}, replace(ready, method=method.with_settings(max_grad_norm=clip)))
        for clip in np.linspace(0.1, 2.0, CANDIDATES).tolist()
    ]


def _median(run: Callable[[], object], times: int = 5) -> float:
    run()
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)
