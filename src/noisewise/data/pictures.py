"""Features of pictures that need no data: histograms of oriented gradients.

    picture -> slopes at every pixel -> in each cell, how much slope there is in each direction -> square root

Every picture is turned by itself, so the features may be computed before anything is private or public; nothing is
learned. Under a tight budget such features are worth more than a better optimiser: a linear model on them needs fewer
and clearer directions than one on pixels.

Dalal & Triggs 2005, Histograms of oriented gradients for human detection; Tramer & Boneh 2021, Differentially private
learning needs better features (or much more data).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from .. import _validate
from .checks import NOT_ROWS
from .refusal import Refusal, our_words

CHUNK = 2000  # pictures at a time, to keep memory low
LANES = 64  # entries that a processor handles at once, and more
HUGE = 1e6


class OrientedGradients(TransformerMixin, BaseEstimator):
    """Rows of pixels to histograms of oriented gradients; a scikit-learn transformer that learns nothing.

    ``shape``: height and width of a picture. ``cell``: pixels along the side of a cell. ``directions``: of a histogram.

    >>> pictures = np.zeros((2, 64)); pictures[0, 32:] = 1.0
    >>> OrientedGradients((8, 8)).fit_transform(pictures).shape
    (2, 32)
    """

    def __init__(self, shape: tuple[int, int] = (28, 28), *, cell: int = 4, directions: int = 8) -> None:
        self.shape = shape
        self.cell = cell
        self.directions = directions

    def fit(self, X: Any, y: Any = None) -> OrientedGradients:
        """Nothing is learned; the settings are checked."""
        self._checked_shape()
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """A row of ``directions`` numbers for each cell, cells row by row.

        A pixel that is not a number counts as 0, an infinite or huge one as a million: no picture may raise or warn.
        """
        height, width = self._checked_shape()
        with our_words(NOT_ROWS):
            given = np.asarray(X, dtype=np.float64)
        rows = np.nan_to_num(given, posinf=HUGE, neginf=-HUGE).clip(-HUGE, HUGE).astype(np.float32)
        if rows.ndim != 2 or rows.shape[1] != height * width:
            raise Refusal(f"X must be a table; pass rows of {height} x {width} = {height * width} pixels")
        pictures = rows.reshape(-1, height, width)
        parts = [self._histograms(pictures[at : at + CHUNK]) for at in range(0, max(len(rows), 1), CHUNK)]
        return np.concatenate(parts)

    def _checked_shape(self) -> tuple[int, int]:
        shape = self.shape
        if not isinstance(shape, tuple | list) or len(shape) != 2 or any(type(n) is not int or n < 2 for n in shape):
            raise ValueError(f"shape is {shape!r}; pass (height, width), each of at least 2 pixels")
        _validate.whole(cell=self.cell, directions=self.directions)
        return shape[0], shape[1]

    def _histograms(self, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        down, right = (np.asarray(slope) for slope in np.gradient(pictures, axis=(1, 2)))
        angle = _in_whole_lanes(np.arctan2, down, right) % (2 * np.pi) * (self.directions / (2 * np.pi))
        below = np.floor(angle)
        above, size = angle - below, _in_whole_lanes(np.hypot, down, right)
        many, height, width = pictures.shape
        slopes = np.zeros((many, height, width, self.directions), np.float32)
        first = (below.astype(np.intp) % self.directions)[..., None]
        np.put_along_axis(slopes, first, (size * (1 - above))[..., None], 3)
        second = np.zeros_like(slopes)
        np.put_along_axis(second, (first + 1) % self.directions, (size * above)[..., None], 3)
        slopes += second
        tall, wide = -(-height // self.cell), -(-width // self.cell)
        edges = ((0, 0), (0, tall * self.cell - height), (0, wide * self.cell - width), (0, 0))
        cells = np.pad(slopes, edges).reshape(many, tall, self.cell, wide, self.cell, self.directions)
        total = np.zeros((many, tall, wide, self.directions), np.float32)
        for i in range(self.cell):  # one pixel of all cells after the other, so that a picture's sums are its own
            for j in range(self.cell):
                total += cells[:, :, i, :, j]
        return np.sqrt(total).reshape(many, tall * wide * self.directions)


def _in_whole_lanes(function: Any, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """An elementwise function of two arrays, padded: the last few entries of an array may take another routine."""
    size = -(-a.size // LANES) * LANES
    padded = np.ones((2, size), np.float32)
    padded[0, : a.size], padded[1, : a.size] = a.ravel(), b.ravel()
    values: NDArray[np.float32] = function(padded[0], padded[1])[: a.size].reshape(a.shape)
    return values
