"""The exponential mechanism over trained candidates: every candidate is trained once and paid for, and so is the choice.

    for each of k candidates: M_i <- trained on one part of the rows, for its share of the budget
    release M_i with probability proportional to exp(-epsilon (loss of M_i on the other part) / its bound)

*Guarantee*: a plan of k runs, each at its cap, and one BoundedRange, written down before the first run. What is compared are
bounded losses on rows that no candidate trained on; :func:`~noisewise.trusted.selection.choose_best` has the proof, also for losses
with bounds that differ (the generalized mechanism of Raskhodnikova & Smith 2016). Every run is charged as if it were
released, so methods may be untrusted.

McSherry & Talwar 2007, Mechanism design via differential privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..accounts import Budget, Terms
from ..accounts.account import Account
from ..accounts.purse import Purse
from ..evidence.bought_quality import scored_by
from ..methods.agd import choice_epsilon
from ..tables.fit.fit import as_labels
from ..trusted.accountants.base import least_scale, log_ratio
from ..trusted.accountants.calibrate import price_of
from ..trusted.accountants.gdp import mu_of
from ..trusted.events import BoundedRange, Event, Gaussian, leaves
from ..trusted.gate import Gate
from ..trusted.selection import SCORED, Entrant, choose_best, coins
from .candidates import Candidate, CandidateRows, Tuned, dealt, same_task, trained_on
from .price import RunPrice, all_agreed, noise_in_words, opened
from .runs import Bill, CandidateRun, Outcome, in_words, outcomes, stated

CHOICE_SHARE = 0.05  # of the budget, for the choice
CHOOSING = 1 << 69


def agreement(
    candidates: Sequence[Candidate], budget: Budget, share: float = SCORED
) -> tuple[tuple[RunPrice, ...], BoundedRange, Terms]:
    """The price of each run, the choice, and the terms of the whole: a plan that was found within the budget."""
    fits = [candidate.fit for candidate in candidates]
    sizes = [trained_on(candidate, share) for candidate in candidates]
    mu = mu_of(budget.epsilon, budget.delta)
    choice = BoundedRange(choice_epsilon(CHOICE_SHARE * mu * mu, "gdp"))

    def runs(scale: float) -> list[RunPrice]:
        promise = Budget(budget.epsilon / scale, budget.delta, budget.adjacency)
        return all_agreed(fits, promise, sizes)

    def events(scale: float) -> list[Event]:
        return [*(run.event for run in runs(scale)), choice]

    accountant = accountant_for(runs(1.0))

    def price(events: Iterable[Event], delta: float, adjacency: str) -> float:
        return price_of(events, delta, adjacency, accountant)[1]

    scale = least_scale(log_ratio(price, events, budget), max(len(fits), 2) ** 0.5, budget, tolerance=1e-3)
    agreed = tuple(runs(scale))
    return agreed, choice, Terms.plan([*(run.event for run in agreed), choice], accountant)


def accountant_for(runs: Sequence[RunPrice]) -> str:
    """The accountant of the whole. A run under a filter chooses its noise while running and is known by its cap alone, so it is
    added up in the currency of such caps: GDP, or Renyi where a batch is sampled. Only plans leave it to the tightest.
    """
    if all(run.terms.kind == "plan" for run in runs):
        return "auto"
    full = all(isinstance(leaf, Gaussian) for run in runs for leaf in leaves(run.event))
    return "gdp" if full else "rdp"


def choose(
    candidates: Sequence[Candidate],
    budget: Budget,
    *,
    purse: Purse | Account | None = None,
    scoring: str = "error",
    share: float = SCORED,
    jobs: int = 1,
    beat: Callable[[], None] | None = None,
) -> Tuned:
    """The best of the candidates by the exponential mechanism, for all of ``budget``."""
    same_task(candidates)
    source, budget, account = opened(candidates, budget, purse)
    agreed, choice, terms = agreement(candidates, budget, share)
    seed = candidates[0].fit.seed
    with source.part(terms, budget, what="tuning") as part:
        gate = Gate(part.meter, seed)
        for run in agreed:
            gate.charge(run.event)
        scored = coins(len(candidates[0].private.y), seed=seed, share=share)
        parts = [dealt(candidate, scored, share) for candidate in candidates]
        runs = [CandidateRun.of(*these) for these in zip(candidates, agreed, parts, range(len(parts)), strict=True)]
        done = list(outcomes(runs, jobs, beat))
        able = [i for i, outcome in enumerate(done) if outcome.fitted is not None]
        if not able:
            raise RuntimeError(
                "no candidate could be trained; the budget is spent. Check the candidates on public rows"
            )
        entrants = [_entrant(candidates[i], done[i], parts[i]) for i in able]
        winner = choose_best(
            entrants,
            epsilon=choice.epsilon,
            meter=part.meter,
            scoring=scoring,
            seed=None if seed is None else seed + CHOOSING,
            store=candidates[0].private.store,
            rows_per_unit=candidates[0].fit.unit.rows,
        )
        best = able[winner]
        noise = noise_in_words(budget, agreed[0].promise)
        words = f"the exponential mechanism over {len(candidates)} candidates, each trained once: every run has {noise}"
        bill = Bill("exponential", in_words(candidates), budget, words, part.meter, account)
    fitted = done[best].fitted
    assert fitted is not None
    return Tuned(stated(fitted, bill, candidates, best, agreed[best]), best, "exponential", bill.words)


def _entrant(candidate: Candidate, done: Outcome, parts: CandidateRows) -> Entrant:
    assert done.fitted is not None
    fitted, rows = done.fitted, parts.scored
    model = candidate.fit.model if fitted.made is None else scored_by(fitted)
    theta = tuple(float(entry) for entry in fitted.theta.tolist())
    return Entrant(model, theta, rows.X, as_labels(rows.y, model), fitted.made, candidate.loss_bound)
