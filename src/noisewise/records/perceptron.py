"""Private records of a perceptron: exact integer sums, forward passes that do not depend on a record's company.

Rows stand on the grid like those of a linear model; passes run in single precision on padded chunks, every height of which is
tested before it is used (:mod:`noisewise.records.perceptron_selftest`), and what they give is put into integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arithmetic import Arithmetic
from ..models import MLP
from .grid import CHUNK, Floats, GridRows, Store, in_memory, in_new_basis
from .linear import LinearRecords
from .perceptron_exact import ExactPerceptron
from .totals import Drawn, FloatRows, IntegerTotal

FULL_PASS = 512  # records at a time where no batch size is public
BOUNDED = Arithmetic(
    "bounded",
    (
        "AES is pseudo-random",
        "products of single precision give a row the same bits in every place and in every chunk height that was used, "
        "as tested before its first use",
    ),
)


class PerceptronRecords:
    """Rows on the grid, and a perceptron; what concerns rows alone is answered as for a linear model."""

    __slots__ = ("_exact", "_model", "_plain", "_rows", "_store")
    coordinates: ClassVar[bool] = False

    def __init__(self, rows: GridRows, model: MLP, store: Store = in_memory) -> None:
        self._model, self._store, self._exact = model, store, ExactPerceptron(model)
        self._plain = LinearRecords(rows, model.loss, model.outputs)
        self._rows = self._exact.lay_out(self._source(rows), torch.from_numpy(rows.y.astype(_label_type(rows))), store)

    @staticmethod
    def _source(rows: GridRows) -> Any:
        def part(start: int, length: int) -> Tensor:
            here = slice(start, start + length)
            numbers = rows.directions(here).astype(np.float32) * rows.reach[here][:, None]
            numbers[~rows.alive[here]] = math.nan
            return torch.from_numpy(numbers)

        return part

    @property
    def arithmetic(self) -> Arithmetic:
        return BOUNDED

    @property
    def columns(self) -> int:
        return self._plain.columns

    def __len__(self) -> int:
        return len(self._plain)

    def in_basis(self, matrix: Floats, store: Store = in_memory) -> PerceptronRecords:
        """The same records with every row x replaced by x @ matrix."""
        return PerceptronRecords(in_new_basis(self._plain.rows, matrix, store), self._model, store)

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``."""
        total, bound = self._exact.total(_single(theta), self._rows, _numbers(drawn), clip, _expected(drawn))
        return IntegerTotal(total, bound, clip)

    def vectors(self, drawn: Drawn, theta: Floats, clip: float, **seen: Any) -> IntegerTotal:
        raise ValueError("a perceptron's gradients are not clipped in other coordinates; pass scale=None")

    def short(self, drawn: Drawn, theta: Floats, threshold: float, **seen: Any) -> IntegerTotal:
        """How many gradients are short, along a ramp."""
        total, bound = self._exact.short_total(_single(theta), self._rows, _numbers(drawn), threshold, _expected(drawn))
        return IntegerTotal(total, bound, 0.5)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound] at each theta."""
        numbers, expected = _numbers(drawn), _expected(drawn)
        found = [self._exact.loss_total(_single(theta), self._rows, numbers, bound, expected) for theta in thetas]
        return IntegerTotal(np.array([total for total, _ in found]), found[0][1], bound)

    def unit_rows(self, drawn: Drawn) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of records, as for a linear model."""
        return self._plain.unit_rows(drawn)

    def scored(self, drawn: Drawn, theta: Floats) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Scores, labels, who is alive."""
        for here in self._plain.parts(drawn, CHUNK):
            numbers = np.arange(here.start, here.stop) if isinstance(here, slice) else here
            scores = self._exact.scores(_single(theta), self._rows, torch.from_numpy(numbers), _expected(drawn))
            scores = scores[:, 0] if self._model.outputs == 1 and scores.ndim == 2 else scores
            yield scores.double().numpy(), self._plain.labels(here), self._plain.rows.alive[here]

    def float_rows(self) -> FloatRows:
        """Rows and labels in double precision."""
        return self._plain.float_rows()


def _single(theta: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(theta, dtype=np.float32))


def _numbers(drawn: Drawn) -> Tensor | None:
    return None if drawn.rows is None else torch.from_numpy(drawn.rows)


def _expected(drawn: Drawn) -> int:
    """From public facts alone: all records, or a batch whose size is not known to anyone, go in full chunks."""
    known = drawn.rows is not None and math.isfinite(drawn.expected)
    return min(math.ceil(drawn.expected), FULL_PASS) if known else FULL_PASS


def _label_type(rows: GridRows) -> Any:
    return np.int64 if rows.y.dtype == np.int32 else np.float32
