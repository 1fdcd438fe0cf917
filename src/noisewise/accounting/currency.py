"""Currencies: ways of pricing whose costs add up, and how much of each a budget buys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from noisewise import _validate
from noisewise.accounting import gdp, rdp, tcdp, zcdp
from noisewise.accounting._common import Unpriceable
from noisewise.events import Adjacency, Leaf, Sampling

if TYPE_CHECKING:
    from noisewise.budget import Budget


@dataclass(frozen=True, slots=True)
class Currency:
    """A way of pricing whose costs add up, also when they are chosen adaptively, and how much of it a budget buys.

    ``order`` is the Renyi order ("rdp"), ``omega`` the omega_total ("tcdp", "ctcdp"); both fixed beforehand.
    """

    name: str
    cap: float
    adjacency: Adjacency
    order: int | None = None
    omega: float | None = None

    def cost(self, leaf: Leaf) -> float:
        """What one event costs, rounded up; refused by name when this currency cannot price it."""
        match self.name:
            case "gdp":
                return gdp.cost(leaf, self.adjacency)
            case "zcdp":
                return zcdp.cost(leaf, self.adjacency)
            case "rdp" if self.order is not None:
                return rdp.cost(leaf, self.adjacency, self.order)
            case "tcdp" | "ctcdp" if self.omega is not None:
                return tcdp.cost(leaf, self.adjacency, self.omega)
        raise Unpriceable(f"no currency is called {self.name!r}; pass one of {', '.join(CURRENCIES)}")

    def noise_for(self, cost: float, sampling: Sampling) -> float:
        """The noise multiplier of a Gaussian that costs at most ``cost``, rounded up and re-checked."""
        match self.name:
            case "gdp":
                return gdp.noise_for(cost, sampling, self.adjacency)
            case "zcdp":
                return zcdp.noise_for(cost, sampling, self.adjacency)
            case "rdp" if self.order is not None:
                return rdp.noise_for(cost, sampling, self.adjacency, self.order)
            case "tcdp" | "ctcdp" if self.omega is not None:
                return tcdp.noise_for(cost, sampling, self.adjacency, self.omega)
        raise Unpriceable(f"no currency is called {self.name!r}; pass one of {', '.join(CURRENCIES)}")


_gdp_cap = lru_cache(maxsize=256)(gdp.cap)
CURRENCIES = ("gdp", "rdp", "zcdp", "tcdp", "ctcdp")


def currency(budget: Budget, name: str, *, order: int | None = None, one_shot_delta: float = 0.0) -> Currency:
    """How much of a currency the budget buys, once ``one_shot_delta`` is set aside; rounded down.

    >>> from noisewise.budget import Budget
    >>> round(currency(Budget(0.5, 1e-8), "gdp").cap ** 0.5, 6)
    0.101384
    """
    _validate.one_of(CURRENCIES, name=name)
    if not (isinstance(one_shot_delta, int | float) and 0 <= one_shot_delta < budget.delta):
        raise ValueError(f"one_shot_delta is {one_shot_delta!r}; pass a number from 0 to below delta={budget.delta}")
    delta = budget.delta if one_shot_delta == 0 else math.nextafter(budget.delta - one_shot_delta, 0.0)
    match name:
        case "gdp":
            return Currency(name, _gdp_cap(float(budget.epsilon), float(delta)), budget.adjacency)
        case "zcdp":
            return Currency(name, zcdp.rho_of(budget.epsilon, delta), budget.adjacency)
        case "rdp":
            if order is None:
                raise ValueError("order is None; pass the Renyi order to fix, e.g. from rdp.reference_order")
            return Currency(name, rdp.cap(order, budget.epsilon, delta), budget.adjacency, order=order)
    totals = tcdp.totals if name == "tcdp" else tcdp.ctcdp
    rho, omega = totals(budget.epsilon, delta)
    return Currency(name, rho, budget.adjacency, omega=omega)
