"""How good a model is on private rows, for a budget of its own.

A score that is computed from private rows is a release like any other: the curator counts right answers (or adds up
squared errors) and adds noise. That budget comes on top of the one the model was trained with.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray

from .accounting.choose import choose_terms
from .budget import Budget
from .budget.purse import Purse
from .curator import Correct, Curator, SquaredError
from .events import Repeated, to_dict
from .fitting.fit import as_labels
from .fitting.fitted import Fitted
from .fitting.labels import Classes, Labels, Target
from .fitting.network import Network
from .losses import Logistic, Loss, Softmax, Squared
from .models import MLP, Linear, Model
from .quality import Quality, of_a_share, within
from .records.grid import Store, in_memory

SIZE_SHARE = 0.4  # of an evaluation's budget, for the number of records when that is private: both err about equally


def private_quality(
    fitted: Fitted,
    X: NDArray[Any],
    y: NDArray[Any],
    budget: Budget,
    *,
    size_is_public: bool = False,
    seed: int | None = None,
    store: Store = in_memory,
    purse: Purse | None = None,
    rows_per_unit: int | None = None,
    table: int | None = None,
) -> Quality:
    """The score on private rows, bought with ``budget``; the interval covers the noise and the choice of the rows.

    *Guarantee*: a GDP filter over a count of right answers (or a sum of squared errors, clamped to the target's bounds)
    and, when it is private, the number of records. ``rows_per_unit``: what is protected is a person, of whom at most so
    many rows are here, out of ``table`` rows.
    """
    model, theta = scored_by(fitted.network, fitted.labels), tuple(float(entry) for entry in fitted.theta.tolist())
    public_size = size_is_public or (budget.adjacency == "replace_one" and (rows_per_unit or 1) == 1)
    known = max(len(y) if table is None or not size_is_public else table, 1)
    if public_size and budget.delta > 1 / known:
        raise ValueError(
            f"delta is {budget.delta!r}, above 1/size = {1 / known:.3g}, which allows publishing a record; pass a smaller one"
        )
    with (purse or Purse(budget)).part(choose_terms(budget, adaptive=True), budget, what="evaluation") as part:
        curator = Curator(
            torch.from_numpy(X),
            as_labels(fitted.labels.numbers(y), model),
            model=model,
            meter=part.meter,
            size=float(known) if public_size else None,
            row_bound=1.0,
            seed=seed,
            store=store,
            rows_per_unit=rows_per_unit,
        )
        size_noise = 0.0
        if not public_size:
            curator.release_size(noise_multiplier=curator.meter.noise_for(SIZE_SHARE))
            size_noise = curator.trace[-1].noise_std
        size, right = curator.facts.size or 1.0, fitted.classes is not None
        question = Correct(theta) if right else SquaredError(theta)
        answer = curator.statistic(question, noise_multiplier=curator.meter.noise_for(1.0))
        events = tuple(to_dict(Repeated(leaf, count)) for leaf, count in curator.meter.events.items())
    mean = min(max(float(answer.value) / size, -0.5), 0.5)
    share = mean + 0.5
    # noise on the sum, noise on the size it is divided by, and the choice of the rows (for errors in [0, 1] at its largest)
    spread = math.hypot(answer.noise_std / size, mean * size_noise / size, of_a_share(share, size))
    low, high = within(share, spread, 0, 1)
    if right:
        return Quality("accuracy", share, (low, high), budget, events)
    assert isinstance(fitted.labels, Target)
    unit = (fitted.labels.high - fitted.labels.low) ** 2
    return Quality("mean squared error", share * unit, (low * unit, high * unit), budget, events)


def scored_by(network: Network, labels: Labels) -> Model:
    """A model with the same scores, to count right answers with; its loss says what labels are, and is not used."""
    loss: Loss = Squared()
    if isinstance(labels, Classes):
        loss = Softmax() if labels.numbered else Logistic()
    return (
        Linear(network.features, loss, network.outputs) if network.linear else MLP(network.sizes, loss, network.between)
    )
