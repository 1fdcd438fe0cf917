"""Wrappers of a curator pass everything on, and what they pass on is paid for at the gate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noisewise.accounts.journal import Journal, Journalled
from noisewise.asking import Curator, CuratorWrapper, Descent, SecondMoment
from noisewise.budget import AdditiveMeter, Budget, BudgetExhausted
from noisewise.train import Recording
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Linear

LOOP_ALONE = {"release_size", "take_up", "forfeit"}  # what the loop does with a curator, and no method


def curator():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (50, 3))
    meter = AdditiveMeter(Budget(1.0, 1e-5), "gdp")
    return Curator(X, np.sign(X[:, 0]), model=Linear(3, LOSSES["logistic"]), meter=meter, size=50.0, row_bound=1.0)


WRAPPERS = {"plain": lambda one, _: CuratorWrapper(one), "recording": lambda one, _: Recording(one)}
WRAPPERS["journalled"] = lambda one, folder: Journalled(one, Journal(Path(folder) / "journal", {"of": "a test"}))


def test_a_wrapper_has_all_that_a_method_may_ask():
    known = {name for name in dir(Curator) if not name.startswith("_")}
    assert known >= LOOP_ALONE
    assert {name for name in dir(CuratorWrapper) if not name.startswith("_")} == known - LOOP_ALONE


@pytest.mark.parametrize("how", WRAPPERS)
def test_what_is_asked_through_a_wrapper_is_charged_once_and_refused_when_nothing_is_left(tmp_path, how):
    inner = curator()
    wrapped = WRAPPERS[how](inner, tmp_path)
    noise = inner.meter.noise_for(0.9)
    wrapped.ask(SecondMoment(), noise=noise)
    assert len(inner.trace) == 1 and inner.meter.events.total() == 1
    assert wrapped.trace == inner.trace and wrapped.meter.spent_fraction == inner.meter.spent_fraction > 0.8
    asks = [
        lambda: wrapped.ask(SecondMoment(), noise=noise),
        lambda: wrapped.gradient(np.zeros(3), clip=1.0, noise_multiplier=noise),
        lambda: wrapped.choose([np.zeros(3), np.ones(3)], loss_bound=1.0, epsilon=5.0),
        lambda: wrapped.last_iterate(Descent(np.zeros(3), 2, 0.1, noise)),
    ]
    for ask in asks:
        with pytest.raises(BudgetExhausted):
            ask()
    assert len(inner.trace) == 1
