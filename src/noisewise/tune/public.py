"""Choosing among candidates on public rows, or on a public task of the same shape: free, as no private record is read.

Each candidate runs as a simulation on public rows, with the noise that its private run will have
(:mod:`noisewise.tune.simulated`), and is scored on rows that the simulation did not see, over repeated random splits that all candidates share.

The score is one that few rows can tell apart: the mean log loss where all candidates have probabilities, else accuracy;
the mean squared error of a regression. A standard error over R splits counts that they overlap: with s the
deviation of the scores, s (1/R + validation/training rows)^(1/2) (Nadeau & Bengio 2003).

In doubt the first candidate stays, which is the user's own or the default: where fewer than 200 rows are left for
validation, or where the best one's lead over it, split by split, is within one standard error of that lead (the
one-standard-error rule of Breiman, Friedman, Olshen & Stone 1984).

*Guarantee*: none is needed. That public rows say anything about private ones is an assumption, and so is a size that was guessed.

Nadeau & Bengio 2003, Inference for the generalization error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..evidence.metrics import public_quality
from ..tables.fit.fit import Fit
from ..tables.fit.labels import Classes
from ..train import Records
from ..trusted import validate
from .searches import SEARCHES, USUAL_TRIALS, by_optuna, drawn, halving, needed, try_each
from .simulated import Shape, SplitRows, as_given, parts_of, shape_of, simulated, table_of

MIN_VALIDATION_ROWS = 200
METRICS = {"log_loss": "mean log loss", "accuracy": "accuracy", "mse": "mean squared error"}


@dataclass(frozen=True)
class PublicSearch:
    """What a search found; scores and errors are NaN for candidates that were not tried, or refused to run.

    ``best`` is the first candidate where the rows cannot tell (``decided`` is False then). ``refused`` has, for each
    candidate, the reason why it did not run, or None.
    """

    best: int
    metric: str
    scores: tuple[float, ...]
    errors: tuple[float, ...]
    refused: tuple[str | None, ...]
    runs: int
    decided: bool
    words: str


def public_scores(
    fits: Sequence[Fit],
    rows: Sequence[Records],
    *,
    size: float | None,
    search: str = "all",
    trials: int | None = None,
    repeats: int = 3,
    seed: int = 0,
    handed: bool = True,
) -> PublicSearch:
    """The candidate that does best on public rows; ``rows[i]`` are scaled as ``fits[i]`` wants them, in one order.

    ``size``: the number of private records, public or guessed; None if it is unknown. ``search``: "all"; "random",
    ``trials`` candidates; "halving", of all or of ``trials``; "optuna", ``trials`` trials. ``handed``: whether private
    runs will get the public rows, as a start or a basis; then a part of them has that role here.
    """
    validate.one_of(SEARCHES, search=search)
    validate.whole(at_least=2, repeats=repeats)
    validate.whole(at_least=0, seed=seed)
    validate.positive_or_none(size=size)
    if trials is not None:
        validate.whole(trials=trials)
        if search == "all":
            raise ValueError("trials is given but search is 'all'; pass search='random', 'halving' or 'optuna' with it")
    if not fits or len(fits) != len(rows):
        raise ValueError(
            f"there are {len(fits)} candidates and {len(rows)} tables; pass one table for each, at least one"
        )
    if len({len(table.y) for table in rows}) > 1:
        raise ValueError("tables have different numbers of rows; pass the same public rows for all candidates")
    if search == "optuna":
        needed("optuna")
    bench = Bench(tuple(fits), tuple(rows), shape_of(len(rows[0].y), size, handed=handed), _metric(fits), seed, handed)
    if search == "optuna":
        settings = differing(fits)
        by_optuna(bench.loss, settings, repeats, USUAL_TRIALS if trials is None else trials, seed)
        bench.loss(0, repeats)
    else:
        some = search == "random" or trials is not None
        places = drawn(len(fits), trials, seed) if some else range(len(fits))
        (halving if search == "halving" else try_each)(bench.loss, places, repeats)
    return _found(bench, size)


@dataclass(frozen=True, eq=False)
class Bench:
    """Runs candidates and keeps their losses, which are scores with the sign that makes less better."""

    fits: tuple[Fit, ...]
    rows: tuple[Records, ...]
    shape: Shape
    metric: str
    seed: int
    handed: bool
    losses: dict[int, list[float]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    tables: dict[tuple[int, int], Records] = field(default_factory=dict)

    def loss(self, place: int, repeats: int) -> float:
        """The mean loss of a candidate over its first repeats; infinite if it refuses to run."""
        known = self.losses.setdefault(place, [])
        while len(known) < repeats and place not in self.refused:
            try:
                known.append(self._once(place, len(known)))
                if not math.isfinite(known[-1]):
                    self.refused[place] = "its score is not a number"
            except ValueError as reason:
                self.refused[place] = str(reason)
        return math.inf if place in self.refused else float(np.mean(known[:repeats]))

    def _once(self, place: int, repeat: int) -> float:
        fit, rows, parts = self.fits[place], self.rows[place], parts_of(self.shape, self.seed, repeat)
        handed = Records(rows.X[parts.handed], rows.y[parts.handed]) if self.handed else None
        seed = int(np.random.default_rng([self.seed, repeat, 3]).integers(2**31))  # the same noise for all
        fitted = simulated(fit, self._table(place, parts, repeat), handed, self.shape, seed)
        quality = public_quality(fitted, rows.X[parts.validation], as_given(fit.labels, rows.y[parts.validation]))
        if self.metric == "log_loss":
            loss = quality.figures.metrics["log_loss"].value
            assert loss is not None  # all candidates have probabilities
            return loss
        return -quality.value if self.metric == "accuracy" else quality.value

    def _table(self, place: int, parts: SplitRows, repeat: int) -> Records:
        """Made once for all candidates that share their rows."""
        key = id(self.rows[place]), repeat
        if key not in self.tables:
            scaling = self.fits[place].scaling
            self.tables[key] = table_of(self.rows[place], scaling, parts, self.shape, self.seed, repeat)
        return self.tables[key]

    def error(self, values: Sequence[float]) -> float:
        """The standard error of the mean of values, one for each split."""
        if len(values) < 2:
            return math.nan
        overlap = 1 / len(values) + self.shape.validation / self.shape.training
        return float(np.std(values, ddof=1)) * math.sqrt(overlap)


def _found(bench: Bench, size: float | None) -> PublicSearch:
    tried = {place: losses for place, losses in bench.losses.items() if place not in bench.refused}
    if not tried:
        raise ValueError(f"no candidate runs on the public rows; the first says: {bench.refused[0]}")
    most = max(map(len, tried.values()))  # halving leaves others behind
    finals = {place: float(np.mean(losses)) for place, losses in tried.items() if len(losses) == most}
    leader = min(sorted(finals), key=lambda place: finals[place])
    best, doubt = _settled(bench, tried, leader)
    turn = -1.0 if bench.metric == "accuracy" else 1.0
    every = range(len(bench.fits))
    scores = tuple(turn * float(np.mean(tried[place])) if place in tried else math.nan for place in every)
    errors = tuple(bench.error(tried[place]) if place in tried else math.nan for place in every)
    runs = sum(map(len, bench.losses.values()))
    error = "" if math.isnan(errors[best]) else f" (standard error {errors[best]:.2g})"
    outcome = f"Candidate {best} was chosen, with {METRICS[bench.metric]} {scores[best]:.4g}{error}."
    words = " ".join([*_words(bench, size, runs), outcome, *([doubt] if doubt else [])])
    refused = tuple(bench.refused.get(place) for place in every)
    return PublicSearch(best, METRICS[bench.metric], scores, errors, refused, runs, doubt is None, words)


def _settled(bench: Bench, tried: dict[int, list[float]], leader: int) -> tuple[int, str | None]:
    """The candidate to take, and why it is not the leader where the rows cannot tell."""
    if 0 not in tried:
        return leader, None
    if bench.shape.validation < MIN_VALIDATION_ROWS:
        return 0, (
            f"{bench.shape.validation} rows for validation are too few to tell candidates apart ({MIN_VALIDATION_ROWS} would "
            "do), so the first candidate stays, whatever the others scored."
        )
    if leader == 0:
        return leader, None
    leads = [mine - other for mine, other in zip(tried[0], tried[leader], strict=True)]
    lead, error = float(np.mean(leads)), bench.error(leads)
    if not lead > error:
        return 0, (
            f"Candidate {leader} scored better by {lead:.3g}, within one standard error of that ({error:.2g}), which the "
            "rows cannot tell from nothing, so the first candidate stays."
        )
    return leader, None


def _words(bench: Bench, size: float | None, runs: int) -> list[str]:
    shape, tried = bench.shape, len(bench.losses)
    lines = [
        f"Hyper-parameters were chosen on {shape.rows:,} public rows, which costs nothing of the budget: {tried} of "
        f"{len(bench.fits)} candidates were simulated in {runs} runs and scored by {METRICS[bench.metric]} on "
        f"{shape.validation:,} rows that the run had not seen."
    ]
    if size is None:
        lines.append(
            f"The number of private records was not known, so the search was made as if there were {shape.rows:,}."
        )
    if shape.filled_up:
        lines.append(
            f"{shape.training:,} training rows were too few for that many records, so they were filled up to "
            f"{shape.records:,} by copies whose numbers were moved a little (a smoothed bootstrap); what more records "
            "would teach is not in them."
        )
    if shape.weight > 1:
        lines.append(
            f"{shape.records:,} records stood for {shape.size:,.0f}, under a budget worth {shape.weight:.3g} times as "
            "much, so that the noise on a mean is the same."
        )
    if bench.refused:
        lines.append(f"{len(bench.refused)} of them refused to run and count as worst.")
    return lines


def _metric(fits: Sequence[Fit]) -> str:
    """One score that all candidates have; without one they cannot be compared."""
    classes = [fit.labels for fit in fits if isinstance(fit.labels, Classes)]
    if not classes:
        return "mse"
    if len(classes) < len(fits):
        raise ValueError("some candidates are classifiers and others regressions; tune each kind by itself")
    return "log_loss" if all(labels.likely for labels in classes) else "accuracy"


def differing(fits: Sequence[Fit]) -> list[dict[str, str]]:
    """The settings, as text, in which each candidate differs from others."""
    made = [
        {
            "method": fit.method.name,
            "model": f"{type(fit.model).__name__}{fit.model.shape}",
            "loss": str(fit.model.loss),
            **{f"method.{name}": repr(value) for name, value in fit.method.settings().items()},
        }
        for fit in fits
    ]
    return [{name: one[name] for name in one if len({other.get(name) for other in made}) > 1} for one in made]
