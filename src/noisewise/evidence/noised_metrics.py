"""The same figures from what was bought: a noised histogram of scores and labels, or noised sums of errors.

All of it is post-processing. Counts are moved by a common amount so that they add up to the number of records, which is
known better, and are not clamped: what noise takes from one cell it gives to another, so sums stay unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .metrics import (
    CALIBRATION_BINS,
    MIN_COUNT_DEVIATIONS,
    NONE,
    Array,
    Figures,
    Floats,
    Metric,
    area,
    calibration_of,
    measured,
    number_figures,
    of_a_share,
    within,
)

INSIDE = np.linspace(0.025, 0.975, 20)  # places in a bin that figures of it are averaged over
BEYOND = 1.0  # how far the outermost bins are taken to reach, in log-odds
GRIDS = (  # (records per unit of noise from which it pays, positive edges of log-odds)
    (0.0, (1.0, 2.0, 3.0, 5.0)),
    (1000.0, (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)),
    (4000.0, (*np.arange(1, 13) / 4, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0)),
)


def edges_for(size: float, noise: float) -> Floats:
    """Edges of bins of log-odds, 0 among them: the more records there are for the noise of a cell, the finer."""
    positive = next(np.array(edges) for least, edges in reversed(GRIDS) if size >= least * noise)
    return np.concatenate([-positive[::-1], [0.0], positive])


@dataclass(frozen=True)
class Noised:
    """What was released: a vector, the noise on each entry, the number of records, and the noise on that."""

    values: Floats
    noise: float
    size: float
    size_noise: float


@dataclass(frozen=True)
class NoisedCounts:
    """The counts of one histogram of all records, moved so that they add up to their number."""

    counts: Floats
    source: Noised

    @classmethod
    def of(cls, source: Noised, where: slice, shape: tuple[int, ...]) -> NoisedCounts:
        noisy = source.values[where]
        return cls((noisy + (source.size - noisy.sum()) / len(noisy)).reshape(shape), source)

    def noise(self, gradient: Floats) -> float:
        """The variance that noise gives a sum of counts times ``gradient``: what all cells share was taken out."""
        total, cells = float(gradient.sum()), gradient.size
        own = float(np.square(gradient).sum()) - total**2 / cells
        return self.source.noise**2 * own + (self.source.size_noise * total / cells) ** 2

    def sampling(self, gradient: Floats) -> float:
        """The variance that the choice of the rows gives it."""
        likely = np.maximum(self.counts, 0.0)
        return float((likely * np.square(gradient)).sum()) * self.source.size / max(float(likely.sum()), 1.0)

    def share(self, mask: Array) -> Metric:
        """The share of records in some cells."""
        value = float((self.counts * mask).sum()) / self.source.size
        variance = self.noise((mask - value) / self.source.size)
        return measured(value, variance + of_a_share(min(max(value, 0.0), 1.0), self.source.size) ** 2)

    def clear(self, mask: Array) -> bool:
        """Whether these cells hold more than noise, so that one may divide by them."""
        return float((self.counts * mask).sum()) > max(
            MIN_COUNT_DEVIATIONS * math.sqrt(self.noise(mask.astype(float))), 1.0
        )


def of_histogram(source: Noised, edges: Floats, names: Sequence[Any], *, likely: bool) -> Figures:
    """Of the answer to a ``ScoreHistogram`` with these edges of log-odds; ``likely``: the scores are log-odds indeed.

    Where in its bin a score is was not bought: scores of a label are taken to lie as those of a normal distribution with
    the mean and the spread of that label's counts do. Log loss is that of log-odds cut to a little beyond the outermost
    edges. Of more than two classes the calibration is that of the most likely class.
    """
    classes, bins = len(names), len(edges) + 1
    size = 2 * bins
    truth: Array
    guess: Array
    if classes == 2:
        table = surest = NoisedCounts.of(source, slice(None), (bins, 2))
        blocks = [table]
        above, truth = np.indices((bins, 2))
        guess = (above > np.searchsorted(edges, 0.0)).astype(int)
    else:
        *blocks, surest = (
            NoisedCounts.of(source, slice(k * size, (k + 1) * size), (bins, 2)) for k in range(classes + 1)
        )
        table = NoisedCounts.of(source, slice((classes + 1) * size, None), (classes, classes))
        truth, guess = np.indices((classes, classes))
    found, often, gain = _of_table(table, truth, guess, classes)
    places, curve = _inside(edges), None
    found["roc_auc"] = _ranked(blocks, places)
    if likely:
        found["log_loss"] = _log_loss(blocks, places)
        sure = (_profile(surest.counts.sum(1), places) / (1 + np.exp(-places))).sum(1)
        found["calibration_error"], curve = _calibrated(surest, sure)
    counts = [
        [float((table.counts * ((truth == k) & (guess == j))).sum()) for j in range(classes)] for k in range(classes)
    ]
    shown = {"classes": [str(name) for name in names], "counts": np.rint(np.maximum(counts, 0.0)).astype(int).tolist()}
    return Figures(found, gain, repr(str(names[often])), shown, curve)


def _of_table(table: NoisedCounts, truth: Array, guess: Array, classes: int) -> tuple[dict[str, Metric], int, Metric]:
    """Figures of labels and predictions, the most frequent class, and what the model gains over it."""
    n, right = table.source.size, truth == guess
    labels = [truth == k for k in range(classes)]
    often = int(np.argmax([(table.counts * mask).sum() for mask in labels]))
    ahead = right.astype(float) - labels[often]
    value = float((table.counts * ahead).sum()) / n
    slope = (ahead - value) / n
    found = {
        "accuracy": table.share(right),
        "baseline_accuracy": table.share(labels[often]),
        "balanced_accuracy": NONE,
    }
    if all(table.clear(mask) for mask in labels):
        sums = [float((table.counts * mask).sum()) for mask in labels]
        recalls = [float((table.counts * (mask & right)).sum()) / m for mask, m in zip(labels, sums, strict=True)]
        parts = zip(labels, recalls, sums, strict=True)
        gradient = sum((((mask & right) - r * mask) / m for mask, r, m in parts), np.zeros(truth.shape)) / classes
        chance = [of_a_share(min(max(r, 0.0), 1.0), m) for r, m in zip(recalls, sums, strict=True)]
        variance = table.noise(gradient) + float(np.square(chance).sum()) / classes**2
        found["balanced_accuracy"] = measured(float(np.mean(recalls)), variance)
    return found, often, measured(value, table.noise(slope) + table.sampling(slope), -1.0)


def _ranked(blocks: Sequence[NoisedCounts], places: Floats) -> Metric:
    """ROC AUC, of several classes the mean; the same rows are in all blocks, so that their sampling errors may all agree."""
    values, noises, errors = [], [], []
    for block in blocks:
        true = np.tile([False, True], (len(block.counts), 1))
        if not (block.clear(true) and block.clear(~true)):
            return NONE
        other, mine = (_profile(block.counts[:, label], places) for label in (0, 1))
        inside = (mine * (np.cumsum(other, 1) - other / 2)).sum(1)
        value, up, down = area(block.counts[:, 1], block.counts[:, 0], inside)
        gradient = np.column_stack([down, up])
        fewest = min(block.counts.sum(0))
        values.append(value)
        noises.append(block.noise(gradient))
        errors.append(max(math.sqrt(block.sampling(gradient)), of_a_share(1.0, fewest)))
    return measured(float(np.mean(values)), sum(noises) / len(values) ** 2 + float(np.mean(errors)) ** 2)


def _inside(edges: Floats) -> Floats:
    """Log-odds inside each bin, a row of them per bin; the outermost bins are cut."""
    ends = np.concatenate([[edges[0] - BEYOND], edges, [edges[-1] + BEYOND]])
    return np.asarray(ends[:-1, None] + np.diff(ends)[:, None] * INSIDE)


def _profile(counts: Floats, places: Floats) -> Floats:
    """Weights of the places inside each bin, which add up to 1: as of a normal distribution that has these counts."""
    likely, middle = np.maximum(counts, 0.0), places.mean(1)
    total = max(float(likely.sum()), 1e-9)
    mean = float(likely @ middle) / total
    spread = float(likely @ np.square(places - mean).mean(1)) / total
    depth = np.square(places - mean) / (2 * max(spread, 0.05))
    weights = np.exp(depth.min(1)[:, None] - depth)
    return np.asarray(weights / weights.sum(1)[:, None])


def _log_loss(blocks: Sequence[NoisedCounts], places: Floats) -> Metric:
    """The mean of -log(probability of the label): for two classes of either label, else of each class where it is one."""
    two = len(blocks) == 1
    both = (np.logaddexp(0.0, places), np.logaddexp(0.0, -places))
    losses = [np.column_stack([(_profile(b.counts[:, k], places) * both[k]).sum(1) for k in (0, 1)]) for b in blocks]
    counted = np.tile([two, True], (len(places), 1))
    records = sum(float((block.counts * counted).sum()) for block in blocks)
    if not records > 1:
        return NONE
    value = sum(float((b.counts * loss * counted).sum()) for b, loss in zip(blocks, losses, strict=True)) / records
    slopes = [(loss - value) * counted / records for loss in losses]
    # each record counts in one block alone; the noise of the size is in all of them
    own = sum(b.noise(slope) + b.sampling(slope) for b, slope in zip(blocks, slopes, strict=True))
    moved = [blocks[0].source.size_noise * float(slope.mean()) for slope in slopes]
    shared = sum(moved) ** 2 - float(np.square(moved).sum())
    return measured(value, own + shared, most=math.inf)


def _calibrated(block: NoisedCounts, sure: Floats) -> tuple[Metric, tuple[dict[str, float], ...]]:
    """Calibration error over neighbouring bins taken together until they hold their share, and more than noise."""
    n, masks, held = block.source.size, [], []
    for b in range(len(sure)):
        held.append(b)
        mask = np.zeros(block.counts.shape, bool)
        mask[held] = True
        if (block.counts * mask).sum() >= n / CALIBRATION_BINS and block.clear(mask):
            masks.append(mask)
            held = []
    if held and masks:
        masks[-1][held] = True
    elif held:
        masks = [np.ones(block.counts.shape, bool)]
    weights = np.column_stack([-sure, 1 - sure]) / n  # of what happened less what was predicted
    gaps = np.array([float((block.counts * mask * weights).sum()) for mask in masks])
    noise = np.array([block.noise(mask * weights) for mask in masks])
    sampling = np.array([block.sampling(mask * weights) for mask in masks])
    curve = []
    for mask in masks:
        inside = block.counts * mask
        total = max(float(inside.sum()), 1.0)
        predicted, observed = float(inside.sum(1) @ sure) / total, float(inside[:, 1].sum()) / total
        curve.append(
            {"predicted": min(max(predicted, 0.0), 1.0), "observed": min(max(observed, 0.0), 1.0), "share": total / n}
        )
    return calibration_of(gaps, noise, sampling), tuple(curve)


def of_moments(source: Noised, low: float, high: float) -> tuple[Figures, Metric]:
    """Of the answer to ``ErrorMoments`` for a target between bounds: the figures, and the mean squared error.

    In units of high - low the five sums are of |e|, e^2, e^4, y from its lower bound, and (2 y - 1)^2, each less 1/2.
    """
    n, unit = source.size, high - low
    means = np.minimum(np.maximum(source.values / n + 0.5, 0.0), 1.0)
    a, square, fourth, y, around = (float(mean) for mean in means)
    square = max(square, a * a)  # as it is for any errors

    def noise(gradient: Sequence[float]) -> float:
        slopes = np.array(gradient)
        return float(
            np.square(slopes * source.noise / n).sum()
            + (float(slopes @ (source.values / n)) * source.size_noise / n) ** 2
        )

    # what is not known of e^4 for its noise counts as if it were there
    fourth = min(fourth + 2 * math.sqrt(noise((0, 0, 1, 0, 0))), square)
    spread_of_squares = max(fourth - square**2, 0.0)
    error = math.sqrt(noise((0, 1, 0, 0, 0)) + spread_of_squares / n)
    least, most = within(square, error, 0.0, 1.0)
    found = {
        "rmse": Metric(math.sqrt(square) * unit, (math.sqrt(least) * unit, math.sqrt(most) * unit)),
        "mae": _scaled(measured(a, noise((1, 0, 0, 0, 0)) + max(square - a * a, 0.0) / n), unit),
    }
    variance = (around - (2 * y - 1) ** 2) / 4
    of_variance = (0.0, 0.0, 0.0, 1 - 2 * y, 0.25)
    if variance > max(MIN_COUNT_DEVIATIONS * math.sqrt(noise(of_variance)), 1e-9):
        ratio = square / variance
        gradient = np.array([0.0, -1.0, 0.0, 0.0, 0.0]) / variance + ratio / variance * np.array(of_variance)
        farthest = (
            max(y, 1 - y) ** 2
        )  # squared distances from the mean are at most this; how they go with errors is not known
        chance = math.sqrt(spread_of_squares) + ratio * math.sqrt(max(variance * (farthest - variance), 0.0))
        found["r2"] = measured(1 - ratio, noise(gradient.tolist()) + (chance / variance) ** 2 / n, -math.inf)
    return number_figures(found), Metric(square * unit**2, (least * unit**2, most * unit**2))


def _scaled(one: Metric, unit: float) -> Metric:
    assert one.value is not None and one.interval is not None
    return Metric(one.value * unit, (one.interval[0] * unit, one.interval[1] * unit))
