"""What a difference in an unknown direction of a plane costs under Gaussian noise."""

from __future__ import annotations

import math

from . import special


def pair_mu(e: float, delta: float) -> float:
    """The largest m <= sqrt(2 e) with sqrt(2 pi) m exp(e) Phi(-e/m - m/2) <= delta, rounded down.

    That is E(1 - exp(e - m |g| - m^2/2))_+ for g a pair of independent standard normals: the delta, at e, of Gaussian noise
    along a difference that lies somewhere in a plane.
    """
    low, high = 0.0, math.sqrt(2 * e)
    for _ in range(60):
        m = (low + high) / 2
        within = math.log(m * math.sqrt(2 * math.pi)) + e + float(special.log_ndtr(-e / m - m / 2)) <= math.log(delta)
        low, high = (m, high) if within else (low, m)
    return low * (1 - 1e-9)
