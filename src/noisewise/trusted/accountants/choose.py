"""Which accountant meters a run, and why: chosen from public facts, explained in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .. import validate
from ..events import FULL, Event, Gaussian, Sampling, plain_sampling, sampled
from .base import ACCOUNTANTS, UNITS_PER_CAP, Accountant, accountant_named, currencies, currency, names
from .calibrate import accountants_for, calibrate
from .common import Unpriceable, count_leaves
from .terms import Budget, Terms

ONE_STEP = count_leaves(Gaussian(1.0), "add_remove")


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
    sampling = plain_sampling(sampling)
    events = None if plan is None else tuple(plan) if isinstance(plan, Iterable) else (plan,)
    name = meter or _natural(budget, adaptive, sampling, events)
    if not isinstance(name, str):
        raise ValueError(f"meter is {name!r}; pass the name of a meter")
    known = ACCOUNTANTS.get(name)
    if known is not None and known.adaptive and (adaptive or events is None or known.exact):
        return _additive(budget, known, sampling, steps, events)
    if adaptive:
        if known is None:
            validate.one_of(currencies(), meter=name)
        raise ValueError(_not_a_filter(accountant_named(name)))
    if events is None:
        raise ValueError(f"plan is None; pass the events of the plan for meter={name!r}, or adaptive=True")
    return Terms.plan(events, name)


def _natural(budget: Budget, adaptive: bool, sampling: Sampling, plan: tuple[Event, ...] | None) -> str:
    if not adaptive and plan is not None:
        counts = count_leaves(plan, budget.adjacency)
        return _filter(FULL) if counts and all(isinstance(leaf, Gaussian) for leaf in counts) else "auto"
    return _filter(sampling)


def _filter(sampling: Sampling) -> str:
    """The adaptive accountant that is exact on the full batch, or gains from sampling, and competes at all."""
    full = sampling[0] == "full"
    return next(
        name
        for name, known in ACCOUNTANTS.items()
        if known.adaptive and known.turn(ONE_STEP) is not None and (known.exact if full else known.amplifies)
    )


def _not_a_filter(known: Accountant) -> str:
    return (
        f"{known.title} is not a filter: {known.not_a_filter}, so it cannot meter an adaptive run; use "
        f"meter={_filter(FULL)!r} for full batches or meter={_filter(('poisson', 0.5))!r} for sampled ones"
    )


def _additive(
    budget: Budget, known: Accountant, sampling: Sampling, steps: int | None, plan: tuple[Event, ...] | None
) -> Terms:
    order = known.order_for(budget, steps, sampling)
    if plan is not None:
        own = currency(budget, known.name, order=order)
        counts = count_leaves(plan, budget.adjacency)
        if sum(count * own.units(own.cost(leaf)) for leaf, count in counts.items()) > UNITS_PER_CAP:
            raise ValueError(
                f"plan costs more than the budget by {known.name}; pass a plan with more noise, e.g. from "
                "calibrate(budget, ...)"
            )
    return Terms.adaptive(known.name, order=order)


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
    validate.whole(steps=steps, **({} if size is None else {"size": size}))
    sampling = plain_sampling(sampling)
    filtered = adaptive or sampling[0] == "full"
    asked = (_filter(sampling),) if filtered else accountants_for(sampled(sampling, Gaussian(1.0)), budget.adjacency)
    name = meter or asked[0]
    validate.one_of(names(), meter=name)
    if adaptive and name not in currencies():
        raise ValueError(_not_a_filter(accountant_named(name)))
    reason = accountant_named(name).reason if name == asked[0] else "it was asked for by name"
    try:
        noise = calibrate(budget, steps=steps, sampling=sampling, accountant=name)
    except Unpriceable as refusal:
        if meter is not None or len(asked) == 1:
            raise
        name, reason = asked[1], f"{accountant_named(name).title} cannot price it ({refusal})"
        noise = calibrate(budget, steps=steps, sampling=sampling, accountant=name)
    listed = names(lambda known: Gaussian in known.mechanisms and known.same_as is None)
    others = tuple(
        (other, _noise_or_reason(budget, steps, sampling, adaptive, other)) for other in listed if other != name
    )
    return Explanation(budget, steps, sampling, name, reason, noise, others, size)


def _noise_or_reason(budget: Budget, steps: int, sampling: Sampling, adaptive: bool, name: str) -> float | str:
    if adaptive and name not in currencies():
        return "not a filter: valid only for noise fixed beforehand"
    try:
        return calibrate(budget, steps=steps, sampling=sampling, accountant=name)
    except ValueError as refusal:
        return str(refusal)
