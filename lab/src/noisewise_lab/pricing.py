"""What accounting costs: pricing 1,000 distinct noise levels as an adaptive run does, and calibrating plans."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from noisewise.accounting.calibrate import calibrate
from noisewise.budget import AdditiveMeter, Budget
from noisewise.events import FULL, Gaussian, Sampling, sampled

BUDGET = Budget(2.0, 1e-6)
STEPS = 1000


def pricing_rows() -> list[dict[str, Any]]:
    """A row per job: its milliseconds, the median of five runs after a first one."""
    sigmas = np.linspace(300.0, 600.0, STEPS)
    poisson: Sampling = ("poisson", 0.01)

    def metered(name: str, sampling: Sampling, scale: float, order: int | None = None) -> Callable[[], None]:
        events = [sampled(sampling, Gaussian(scale * sigma)) for sigma in sigmas]

        def spend() -> None:
            meter = AdditiveMeter(BUDGET, name, order=order)
            for event in events:
                meter.spend(event)

        return spend

    jobs = {
        "gdp meter, full batch, 1,000 distinct noise levels": metered("gdp", FULL, 1.0),
        "rdp meter, Poisson, 1,000 distinct noise levels": metered("rdp", poisson, 0.01, order=16),
        "calibrate 1,000 full-batch steps (gdp)": lambda: calibrate(BUDGET, steps=STEPS),
        "calibrate 1,000 Poisson steps (pld)": lambda: calibrate(BUDGET, steps=STEPS, sampling=poisson),
        "calibrate 1,000 Poisson steps of a given shape (pld)": lambda: calibrate(
            BUDGET, steps=STEPS, sampling=poisson, shape=np.linspace(2.0, 1.0, STEPS)
        ),
    }
    return [{"job": job, "milliseconds": _median(run)} for job, run in jobs.items()]


def _median(run: Callable[[], object], times: int = 5) -> float:
    run()
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)
