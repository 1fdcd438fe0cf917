"""Projected (stochastic) gradient descent on convex Lipschitz losses, plain and private.

theta_{t+1} = project(theta_t - eta_t g_t), E g_t = grad F(theta_t), E||g_t||^2 <= G^2, eta_t = c / sqrt(t), on a convex set
of diameter B. Shamir & Zhang 2013, Theorem 2, for the last iterate and T > 1:

    E F(theta_T) - F* <= (B^2/c + c G^2) (2 + log T) / sqrt(T) = 2 B G (2 + log T) / sqrt(T)   at c = B/G .

F is the mean loss here, L-Lipschitz in every record; lecture notes that use the sum carry a factor n throughout.
Private steps clip at L (which then never bites) and add noise of standard deviation sigma L to the sum over the batch, so
that with batches of rate q (each record joins independently; q = 1 is the full batch)

    G^2 = L^2 (1 + (1 - q)/(q n) + d sigma^2 / (q n)^2) .

Full batches cost sum sigma^-2 = T / sigma^2 <= R, so the bound is 2 B L (2 + log T) sqrt(1/T + d / (R n^2)).

*Guarantee*: bounds on risk, not on privacy; sigma must come from an accountant.
Shamir & Zhang 2013; Bassily, Smith & Thakurta 2014; Balle, Barthe & Gaboardi 2018 (subsampling).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from scipy.special import lambertw

from ...trusted import validate
from ...trusted.accountants import Unpriceable
from ...trusted.accountants.classic import advanced_epsilon
from ...trusted.events import Gaussian, Repeated, sampled
from .risk import privacy_total


def last_iterate_bound(steps: int, *, diameter: float, second_moment: float, c: float | None = None) -> float:
    """(B^2/c + c G^2) (2 + log T) / sqrt(T), G^2 the ``second_moment``; c = B/G unless given.

    >>> round(last_iterate_bound(10_000, diameter=1.0, second_moment=1.0), 4)
    0.2242
    """
    validate.whole(steps=steps)
    validate.positive(diameter=diameter, second_moment=second_moment)
    step = c if c is not None else diameter / math.sqrt(second_moment)
    validate.positive(c=step)
    return (diameter**2 / step + step * second_moment) * (2 + math.log(steps)) / math.sqrt(steps)


def second_moment(
    *, lipschitz: float, records: int, dimension: int, noise_multiplier: float = 0.0, rate: float = 1.0
) -> float:
    """G^2 = L^2 (1 + (1 - q)/(q n) + d sigma^2/(q n)^2): signal, sampling and privacy noise of one step."""
    validate.positive(lipschitz=lipschitz)
    validate.whole(records=records, dimension=dimension)
    validate.not_negative(noise_multiplier=noise_multiplier)
    validate.share(rate=rate)
    batch = rate * records
    return lipschitz**2 * (1 + (1 - rate) / batch + dimension * (noise_multiplier / batch) ** 2)


def private_bound(steps: int, *, diameter: float, lipschitz: float, records: int, dimension: int, R: float) -> float:
    """2 B L (2 + log T) sqrt(1/T + d/(R n^2)): full batches, the same noise sigma = sqrt(T/R) at every step."""
    validate.positive(R=R)
    validate.whole(steps=steps)
    moment = second_moment(
        lipschitz=lipschitz, records=records, dimension=dimension, noise_multiplier=math.sqrt(steps / R)
    )
    return last_iterate_bound(steps, diameter=diameter, second_moment=moment)


def best_private_steps(*, records: int, dimension: int, R: float) -> int:
    """The T >= 1 with the least :func:`private_bound`; diameter and Lipschitz constant only scale it.

    Its slope has the sign of 2 b T - log T, b = d / (R n^2): least at the larger root T = -W_{-1}(-2b) / (2b), or at 1.

    >>> best_private_steps(records=10_000, dimension=10, R=0.056)
    4275131
    """
    validate.positive(R=R)
    validate.whole(records=records, dimension=dimension)
    b = dimension / (R * records**2)
    if 2 * b >= math.exp(-1):
        return 1
    root = -float(lambertw(-2 * b, -1).real) / (2 * b)

    def shape(steps: int) -> float:
        return (2 + math.log(steps)) * math.sqrt(1 / steps + b)

    near = {1, *(max(1, math.floor(root) + shift) for shift in (-1, 0, 1, 2))}
    return min(sorted(near), key=shape)


def subsampled(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """(log(1 + r (e^epsilon - 1)), r delta): an (epsilon, delta)-DP mechanism on a random share r of the records.

    Poisson batches under add_remove, batches without replacement under replace_one. One record of n is r = 1/n.

    >>> tuple(round(value, 8) for value in subsampled(1.0, 1e-5, 0.01))
    (0.01703686, 1e-07)
    """
    validate.not_negative(epsilon=epsilon, delta=delta)
    validate.share(rate=rate)
    if epsilon > 700:
        return epsilon + math.log(rate + math.exp(-epsilon) * (1 - rate)), rate * delta
    return math.log1p(rate * math.expm1(epsilon)), rate * delta


def risk_rows(
    steps: Iterable[int],
    *,
    epsilon: float,
    delta: float,
    diameter: float,
    lipschitz: float,
    records: int,
    dimension: int,
    adjacency: str = "add_remove",
) -> list[dict[str, Any]]:
    """The bounds over T: without privacy, full batches by Gaussian DP, and one expected record a step as in lectures.

    ``lecture`` prices each step by the classical Gaussian mechanism, the subsampling lemma and advanced composition.
    """
    R = privacy_total(epsilon, delta, adjacency)
    shape: dict[str, Any] = {"lipschitz": lipschitz, "records": records, "dimension": dimension}
    rows: list[dict[str, Any]] = []
    for count in steps:
        row: dict[str, Any] = {"steps": int(count)}
        row["plain"] = last_iterate_bound(count, diameter=diameter, second_moment=second_moment(**shape))
        row["private"] = private_bound(count, diameter=diameter, R=R, **shape)
        row["noise_multiplier"] = math.sqrt(count / R)
        sigma = lecture_noise(count, 1 / records, epsilon=epsilon, delta=delta, adjacency=adjacency)
        moment = second_moment(noise_multiplier=sigma, rate=1 / records, **shape)
        row["lecture"] = last_iterate_bound(count, diameter=diameter, second_moment=moment)
        row["lecture_noise"] = sigma
        rows.append(row)
    return rows


def lecture_noise(steps: int, rate: float, *, epsilon: float, delta: float, adjacency: str = "add_remove") -> float:
    """The noise multiplier of ``steps`` Poisson batches by subsampling lemma and advanced composition, rounded up.

    The classical Gaussian mechanism under it is proved for an epsilon of at most 1 a step, so no less noise is taken.
    """
    validate.positive(epsilon=epsilon)

    def fits(sigma: float) -> bool:
        try:
            event = Repeated(sampled(("poisson", rate), Gaussian(sigma)), steps)
            return advanced_epsilon(event, delta, adjacency) <= epsilon
        except Unpriceable:
            return False

    high = 1.0
    while not fits(high):
        high *= 2
    low = high / 2 if high > 1 else 1e-3
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
