"""The quality of a model on private rows, for a budget of its own.

A score that is computed from private rows is a release like any other: the curator counts records by score and label (or
adds up powers of errors) and adds noise; every figure is computed from that. The budget is added to the training's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounts import Budget
from ..accounts.account import Account, paying
from ..accounts.purse import Purse
from ..asking import Curator, ErrorMoments, ScoreHistogram
from ..tables.fit.fit import as_labels, refuse_without_torch
from ..tables.fit.fitted import Fitted
from ..tables.fit.labels import Classes, Target, numbers_with
from ..tables.rows import Cells
from ..trusted.accountants.choose import choose_terms
from ..trusted.events import Repeated, to_dict
from ..trusted.losses import Logistic, Loss, Softmax, Squared
from ..trusted.models import MLP, Additive, Linear, Model
from ..trusted.stores.grid import Allocator, in_memory
from ..trusted.stores.protocol import Elsewhere
from ..trusted.units import RECORD, Unit
from .metrics import Quality
from .noised_metrics import Noised, edges_for, of_histogram, of_moments

MARGIN_PER_LOG_ODDS = 0.25  # scores without probabilities are margins of about 1; this much counts as one log-odds
SIZE_SHARE = {True: 0.1, False: 0.3}  # of the budget, for a private number of records: of classes, of a regression


def private_quality(
    fitted: Fitted,
    X: NDArray[Any] | Elsewhere,
    y: Any,
    budget: Budget,
    *,
    size_is_public: bool = False,
    seed: int | None = None,
    store: Allocator = in_memory,
    purse: Purse | Account | None = None,
    unit: Unit = RECORD,
    table: int | None = None,
    there: NDArray[np.bool_] | None = None,
) -> Quality:
    """The figures on private rows, bought with ``budget``; intervals cover the noise and the choice of the rows.

    *Guarantee*: a GDP filter over one histogram of scores and labels (or, for a regression, one vector of sums of errors
    and targets, clamped to the target's bounds) and, when it is private, the number of records. Bins are chosen from
    public or released facts before the histogram is asked for; all figures are made of these answers.
    ``unit``: what is protected; for persons, ``X`` has only the rows that count, out of ``table`` rows.
    ``there``: the rows that have a label, where not all do; the others keep their positions and are not counted.
    ``X`` and ``y`` may lie elsewhere (:func:`noisewise.tables.fit.across_processes.spread_test_rows`).
    """
    model, theta = scored_by(fitted), tuple(float(entry) for entry in fitted.theta.tolist())
    sorts = isinstance(fitted.labels, Classes)
    public_size = size_is_public or unit.fixes_size(budget.adjacency)
    known = max(len(y) if table is None or not size_is_public else table, 1)
    if public_size and budget.delta > 1 / known:
        why = f"above 1/size = {1 / known:.3g}, which allows publishing a record"
        raise ValueError(f"delta is {budget.delta!r}, {why}; pass a smaller one")
    source, budget = paying(budget, purse, simulation=seed is not None, persons=unit.persons)
    with source.part(choose_terms(budget, adaptive=True), budget, what="evaluation") as part:
        curator = Curator(
            *(X, y) if isinstance(X, Elsewhere) else (X, as_labels(numbers_with(fitted.labels, y, there), model)),
            model=model,
            meter=part.meter,
            size=float(known) if public_size else None,
            row_bound=1.0,
            seed=seed,
            store=store,
            rows_per_unit=unit.rows,
        )
        if fitted.made is not None:
            curator.prepare(fitted.made)
        size_noise = 0.0
        if not public_size:
            curator.release_size(noise_multiplier=curator.meter.noise_for(SIZE_SHARE[sorts]))
            size_noise = curator.trace[-1].noise_std
        size, multiplier = curator.facts.size or 1.0, curator.meter.noise_for(1.0)
        edges = edges_for(size, multiplier * math.sqrt(max(model.outputs, 1)))
        question: Any = _histogram(theta, edges, fitted) if sorts else ErrorMoments(theta)
        answer = curator.statistic(question, noise_multiplier=multiplier)
        events = tuple(to_dict(Repeated(leaf, count)) for leaf, count in curator.meter.events.items())
    bought = Noised(answer.value, answer.noise_std, size, size_noise)
    if isinstance(fitted.labels, Target):
        figures, (value, interval) = of_moments(bought, fitted.labels.low, fitted.labels.high)
    else:
        figures = of_histogram(bought, edges, fitted.labels.values.tolist(), likely=fitted.likely)
        value, interval = figures.metrics["accuracy"]
    assert value is not None and interval is not None
    return Quality("accuracy" if sorts else "mean squared error", value, interval, budget, figures, events)


def _histogram(theta: tuple[float, ...], edges: NDArray[Any], fitted: Fitted) -> ScoreHistogram:
    """The histogram with these edges of log-odds: of the score of two classes, or of probabilities of several."""
    classes = len(fitted.labels.values) if isinstance(fitted.labels, Classes) else 2
    if classes > 2:
        return ScoreHistogram(theta, tuple((1 / (1 + np.exp(-edges))).tolist()), classes)
    at = fitted.uncalibrated(edges) if fitted.likely else edges * MARGIN_PER_LOG_ODDS
    return ScoreHistogram(theta, tuple(at.tolist()), classes)


def scored_by(fitted: Fitted) -> Model:
    """A model with the same scores, for counting correct answers; its loss determines the kind of labels only."""
    loss: Loss = Squared()
    labels, network = fitted.labels, fitted.network
    if isinstance(labels, Classes):
        loss = Softmax() if labels.numbered else Logistic()
    if isinstance(fitted.scaling, Cells):
        return Additive(1, loss, network.outputs, columns=fitted.scaling.columns)
    if network.linear:
        return Linear(network.features, loss, network.outputs)
    perceptron = MLP(network.sizes, loss, network.between)
    refuse_without_torch(perceptron)
    return perceptron
