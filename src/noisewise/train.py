"""The one loop: make the meter, build the curator, ask until done, release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .budget import Budget, BudgetExhausted, Meter
from .curator import Curator, Facts, PublicCurator
from .curator.curator import Released, facts_of
from .gradients import Model
from .methods import Method
from .methods.size import size_noise

Progress = Callable[[int, int | None, float], None]


@dataclass(frozen=True)
class Records:
    """Validated rows of the data holder on their way to a curator; ``size`` is None when their number is private."""

    X: Tensor
    y: Tensor
    size: float | None
    row_bound: float

    def __repr__(self) -> str:
        return "Records(...)"


@dataclass(frozen=True)
class Trained:
    """What a run released: the parameters, the trace, and everything a statement needs."""

    theta: Tensor
    trace: tuple[Released, ...]
    facts: Facts
    meter: Meter | None
    simulation: bool
    steps: int


def train(
    method: Method,
    records: Records,
    *,
    model: Model,
    budget: Budget,
    public: PublicCurator | None = None,
    theta: Tensor | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Run ``method`` on private records under ``budget`` from ``theta`` (default: the model's public start)."""
    facts = facts_of(model, budget, size=records.size, row_bound=records.row_bound)
    start = model.start() if theta is None else theta.detach().float()
    if start.shape != (model.dimension,):
        raise ValueError(f"theta has shape {tuple(start.shape)}; pass a flat vector of {model.dimension}")
    if not method.private:
        handed_over = PublicCurator(records.X, records.y, model=model, seed=seed)
        state = method.step(method.init(start, facts, None), None, handed_over)  # type: ignore[arg-type]
        return Trained(method.finish(state, handed_over), (), facts, None, seed is not None, 1)

    meter = method.meter(facts)
    if method.needs_public and public is None:
        raise ValueError(f"public is missing; {method.name} needs public rows, pass them or take another method")
    curator = Curator(
        records.X, records.y, model=model, meter=meter, size=records.size, row_bound=records.row_bound, seed=seed
    )
    for event in size_noise(facts):
        curator.release_size(noise_multiplier=event.noise_multiplier)
    state, steps = method.init(start, curator.facts, public), 0
    try:
        while not method.done(state):
            state = method.step(state, curator, public)
            steps += 1
            if progress is not None:
                progress(steps, method.total_steps(), meter.spent_fraction)
    except BudgetExhausted:
        pass  # an adaptive run ends when the next step no longer fits; what was released so far stands
    theta = method.finish(state, public)
    return Trained(theta, curator.trace, curator.facts, meter, curator.simulation, steps)
