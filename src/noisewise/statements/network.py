"""A trained model as numbers: scores of rows by numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..trusted.models.layers import LAYERS

Array = NDArray[Any]
ROWS_PER_CHUNK = 1 << 16


@dataclass(frozen=True)
class Network:
    """What a statement says of a model (its ``kind``, units of each layer, loss in words), and what lies between layers."""

    kind: str
    sizes: tuple[int, ...]
    loss: str
    between: str = "tanh"

    @property
    def linear(self) -> bool:
        return self.kind in ("Linear", "Additive")

    @property
    def loss_name(self) -> str:
        """The name of the loss, without its settings."""
        return self.loss.replace(",", " ").split()[0]

    @property
    def features(self) -> int:
        return self.sizes[0]

    @property
    def outputs(self) -> int:
        return self.sizes[-1]

    @property
    def dimension(self) -> int:
        return sum(out * (into + (not self.linear)) for into, out in pairwise(self.sizes))

    def scores(self, theta: Array, rows: Array) -> Array:
        """The score of each scaled row, or one column per output, in double precision, a chunk at a time."""
        wide = theta.astype(np.float64)
        parts = [
            self._scores(wide, rows[at : at + ROWS_PER_CHUNK].astype(np.float64))
            for at in range(0, len(rows), ROWS_PER_CHUNK)
        ]
        scores = np.concatenate(parts) if parts else np.empty((0, self.outputs))
        return scores[:, 0] if self.outputs == 1 else scores

    def _scores(self, theta: Array, rows: Array) -> Array:
        if self.linear:
            return rows @ theta.reshape(self.outputs, self.features).T
        at = 0
        for number, (into, out) in enumerate(pairwise(self.sizes)):
            rows = rows if number == 0 else LAYERS[self.between].by_entry(rows)
            weights, bias = theta[at : at + out * into].reshape(out, into), theta[at + out * into :][:out]
            rows, at = rows @ weights.T + bias, at + out * (into + 1)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """As statements have it."""
        return {"kind": self.kind, "shape": list(self.sizes), "loss": self.loss, "parameters": self.dimension}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Network:
        """What :meth:`to_dict` wrote down, refused where it is none."""
        made = cls(str(data["kind"]), tuple(int(size) for size in data["shape"]), str(data["loss"]))
        layers = len(made.sizes) == 2 if made.linear else made.kind == "MLP" and len(made.sizes) > 2
        if not layers or min(made.sizes) < 1 or made.dimension != data["parameters"]:
            raise ValueError("its model is none that this version knows")
        return made
