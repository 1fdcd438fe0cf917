"""What a learned protector is made of: its design, and the weights of its LSTM cells, as arrays or tensors.

Cells are the coordinate-wise network of Andrychowicz et al. 2016, two layers and a linear head: the same small cell for every
coordinate, each with its own memory, so that one set of weights serves any dimension.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ...trusted import validate
from ..optimizers import Array, filled

FORMS = ("exact", "open")
INPUTS = ("normalised", "paper")
KNOBS = ("rate", "clip", "spending", "memory")  # half the logarithm of the step size, of the clip norm, and so on
LayerWeights = tuple[Array, Array, Array, Array]  # input weights, memory weights, and a bias for each
PARTS = ("input", "memory", "input_bias", "memory_bias")


class LstmCell(NamedTuple):
    """Weights of a network: LSTM layers, then ``head`` (outputs x units) and ``bias``."""

    layers: tuple[LayerWeights, ...]
    head: Array
    bias: Array

    @property
    def inputs(self) -> int:
        return int(self.layers[0][0].shape[1])

    @property
    def units(self) -> int:
        return int(self.head.shape[1])

    def tensors(self) -> dict[str, Array]:
        """All weights by name."""
        named = {
            f"layer{number}.{name}": weight
            for number, layer in enumerate(self.layers)
            for name, weight in zip(PARTS, layer, strict=True)
        }
        return {**named, "head": self.head, "head_bias": self.bias}


def cell_from(tensors: dict[str, Array]) -> LstmCell:
    """The cell with these weights, as :meth:`LstmCell.tensors` names them; shapes that do not fit are refused."""
    depth = sum(name.endswith(".input") for name in tensors)
    wanted = {f"layer{n}.{part}" for n in range(depth) for part in PARTS}
    if not depth or set(tensors) != wanted | {"head", "head_bias"}:
        raise ValueError(f"a cell has layers, a head and its bias, not {', '.join(sorted(tensors))}")
    layers = tuple(cast(LayerWeights, tuple(tensors[f"layer{n}.{part}"] for part in PARTS)) for n in range(depth))
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


@dataclass(frozen=True)
class Design:
    """What a learned protector is made of; fixed before training."""

    units: int = 20
    form: str = "exact"
    inputs: str = "normalised"
    clip: bool = True
    scheduler: bool = True
    projector: bool = True
    norm_share: float = 0.0
    squared_norm: bool = False

    def __post_init__(self) -> None:
        validate.whole(units=self.units)
        validate.one_of(FORMS, form=self.form)
        validate.one_of(INPUTS, inputs=self.inputs)
        for name in ("clip", "scheduler", "projector", "squared_norm"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} is {getattr(self, name)!r}; pass True or False")
        if not 0 <= self.norm_share < 1:
            raise ValueError(f"norm_share is {self.norm_share!r}; pass a number in [0, 1)")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Weights(NamedTuple):
    """Everything that is learned: three cells and the logarithm of a factor on the base step."""

    scheduler: LstmCell
    projector: LstmCell
    clip: LstmCell
    rate: Array

    def tensors(self) -> dict[str, Array]:
        cells = {"scheduler": self.scheduler, "projector": self.projector, "clip": self.clip}
        named = {f"{part}.{name}": weight for part, cell in cells.items() for name, weight in cell.tensors().items()}
        return {**named, "rate": self.rate}


def shapes(design: Design) -> list[tuple[int, int, int]]:
    """Inputs, units and outputs of the scheduler, the projector and the clip."""
    scheduler, projector = (1, 2) if design.inputs == "paper" else (6, 9)
    return [(scheduler, design.units, 1), (projector, design.units, 3), (6, design.units, 2)]


def weights_fit(weights: Weights, design: Design) -> bool:
    """Whether weights from elsewhere have the inputs, units and outputs of the design."""
    cells = (weights.scheduler, weights.projector, weights.clip)
    if len({len(cell.layers) for cell in cells}) > 1:
        return False
    found = [(cell.inputs, cell.units, len(cell.bias)) for cell in cells]
    usual = shapes(design)
    return found in (usual, [*usual[:2], (6, design.units, 1)])


def weights_from(tensors: dict[str, Any]) -> Weights:
    """The weights with these names, as :meth:`Weights.tensors` gives them; anything that does not fit is refused."""
    parts: dict[str, dict[str, Array]] = {"scheduler": {}, "projector": {}, "clip": {}}
    rate = None
    for name, weight in tensors.items():
        part, _, rest = name.partition(".")
        if name == "rate" and weight.shape == (1,):
            rate = weight
        elif part in parts:
            parts[part][rest] = weight
        else:
            raise ValueError(f"{name!r} is not a weight of a protector")
    if rate is None:
        raise ValueError("the weights have no rate")
    return Weights(cell_from(parts["scheduler"]), cell_from(parts["projector"]), cell_from(parts["clip"]), rate)


def zero_weights(design: Design) -> Weights:
    """All weights zero: gradient descent with equal noise, the reference for what was learned."""

    def zero(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    def cell(inputs: int, units: int, outputs: int) -> LstmCell:
        layers = tuple(
            (zero(4 * units, width), zero(4 * units, units), zero(4 * units), zero(4 * units))
            for width in (inputs, units)
        )
        return LstmCell(layers, zero(outputs, units), zero(outputs))

    scheduler, projector, clip = (cell(*shape) for shape in shapes(design))
    return Weights(scheduler, projector, clip, zero(1))


def flattened(weights: Weights) -> NDArray[np.float64]:
    """All weights as one vector, in the order of their names."""
    return np.concatenate([np.asarray(weight, np.float64).reshape(-1) for weight in weights.tensors().values()])


def unflattened(flat: Array, units: int) -> Weights:
    """The weights that such a vector holds, with a graph if it has one."""
    parts, start = {}, 0
    for name, weight in zero_weights(Design(units=units)).tensors().items():
        parts[name] = flat[start : start + weight.size].reshape(weight.shape)
        start += weight.size
    return weights_from(parts)


def with_knobs(weights: Weights, knobs: Array) -> Weights:
    """Weights with few numbers (4,) added, or with a row of some biases for each of (copies, 4)."""
    rate, clip, spending, memory = (knobs[..., number] for number in range(len(KNOBS)))
    return Weights(
        weights.scheduler._replace(bias=weights.scheduler.bias + _at(spending, 0, 1)),
        weights.projector._replace(bias=weights.projector.bias + _at(memory, 1, 3)),
        weights.clip._replace(bias=weights.clip.bias + _at(clip, 0, 2)),
        weights.rate + rate,
    )


def _at(number: Array, place: int, outputs: int) -> Array:
    """Zeros but for what is added to one output."""
    added = filled(number, (*number.shape, outputs), 0.0)
    added[..., place] = number
    return added
