"""Ways to look through candidates whose scores are free: all, some at random, successive halving, or optuna.

A way is given ``trial(candidate, repeats)``, which returns the mean loss of a candidate over its first so many
repeats (and remembers what was run), and how many candidates there are. It returns nothing: what was tried is known.
The first candidate, which is the one to keep in doubt, is always tried in full.

Jamieson & Talwalkar 2016, Non-stochastic best arm identification and hyperparameter optimization (halving).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

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
