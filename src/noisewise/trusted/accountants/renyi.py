"""Renyi divergences of one Gaussian answer, on Poisson batches and on batches of fixed size.

Every number is an upper bound: sums have positive terms only, quadratures are refined until two grids agree and then
moved up by what they disagree on, and a relative 1e-9 is added for floating point.

References: Mironov, Talwar & Zhang 2019 (Poisson); Balle, Barthe & Gaboardi 2018 (batches of fixed size).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..events import MIN_NOISE
from .common import UP, Unpriceable, kept

Floats = npt.NDArray[np.float64]
MARGIN = 1 + 1e-9


@kept(256)
def _binomials(order: int) -> tuple[Floats, Floats, Floats]:
    """log C(a, k), k and k (k - 1) / 2 for k = 2..a."""
    k = np.arange(2, order + 1, dtype=np.float64)
    logs = np.array([math.log(math.comb(order, j)) for j in range(2, order + 1)])
    return logs, k, k * (k - 1) / 2


@kept(1024)
def _log_weights(order: int, rate: float) -> Floats:
    """log of C(a, k) (1-q)^(a-k) q^k for k = 2..a."""
    logs, k, _ = _binomials(order)
    return logs + (order - k) * math.log1p(-rate) + k * math.log(rate)


def poisson_gaussian(rate: float, sigma: npt.ArrayLike, order: int) -> Floats:
    """D_a of a Poisson-sampled Gaussian under add_remove, the larger of the two directions, for one or many sigmas.

    log(1 + sum_{k>=2} C(a,k) (1-q)^(a-k) q^k (exp(k(k-1)/(2 sigma^2)) - 1)) / (a - 1): the binomial sum with its ones
    taken out, so that all terms are positive and small prices keep their digits.

    *Guarantee*: an upper bound within a relative 1e-8. Reference: Mironov, Talwar & Zhang 2019, Section 3.3.

    >>> prices = poisson_gaussian(0.01, [1.0, 2.0], 16)
    >>> [round(price, 6) for price in prices.tolist()]
    [3.087851, 0.000238]
    """
    sigma = np.asarray(sigma, dtype=np.float64)
    if not (sigma >= MIN_NOISE).all():
        raise Unpriceable(f"a noise multiplier below {MIN_NOISE:g} is no noise")
    if rate == 1:
        return order / (2 * sigma**2) * UP
    exponent = _binomials(order)[2] / (sigma * sigma)[..., None]
    terms = _log_weights(order, rate) + log_expm1(exponent)
    top = terms.max(axis=-1)
    total = top + np.log(np.exp(terms - top[..., None]).sum(axis=-1))
    return np.asarray(np.logaddexp(0.0, total) * (MARGIN / (order - 1)))


def log_expm1(x: Floats) -> Floats:
    """log(e^x - 1) for x > 0: x + log(1 - e^-x), without overflow or cancellation."""
    return np.asarray(x + np.log(-np.expm1(-x)))


def _refined(log_integrand: Any, low: float, high: float, step: float) -> float:
    """log of a trapezoid sum over [low, high], the step halved until it agrees with the doubled step; rounded up.

    The integrands vanish at both ends and are analytic, so the error falls exponentially with 1/step; what the last
    two grids disagree on is added on top.
    """
    for _ in range(12):
        points = 2 * math.ceil((high - low) / (2 * step)) + 1
        x, width = np.linspace(low, high, points, retstep=True)
        logs = log_integrand(x)
        top = float(logs.max())
        if top == -math.inf:
            return -math.inf
        values = np.exp(logs - top)
        fine, coarse = width * float(values.sum()), 2 * width * float(values[::2].sum())
        if abs(fine - coarse) <= 1e-9 * fine:
            return top + math.log(fine + abs(fine - coarse))
        step /= 2
    raise Unpriceable("the quadrature of a Renyi divergence did not settle; use a larger noise multiplier or rate")


@kept(4096)
def poisson_gaussian_replace(rate: float, sigma: float, order: int) -> float:
    """D_a of a Poisson-sampled Gaussian under replace_one.

    The pair is P = (1-q) N(0, s^2) + q N(1, s^2) against its mirror image Q, so both directions are equal. With
    r = P/Q, D_a = log(1 + E_Q[r^a - 1 - a (r - 1)]) / (a - 1), whose integrand is positive everywhere.

    *Guarantee*: an upper bound within a relative 1e-7.
    """
    if rate == 1:
        return 2 * order / sigma**2 * UP
    variance = sigma * sigma
    log_stay, log_join = math.log1p(-rate), math.log(rate) - 0.5 / variance
    log_norm = -math.log(sigma) - 0.5 * math.log(2 * math.pi)

    def log_integrand(x: Floats) -> Floats:
        z = x / variance
        log_q = np.logaddexp(log_stay, log_join - z)
        log_r = np.logaddexp(log_stay, log_join + z) - log_q
        small = np.abs(z) < 30
        with np.errstate(over="ignore"):
            excess = np.where(small, 2 * np.sinh(np.where(small, z, 0.0)) * np.exp(log_join - log_q), np.expm1(log_r))
        return np.asarray(log_norm - 0.5 * x * z + log_q + _log_convex(excess, log_r, order))

    # r^a Q has its mode at about a where Q is mostly N(0, s^2) there, and at 2a - 1 where it is still N(-1, s^2).
    low, high = -(12 * sigma + 1), 2 * order + 12 * sigma + 1
    total = _refined(log_integrand, low, high, min(sigma / 4, variance / 2))
    return float(np.logaddexp(0.0, total)) * MARGIN / (order - 1)


def _log_convex(d: Floats, log_r: Floats, order: int) -> Floats:
    """log of r^a - 1 - a (r - 1) for r = 1 + d: series near r = 1, the definition elsewhere, r^a when that is huge."""
    a = float(order)
    t = np.clip(d, -0.02 / a, 0.02 / a)
    series = 1 + t * (a - 2) / 3 * (1 + t * (a - 3) / 4 * (1 + t * (a - 4) / 5 * (1 + t * (a - 5) / 6)))
    near, huge = np.abs(d) <= 0.02 / a, a * log_r > 40
    plain = np.expm1(np.where(huge, 1.0, a * log_r)) - a * np.where(huge, 0.0, d)
    with np.errstate(divide="ignore"):
        close = np.log(a * (a - 1) / 2 * t * t * series)
        return np.asarray(np.where(near, close, np.where(huge, a * log_r, np.log(np.where(near, 1.0, plain)))))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@kept(4096)
def fixed_gaussian_replace(rate: float, sigma: float, order: int) -> float:
    """D_a of a Gaussian on a batch of fixed size drawn without replacement, under replace_one.

    For every t >= 1 and both directions the hockey-stick divergence is at most that of r = 1 - q + q e^(2(x-1)/s^2)
    under x ~ N(0, s^2) (Balle et al. 2018, Theorem 9, with sensitivity 2). Since the Renyi moment is
    1 + a (a-1) * integral over t >= 1 of (t^(a-2) H_t(P, Q) + t^(-a-1) H_t(Q, P)), it is at most
    1 + E[(r^a - r)(1 - r^-a); r > 1].

    *Guarantee*: an upper bound, never above the price without sampling. It is tighter than Theorem 9 of Wang, Balle &
    Kasiviswanathan 2019, whose factors 2 and 4 come from bounding the same moment term by term.
    """
    full = 2 * order / sigma**2 * UP
    if rate == 1:
        return full
    variance = sigma * sigma
    log_norm = -math.log(sigma) - 0.5 * math.log(2 * math.pi)

    def log_integrand(x: Floats) -> Floats:
        y = 2 * (x - 1) / variance
        mild = np.log1p(rate * np.expm1(np.minimum(y, 30.0)))
        log_r = np.where(y < 30, mild, np.logaddexp(math.log1p(-rate), math.log(rate) + y))
        value = log_r + log_expm1((order - 1) * log_r) + np.log(-np.expm1(-order * log_r))
        return np.asarray(value - 0.5 * x * x / variance + log_norm)

    high = 2 * order + 12 * sigma + 1
    total = _panels(log_integrand, 1.0, high, min(2 * sigma, 2 * variance))
    return min(full, float(np.logaddexp(0.0, total)) * MARGIN / (order - 1))


def _panels(log_integrand: Any, low: float, high: float, width: float) -> float:
    """log of a Gauss-Legendre sum over panels, their number doubled until it settles; rounded up."""
    last = math.nan
    for _ in range(10):
        edges = np.linspace(low, high, math.ceil((high - low) / width) + 1)
        half = np.diff(edges)[:, None] / 2
        logs = log_integrand((edges[:-1, None] + half) + half * _NODES) + np.log(half * _WEIGHTS)
        top = float(logs.max())
        total = top + math.log(float(np.exp(logs - top).sum()))
        if abs(total - last) <= 1e-9:
            return total + abs(total - last)
        last, width = total, width / 2
    raise Unpriceable("the quadrature of a Renyi divergence did not settle; use a larger noise multiplier or rate")
