"""The learned protector of a private run: the formulas of :mod:`.parts` on numpy arrays and plain floats.

A run asks one small question at a time. Arrays lie with coordinates along the last axis, so that every gate of a cell is one
block of memory, and inputs that all coordinates share enter the first layer as part of its bias.

*Guarantee*: a learned protector reads a ``Signal`` and nothing else; see ``protect.protector``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..protector import Protector
from ..schedules import FixedClip, Uniform
from ..signal import Signal, one
from .formulas import (
    CLIP_EXPONENTS,
    MAX_COORDINATE,
    MIN_SPEND,
    NUMBERS,
    PAPER_P,
    RATE_EXPONENTS,
    SCALE_EXPONENTS,
    base_step,
    clarity,
    common_inputs,
    global_inputs,
)
from .weights import Design, LayerWeights, LstmCell, Weights, cell_from

Array = NDArray[np.float32]
Memory = tuple[tuple[Array, Array], ...]  # (h, c) of each layer, units first
OWN = 4  # inputs that differ from coordinate to coordinate
NOTHING = np.empty((0, 1), np.float32)
MAX_WEIGHT = 1e30  # no weight is more, or not a number, so that no output is


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
    units, weights = cell.units, cell.tensors()
    tamed = cell_from({name: np.nan_to_num(weights[name]).clip(-MAX_WEIGHT, MAX_WEIGHT) for name in weights})
    order = np.r_[: 2 * units, 3 * units : 4 * units, 2 * units : 3 * units]
    half = np.repeat(np.array([0.5, 1.0], np.float32), [3 * units, units])[:, None]
    layers = [(half * np.hstack(layer[:2])[order], half * (layer[2] + layer[3])[order, None]) for layer in tamed.layers]
    (first, bias), shared = layers[0], slice(own, cell.inputs)
    layers[0] = (np.delete(first, shared, 1), bias)
    return Net(tuple(layers), tamed.head, tamed.bias[:, None], np.ascontiguousarray(first[:, shared]))


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
        z = weight @ np.concatenate((x, h))
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
    return net.head @ x + net.bias, tuple(after)


def protector(weights: Weights, design: Design) -> Protector:
    """An ordinary protector with these weights, for one run."""
    asking = [cell for cell, on in ((weights.clip, design.clip), (weights.scheduler, design.scheduler)) if on]
    net = net_from(reduce(side_by_side, asking), 0) if asking else None
    own = 2 if design.inputs == "paper" else OWN
    rate = math.exp(_within(RATE_EXPONENTS, 2 * NUMBERS.tame(weights.rate.item())))
    return Protector(
        FixedClip(),
        Uniform(),
        FastProjector(net_from(weights.projector, own), rate, design),
        norm_share=design.norm_share,
        squared_norm=design.squared_norm,
        scale=FastScale(net) if net and design.clip and len(weights.clip.bias) > 1 else None,
        together=FastQuestion(net, design) if net else None,
        settle=True,
    )


def side_by_side(cell: LstmCell, other: LstmCell) -> LstmCell:
    """Two cells with the same inputs as one, with the outputs of both; the other may take only the first few inputs."""
    layers: list[LayerWeights] = []
    for number, (mine, theirs) in enumerate(zip(cell.layers, other.layers, strict=True)):
        weights = _joined(mine[0], theirs[0], shared=number == 0), _joined(mine[1], theirs[1])
        first, second = (
            _joined(a[:, None], b[:, None], shared=True)[:, 0] for a, b in zip(mine[2:], theirs[2:], strict=True)
        )
        layers.append((*weights, first, second))
    head = _joined(cell.head, other.head, gates=1)
    return LstmCell(tuple(layers), head, np.concatenate([cell.bias, other.bias]))


def _joined(one: Array, other: Array, *, gates: int = 4, shared: bool = False) -> Array:
    """Rows of both, gate by gate; columns are shared, or each has its own and zeros in those of the other."""
    mine, theirs = (weight.reshape(gates, -1, weight.shape[1]) for weight in (one, other))
    (_, rows, width), first = mine.shape, 0 if shared else mine.shape[2]
    both = np.zeros((gates, rows + theirs.shape[1], max(width, first + theirs.shape[2])), np.float32)
    both[:, :rows, :width] = mine
    both[:, rows:, first : first + theirs.shape[2]] = theirs
    return both.reshape(-1, both.shape[2])


@dataclass(frozen=True)
class FastQuestion:
    """``LearnedClip`` and ``LearnedSchedule`` as one net, whose last output is the schedule's; or one of the two."""

    net: Net
    design: Design

    def init(self, copies: int, dimension: int) -> Memory:
        return empty_memory(self.net, copies)

    def __call__(self, signal: Signal, memory: Memory) -> tuple[Array, Array, Memory]:
        seen = global_inputs(NUMBERS, signal)[: self.net.shared.shape[1]]
        out, memory = run_net(self.net, NOTHING, seen, memory)
        clip = math.exp(_within(CLIP_EXPONENTS, 2 * out[0].item())) if self.design.clip else 1.0
        return one(signal.typical_clip * clip), one(self._share(signal, 2 * NUMBERS.tame(out[-1].item()))), memory

    def _share(self, signal: Signal, u: float) -> float:
        left = signal.horizon - signal.step
        if not self.design.scheduler:
            return 1 / max(left, 1)
        if self.design.form == "open":
            spend = min(max(math.exp(u) / signal.horizon, MIN_SPEND), 1.0)
            return min(spend / max(signal.remaining.item(), MIN_SPEND), 1.0)
        return max(1 / (1 + (left - 1) * math.exp(-u)), MIN_SPEND) if left > 1 else 1.0


@dataclass(frozen=True)
class FastScale:
    """``LearnedScale`` on the net of :class:`FastQuestion`."""

    net: Net

    def __call__(self, signal: Signal, memory: Memory) -> Array:
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

    def __call__(self, signal: Signal, thetas: Array, memory: Memory) -> tuple[Array, Memory]:
        step = self.rate * base_step(signal).item()
        if self.design.projector:
            inputs = _paper_inputs(signal.gradient) if self.design.inputs == "paper" else _inputs(signal, thetas)
            o, memory = run_net(self.net, *inputs, memory)
            exponents = np.minimum(np.maximum(2 * o[:2], -10.0), 6.0)
            along = np.exp(exponents[0]) * signal.gradient
            along += np.expm1(exponents[1]) * signal.average
            along *= step
            moved = thetas - 0.1 * np.tanh(o[2]) * thetas
            moved -= along
        else:
            moved = thetas - step * signal.gradient
        return np.minimum(np.maximum(moved, -MAX_COORDINATE), MAX_COORDINATE), memory


def _inputs(signal: Signal, theta: Array) -> tuple[Array, list[float]]:
    """What differs from coordinate to coordinate (4, d), and the rest."""
    d, gradient, average = signal.dimension, signal.gradient, signal.average
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
