"""A client as one record: all rows of a file count together, once.

*Gradients and losses* are those of all its rows: the mean of their gradients, or of the gradients along a few local steps (DP-FedAvg,
McMahan et al. 2018), computed from this client's rows alone and then clipped once into integers of norm at most ``ones``. Whatever its
rows and rounding make of that vector, it is clipped in integers, so the client's part of a sum is bounded as a record's is. *Statistics of
rows* (moments, counts in bins) are those of its first row: what a record adds to such a sum is proved for a row. Either way the curator
sees as many records as there are clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...trusted.models import MLP, Additive, Model
from ...trusted.stores import Coins, records_of
from ...trusted.stores.grid import BOUND, Allocator, in_memory, labelled
from ...trusted.stores.linear import FINE, LinearRecords, ramp
from ...trusted.stores.protocol import Elsewhere, HeldRecords, Parts
from ...trusted.stores.totals import Drawn, Floats, Integers, IntegerTotal, clipped

FIRST, NOBODY = Drawn(np.zeros(1, np.int64)), Drawn(np.empty(0, np.int64))


@dataclass(frozen=True, eq=False, repr=False)
class Together(Elsewhere):
    """The rows of one client, which become one record; ``there``: False on the server, which holds no client."""

    X: Any
    y: Any
    steps: int
    rate: float
    there: bool = True

    def held(self, model: Model, store: Allocator, coins: Coins | None = None) -> OneRecord:
        counted = labelled(self.y, model.classes)  # rows without a label do not count
        X, y = (self.X, self.y) if counted is None else (self.X[counted], self.y[counted])
        return OneRecord(records_of(model, X, y, store), model, self.steps, self.rate, self.there)


@dataclass(frozen=True, eq=False, repr=False)
class OneRecord(HeldRecords):
    """One record behind exact totals: a client's rows, or none (the zero of every total)."""

    rows: HeldRecords
    model: Model
    steps: int = 1
    rate: float = 1.0
    there: bool = True

    @property
    def columns(self) -> int:
        return self.rows.columns

    @property
    def coordinates(self) -> bool:
        return self.rows.coordinates

    def __len__(self) -> int:
        return int(self.there)

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The client's vector, clipped to norm ``clip``."""
        return self._clipped(drawn, self._vector(drawn, theta), clip, BOUND)

    def vectors(
        self, drawn: Drawn, theta: Floats, clip: float, *, scale: Floats | None, basis: Floats | None
    ) -> IntegerTotal:
        """The client's vector in other coordinates, clipped there."""
        return self._clipped(drawn, _seen(self._vector(drawn, theta), scale, basis), clip, FINE)

    def short(
        self,
        drawn: Drawn,
        theta: Floats,
        threshold: float,
        *,
        scale: Floats | None = None,
        basis: Floats | None = None,
    ) -> IntegerTotal:
        """Whether its vector is short: +1/2 below 0.9 of the threshold, -1/2 above 1.1 of it, a ramp between."""
        total = np.zeros(1, np.int64)
        if self._asked(drawn):
            lengths = _length(_seen(self._vector(drawn, theta), scale, basis))
            total += ramp(lengths, np.isfinite(lengths), threshold)
        return IntegerTotal(total, FINE, 0.5)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The mean of its rows' losses cut to [0, bound], at each theta."""
        total = self.rows.losses(_all(self._asked(drawn)), thetas, bound)
        return replace(total, values=total.values // max(len(self.rows), 1))

    def row_sum(self, drawn: Drawn) -> IntegerTotal:
        return self.rows.row_sum(self._first(drawn))

    def levels(self, drawn: Drawn, maps: Sequence[Any], levels: int) -> Integers:
        return self.rows.levels(self._first(drawn), maps, levels)

    def unit_rows(self, drawn: Drawn) -> Parts:
        return self.rows.unit_rows(self._first(drawn))

    def scored(self, drawn: Drawn, theta: Floats) -> Parts:
        return self.rows.scored(self._first(drawn), theta)

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> OneRecord:
        return replace(self, rows=self.rows.in_basis(matrix, store))

    def prepared(self, features: Any, store: Allocator = in_memory) -> OneRecord:
        assert isinstance(self.model, Additive)
        return replace(self, rows=self.rows.prepared(features, store), model=self.model.of_width(features.width))

    def centred(self, centre: Floats, scale: float, store: Allocator = in_memory) -> OneRecord:
        return replace(self, rows=self.rows.centred(centre, scale, store))

    def _asked(self, drawn: Drawn) -> bool:
        """Whether it is in the batch, and has rows at all."""
        return drawn.count(len(self)) > 0 and len(self.rows) > 0

    def _first(self, drawn: Drawn) -> Drawn:
        return FIRST if self._asked(drawn) else NOBODY

    def _vector(self, drawn: Drawn, theta: Floats) -> Floats:
        """The mean of its gradients along ``steps`` local steps from theta; for one step, the gradient at theta."""
        at, total = theta.astype(np.float64), np.zeros(len(theta))
        if not self._asked(drawn):
            return total
        for _ in range(self.steps):
            gradient = self._gradient(at)
            total, at = total + gradient, at - self.rate * gradient
        return total / self.steps

    def _gradient(self, theta: Floats) -> Floats:
        """The mean gradient of its rows."""
        X, y = self._floats
        if isinstance(self.model, MLP):
            return _backwards(self.model, theta, X, y)
        matrix = theta.reshape(self.model.outputs, -1)
        scores = np.einsum("nd,kd->nk", X, matrix)
        slopes = self.model.loss.row_slope(scores[:, 0] if self.model.outputs == 1 else scores, y)
        return np.einsum("nk,nd->kd", slopes.reshape(len(X), -1), X).ravel() / len(X)

    @cached_property
    def _floats(self) -> tuple[Floats, NDArray[Any]]:
        """Its rows and labels in double precision."""
        linear = isinstance(self.rows, LinearRecords)  # also of a wide table: a client's rows are few
        return LinearRecords.float_rows(self.rows) if linear else self.rows.float_rows()  # type: ignore[arg-type]

    def _clipped(self, drawn: Drawn, vector: Floats, clip: float, ones: int) -> IntegerTotal:
        total = np.zeros(len(vector), np.int64)
        if self._asked(drawn):
            total += clipped(vector[None], _length(vector), clip, ones)[0]
        return IntegerTotal(total, ones, clip)


def _backwards(model: MLP, theta: Floats, X: Floats, y: NDArray[Any]) -> Floats:
    """The mean gradient of a perceptron's rows, by automatic differentiation."""
    from ...trusted.torch_extra import torch

    with torch.enable_grad():
        at = torch.from_numpy(theta).requires_grad_(True)
        values = model.loss.value(model.scored(at, torch.from_numpy(X)), torch.from_numpy(y))
        (gradient,) = torch.autograd.grad(values.mean(), at)
    return np.asarray(gradient.numpy())


def _all(asked: bool) -> Drawn:
    return Drawn() if asked else NOBODY


def _length(vector: Floats) -> Floats:
    """The length of one vector. Its rounding does no harm: what is clipped by it is checked in integers."""
    return np.sqrt(np.square(vector).sum(keepdims=True))


def _seen(vector: Floats, scale: Floats | None, basis: Floats | None) -> Floats:
    """A vector in the coordinates asked for."""
    if basis is not None:
        return np.asarray(basis.T @ vector, np.float64)
    return vector if scale is None else vector / scale
