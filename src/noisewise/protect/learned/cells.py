"""LSTM cells as plain tensors: two layers and a linear head, run by one function.

The coordinate-wise network of Andrychowicz et al. 2016: the same small cell for every coordinate, each with its own
memory, so that one set of weights serves any dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

from ...trusted.late import Tensor, torch

Layer = tuple[Tensor, Tensor, Tensor, Tensor]  # input weights, memory weights, and a bias for each
PARTS = ("input", "memory", "input_bias", "memory_bias")
Memory = tuple[tuple[Tensor, Tensor], ...]  # (h, c) of each layer


class LstmCell(NamedTuple):
    """Weights of a network: LSTM layers, then ``head`` (outputs x units) and ``bias``."""

    layers: tuple[Layer, ...]
    head: Tensor
    bias: Tensor

    @property
    def inputs(self) -> int:
        return self.layers[0][0].shape[1]

    @property
    def units(self) -> int:
        return self.head.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """All weights by name."""
        named = {
            f"layer{number}.{name}": weight
            for number, layer in enumerate(self.layers)
            for name, weight in zip(PARTS, layer, strict=True)
        }
        return {**named, "head": self.head, "head_bias": self.bias}


def cell_from(tensors: dict[str, Tensor]) -> LstmCell:
    """The cell with these weights, as :meth:`LstmCell.tensors` names them; shapes that do not fit are refused."""
    depth = sum(name.endswith(".input") for name in tensors)
    wanted = {f"layer{n}.{part}" for n in range(depth) for part in PARTS}
    if not depth or set(tensors) != wanted | {"head", "head_bias"}:
        raise ValueError(f"a cell has layers, a head and its bias, not {', '.join(sorted(tensors))}")
    layers = tuple(cast(Layer, tuple(tensors[f"layer{n}.{part}"] for part in PARTS)) for n in range(depth))
    head, bias = tensors["head"], tensors["head_bias"]
    if head.ndim != 2 or layers[0][0].ndim != 2 or 0 in (*head.shape, *layers[0][0].shape):
        raise ValueError("the weights of a cell do not fit together")
    units, inputs = head.shape[1], layers[0][0].shape[1]
    fits = bias.shape == head.shape[:1]
    for number, (into, memory, *biases) in enumerate(layers):
        width = inputs if number == 0 else units
        fits &= into.shape == (4 * units, width) and memory.shape == (4 * units, units)
        fits &= all(b.shape == (4 * units,) for b in biases)
    if not fits:
        raise ValueError("the weights of a cell do not fit together")
    return LstmCell(layers, head, bias)


def new_cell(inputs: int, outputs: int, *, units: int, generator: torch.Generator, depth: int = 2) -> LstmCell:
    """Random layers, and a head near zero, so that a fresh network changes almost nothing."""
    bound = 1 / math.sqrt(units)

    def uniform(*shape: int) -> Tensor:
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    widths = (inputs, *(units,) * (depth - 1))
    layers = tuple(
        (uniform(4 * units, width), uniform(4 * units, units), uniform(4 * units), torch.zeros(4 * units))
        for width in widths
    )
    return LstmCell(layers, 0.01 * uniform(outputs, units), torch.zeros(outputs))


def no_memory(cell: LstmCell, rows: int) -> Memory:
    """What a cell remembers before its first step."""
    zero = torch.zeros(rows, cell.units)
    return tuple((zero, zero) for _ in cell.layers)


def run(cell: LstmCell, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
    """One step for a stack of inputs (rows, inputs): outputs (rows, outputs) and the new memory."""
    after = []
    for layer, (h, c) in zip(cell.layers, memory, strict=True):
        x, c = torch.lstm_cell(x, (h, c), *layer)
        after.append((x, c))
    return torch.addmm(cell.bias, x, cell.head.T), tuple(after)
