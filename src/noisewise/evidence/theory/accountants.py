"""The epsilon of every accountant for the same noise, and how long it takes to compute."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from ...trusted.accountants import Unpriceable, rdp, renyi
from ...trusted.accountants.base import accountant_named
from ...trusted.accountants.base import names as known_names
from ...trusted.accountants.calibrate import epsilon
from ...trusted.events import FULL, Gaussian, Repeated, Sampling, sampled

NAMES = known_names(lambda known: Gaussian in known.mechanisms)


def compare_accountants(
    steps: Iterable[int],
    *,
    noise_multiplier: float,
    sampling: Sampling = FULL,
    delta: float = 1e-5,
    adjacency: str = "add_remove",
    names: Iterable[str] = NAMES,
) -> list[dict[str, Any]]:
    """Epsilon and seconds of every accountant for ``steps`` equal Gaussian steps; a refusal comes with its reason.

    Caches are cleared before the clock starts; the time of a fast accountant is the best of three.

    >>> rows = compare_accountants([25], noise_multiplier=20.0, names=["gdp", "zcdp"])
    >>> [(row["accountant"], round(row["epsilon"], 3)) for row in rows]
    [('gdp', 0.926), ('zcdp', 1.231)]
    """
    names = tuple(names)
    for name in names:
        if accountant_named(name).slow:
            epsilon(Gaussian(1.0), delta=delta, accountant=name)  # loads dp-accounting, which is not what is timed
    rows: list[dict[str, Any]] = []
    for count in steps:
        events = Repeated(sampled(sampling, Gaussian(noise_multiplier)), int(count))
        for name in names:
            price, reason, seconds = None, "", math.inf
            for _ in range(3):
                for cached in (*vars(rdp).values(), *vars(renyi).values()):
                    if hasattr(cached, "cache_clear"):
                        cached.cache_clear()
                started = time.perf_counter()
                try:
                    price = epsilon(events, delta=delta, adjacency=adjacency, accountant=name)
                except Unpriceable as refusal:
                    reason = str(refusal)
                seconds = min(seconds, time.perf_counter() - started)
                if seconds > 0.05:
                    break
            rows.append({
                "sampling": sampling[0] if sampling[0] == "full" else f"{sampling[0]} {sampling[1]:g}",
                "noise_multiplier": noise_multiplier, "steps": int(count), "accountant": name,
                "epsilon": price, "seconds": seconds, "refused": reason,
            })  # fmt: skip
    return rows
