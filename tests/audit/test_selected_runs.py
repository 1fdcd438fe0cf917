"""A private selection attacked: what its runs show never exceeds the price, and prices that forget a term are caught.

A run releases a Gaussian answer z, ranked so that z < -c is best and z > d second: what is second under one neighbour is beaten
under the other. Rankings that grow with z would tell hardly more than one run.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.evidence.audit.error_bounds import exact_epsilon
from noisewise.trusted.accountants import gdp, rdp
from noisewise.trusted.accountants.repetitions import log_mean
from noisewise.trusted.events import Gaussian, PoissonRepetitions, Selection, TruncatedNegativeBinomial

TRIALS, DELTA, CONFIDENCE = 200_000, 0.01, 0.999
RANKS = (2.0, 3.0)  # c and d


def second_wins(law, centre, ranks, rng):
    """How often the best of K runs is one of the second rank, from simulated runs."""
    wins, chunk = 0, 20_000
    for _ in range(TRIALS // chunk):
        runs = rng.poisson(law.mean, chunk) if isinstance(law, PoissonRepetitions) else rng.geometric(law.gamma, chunk)
        starts = np.concatenate([[0], np.cumsum(runs)])
        z = centre + rng.standard_normal(starts[-1])
        best, second = (np.concatenate([[0], np.cumsum(rank)])[starts] for rank in (z < -ranks[0], z > ranks[1]))
        wins += int(((np.diff(best) == 0) & (np.diff(second) > 0)).sum())
    return wins


def lower_bound(law, mu, ranks=RANKS):
    """A Clopper-Pearson lower bound on epsilon at DELTA: the test says "with" when a run of the second rank won."""
    rng = np.random.default_rng(5)
    with_it, without = second_wins(law, mu / 2, ranks, rng), second_wins(law, -mu / 2, ranks, rng)
    return float(exact_epsilon(without, TRIALS - with_it, TRIALS, DELTA, CONFIDENCE))


def price(law, mu):
    return rdp.plan_epsilon(Selection((Gaussian(1 / mu),), law), DELTA, "add_remove")


def test_what_runs_show_never_exceeds_the_price_and_comes_near_it():
    law, mu = TruncatedNegativeBinomial(1.0, 0.01), 0.5
    shown, paid = lower_bound(law, mu), price(law, mu)
    assert 0.5 * paid < shown <= paid

    one_run = gdp.epsilon_of(mu, DELTA)
    no_eta = min(rdp.epsilon_of(a * mu * mu / 2 + log_mean(law) / (a - 1), a, DELTA) for a in rdp.ORDERS)
    for forgetful in (one_run, no_eta):
        assert forgetful < shown, "a price that forgets a term must be caught"


@pytest.mark.parametrize(
    ("law", "ranks"),
    [(PoissonRepetitions(30.0), (2.0, 3.0)), (PoissonRepetitions(3.0), (1.0, 1.5)), (PoissonRepetitions(0.5), (0.5, 1.0)),
     (TruncatedNegativeBinomial(1.0, 0.2), (1.0, 2.0)), (TruncatedNegativeBinomial(1.0, 1.0), (1.0, 1.0))],
)  # fmt: skip
def test_other_numbers_of_runs_keep_their_price(law, ranks):
    assert 0.2 < lower_bound(law, 0.5, ranks) <= price(law, 0.5)


def test_a_poisson_number_without_its_delta_is_caught():
    law, mu = PoissonRepetitions(60.0), 0.5
    forgetful = min(rdp.epsilon_of(a * mu * mu / 2 + math.log(law.mean) / (a - 1), a, DELTA) for a in rdp.ORDERS)
    shown = lower_bound(law, mu)
    assert forgetful < shown <= price(law, mu)
