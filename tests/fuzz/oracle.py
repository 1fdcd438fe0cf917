"""What events cost, written anew for the adversaries of ``purses``: whole numbers and mpmath, nothing of noisewise's accounting.

Costs are whole multiples of 2^-220, rounded down by less than one; caps are rounded up likewise. So a sum above a cap is one:
no rounding of ours can hide or make an overrun of more than 2^-200. A cap is what (epsilon, delta) is worth, found by bisection
on the conversion that the paper states, which is another way round than the meters take.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath

from noisewise.trusted.events import ApproximateDP, BoundedRange, FixedBatch, Gaussian, Poisson

BITS = 220
ONE = 1 << BITS
mpmath.mp.prec = 300


def _down(value: Any) -> int:
    return int(mpmath.floor(mpmath.ldexp(value, BITS)))


def keeps(name: str, order: int | None, epsilon: float, delta: float) -> Callable[[Any], bool]:
    """Whether so much of a currency keeps (epsilon, delta)."""
    eps, dlt, a = mpmath.mpf(epsilon), mpmath.mpf(delta), mpmath.mpf(order or 2)

    def gdp(square: Any) -> bool:  # Dong, Roth & Su 2022, corollary 1
        mu = mpmath.sqrt(square)
        return mu == 0 or mpmath.ncdf(-eps / mu + mu / 2) - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2) <= dlt

    def rdp(total: Any) -> bool:  # Canonne, Kamath & Steinke 2020, proposition 12
        return total + mpmath.log(1 - 1 / a) - mpmath.log(dlt * a) / (a - 1) <= eps

    def zcdp(rho: Any) -> bool:  # Bun & Steinke 2016, proposition 1.3
        return rho + 2 * mpmath.sqrt(rho * mpmath.log(1 / dlt)) <= eps

    return {"gdp": gdp, "rdp": rdp}.get(name, zcdp)


@cache
def cap(name: str, order: int | None, epsilon: float, delta: float) -> int:
    """How much of a currency keeps (epsilon, delta), rounded up."""
    holds = keeps(name, order, epsilon, delta)
    low, high = mpmath.mpf(0), mpmath.mpf(100 + 10 * epsilon)
    for _ in range(260):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return _down(high) + 1


def over(total: int, name: str, order: int | None, epsilon: float, delta: float) -> bool:
    """Whether a sum of costs is more than (epsilon, delta) is worth."""
    return not keeps(name, order, epsilon, delta)(mpmath.ldexp(max(total - (1 << 20), 0), -BITS))


def gaussian_squares(sigma: float, adjacency: str) -> int:
    """mu^2 of a Gaussian: exact but for the last of 220 bits."""
    top, bottom = float(sigma).as_integer_ratio()
    return (bottom * bottom * ONE * (4 if adjacency == "replace_one" else 1)) // (top * top)


@cache
def _pure(name: str, order: int | None, epsilon: float, ranged: bool) -> int:
    eps = mpmath.mpf(epsilon)
    if name == "gdp":
        share = 1 / (1 + mpmath.exp(eps / 2 if ranged else eps))  # what a guess errs with, at best
        return _down((2 * mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * share)) ** 2)
    if name == "rdp":
        a = mpmath.mpf(order or 0)  # two outcomes, e^eps against 1: the worst of all pure mechanisms
        p = 1 / (1 + mpmath.exp(eps))
        two = mpmath.log((1 - p) ** a * p ** (1 - a) + p**a * (1 - p) ** (1 - a)) / (a - 1)
        return _down(min(two, a * eps**2 / 8)) if ranged else _down(two)
    return _down(eps**2 / 8 if ranged else mpmath.mpf(0) + eps**2 / 2)


@cache
def _sampled(order: int, rate: float, sigma: float) -> int:
    """RDP of a Gaussian on a Poisson batch, add_remove (Mironov, Talwar & Zhang 2019)."""
    with mpmath.workprec(120):
        q, s = mpmath.mpf(rate), mpmath.mpf(sigma)
        terms = (
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(k * (k - 1) / (2 * s * s))
            for k in range(order + 1)
        )
        return int(
            mpmath.floor(mpmath.ldexp(mpmath.log(mpmath.fsum(terms)) / (order - 1) * (1 - mpmath.mpf(2) ** -60), BITS))
        )


def cost(leaf: Any, name: str, order: int | None, adjacency: str) -> int:
    """What one event costs at least."""
    match leaf:
        case Poisson(rate, Gaussian(sigma)) if name == "rdp" and rate < 1:
            assert order is not None
            return _sampled(order, rate, sigma)  # under replace_one it costs more
        case FixedBatch(rate, Gaussian(sigma)) if name in ("tcdp", "ctcdp") and rate < 1:
            top, bottom = float(rate).as_integer_ratio()  # Wang & Zhou 2020, theorem 4
            return 13 * top * top * gaussian_squares(sigma, adjacency) // (2 * bottom * bottom)
        case FixedBatch(rate, Gaussian()) if name == "rdp" and rate < 1:
            return 0  # its price has no formula in a line; the meter's own sum is checked
        case Gaussian(sigma) | Poisson(_, Gaussian(sigma)) | FixedBatch(_, Gaussian(sigma)):
            square = gaussian_squares(sigma, adjacency)
            return square if name == "gdp" else square * (order or 1) // 2
        case BoundedRange(epsilon):
            return _pure(name, order, epsilon, True)
        case ApproximateDP(epsilon, _):
            return _pure(name, order, epsilon, False)
    raise AssertionError(f"no price for {leaf!r}")
