"""Ways to look through candidates whose scores are free: all, some at random, successive halving, or optuna.

A way is given ``trial(candidate, repeats)``, which returns the mean loss of a candidate over its first so many
repeats (and remembers what was run), and how many candidates there are. It returns nothing: what was tried is known.
The first candidate, which is the one to keep in doubt, is always tried in full.

Jamieson & Talwalkar 2016, Non-stochastic best arm identification and hyperparameter optimization (halving).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from ..accounts import Budget
from ..methods.online import OnlineDescent
from ..tables.fit.fit import Fit
from ..trusted.accountants.gdp import mu_of
from ..trusted.accountants.selection import candidate_budget
from ..trusted.events import FULL
from .selection import law_for

Trial = Callable[[int, int], float]
SEARCHES = ("all", "random", "halving", "optuna")
USUAL_TRIALS = 20


def drawn(count: int, trials: int | None, seed: int) -> list[int]:
    """The first candidate and others at random, ``trials`` in all, in their order."""
    wanted = min(count, USUAL_TRIALS if trials is None else trials)
    others = 1 + np.random.default_rng([seed, 2]).permutation(count - 1)[: wanted - 1]
    return [0, *sorted(int(place) for place in others)]


def try_each(trial: Trial, places: Sequence[int], repeats: int) -> None:
    """All of these candidates, as often as asked."""
    for place in places:
        trial(place, repeats)


def halving(trial: Trial, places: Sequence[int], repeats: int) -> None:
    """Successive halving: each round runs what is left once more or oftener, and keeps the better half and the first.

    The last round has two candidates, or the first alone, and as many repeats as were asked for, or a repeat for each round.
    """
    left, rounds = list(places), max(math.ceil(math.log2(max(len(places), 2))), 1)
    for turn in range(rounds):
        so_often = max(turn + 1, math.ceil(repeats * 2.0 ** (turn + 1 - rounds)))
        losses = {place: trial(place, so_often) for place in left}
        if turn + 1 < rounds:
            kept = sorted(left, key=lambda place: (losses[place], place))[: math.ceil(len(left) / 2)]
            left = sorted({0, *kept})


def by_optuna(trial: Trial, settings: Sequence[Mapping[str, str]], repeats: int, trials: int, seed: int) -> None:
    """Optuna's TPE sampler on the settings in which candidates differ, each a choice among the values that occur.

    What it proposes need not be a candidate: then it is told the loss of the one that shares the most settings with it.
    """
    optuna = needed("optuna")
    choices = {
        name: sorted({one[name] for one in settings if name in one})
        for name in sorted({n for one in settings for n in one})
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial({name: settings[0].get(name, values[0]) for name, values in choices.items()})
    for _ in range(trials):
        asked = study.ask()
        wanted = {name: asked.suggest_categorical(name, values) for name, values in choices.items()}
        loss = trial(nearest(wanted, settings), repeats)
        study.tell(asked, loss if math.isfinite(loss) else 1e300)


def nearest(wanted: Mapping[str, str], settings: Sequence[Mapping[str, str]]) -> int:
    """The candidate that shares the most settings; of equals the earlier one."""
    shared = [sum(one.get(name) == value for name, value in wanted.items()) for one in settings]
    return shared.index(max(shared))


def needed(name: str) -> Any:
    """The module of an optional extra, or one line that says how to have it."""
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            f"search is {name!r}, which is not installed; pip install 'noisewise[tune]', or pass search='halving'"
        ) from None


# Whether a search is worth its price, and which: decided from public numbers alone.


MIN_CLARITY = 4000.0  # n mu of a run from which more noise costs little
PUBLIC_ROWS = 400  # from which a search on public rows tells settings apart


@dataclass(frozen=True)
class Advice:
    """Which search to take, and why, with the numbers that decided."""

    how: str
    words: str


def advised(budget: Budget, candidates: int, *, public: int, size: float | None) -> Advice:
    """Public rows where there are enough; private selection where its runs still have little noise; else no search.

    ``size``: the number of records, as far as it is public or guessed.
    """
    if candidates == 1:
        return Advice("none", "there is one candidate only; it gets the whole budget")
    if public >= PUBLIC_ROWS:
        return Advice("public", f"{public} public rows are enough to compare {candidates} candidates on, for nothing")
    halved = 2 if budget.adjacency == "replace_one" else 1
    whole = mu_of(budget.epsilon, budget.delta) / halved
    each = candidate_budget(budget, law_for(budget, candidates)).mu / halved
    price = (
        f"private selection among {candidates} candidates would leave each run mu = {each:.3g} instead of {whole:.3g}, "
        f"{whole / each:.2f} times the noise"
    )
    few = f"{public} public rows are too few to compare on; " if public else ""
    if size is None:
        return Advice(
            "none",
            f"{few}{price}, and nobody has said how many records there are (size=, --size-guess); the first candidate gets the whole budget",
        )
    if size * each < MIN_CLARITY:
        return Advice(
            "none",
            f"{few}{price}: records x mu = {size * each:,.0f}, below {MIN_CLARITY:,.0f}, where noise costs more than settings "
            "usually bring; the first candidate gets the whole budget",
        )
    return Advice(
        "selection",
        f"{few}{price}: records x mu = {size * each:,.0f}, at least {MIN_CLARITY:,.0f}, where that costs little",
    )


# Tuning during the one run: the ``online`` method in place of a candidate's own, at no price beyond the run's.


KEPT = ("learning_rate", "max_grad_norm", "l2")
WORDS = (
    "Hyper-parameters were found during the one private run, from what it had released and paid for: the clip norm "
    "follows a released quantile of gradient norms, and the step size grows while released gradients agree and shrinks "
    "where they contradict each other, both beyond their known noise. Nothing was spent beyond the budget of the run."
)


def online(fit: Fit) -> tuple[Fit, str]:
    """The same fit, with the same model, loss and budget, by the online method, and in words what that does.

    Step size, clip norm and l2 of the method that was there are where it starts; the number of steps is kept if that
    method asked the full batch at each.
    """
    method = fit.method
    if fit.scaling.cells:
        raise ValueError(
            f"{method.name} makes features of a table's columns, which online does not; pass method='descent' or another "
            "for a linear model or a perceptron"
        )
    if not method.private:
        raise ValueError(f"{method.name} makes no promise, so there is nothing to spend online; pass a private method")
    settings = method.settings()
    start: dict[str, Any] = {name: settings[name] for name in KEPT if settings.get(name) is not None}
    if settings.get("steps") is not None and tuple(settings.get("sampling", FULL)) == FULL:
        start["steps"] = settings["steps"]
    found = method if isinstance(method, OnlineDescent) else OnlineDescent(**start)
    asked = {name: value for name, value in fit.settings.items() if name != "chosen_by"} | {"method": found.name}
    return replace(fit, method=found, settings=asked), WORDS
