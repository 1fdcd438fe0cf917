"""A curator for columns as they come from a file, before there are bounds to scale them by.

It answers one question: how many records fall between given edges, for every column at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from ..budget import Meter
from ..events import Gaussian
from .curator import Released
from .noise import Stream

Floats = NDArray[np.float64]


class ColumnCurator:
    """Holds a way to read the private columns, a piece at a time; every answer is charged before it is computed.

    ``pieces`` yields matrices with one row per record and ``columns`` columns; it is called anew for every question.
    """

    __slots__ = ("__pieces", "__stream", "_columns", "_meter", "_trace")

    def __init__(
        self, pieces: Callable[[], Iterable[Floats]], columns: int, *, meter: Meter, seed: int | None = None
    ) -> None:
        if columns < 1:
            raise ValueError(f"columns is {columns!r}; pass at least one")
        self.__pieces = pieces
        self.__stream = Stream(seed)
        self._columns = columns
        self._meter = meter
        self._trace: list[Released] = []

    @property
    def meter(self) -> Meter:
        """The meter that every question is charged to."""
        return self._meter

    @property
    def trace(self) -> tuple[Released, ...]:
        """Every answered question, described by released facts."""
        return tuple(self._trace)

    def histograms(self, edges: Floats, *, noise_multiplier: float) -> tuple[Floats, float]:
        """How many values of column j lie in [edges[j, k], edges[j, k+1]), for every j and k, and the noise's standard
        deviation. A value outside of the edges or not a number is in no bin.

        *Sensitivity*: with m columns a record is in at most m bins, with 1 in each, so adding or removing it moves all
        counts together by at most sqrt(m); replacing it moves at most 2 m of them by 1, which is sqrt(2 m). Noise of
        standard deviation noise_multiplier sqrt(m), or noise_multiplier sqrt(2 m)/2 for replace_one, is the event
        Gaussian(noise_multiplier). Counts of records are whole numbers, so nothing is rounded.
        """
        plain = np.array(edges, dtype=np.float64)
        if plain.ndim != 2 or plain.shape[0] != self._columns or plain.shape[1] < 2 or not _growing(plain):
            raise ValueError(f"edges must be {self._columns} rows of at least two finite, growing numbers")
        event, bins = Gaussian(float(noise_multiplier)), plain.shape[1] - 1
        replaced = self._meter.budget.adjacency == "replace_one"
        unit = math.sqrt(2 * self._columns) / 2 if replaced else math.sqrt(self._columns)
        std = event.noise_multiplier * unit
        self._meter.spend(event)
        counts = np.zeros((self._columns, bins))
        for piece in self.__pieces():
            for j in range(self._columns):
                places = np.searchsorted(plain[j], piece[:, j], side="right") - 1  # NaN sorts last
                inside = places[(places >= 0) & (places < bins)]
                counts[j] += np.bincount(inside, minlength=bins)
        noisy = self.__stream.noised(torch.from_numpy(counts.ravel()), std).numpy().reshape(counts.shape)
        self._trace.append(Released("histograms", event, None, std, None, self._meter.spent_fraction))
        return noisy, std

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a curator holds private records and is never copied or saved")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse


def _growing(edges: Floats) -> bool:
    with np.errstate(over="ignore"):  # from -1e308 to 1e308 is growth too
        return bool(np.isfinite(edges).all() and (np.diff(edges, axis=1) > 0).all())
