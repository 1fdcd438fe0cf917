"""Effects made smoother after training: noise makes a curve rough, records mostly do not.

A column's effect at its knots, f, becomes keep f + (1 - keep) H f, where H f is the straight part of f: its least-squares
fit, weighted by how many records are there, of a constant, the value and its rank. Products of two columns are multiplied
by a number. Everything here is post-processing of released effects; which of a few smoothings is taken is a paid choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...trusted.features import Features, Floats, Hats, Product

MIN_KNOTS = 5  # with fewer there is nothing to smooth
FAINT = 1e-3  # share of the records that every knot counts for, at least
CHOICE_SHARE = 0.03  # of the budget, for the choice of a smoothing
MIN_CLARITY = 1500.0  # n mu below which a choice costs more than it brings


@dataclass(frozen=True)
class Smoothing:
    """``keep``: the factor on the non-straight part of each column's effect; ``pairs``: the factor on products."""

    keep: float
    pairs: float


SMOOTHINGS = (Smoothing(1.0, 1.0), Smoothing(0.6, 1.0), Smoothing(0.3, 0.5), Smoothing(0.0, 0.3))


def choice_share(clarity: float) -> float:
    """What share of the budget a choice among smoothings is worth, from n mu; 0 for none.

    A choice for mu_c has the noise of a Gumbel variable of scale 0.63 B / (n mu_c) on each mean loss, B its bound.
    """
    return CHOICE_SHARE if clarity >= MIN_CLARITY else 0.0


def smoothed(
    features: Features, effects: Floats, variance: Floats, shares: Floats, how: Smoothing
) -> tuple[Floats, Floats]:
    """Effects of the coordinates, and the variance of the noise on them, smoothed: a row for each output.

    A smoothed column has its whole effect in its fine hats.
    """
    effects, variance = effects.copy(), variance.copy()
    if how.keep < 1:
        for fine, coarse in _number_columns(features):
            _smooth(features, (effects, variance), shares, how.keep, fine, coarse)
    for block, span in zip(features.blocks, features.spans, strict=True):
        if isinstance(block, Product):
            effects[:, span] *= how.pairs
            variance[:, span] *= how.pairs**2
    return effects, variance


def _number_columns(features: Features) -> list[tuple[int, int | None]]:
    """Which block has the fine hats of a number column, and which the coarse ones."""
    blocks, found = features.blocks, []
    for i, block in enumerate(blocks):
        first = i == 0 or blocks[i - 1].columns != block.columns
        if isinstance(block, Hats) and first and block.knots >= MIN_KNOTS:
            found.append((i, i + 1 if i + 1 < len(blocks) and blocks[i + 1].columns == block.columns else None))
    return found


def _smooth(
    features: Features, both: tuple[Floats, Floats], shares: Floats, keep: float, fine: int, coarse: int | None
) -> None:
    effects, variance = both
    block = features.blocks[fine]
    assert isinstance(block, Hats)
    here = _knots(features, fine)
    matrix = keep * np.eye(block.knots) + (1 - keep) * straight(block, shares[here])
    curve, noise = matrix @ effects[:, here].T, matrix**2 @ variance[:, here].T
    if coarse is not None:
        there = _knots(features, coarse)
        between = matrix @ _interpolation(there.stop - there.start, block.knots)
        curve, noise = curve + between @ effects[:, there].T, noise + between**2 @ variance[:, there].T
        effects[:, there] = variance[:, there] = 0.0
    effects[:, here], variance[:, here] = curve.T, noise.T


def _knots(features: Features, block: int) -> slice:
    """The coordinates of the hats alone, without that of missing values."""
    span = features.spans[block]
    return slice(span.start, span.stop - 1)


def _interpolation(coarse: int, fine: int) -> Floats:
    """The matrix that takes what coarse hats say to the knots of fine ones."""
    at = np.linspace(0, 1, fine)
    return np.stack([np.interp(at, np.linspace(0, 1, coarse), row) for row in np.eye(coarse)], axis=1)


def straight(block: Hats, shares: Floats) -> Floats:
    """The matrix H that takes a curve at the knots to its straight part."""
    values = block.knot_values()
    values = (values - values[0]) / (values[-1] - values[0])
    shape = np.stack([np.ones(block.knots), np.linspace(0, 1, block.knots), values], axis=1)
    weight = np.sqrt(np.maximum(shares, 0.0) + FAINT)[:, None]
    fit: Floats = shape @ (np.linalg.pinv(shape * weight, rcond=1e-6) * weight.T)
    return fit
