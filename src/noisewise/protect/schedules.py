"""Noise schedules that are optimal for a known influence of each step's noise on the final loss.

With q_t the influence of step t, the expected excess loss of a run holds a term sum_t q_t sigma_t^2, and the privacy
cost of full-batch Gaussian steps is sum_t sigma_t^-2 = R. The least influence for that cost is

    sigma_t^2 = (1/R) sum_i sqrt(q_i / q_t),    sum_t q_t sigma_t^2 = (1/R) (sum_t sqrt(q_t))^2,

so sigma_t is proportional to q_t^(-1/4). In Gaussian DP R is mu^2 under add_remove and mu^2/4 under replace_one.

*Guarantee*: none needed. A schedule is computed from public facts, and noise in any proportions is calibrated to the
budget before it is used.

Hong, Wang & Zhou 2022, Dynamic Privacy Budget Allocation Improves Data Efficiency of DP Gradient Descent (Lemma 3.1,
Theorems 3.2 and 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .. import _validate

Floats = npt.NDArray[np.float64]
LEAST_INFLUENCE = 1e-12  # of the largest: no step gets more than 1,000 times the noise of another


def optimal_noise(influence: Sequence[float] | Floats, total: float) -> Floats:
    """sigma_t with sum sigma_t^-2 = total and the least sum of q_t sigma_t^2.

    >>> optimal_noise([1.0, 1.0, 1.0, 1.0], 1.0)
    array([2., 2., 2., 2.])
    """
    _validate.positive(total=total)
    roots = np.sqrt(_influence(influence))
    return np.sqrt(roots.sum() / roots / total)


def noise_shape(influence: Sequence[float] | Floats) -> Floats:
    """The optimal noise up to a factor, q_t^(-1/4) with the least entry 1: what ``calibrate(shape=...)`` takes."""
    q = _influence(influence)
    shape: Floats = np.maximum(q / q.max(), LEAST_INFLUENCE) ** -0.25
    return shape


def _influence(influence: Sequence[float] | Floats) -> Floats:
    q = np.asarray(influence, dtype=np.float64)
    if q.ndim != 1 or not len(q) or not (np.isfinite(q).all() and (q >= 0).all() and q.max() > 0):
        raise ValueError("influence must hold finite numbers >= 0, one for each step, not all zero")
    return np.maximum(q, np.finfo(np.float64).tiny)


def descent(
    steps: int, gamma: float, *, rates: Sequence[float] | Floats = (1.0,), clips: Sequence[float] | Floats = (1.0,)
) -> Floats:
    """Gradient descent under the PL condition: q_t = gamma^(T-t) (eta_t C_t)^2, t = 1 .. T (Theorem 3.2).

    gamma = 1 - eta mu is how much of the excess loss a step leaves.

    >>> descent(3, 0.5)
    array([0.25, 0.5 , 1.  ])
    """
    _check(steps, gamma)
    q: Floats = gamma ** np.arange(steps - 1, -1, -1.0) * (np.asarray(rates) * np.asarray(clips)) ** 2
    return q


def debiased_momentum(steps: int, gamma: float, beta: float) -> Floats:
    """Descent along v_t / (1 - beta^t), v_t = beta v_{t-1} + (1 - beta) g_t (Algorithm 2), exactly.

    q_t = sum over s = t .. T of gamma^(T-s) ((1-beta) beta^(s-t) / (1-beta^s))^2: the noise of step t enters every
    later step s with that weight.
    """
    _check(steps, gamma, beta)
    s = np.arange(1.0, steps + 1)
    later = s[None, :] - s[:, None]  # row t, column s
    weights = np.where(later >= 0, (1 - beta) * beta ** np.maximum(later, 0) / (1 - beta**s), 0.0)
    q: Floats = weights**2 @ gamma ** (steps - s)
    return q


def momentum_bound(steps: int, gamma: float, beta: float) -> Floats:
    """The bound of Theorem 3.4, without debiasing: q_t = (beta^(2 k) - gamma^k) / (beta^2 - gamma), k = T - t + 1.

    When beta^2 = gamma it is the limit k gamma^(k-1).
    """
    _check(steps, gamma, beta)
    k = np.arange(steps, 0, -1.0)
    alike = abs(beta**2 - gamma) < 1e-9
    q: Floats = k * gamma ** (k - 1) if alike else (beta ** (2 * k) - gamma**k) / (beta**2 - gamma)
    return q


def _check(steps: int, gamma: float, beta: float = 0.0) -> None:
    _validate.whole(steps=steps)
    _validate.share(gamma=gamma)
    if not 0 <= beta < 1:
        raise ValueError(f"beta is {beta!r}; pass a number in [0, 1)")
