"""How likely a privacy loss above t is under each kind of guarantee: P(Z > t), Z = log p(y)/p'(y), y from p.

    pure epsilon           0 for t >= epsilon
    (epsilon, delta)       delta / (1 - e^(epsilon - t)) for t > epsilon
    rho-zCDP               exp(-(t - rho)^2 / (4 rho)) for t >= rho
    (rho, omega)-tCDP      the same up to t - rho = 2 rho (omega - 1), then exp((omega-1)^2 rho - (omega-1)(t - rho))
    mu-GDP (Gaussian)      Phi((mu^2/2 - t)/mu), exactly

and 1 where nothing is said. The concentrated ones are Markov's inequality for e^((a-1) Z) at the best allowed order a.
A slide of Hong has "P(Z > epsilon) = delta" for (epsilon, delta)-DP. That is sufficient, not necessary: the Gaussian mechanism
at its exact (1, 1e-5) exceeds epsilon with probability 1.6e-4. From delta >= E(1 - e^(epsilon - Z))_+ follows the bound
above.

Bun & Steinke 2016; Bun, Dwork, Rothblum & Steinke 2018; Hong, Dynamic Policies on Differentially Private Learning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from ...trusted import validate
from ...trusted.accountants.gdp import mu_of
from .risk import Floats


def pure_tail(t: npt.ArrayLike, epsilon: float) -> Floats:
    """P(Z > t) under pure epsilon-DP: at most 1 below epsilon, 0 from there."""
    validate.positive(epsilon=epsilon)
    return np.where(np.asarray(t, dtype=float) >= epsilon, 0.0, 1.0)


def approximate_tail(t: npt.ArrayLike, epsilon: float, delta: float) -> Floats:
    """P(Z > t) <= delta / (1 - e^(epsilon - t)) for t > epsilon; never above 1."""
    validate.not_negative(epsilon=epsilon)
    validate.open_unit(delta=delta)
    beyond = np.asarray(t, dtype=float) - epsilon
    share = -np.expm1(-np.maximum(beyond, 1e-300))
    return np.where(beyond > 0, np.minimum(1.0, delta / np.maximum(share, 1e-300)), 1.0)


def zcdp_tail(t: npt.ArrayLike, rho: float) -> Floats:
    """P(Z > t) <= exp(-(t - rho)^2 / (4 rho)) for t >= rho.

    >>> zcdp_tail([0.0, 0.5, 2.5], 0.5).round(4).tolist()
    [1.0, 1.0, 0.1353]
    """
    return tcdp_tail(t, rho, np.inf)


def tcdp_tail(t: npt.ArrayLike, rho: float, omega: float) -> Floats:
    """P(Z > t) under (rho, omega)-tCDP: Gaussian at first, exponential beyond t - rho = 2 rho (omega - 1)."""
    validate.positive(rho=rho)
    if not omega > 1:
        raise ValueError(f"omega is {omega!r}; pass a number > 1")
    above = np.maximum(np.asarray(t, dtype=float) - rho, 0.0)
    order = np.minimum(above / (2 * rho), omega - 1)  # the best a - 1 that is allowed
    return np.asarray(np.exp(order * (order * rho - above)))


def gaussian_tail(t: npt.ArrayLike, mu: float) -> Floats:
    """P(Z > t) of the Gaussian mechanism, exactly: its loss is N(mu^2/2, mu^2)."""
    validate.positive(mu=mu)
    return np.asarray(ndtr((mu * mu / 2 - np.asarray(t, dtype=float)) / mu))


def tail_rows(
    epsilon: float, delta: float, *, omega: float = 10.0, largest: float | None = None, points: int = 200
) -> list[dict[str, Any]]:
    """All tails of the Gaussian mechanism that just meets (epsilon, delta), and of a pure epsilon promise."""
    validate.whole(points=points, at_least=2)
    mu = mu_of(epsilon, delta)
    rho = mu * mu / 2
    t = np.union1d(np.linspace(0, largest if largest is not None else 2.5 * epsilon, points), [epsilon])
    columns = {
        "pure": pure_tail(t, epsilon),
        "approximate": approximate_tail(t, epsilon, delta),
        "zcdp": zcdp_tail(t, rho),
        "tcdp": tcdp_tail(t, rho, omega),
        "gaussian": gaussian_tail(t, mu),
    }
    return [{"t": float(at), **{name: float(column[i]) for name, column in columns.items()}} for i, at in enumerate(t)]
