"""Features of pictures that need no data: histograms of oriented gradients.

    picture -> slopes at every pixel -> in each cell, how much slope there is in each direction -> square root

The features of a picture depend on nothing else, so they cost no privacy. Under a tight budget they are worth more than a
better optimiser: a linear model on them needs fewer and clearer directions than one on pixels.

Dalal & Triggs 2005, Histograms of oriented gradients for human detection; Tramer & Boneh 2021, Differentially private
learning needs better features (or much more data).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from ..trusted import validate
from .refusal import NOT_ROWS, Refusal, our_words

PICTURES_PER_CHUNK = 2000  # to keep memory low
ENTRY_MULTIPLE = 64  # more than a processor handles at once
MAX_PIXEL = 1e6
WIDE_CELL_FACTOR = 1.75  # of the second histogram of a stack


class OrientedGradients(TransformerMixin, BaseEstimator):
    """Rows of pixels to histograms of oriented gradients; a scikit-learn transformer that learns nothing.

    ``shape``: height and width, and channels if there are colours; at each pixel the channel with the steepest slope counts.
    ``cell``: pixels along the side of a cell. ``directions``: of a histogram. ``stacked``: three histograms side by side, of
    cells, of cells 7/4 as wide, and of cells moved by half a cell down and right: an edge that moves out of one cell stays
    inside another.

    >>> pictures = np.zeros((2, 64)); pictures[0, 32:] = 1.0
    >>> OrientedGradients((8, 8)).fit_transform(pictures).shape
    (2, 32)
    >>> OrientedGradients((8, 8), stacked=True).fit_transform(pictures).shape
    (2, 72)
    """

    def __init__(
        self, shape: tuple[int, ...] = (28, 28), *, cell: int = 4, directions: int = 8, stacked: bool = False
    ) -> None:
        self.shape = shape
        self.cell = cell
        self.directions = directions
        self.stacked = stacked

    def fit(self, X: Any, y: Any = None) -> OrientedGradients:
        """Check the settings; nothing is learned."""
        self._checked_shape()
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """A row of ``directions`` numbers for each cell, cells row by row.

        NaN counts as 0, infinite and huge pixels as a million, so that no picture raises or warns.
        """
        shape = self._checked_shape()
        pixels = math.prod(shape)
        with our_words(NOT_ROWS):
            given = np.asarray(X, dtype=np.float64)
        rows = np.nan_to_num(given, posinf=MAX_PIXEL, neginf=-MAX_PIXEL).clip(-MAX_PIXEL, MAX_PIXEL).astype(np.float32)
        if rows.ndim != 2 or rows.shape[1] != pixels:
            raise Refusal(f"X must be a table; pass rows of {' x '.join(map(str, self.shape))} = {pixels} pixels")
        pictures = rows.reshape(-1, *shape)
        parts = [
            self._histograms(pictures[at : at + PICTURES_PER_CHUNK])
            for at in range(0, max(len(rows), 1), PICTURES_PER_CHUNK)
        ]
        return np.concatenate(parts)

    def _checked_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        shape = self.shape
        whole = isinstance(shape, tuple | list) and len(shape) in (2, 3) and all(type(n) is int for n in shape)
        if not whole or any(n < 2 for n in shape[:2]) or any(n < 1 for n in shape[2:]):
            raise ValueError(
                f"shape is {shape!r}; pass (height, width), each of at least 2 pixels, or (height, width, channels)"
            )
        validate.whole(cell=self.cell, directions=self.directions)
        if type(self.stacked) is not bool:
            raise ValueError(f"stacked is {self.stacked!r}; pass True or False")
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1

    def _histograms(self, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        slopes = self._slopes(pictures)
        if not self.stacked:
            return _in_cells(slopes, self.cell)
        half = self.cell // 2
        tall, wide = (max((side - half) // self.cell, 1) * self.cell for side in slopes.shape[1:3])
        moved = slopes[:, half : half + tall, half : half + wide]
        parts = (
            _in_cells(slopes, self.cell),
            _in_cells(slopes, round(WIDE_CELL_FACTOR * self.cell)),
            _in_cells(moved, self.cell),
        )
        return np.concatenate(parts, axis=1)

    def _slopes(self, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        """At every pixel how much slope there is in each direction: (pictures, height, width, directions)."""
        down, right = (np.asarray(slope) for slope in np.gradient(pictures, axis=(1, 2)))
        size = _in_whole_lanes(np.hypot, down, right)
        steepest = size.argmax(axis=3)[..., None]
        down, right, size = (np.take_along_axis(each, steepest, 3)[..., 0] for each in (down, right, size))
        angle = _in_whole_lanes(np.arctan2, down, right) % (2 * np.pi) * (self.directions / (2 * np.pi))
        below = np.floor(angle)
        above = angle - below
        slopes = np.zeros((*size.shape, self.directions), np.float32)
        first = (below.astype(np.intp) % self.directions)[..., None]
        np.put_along_axis(slopes, first, (size * (1 - above))[..., None], 3)
        second = np.zeros_like(slopes)
        np.put_along_axis(second, (first + 1) % self.directions, (size * above)[..., None], 3)
        slopes += second
        return slopes


def _in_cells(slopes: NDArray[np.float32], cell: int) -> NDArray[np.float32]:
    """The square root of the sum of slopes over each cell; cells at the edge are padded with zeros."""
    many, height, width, directions = slopes.shape
    tall, wide = -(-height // cell), -(-width // cell)
    edges = ((0, 0), (0, tall * cell - height), (0, wide * cell - width), (0, 0))
    cells = np.pad(slopes, edges).reshape(many, tall, cell, wide, cell, directions)
    total = np.zeros((many, tall, wide, directions), np.float32)
    for i in range(cell):  # in a fixed order, so that the sums of a picture do not depend on the others
        for j in range(cell):
            total += cells[:, :, i, :, j]
    return np.sqrt(total).reshape(many, tall * wide * directions)


def _in_whole_lanes(function: Any, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """An elementwise function of padded arrays: the last entries of an array may be rounded differently."""
    size = -(-a.size // ENTRY_MULTIPLE) * ENTRY_MULTIPLE
    padded = np.ones((2, size), np.float32)
    padded[0, : a.size], padded[1, : a.size] = a.ravel(), b.ravel()
    values: NDArray[np.float32] = function(padded[0], padded[1])[: a.size].reshape(a.shape)
    return values
