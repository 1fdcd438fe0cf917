"""How much likelier a test can be on the neighbour, and what that adds to the price of the best of several runs.

For a number of runs that is truncated negative binomial, the logarithm in the text of :mod:`repetitions` is log E[K] + (1+eta) V,

    V = max over x of  (a - 1) log(u'/u) - log(u/gamma),   u = gamma + (1-gamma) x,  u' = gamma + (1-gamma) x',

x = 1 - q and x' = 1 - q' the probabilities of one test under Q and Q'. Theorem 2 bounds it by the worst u there is,
u = gamma, and one order b. But u = gamma means x = 0, where x' = 0 too. All that is known of one run bounds x' for each x:

* D_b(Q', Q) <= r:  log x' <= (1 - 1/b)(r + log x), for every order b;
* mu-GDP:           x' <= Phi(Phi^-1(x) + mu);
* epsilon-DP:       x' <= e^epsilon x.

The least of these, h(x), grows with x. Between two points x_0 < x_1 nothing exceeds (a-1) log u'(x_1) - a log u(x_0) + log gamma,
and cells are cut until that is within a two-thousandth of the largest value met: an upper bound, wherever the maximum is.
Gaussian candidates cost a fifth to a quarter less epsilon than by Theorem 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri_exp

Floats = npt.NDArray[np.float64]
BELOW = 60.0  # x below gamma e^-60 is one cell
CELLS, PARTS, ROUNDS = 64, 8, 12
CLOSE = 5e-4
NORMAL = 1e-9  # relative: far more than log_ndtr and ndtri_exp lose, see the tests


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of one run: ``rdp`` at each of ``orders`` (infinite: nothing), its GDP mu and pure epsilon (or infinite)."""

    orders: Floats = field(repr=False)
    rdp: Floats
    mu: float = math.inf
    pure: float = math.inf

    def log_odds(self, t: Floats) -> Floats:
        """log h(e^t), rounded up."""
        known = np.isfinite(self.rdp)
        log_h = np.minimum(self.pure + t, 0.0)
        if known.any():
            lines = (1 - 1 / self.orders[known]) * (self.rdp[known] + t[:, None])
            log_h = np.minimum(log_h, lines.min(axis=1))
        if math.isfinite(self.mu):
            z = ndtri_exp(t)
            log_h = np.minimum(log_h, log_ndtr(z + self.mu + NORMAL * (1 + np.abs(z))) * (1 - NORMAL))
        return np.asarray(np.minimum(log_h + 1e-13 * (1 - t), 0.0))

    def needed(self, t: Floats) -> Run:
        """The same with those orders alone that are the best at one of these points: less to compute, no less valid."""
        rdp = np.full_like(self.rdp, math.inf)
        others = Run(self.orders, rdp, self.mu, self.pure)
        if np.isfinite(self.rdp).any():
            lines = (1 - 1 / self.orders) * (self.rdp + t[:, None])
            best = np.unique(lines.argmin(axis=1)[lines.min(axis=1) < others.log_odds(t)])
            rdp = rdp.copy()
            rdp[best] = self.rdp[best]
        return Run(self.orders, rdp, self.mu, self.pure)


def worst_odds(run: Run, gamma: float, order: float) -> float:
    """V of the module's text at one order, rounded up."""
    log_gamma, log_rest = math.log(gamma), math.log1p(-gamma)
    a = order
    edges = np.linspace(log_gamma - BELOW, 0.0, CELLS + 1)
    run = run.needed(edges)
    low, high = np.concatenate([[-math.inf], edges[:-1]]), edges
    best = dropped = 0.0
    for turn in range(ROUNDS + 1):
        log_u_low, log_u_high = (np.logaddexp(log_gamma, log_rest + t) for t in (low, high))
        grown = (a - 1) * np.logaddexp(log_gamma, log_rest + run.log_odds(high)) + log_gamma
        best = max(best, float(np.max(grown - a * log_u_high)))
        bounds = grown - a * log_u_low
        enough = best * (1 + CLOSE) + 1e-9 * a
        open_cells = bounds > enough
        dropped = max(dropped, float(np.max(bounds[~open_cells], initial=0.0)))
        if turn == ROUNDS or not open_cells.any() or (open_cells & np.isinf(low)).any():
            return max(dropped, float(np.max(bounds[open_cells], initial=0.0))) + 1e-12 * a
        low, high = low[open_cells], high[open_cells]
        cuts = low[:, None] + (high - low)[:, None] * (np.arange(PARTS + 1) / PARTS)
        cuts[:, -1] = high  # cells must cover
        low, high = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
    raise AssertionError("the last round returns")
