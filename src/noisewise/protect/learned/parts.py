"""The learned protector: LSTM scheduler, LSTM projector and, if wanted, an LSTM clip; an ordinary ``Protector``.

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
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ...trusted import validate
from ...trusted.late import Tensor, torch
from ..clips import FixedClip
from ..protector import Protector
from ..schedules import Uniform
from ..signal import Signal
from .cells import LstmCell, Memory, cell_from, new_cell, no_memory, run
from .formulas import (
    CLIP_EXPONENTS,
    RATE_EXPONENTS,
    SCALE_EXPONENTS,
    STACKS,
    clarity,
    common_inputs,
    global_inputs,
    log_norm,
)

FORMS = ("exact", "open")
INPUTS = ("normalised", "paper")
FARTHEST = 1e3  # no coordinate of theta goes further, whatever the weights
LEAST_SPEND = 1e-7  # of the budget: noise stays finite whatever the weights
PAPER_P = 10.0  # Andrychowicz et al. 2016, appendix A: gradients below e^-p count as small


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
    rate: Tensor

    def tensors(self) -> dict[str, Tensor]:
        cells = {"scheduler": self.scheduler, "projector": self.projector, "clip": self.clip}
        named = {f"{part}.{name}": weight for part, cell in cells.items() for name, weight in cell.tensors().items()}
        return {**named, "rate": self.rate}


def new_weights(design: Design, seed: int = 0) -> Weights:
    """Random memory and heads near zero: almost the zero-weight protector."""
    generator = torch.Generator().manual_seed(seed)
    scheduler, projector, clip = (
        new_cell(inputs, outputs, units=units, generator=generator) for inputs, units, outputs in _shapes(design)
    )
    return Weights(scheduler, projector, clip, torch.zeros(1))


def _shapes(design: Design) -> list[tuple[int, int, int]]:
    """Inputs, units and outputs of the scheduler, the projector and the clip."""
    scheduler, projector = (1, 2) if design.inputs == "paper" else (6, 9)
    return [(scheduler, design.units, 1), (projector, design.units, 3), (6, design.units, 2)]


def weights_fit(weights: Weights, design: Design) -> bool:
    """Whether weights from elsewhere have the inputs, units and outputs of the design."""
    cells = (weights.scheduler, weights.projector, weights.clip)
    if len({len(cell.layers) for cell in cells}) > 1:
        return False
    shapes = [(cell.inputs, cell.units, len(cell.bias)) for cell in cells]
    without_scale = [*_shapes(design)[:2], (6, design.units, 1)]
    return shapes in (_shapes(design), without_scale)


def weights_from(tensors: dict[str, Any]) -> Weights:
    """The weights with these names, as :meth:`Weights.tensors` gives them; anything that does not fit is refused."""
    parts: dict[str, dict[str, Tensor]] = {"scheduler": {}, "projector": {}, "clip": {}}
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
    return weights_from({name: torch.zeros_like(weight) for name, weight in new_weights(design).tensors().items()})


def protector(weights: Weights, design: Design) -> Protector:
    """An ordinary protector with these weights."""
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
            return (spend / signal.remaining.clamp(min=LEAST_SPEND)).clamp(max=1.0), memory
        out, memory = run(self.cell, scheduler_inputs(signal, self.design), memory)
        left = signal.horizon - signal.step
        if left <= 1:
            return torch.ones(signal.copies), memory
        share = torch.sigmoid(2 * STACKS.tame(out[:, 0]) - math.log(left - 1))
        return share.clamp(min=LEAST_SPEND), memory

    def spend(self, signal: Signal, memory: Memory) -> tuple[Tensor, Memory]:
        """What the open form spends, as a share of the whole budget, whether or not that much is left."""
        out, memory = run(self.cell, scheduler_inputs(signal, self.design), memory)
        return (torch.exp(2 * STACKS.tame(out[:, 0])) / signal.horizon).clamp(LEAST_SPEND, 1.0), memory


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
            return (thetas - eta * signal.gradient).clamp(-FARTHEST, FARTHEST), memory
        x = projector_inputs(signal, thetas, self.design)
        out, memory = run(self.cell, x.view(-1, x.shape[2]), memory)
        o = STACKS.tame(out).view(*thetas.shape, 3)
        along = torch.exp(2 * o[..., 0].clamp(-5, 3)) * signal.gradient
        along = along + torch.expm1(2 * o[..., 1].clamp(-5, 3)) * signal.average
        moved = thetas * (1 - 0.1 * torch.tanh(o[..., 2])) - eta * along
        return moved.clamp(-FARTHEST, FARTHEST), memory


def base_step(signal: Signal) -> Tensor:
    """The step sizes (R,) that weights of zero take: n mu / T, but none that is too long for the loss."""
    return (math.sqrt(signal.dimension) / signal.horizon * signal.ratio).clamp(max=signal.longest_step)


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
