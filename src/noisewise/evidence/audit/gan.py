"""A client of shared training that redraws the class of another (Hitaj, Ateniese & Perez-Cruz 2017).

The hostile client is handed the shared model every round, as all are. It trains a generator until the model takes what it
draws for the victim's class, and sends the drawings in under a label of its own, so that the model must tell them from
the victim's real pictures: the victim then shows more of what is real, and the generator follows.

What comes out is what the *class* looks like, not a record. A promise for one record does not cover it: that a class's
mean is learnt is the point of learning, and n records of one client together are promised n times epsilon. A promise for
a client does: with or without the victim, nearly the same is released.

Scores, by what the attacker does not control (a quarter of the pictures, held out from everybody):

- *taken*: the share of the drawings whose nearest held-out picture (Euclidean) is of the victim's class.
- *likeness*: the drawings' mean correlation with the mean held-out picture of the victim's class.
- the *reference* of both: the same attack on a model that never saw the victim's class.

Hitaj, Ateniese & Perez-Cruz 2017, Deep Models Under the GAN: Information Leakage from Collaborative Deep Learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...accounts import Budget
from ...trusted import validate
from ...trusted.accountants.calibrate import calibrate
from .federation import SETTINGS, FederationSetting, WholeNumbers, dealt

Progress = Callable[[int, int], None]

HELD_OUT = 0.25  # of the pictures: to score with


@dataclass(frozen=True)
class HeavyBallServer:
    """How the shared model moves: heavy ball on the mean of the contributions."""

    rounds: int = 60
    learning_rate: float = 2.0
    momentum: float = 0.5
    clip: float = 1.0
    hidden: int = 32


@dataclass(frozen=True)
class Hostile:
    """How the hostile client works: steps of its generator in a round, and drawings it sends in (0: it only watches)."""

    steps: int = 10
    learning_rate: float = 0.003
    batch: int = 64
    fakes: int = 40


@dataclass(frozen=True)
class Redrawn:
    """One run of the attack: the first drawing, its scores, and how good the shared model is on held-out pictures.

    ``there``: whether the victim took part; a run without it is the reference.
    """

    setting: FederationSetting
    there: bool
    picture: tuple[float, ...]
    taken: float
    likeness: float
    accuracy: float
    accuracy_of_victim: float


@dataclass(frozen=True)
class Redrawing:
    """Every run: settings, with the victim and without, repeated.

    ``clients`` are honest, ``pictures`` those of the class that one of its ``holders`` has.
    """

    victim: int
    budget: Budget
    clients: int
    pictures: int
    holders: int
    noise_multiplier: float
    runs: tuple[Redrawn, ...]

    def of(self, setting: FederationSetting, *, there: bool = True) -> tuple[Redrawn, ...]:
        """The repeats of one setting."""
        return tuple(run for run in self.runs if run.setting == setting and run.there is there)

    @property
    def settings(self) -> tuple[FederationSetting, ...]:
        return tuple(dict.fromkeys(run.setting for run in self.runs))

    def above_reference(self, setting: FederationSetting) -> tuple[float, float]:
        """How much more the drawings are like the class than the reference's, and the standard error, repeat by repeat."""
        with_it, without = self.of(setting), self.of(setting, there=False)
        return mean_and_error([a.likeness - b.likeness for a, b in zip(with_it, without, strict=True)])

    def rows(self) -> list[dict[str, Any]]:
        """Means over the repeats and their standard errors, for each setting with the victim and without."""
        return [_row(self.of(setting, there=there)) for setting in self.settings for there in (True, False)]

    def to_dict(self) -> dict[str, Any]:
        above = {setting.name: self.above_reference(setting) for setting in self.settings}
        return {
            "victim": self.victim,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "adjacency": self.budget.adjacency,
            "clients": self.clients,
            "pictures_of_victim": self.pictures,
            "holders": self.holders,
            "noise_multiplier": self.noise_multiplier,
            "simulation": True,
            "rows": self.rows(),
            "above_reference": {name: {"likeness": mean, "error": error} for name, (mean, error) in above.items()},
        }


def _row(runs: Sequence[Redrawn]) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": runs[0].setting.name, "victim_there": runs[0].there, "repeats": len(runs)}
    for name in ("accuracy", "accuracy_of_victim", "taken", "likeness"):
        row[name], row[f"{name}_error"] = mean_and_error([getattr(run, name) for run in runs])
    return row


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error; infinite for one value, which says nothing of how values differ.

    >>> mean_and_error([1.0, 3.0]), mean_and_error([1.0])
    ((2.0, 1.0), (1.0, inf))
    """
    many = len(values)
    return float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(many) if many > 1 else math.inf


def gan(
    X: Any,
    y: Any,
    victim: int,
    budget: Budget,
    *,
    settings: Sequence[FederationSetting] = SETTINGS,
    repeats: int = 6,
    each: int = 10,
    most: int = 150,
    holders: int = 1,
    server: HeavyBallServer | None = None,
    hostile: Hostile | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Redrawing:
    """Attack shared training on public pictures (rows of pixels between 0 and 1, classes 0, 1, ...), setting by setting.

    ``each``: pictures of an honest client, all of one class; the victim holds its class alone, at most ``most`` pictures.
    With more than one of ``holders`` these are shared out: a control, in which no single client is all that there is.
    Every repeat holds out other pictures and draws other starts and other noise; settings and reference share them. The
    runs are seeded, so they are simulations and nothing here is private.
    """
    from .gan_play import play, scores
    from .shared_sum import shared

    validate.whole(repeats=repeats, each=each, most=most, holders=holders)
    server, hostile = server or HeavyBallServer(), hostile or Hostile()
    validate.whole(rounds=server.rounds, hidden=server.hidden, steps=hostile.steps)
    validate.whole(at_least=0, fakes=hostile.fakes)
    rows, labels = np.asarray(X, dtype=float), np.asarray(y, dtype=np.int64)
    if victim not in labels:
        raise ValueError(f"victim is {victim!r}; pass one of {', '.join(map(str, np.unique(labels)))}")
    if holders > np.sum(labels == victim) * (1 - HELD_OUT):
        raise ValueError(f"holders is {holders}, more than there are pictures of {victim} to share out; pass fewer")
    sizes = rows.shape[1], server.hidden, int(labels.max()) + 2  # the last output is the hostile client's own label
    how: dict[str, Any] = {"sizes": sizes, "rounds": server.rounds, "clip": server.clip}
    runs: list[Redrawn] = []
    for repeat in range(repeats):
        ours, held = _split(labels, np.random.default_rng(seed + repeat))
        deal = partial(dealt, rows[ours], labels[ours], victim, each=each, most=most, holders=holders)
        for setting in settings:
            for there in (True, False):
                sums = shared(deal(there=there), setting, budget, **how, seed=seed + repeat)
                theta, drawings = play(sums, sizes, victim, server, hostile, seed=seed + repeat)
                scored = scores(theta, sizes, drawings, (rows[held], labels[held]), victim)
                runs.append(Redrawn(setting, there, *scored))
                if progress is not None:
                    progress(len(runs), repeats * len(settings) * 2)
    noise = calibrate(budget, steps=server.rounds)
    return Redrawing(victim, budget, deal().count, deal().pictures(victim), holders, noise, tuple(runs))


def _split(labels: WholeNumbers, rng: np.random.Generator) -> tuple[WholeNumbers, WholeNumbers]:
    """Places of the pictures that clients hold, and of those that nobody holds: the same share of each class."""
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        held[own[: round(HELD_OUT * len(own))]] = True
    order = rng.permutation(len(labels))
    return order[~held[order]], order[held[order]]
