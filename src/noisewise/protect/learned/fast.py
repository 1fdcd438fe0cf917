"""A learned protector for one run without a graph: the same formulas on numpy arrays and plain floats.

A private run asks one small question at a time, and there tensor bookkeeping costs more than arithmetic. Arrays lie
with coordinates along the last axis, so that every gate of a cell is one block of memory, and inputs that all
coordinates share enter the first layer as part of its bias.

*Guarantee*: as in ``learned.protector``; these parts read the same ``Signal``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...trusted.late import Tensor, torch
from ..protector import Protector
from ..signal import Signal, one
from .cells import LstmCell, cell_from
from .formulas import CLIP_EXPONENTS, NUMBERS, RATE_EXPONENTS, SCALE_EXPONENTS, clarity, common_inputs, global_inputs
from .parts import FARTHEST, LEAST_SPEND, PAPER_P, Design, LearnedClip, LearnedProjector, LearnedSchedule, base_step

Array = NDArray[np.float32]
Memory = tuple[tuple[Array, Array], ...]  # (h, c) of each layer, units first
OWN = 4  # inputs that differ from coordinate to coordinate
NOTHING = np.empty((0, 1), np.float32)
HEAVIEST = 1e30  # no weight is more, or not a number, so that no output is
SMALL = 6000  # numbers in the right-hand side of a product


class Net(NamedTuple):
    """A cell's weights with gates in the order input, forget, output, candidate, and each layer's two matrices as one.

    sigmoid(x) = (1 + tanh(x/2)) / 2, with that half in the weights: one tanh serves all gates.
    ``shared``: first-layer weights of the inputs that all coordinates share.
    """

    layers: tuple[tuple[Array, Array], ...]
    head: Array
    bias: Array
    shared: Array


def net_from(cell: LstmCell, own: int) -> Net:
    """The weights of a cell, ready for :func:`run_net`; the first ``own`` inputs differ from coordinate to coordinate."""
    units, tensors = cell.units, cell.tensors()
    tamed = cell_from({name: tensors[name].detach().nan_to_num(0.0).clamp(-HEAVIEST, HEAVIEST) for name in tensors})
    order = np.r_[: 2 * units, 3 * units : 4 * units, 2 * units : 3 * units]
    half = np.repeat(np.array([0.5, 1.0], np.float32), [3 * units, units])[:, None]
    layers = [
        (half * torch.cat(layer[:2], 1).numpy()[order], half * (layer[2] + layer[3]).numpy()[order, None])
        for layer in tamed.layers
    ]
    (first, bias), shared = layers[0], slice(own, cell.inputs)
    layers[0] = (np.delete(first, shared, 1), bias)
    return Net(tuple(layers), tamed.head.numpy(), tamed.bias.numpy()[:, None], np.ascontiguousarray(first[:, shared]))


def empty_memory(net: Net, rows: int) -> Memory:
    """What a net remembers before its first step."""
    zero = np.zeros((net.head.shape[1], rows), np.float32)
    return tuple((zero, zero) for _ in net.layers)


def run_net(net: Net, x: Array, shared: list[float], memory: Memory) -> tuple[Array, Memory]:
    """One step for inputs (own, rows) and those that all rows share: outputs (outputs, rows) and the new memory."""
    units = net.head.shape[1]
    after: list[tuple[Array, Array]] = []
    more = net.shared @ np.array(shared, np.float32)[:, None]
    for (weight, bias), (h, c) in zip(net.layers, memory, strict=True):
        z = _product(weight, np.concatenate((x, h)))
        z += bias if after else bias + more
        np.tanh(z, out=z)
        gates = z[: 3 * units]
        gates *= 0.5
        gates += 0.5
        c = gates[units : 2 * units] * c
        c += gates[:units] * z[3 * units :]
        x = np.tanh(c)
        x *= gates[2 * units :]
        after.append((x, c))
    return _product(net.head, x) + net.bias, tuple(after)


def _product(weight: Array, x: Array) -> Array:
    """A large product goes to torch, so that it takes the threads that torch was given and no others."""
    if x.size < SMALL:
        return weight @ x
    return torch.mm(torch.from_numpy(weight), torch.from_numpy(x)).numpy()


def fast(protector: Protector) -> Protector:
    """The same protector for one run at a time, its learned parts on arrays; other parts stay as they are."""
    clip, schedule, projector = protector.clip, protector.schedule, protector.projector
    together, scale = protector.together, protector.scale
    if isinstance(clip, LearnedClip) and isinstance(schedule, LearnedSchedule):
        together = FastQuestion(net_from(side_by_side(clip.cell, schedule.cell), 0), schedule.design)
        scale = FastScale(together.net) if scale is not None else None
    if isinstance(projector, LearnedProjector) and projector.design.projector:
        rate = math.exp(_within(RATE_EXPONENTS, 2 * NUMBERS.tame(projector.rate.item())))
        own = 2 if projector.design.inputs == "paper" else OWN
        projector = FastProjector(net_from(projector.cell, own), rate, projector.design)
    return replace(protector, projector=projector, together=together, scale=scale)


def side_by_side(cell: LstmCell, other: LstmCell) -> LstmCell:
    """Two cells with the same inputs as one, with the outputs of both; the other may take only the first few inputs."""

    def blocks(weight: Tensor, another: Tensor) -> Tensor:
        gates = zip(weight.chunk(4), another.chunk(4), strict=True)
        return torch.cat([torch.block_diag(gate, another_gate) for gate, another_gate in gates])

    def rows(weight: Tensor, another: Tensor) -> Tensor:
        return torch.cat([part for gates in zip(weight.chunk(4), another.chunk(4), strict=True) for part in gates])

    layers = [
        (blocks(a[0], b[0]), blocks(a[1], b[1]), rows(a[2], b[2]), rows(a[3], b[3]))
        for a, b in zip(cell.layers, other.layers, strict=True)
    ]
    missing = torch.zeros(len(other.layers[0][0]), cell.inputs - other.inputs)
    first = rows(cell.layers[0][0], torch.cat([other.layers[0][0], missing], 1))
    layers[0] = (first, *layers[0][1:])
    return LstmCell(tuple(layers), torch.block_diag(cell.head, other.head), torch.cat([cell.bias, other.bias]))


@dataclass(frozen=True)
class FastQuestion:
    """``LearnedClip`` and ``LearnedSchedule`` as one net, whose last output is the schedule's."""

    net: Net
    design: Design

    def init(self, copies: int, dimension: int) -> Memory:
        return empty_memory(self.net, copies)

    def __call__(self, signal: Signal, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        out, memory = run_net(self.net, NOTHING, global_inputs(NUMBERS, signal), memory)
        clip = signal.typical_clip * math.exp(_within(CLIP_EXPONENTS, 2 * out[0].item()))
        u, left = 2 * NUMBERS.tame(out[-1].item()), signal.horizon - signal.step
        if self.design.form == "open":
            spend = min(max(math.exp(u) / signal.horizon, LEAST_SPEND), 1.0)
            share = min(spend / max(signal.remaining.item(), LEAST_SPEND), 1.0)
        else:
            share = max(1 / (1 + (left - 1) * math.exp(-u)), LEAST_SPEND) if left > 1 else 1.0
        return one(clip), one(share), memory


@dataclass(frozen=True)
class FastScale:
    """``LearnedScale`` on the net of :class:`FastQuestion`."""

    net: Net

    def __call__(self, signal: Signal, memory: Memory) -> Tensor:
        out, _ = run_net(self.net, NOTHING, global_inputs(NUMBERS, signal), memory)
        return one(math.exp(_within(SCALE_EXPONENTS, 2 * out[1].item())))


@dataclass(frozen=True)
class FastProjector:
    """``LearnedProjector`` for one run; ``rate`` is its step size over the base step."""

    net: Net
    rate: float
    design: Design

    def init(self, copies: int, dimension: int) -> Memory:
        return empty_memory(self.net, copies * dimension)

    def __call__(self, signal: Signal, thetas: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        theta, gradient, average = thetas.numpy(), signal.gradient.numpy(), signal.average.numpy()
        inputs = _paper_inputs(gradient) if self.design.inputs == "paper" else _inputs(signal, theta, gradient, average)
        o, memory = run_net(self.net, *inputs, memory)
        exponents = np.minimum(np.maximum(2 * o[:2], -10.0), 6.0)
        along = np.exp(exponents[0]) * gradient
        along += np.expm1(exponents[1]) * average
        along *= self.rate * base_step(signal).item()
        moved = theta - 0.1 * np.tanh(o[2]) * theta
        moved -= along
        return torch.from_numpy(np.minimum(np.maximum(moved, -FARTHEST), FARTHEST)), memory


def _inputs(signal: Signal, theta: Array, gradient: Array, average: Array) -> tuple[Array, list[float]]:
    """What differs from coordinate to coordinate (4, d), and the rest."""
    d = signal.dimension
    std, average_std, length = signal.noise_std.item(), signal.average_std.item(), math.sqrt(np.vdot(theta, theta))
    x = np.empty((OWN, d), np.float32)
    np.divide(gradient, std, out=x[:1])
    np.divide(average, average_std, out=x[1:2])
    np.arcsinh(x[:2], out=x[:2])
    np.divide(theta, length / math.sqrt(d) + 1e-6, out=x[2:3])
    if len(signal.groups) == 1:
        x[3] = clarity(NUMBERS, signal.norm.item(), average_std, d)
    else:
        ends = np.cumsum(signal.groups)
        for start, end in zip(ends - signal.groups, ends, strict=True):
            group = average[0, start:end]
            squared = float(group @ group) - len(group) * average_std**2
            x[3, start:end] = clarity(NUMBERS, math.sqrt(max(squared, 1e-6)), average_std, len(group))
    return x, common_inputs(NUMBERS, signal, length)


def _paper_inputs(gradient: Array) -> tuple[Array, list[float]]:
    size = np.abs(gradient)
    large = size >= math.exp(-PAPER_P)
    logs = np.log(np.maximum(size, math.exp(-PAPER_P))) / PAPER_P
    rest = np.where(large, np.sign(gradient), math.exp(PAPER_P) * gradient)
    return np.concatenate([np.where(large, logs, -1.0), rest]).astype(np.float32), []


def _within(limits: tuple[float, float], value: float) -> float:
    return min(max(value, limits[0]), limits[1])
