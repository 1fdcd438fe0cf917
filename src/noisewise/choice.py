"""Which meter a run gets, and why: chosen from public facts, explained in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import _validate
from .accounting import rdp
from .accounting._common import Unpriceable, count_leaves
from .accounting.calibrate import ACCOUNTANTS, calibrate
from .budget import CURRENCIES, AdditiveMeter, Budget, Meter, PlanMeter, Terms, checked_meter, open_meter
from .events import FULL, Composed, Event, Gaussian, Sampling

_NOT_A_FILTER = (
    "PLD is not a filter: composing privacy loss distributions is valid only for noise fixed beforehand, so it cannot "
    "meter an adaptive run; use meter='gdp' for full batches or meter='rdp' for sampled ones"
)


def choose_terms(
    budget: Budget,
    *,
    adaptive: bool,
    sampling: Sampling = FULL,
    steps: int | None = None,
    plan: Event | Iterable[Event] | None = None,
    meter: str | None = None,
) -> Terms:
    """The terms of the tightest meter that is valid for the run; ``meter`` names another one.

    * a plan: GDP when all of it is full-batch Gaussian, else the whole plan priced at once (PLD where it can);
    * adaptive, full batch: GDP, whose filter is exact;
    * adaptive, sampled: RDP at the order that is best for spending evenly over ``steps`` steps.

    >>> choose_terms(Budget(1.0, 1e-6), adaptive=True).accountant
    'gdp'
    """
    events = None if plan is None else tuple(plan) if isinstance(plan, Iterable) else (plan,)
    name = meter or _natural(budget, adaptive, sampling, events)
    if name in CURRENCIES and (adaptive or events is None or name == "gdp"):
        return _additive(budget, name, sampling, steps, events)
    if adaptive:
        _validate.one_of(("pld", *CURRENCIES), meter=name)
        raise ValueError(_NOT_A_FILTER)
    if events is None:
        raise ValueError(f"plan is None; pass the events of the plan for meter={name!r}, or adaptive=True")
    return Terms.plan(events, name)


def choose_meter(
    budget: Budget,
    *,
    adaptive: bool,
    sampling: Sampling = FULL,
    steps: int | None = None,
    plan: Event | Iterable[Event] | None = None,
    meter: str | Meter | None = None,
) -> AdditiveMeter | PlanMeter:
    """A new meter on the terms of :func:`choose_terms`; ``meter`` names another one, or is one for this budget.

    >>> choose_meter(Budget(1.0, 1e-6), adaptive=True).name
    'gdp'
    """
    if meter is not None and not isinstance(meter, str):
        given = checked_meter(meter)
        if given.budget != budget:
            raise ValueError("meter is not a meter for this budget; pass a meter built with it, a name, or None")
        if adaptive and not given.adaptive:
            raise ValueError("meter is a plan, but the run is adaptive; pass 'gdp', 'rdp' or 'zcdp'")
        return given
    return open_meter(
        budget, choose_terms(budget, adaptive=adaptive, sampling=sampling, steps=steps, plan=plan, meter=meter)
    )


def _natural(budget: Budget, adaptive: bool, sampling: Sampling, plan: tuple[Event, ...] | None) -> str:
    if not adaptive and plan is not None:
        counts = count_leaves(plan, budget.adjacency)
        return "gdp" if counts and all(isinstance(leaf, Gaussian) for leaf in counts) else "auto"
    return "gdp" if sampling[0] == "full" else "rdp"


def _additive(
    budget: Budget, name: str, sampling: Sampling, steps: int | None, plan: tuple[Event, ...] | None
) -> Terms:
    order = None
    if name == "rdp":
        if steps is None:
            raise ValueError(
                "steps is None; pass the number of steps the run expects: it fixes the order of the RDP meter"
            )
        order = rdp.reference_order(budget.epsilon, budget.delta, steps, sampling, budget.adjacency)
    terms = Terms.adaptive(name, order=order)
    if plan is not None and not open_meter(budget, terms).affords(Composed(plan)):
        raise ValueError(
            f"plan costs more than the budget by {name}; pass a plan with more noise, e.g. from calibrate(budget, ...)"
        )
    return terms


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which meter a run gets and why, the noise it gives, and what the alternatives would give.

    ``alternatives`` holds (accountant, noise multiplier) or (accountant, the reason it is refused).
    """

    budget: Budget
    steps: int
    sampling: Sampling
    meter: str
    reason: str
    noise_multiplier: float
    alternatives: tuple[tuple[str, float | str], ...]
    size: int | None = None

    def __str__(self) -> str:
        batch = (
            "full batch" if self.sampling[0] == "full" else f"{self.sampling[0]} batches, rate {self.sampling[1]:.4g}"
        )
        lines = [
            f"epsilon {self.budget.epsilon:.6g}, delta {self.budget.delta:.3g}, {self.budget.adjacency}; "
            f"{self.steps} steps, {batch}",
            f"meter: {self.meter}, because {self.reason}",
            f"noise multiplier {self.noise_multiplier:.6g} at every step{self._mean()}",
            "alternatives:",
        ]
        for name, noise in self.alternatives:
            lines.append(f"  {name:<9} {noise:.6g}" if isinstance(noise, float) else f"  {name:<9} refused: {noise}")
        return "\n".join(lines)

    def _mean(self) -> str:
        if self.size is None:
            return ""
        batch = self.size if self.sampling[0] == "full" else self.size * self.sampling[1]
        return f", that is {self.noise_multiplier / batch:.3g} C on the mean of {batch:.6g} clipped gradients"


_REASONS = {
    "gdp": "the GDP filter is exact for Gaussian noise on the full batch, fixed or adaptive",
    "rdp": "noise chosen while running on sampled batches needs a filter, and RDP at one order fixed beforehand is one",
    "pld": "it is the tightest price for noise fixed beforehand",
}


def explain(
    budget: Budget,
    *,
    steps: int = 100,
    sampling: Sampling = FULL,
    adaptive: bool = False,
    meter: str | None = None,
    size: int | None = None,
) -> Explanation:
    """Which meter a run of equal Gaussian steps gets, why, and what it costs in noise; from public facts only.

    >>> print(explain(Budget(0.5, 1e-8), steps=300).reason)
    the GDP filter is exact for Gaussian noise on the full batch, fixed or adaptive
    """
    _validate.whole(steps=steps)
    natural = "gdp" if sampling[0] == "full" else "rdp" if adaptive else "pld"
    name = meter or natural
    _validate.one_of(ACCOUNTANTS, meter=name)
    if adaptive and name not in CURRENCIES:
        raise ValueError(_NOT_A_FILTER)
    reason = _REASONS[natural] if name == natural else "it was asked for by name"
    try:
        noise = calibrate(budget, steps=steps, sampling=sampling, accountant=name)
    except Unpriceable as refusal:
        if meter is not None or name != "pld":
            raise
        name, reason = "rdp", f"PLD cannot price it ({refusal})"
        noise = calibrate(budget, steps=steps, sampling=sampling, accountant=name)
    others = tuple(
        (other, _noise_or_reason(budget, steps, sampling, adaptive, other)) for other in _OTHERS if other != name
    )
    return Explanation(budget, steps, sampling, name, reason, noise, others, size)


_OTHERS = ("gdp", "pld", "rdp", "zcdp", "tcdp", "moments", "advanced")


def _noise_or_reason(budget: Budget, steps: int, sampling: Sampling, adaptive: bool, name: str) -> float | str:
    if adaptive and name not in CURRENCIES:
        return "not a filter: valid only for noise fixed beforehand"
    try:
        return calibrate(budget, steps=steps, sampling=sampling, accountant=name)
    except ValueError as refusal:
        return str(refusal)
