"""Private selection: the best of a secret number of runs, at a price that hardly grows with how many there are.

    K ~ repetitions                             (secret; truncated negative binomial or Poisson)
    for each of K runs:
        i   <- a candidate, uniformly, with replacement
        M   <- candidate i trained on one part of the rows, within its cap
        s   <- score of M on the other part, with noise
    release the M with the largest s, and that s; nothing else, not even K

*Guarantee*: one event ``Selection`` (Papernot & Steinke 2022), written down before the first run; nothing is given back.
A run is the mechanism (M, s). Records are dealt into the two parts by coins that nobody sees (:func:`~.candidates.coins`), so
a record is trained on or scored on, and a run costs at most the dearer of both; a person with several rows may be in both
parts, and a run costs both. All candidates are alternatives of one run, each at its cap. A run that fails counts as worst.
Methods must be the library's own: a stranger's could carry answers of one run into the next, and out with the winner.

Liu & Talwar 2019, Private selection from private candidates; Papernot & Steinke 2022, Hyperparameter tuning with Renyi
differential privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..accounts import Budget, Terms
from ..accounts.account import Account
from ..accounts.purse import Purse
from ..methods import made_anew
from ..tables.fit.fitted import Fitted
from ..tables.fit.labels import Target
from ..trusted.accountants.gdp import mu_of
from ..trusted.accountants.rdp import plan_epsilon
from ..trusted.accountants.selection import calibrated_candidates, choose_repetitions, gaussian_worth
from ..trusted.events import Composed, Event, Gaussian, PoissonRepetitions, Repetitions, Selection
from ..trusted.gate import Gate
from ..trusted.selection import SCORED, coins, drawn_runs
from .candidates import Candidate, CandidateRows, Tuned, dealt, same_task, trained_on
from .price import RunPrice, alike, all_agreed, opened
from .runs import Bill, CandidateRun, Outcome, in_words, outcomes, stated

NEARLY = 0.97  # of the most that a run may have: so little is given up for fewer runs
NOTHING = 1e-4  # the largest chance of no run at all that a rule may choose


@dataclass(frozen=True)
class Agreement:
    """What a selection costs, and what each run may spend on training and on its score."""

    selection: Selection
    runs: tuple[RunPrice, ...]
    score: Gaussian


def law_for(budget: Budget, candidates: int) -> Repetitions:
    """How often to draw, by :func:`~noisewise.trusted.accountants.selection.choose_repetitions`, hardly ever not at all."""
    drawing = choose_repetitions(budget, candidates)
    found = [one for one in (drawing, *drawing.alternatives) if _chance_of_nothing(one.repetitions) <= NOTHING]
    most = max(one.each.mu for one in found)
    return min((one for one in found if one.each.mu >= NEARLY * most), key=lambda one: one.mean).repetitions


def _chance_of_nothing(law: Repetitions) -> float:
    return float(np.exp(-law.mean)) if isinstance(law, PoissonRepetitions) else 0.0


def agreement(candidates: Sequence[Candidate], budget: Budget, law: Repetitions, share: float = SCORED) -> Agreement:
    """The largest promise that every run can have, and the event of the whole, priced and found within the budget."""
    fits = [candidate.fit for candidate in candidates]
    sizes = [trained_on(candidate, share) for candidate in candidates]
    together = fits[0].unit.most > 1
    some = alike(fits, budget, sizes)

    def priced(promise: Budget, which: Sequence[int]) -> tuple[tuple[RunPrice, ...], list[Event]]:
        runs = all_agreed([fits[i] for i in which], promise, [sizes[i] for i in which])
        return tuple(runs), alternatives(runs, _score(promise), together=together)

    promise, _ = calibrated_candidates(budget, law, lambda one: priced(one, some)[1])
    runs, events = priced(promise, range(len(fits)))
    whole = Selection(tuple(dict.fromkeys(events)), law)
    if plan_epsilon(whole, budget.delta, budget.adjacency) > budget.epsilon:  # some were alike only by chance
        promise, whole = calibrated_candidates(budget, law, lambda one: priced(one, range(len(fits)))[1])
        runs, _ = priced(promise, range(len(fits)))
    return Agreement(whole, runs, _score(promise))


def _score(promise: Budget) -> Gaussian:
    """The noise of a score: what the promise is worth, since a record is scored on or trained on."""
    return gaussian_worth(mu_of(promise.epsilon, promise.delta), promise.adjacency)


def alternatives(runs: Sequence[RunPrice], score: Gaussian, *, together: bool) -> list[Event]:
    """What a run may cost: training or the score, or both ``together``."""
    if together:
        return [Composed((run.event, score)) for run in runs]
    return [*(run.event for run in runs), score]


def select(
    candidates: Sequence[Candidate],
    budget: Budget,
    *,
    purse: Purse | Account | None = None,
    repetitions: Repetitions | None = None,
    share: float = SCORED,
    jobs: int = 1,
    beat: Callable[[], None] | None = None,
) -> Tuned:
    """The best of the candidates by private selection, for all of ``budget``."""
    same_task(candidates)
    candidates = with_own_methods(candidates)
    source, budget, account = opened(candidates, budget, purse)
    law = repetitions or law_for(budget, len(candidates))
    agreed = agreement(candidates, budget, law, share)
    with source.part(Terms.plan(agreed.selection, "rdp"), budget, what="tuning") as part:
        Gate(part.meter, candidates[0].fit.seed).charge(agreed.selection)  # all of it, before a record is touched
        if beat is not None:
            beat()  # once: one for each run would tell how many there are
        best, which = _best(candidates, agreed, law, share, jobs)
        words = _words(len(candidates), budget, agreed)
        bill = Bill("selection", in_words(candidates), budget, words, part.meter, account)
    if best is None or best.fitted is None:
        raise RuntimeError(
            "no candidate could be trained, or none was drawn; the budget is spent. Check the candidates on public rows"
        )
    score = score_per_record(best.score, share, best.fitted)
    fitted = stated(best.fitted, bill, candidates, which, agreed.runs[which])
    return Tuned(fitted, which, "selection", bill.words, score)


def _best(
    candidates: Sequence[Candidate], agreed: Agreement, law: Repetitions, share: float, jobs: int
) -> tuple[Outcome | None, int]:
    seed = candidates[0].fit.seed
    drawn = drawn_runs(law, len(candidates), seed)
    scored = coins(len(candidates[0].private.y), seed=seed, share=share)
    kept: dict[int, CandidateRows] = {}
    for i in dict.fromkeys(drawn):
        same = next((j for j in kept if candidates[j].private is candidates[i].private), None)
        kept[i] = dealt(candidates[i], scored, share) if same is None else kept[same]
    runs = [
        CandidateRun.of(candidates[i], agreed.runs[i], kept[i], number, agreed.score) for number, i in enumerate(drawn)
    ]
    best, which = None, 0
    for i, done in zip(drawn, outcomes(runs, jobs), strict=True):
        if best is None or done.score > best.score:
            best, which = done, i
    return best, which


def with_own_methods(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates whose methods are made anew; what is not the library's own is refused: its runs might not be independent."""
    own = []
    for candidate in candidates:
        method = made_anew(candidate.fit.method)
        if method is None:
            raise ValueError(
                f"{candidate.fit.method.name} is not one of noisewise's own methods with plain settings; selection releases "
                "one run of many, and a method could carry over what it saw in the others. Pass how='exponential', which "
                "pays for every run"
            )
        own.append(replace(candidate, fit=replace(candidate.fit, method=method)))
    return own


def score_per_record(total: float, share: float, fitted: Fitted) -> float | None:
    """The released sum as accuracy, over the expected number of rows; None for a regression.

    There the sum is half a row for each, less the errors: how many rows the coins gave would drown them in a mean.
    """
    if fitted.size is None or isinstance(fitted.labels, Target):
        return None
    return float(total / max(share / (1 - share) * fitted.size, 1.0) + 0.5)


def _words(candidates: int, budget: Budget, agreed: Agreement) -> str:
    promise = agreed.runs[0].promise
    whole, each = mu_of(budget.epsilon, budget.delta), mu_of(promise.epsilon, promise.delta)
    return (
        f"private selection among {candidates} candidates: a secret random number of runs, each at mu = {each:.3g} instead of "
        f"{whole:.3g} for one run with the whole budget, {whole / each:.2f} times the noise"
    )
