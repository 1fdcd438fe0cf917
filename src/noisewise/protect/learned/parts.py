"""The learned protector on tensors, with a graph: what meta-training unrolls. A private run is :mod:`.fast`, on arrays.

LSTM scheduler, LSTM projector and, if wanted, an LSTM clip make an ordinary ``Protector``.

Scheduler.  u_t from the signal;  share_t = sigmoid(2 u_t + logit(1/(T-t))) of what is left, all of it at the last step.
    u = 0 is the uniform schedule, and no weights can overspend: that is the ``exact`` form. The ``open`` form, which
    the paper's constrained objectives train, spends e^{2 u_t}/T of the whole budget and stops when nothing is left.
Projector.  For each coordinate, with g the released gradient and m its running average, both in units of the clip norm,
    theta <- theta (1 - 0.1 tanh o_3) - eta (e^{2 o_1} g + (e^{2 o_2} - 1) m),   eta = e^{2 rate} n mu / T.
    In units of the clip norm, noise then moves each coordinate, and so the score of a unit row, by about 1 over a run,
    whatever size, budget, dimension and horizon.
Clip.       C_t = C e^{2 c_t} with the exponent kept in [-4, 1], C the typical norm of the loss. A second output scales
    the last theta (of a perceptron, its last layer), so that scores are calibrated.

With all weights zero this is plain gradient descent with equal noise: the zero-weight protector.
Inputs are ratios of released numbers to their known noise, or public facts, so one set of weights serves any
dimension, size, budget and horizon. ``inputs="paper"`` has the paper's instead: log-magnitude and sign of the
gradient for the projector, the (paid) norm alone for the scheduler.

*Guarantee*: a learned protector reads a ``Signal`` and nothing else; see ``protect.protector``.

Hong, Wang, Wang & Zhou 2021, Learning Model-Based Privacy Protection under Budget Constraints (Algorithm 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ...trusted.torch_extra import Tensor, torch
from ..optimizers import Array
from ..protector import Protector
from ..schedules import FixedClip, Uniform
from ..signal import Signal
from .formulas import (
    CLIP_EXPONENTS,
    MAX_COORDINATE,
    MIN_SPEND,
    PAPER_P,
    RATE_EXPONENTS,
    SCALE_EXPONENTS,
    STACKS,
    base_step,
    clarity,
    common_inputs,
    global_inputs,
    log_norm,
)
from .weights import Design, LayerWeights, LstmCell, Weights, shapes

Memory = tuple[tuple[Tensor, Tensor], ...]  # (h, c) of each layer


def new_weights(design: Design, seed: int = 0) -> Weights:
    """Random memory and heads near zero: almost the zero-weight protector."""
    generator = torch.Generator().manual_seed(seed)
    scheduler, projector, clip = (
        new_cell(inputs, outputs, units=units, generator=generator) for inputs, units, outputs in shapes(design)
    )
    return Weights(scheduler, projector, clip, torch.zeros(1))


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


def _tensor(weight: Array) -> Tensor:
    return torch.from_numpy(weight) if isinstance(weight, np.ndarray) else weight


def _cell(cell: LstmCell) -> LstmCell:
    """Entry by entry and of whatever shape: some may be arrays, and a bias may have a row for each copy."""
    layers = tuple(cast(LayerWeights, tuple(map(_tensor, layer))) for layer in cell.layers)
    return LstmCell(layers, _tensor(cell.head), _tensor(cell.bias))


def protector(weights: Weights, design: Design) -> Protector:
    """An ordinary protector with these weights; arrays, as files have them, become tensors."""
    scheduler, projector, clip, rate = weights
    weights = Weights(_cell(scheduler), _cell(projector), _cell(clip), _tensor(rate))
    scale = LearnedScale(weights.clip) if design.clip and len(weights.clip.bias) > 1 else None
    return Protector(
        LearnedClip(weights.clip) if design.clip else FixedClip(),
        LearnedSchedule(weights.scheduler, design) if design.scheduler else Uniform(),
        LearnedProjector(weights.projector, weights.rate, design),
        norm_share=design.norm_share,
        squared_norm=design.squared_norm,
        scale=scale,
        settle=True,
    )


@dataclass(frozen=True)
class LearnedSchedule:
    """Shares of what is left from an LSTM that sees noise-to-signal ratios."""

    cell: LstmCell
    design: Design

    def init(self, copies: int, dimension: int) -> Memory:
        return no_memory(self.cell, copies)

    def __call__(self, signal: Signal, memory: Memory) -> tuple[Tensor, Memory]:
        if self.design.form == "open":
            spend, memory = self.spend(signal, memory)
            return (spend / signal.remaining.clamp(min=MIN_SPEND)).clamp(max=1.0), memory
        out, memory = run(self.cell, scheduler_inputs(signal, self.design), memory)
        left = signal.horizon - signal.step
        if left <= 1:
            return torch.ones(signal.copies), memory
        share = torch.sigmoid(2 * STACKS.tame(out[:, 0]) - math.log(left - 1))
        return share.clamp(min=MIN_SPEND), memory

    def spend(self, signal: Signal, memory: Memory) -> tuple[Tensor, Memory]:
        """What the open form spends, as a share of the whole budget, whether or not that much is left."""
        out, memory = run(self.cell, scheduler_inputs(signal, self.design), memory)
        return (torch.exp(2 * STACKS.tame(out[:, 0])) / signal.horizon).clamp(MIN_SPEND, 1.0), memory


@dataclass(frozen=True)
class LearnedClip:
    """A clip norm from an LSTM, from e^-4 to e times the typical one."""

    cell: LstmCell

    def init(self, copies: int, dimension: int) -> Memory:
        return no_memory(self.cell, copies)

    def __call__(self, signal: Signal, memory: Memory) -> tuple[Tensor, Memory]:
        out, memory = run(self.cell, _global_inputs(signal), memory)
        return signal.typical_clip * torch.exp((2 * STACKS.tame(out[:, 0])).clamp(*CLIP_EXPONENTS)), memory


@dataclass(frozen=True)
class LearnedScale:
    """The second output of the clip's LSTM after the last step: a factor from e^-4 to e^2 for its scores."""

    cell: LstmCell

    def __call__(self, signal: Signal, memory: Memory) -> Tensor:
        out, _ = run(self.cell, _global_inputs(signal), memory)
        return torch.exp((2 * STACKS.tame(out[:, 1])).clamp(*SCALE_EXPONENTS))


@dataclass(frozen=True)
class LearnedProjector:
    """Steps from a coordinate-wise LSTM."""

    cell: LstmCell
    rate: Tensor
    design: Design

    def init(self, copies: int, dimension: int) -> Memory:
        return no_memory(self.cell, copies * dimension)

    def __call__(self, signal: Signal, thetas: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        eta = (base_step(signal) * torch.exp((2 * STACKS.tame(self.rate)).clamp(*RATE_EXPONENTS)))[:, None]
        if not self.design.projector:
            return (thetas - eta * signal.gradient).clamp(-MAX_COORDINATE, MAX_COORDINATE), memory
        x = projector_inputs(signal, thetas, self.design)
        out, memory = run(self.cell, x.view(-1, x.shape[2]), memory)
        o = STACKS.tame(out).view(*thetas.shape, 3)
        along = torch.exp(2 * o[..., 0].clamp(-5, 3)) * signal.gradient
        along = along + torch.expm1(2 * o[..., 1].clamp(-5, 3)) * signal.average
        moved = thetas * (1 - 0.1 * torch.tanh(o[..., 2])) - eta * along
        return moved.clamp(-MAX_COORDINATE, MAX_COORDINATE), memory


def scheduler_inputs(signal: Signal, design: Design) -> Tensor:
    """(R, 6): log norm and its signal-to-noise, what is left, t/T, log noise ratio, log T; or the paper's log norm."""
    return log_norm(STACKS, signal)[:, None] if design.inputs == "paper" else _global_inputs(signal)


def _global_inputs(signal: Signal) -> Tensor:
    return _stacked(global_inputs(STACKS, signal), signal.copies)


def _stacked(columns: list[Any], copies: int) -> Tensor:
    """(R, columns), from tensors (R,) and numbers that all runs share."""
    return torch.stack([c if isinstance(c, Tensor) else torch.full((copies,), c) for c in columns], 1)


def projector_inputs(signal: Signal, thetas: Tensor, design: Design) -> Tensor:
    """(R, dimension, 9): g and m over their noise, theta over its rms, and what is common to all coordinates."""
    if design.inputs == "paper":
        return _paper_inputs(signal.gradient)
    d = signal.dimension
    length = torch.linalg.vector_norm(thetas, dim=1)
    common = _stacked(common_inputs(STACKS, signal, length), signal.copies)
    own = torch.stack(
        [
            torch.asinh(signal.gradient / signal.noise_std[:, None]),
            torch.asinh(signal.average / signal.average_std[:, None]),
            thetas / (length[:, None] / math.sqrt(d) + 1e-6),
            _by_group(signal),
        ],
        2,
    )
    return torch.cat([own, common[:, None].expand(-1, d, -1)], 2)


def _by_group(signal: Signal) -> Tensor:
    """(R, d): how clear the average gradient is in the layer that a coordinate belongs to."""
    if len(signal.groups) == 1:
        clear = clarity(STACKS, signal.norm, signal.average_std, signal.dimension)
        return clear[:, None].expand(-1, signal.dimension)
    parts = []
    for group in signal.average.split(list(signal.groups), dim=1):
        d = group.shape[1]
        norm = (group.square().sum(1) - d * signal.average_std.square()).clamp(min=1e-6).sqrt()
        parts.append(clarity(STACKS, norm, signal.average_std, d)[:, None].expand(-1, d))
    return torch.cat(parts, 1)


def _paper_inputs(gradient: Tensor) -> Tensor:
    """(log|g|/p, sign g) where |g| >= e^-p, else (-1, e^p g) (Andrychowicz et al. 2016)."""
    large = gradient.abs() >= math.exp(-PAPER_P)
    size = torch.where(large, torch.log(gradient.abs().clamp(min=math.exp(-PAPER_P))) / PAPER_P, -1.0)
    return torch.stack([size, torch.where(large, gradient.sign(), math.exp(PAPER_P) * gradient)], 2)
