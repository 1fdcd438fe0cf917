"""Losses of a linear score: value, slope, and the constants that sensitivity proofs need.

A loss maps the model's output ``z`` for one record and its label ``y`` to a number. Binary labels are -1 and +1,
classes are 0 .. K-1, targets of a regression are real. ``lipschitz`` bounds the norm of the slope in ``z`` and
``smoothness`` its rate of change; infinite where no bound exists.

``value`` and ``slope`` work on tensors, with gradients where that is asked for. ``row_value`` and ``row_slope`` say the
same in numpy, from + - * / alone: their bits for one record do not depend on its company. The curator uses these. Losses
whose ``kernel`` is a number also have the same slope, bit for bit, in the compiled kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import plain

MOST_WEIGHT = 1e12  # of a class

Floats = NDArray[np.float64]
Labels = NDArray[np.float64] | NDArray[np.int64]


@runtime_checkable
class Loss(Protocol):
    """One per-record loss; ``z`` has shape (n,) for scalar outputs and (n, K) for classes."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def lipschitz(self) -> float: ...
    @property
    def smoothness(self) -> float: ...
    @property
    def kernel(self) -> int | None: ...
    def value(self, z: Tensor, y: Tensor) -> Tensor: ...
    def slope(self, z: Tensor, y: Tensor) -> Tensor: ...
    def row_value(self, z: Floats, y: Labels) -> Floats: ...
    def row_slope(self, z: Floats, y: Labels) -> Floats: ...


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y z))."""

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "binary"
    kernel: ClassVar[int | None] = 0
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-y * z)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(z).add_(y, alpha=-0.5).sub_(0.5)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        margin = -y * z
        return np.maximum(margin, 0.0) + plain.log(1.0 + plain.exp(-np.abs(margin)))

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        likely = 1.0 / (1.0 + plain.exp(-np.abs(z)))
        return (np.where(z >= 0, likely, 1.0 - likely) - 0.5) - 0.5 * y


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 - y z); not smooth."""

    name: ClassVar[str] = "hinge"
    task: ClassVar[str] = "binary"
    kernel: ClassVar[int | None] = 1
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.relu(1 - y * z)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.where(y * z < 1, -y, torch.zeros_like(y))

    def row_value(self, z: Floats, y: Labels) -> Floats:
        return np.maximum(1.0 - y * z, 0.0)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        slope: Floats = np.where(y * z < 1.0, -1.0 * y, 0.0)
        return slope


@dataclass(frozen=True)
class HuberHinge:
    """The hinge with its corner rounded over ``width`` on each side (Chaudhuri et al. 2011).

    With m = 1 - y z: 0 below -h, m above h, (m + h)^2 / (4 h) between.
    """

    width: float = 0.5
    name: ClassVar[str] = "huber_hinge"
    task: ClassVar[str] = "binary"
    kernel: ClassVar[int | None] = 2
    lipschitz: ClassVar[float] = 1.0

    def __str__(self) -> str:
        return f"{self.name} of width {self.width}"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width) and self.width > 0):
            raise ValueError(f"width is {self.width!r}; pass a finite number > 0")

    @property
    def smoothness(self) -> float:
        return 1 / (2 * self.width)

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        margin = 1 - y * z
        middle = (margin + self.width).clamp(min=0, max=2 * self.width)
        return middle.square() / (4 * self.width) + torch.relu(margin - self.width)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return -y * ((1 - y * z + self.width) / (2 * self.width)).clamp(0, 1)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        margin = 1.0 - y * z
        middle = np.minimum(np.maximum(margin + self.width, 0.0), 2 * self.width)
        return middle * middle / (4 * self.width) + np.maximum(margin - self.width, 0.0)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        share: Floats = np.minimum(np.maximum(((1.0 - y * z) + self.width) / (2 * self.width), 0.0), 1.0)
        return -y * share


@dataclass(frozen=True)
class Squared:
    """(z - y)^2, for real targets and, with ``signs``, as a least-squares classifier of labels -1 and +1."""

    signs: bool = False
    name: ClassVar[str] = "squared"
    kernel: ClassVar[int | None] = 3
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 2.0

    @property
    def task(self) -> str:
        return "binary" if self.signs else "regression"

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - y).square()

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return 2 * (z - y)

    def row_value(self, z: Floats, y: Labels) -> Floats:
        return (z - y) * (z - y)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        return 2.0 * (z - y)


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy of softmax(z) against the class y: log sum exp(z) - z_y."""

    name: ClassVar[str] = "softmax"
    task: ClassVar[str] = "classes"
    kernel: ClassVar[int | None] = 4
    lipschitz: ClassVar[float] = math.sqrt(2)
    smoothness: ClassVar[float] = 0.5

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(z, y, reduction="none")

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(z, dim=1).scatter_add_(1, y[:, None], z.new_full((len(y), 1), -1.0))

    def row_value(self, z: Floats, y: Labels) -> Floats:
        largest, _, total = _exponentials(z)
        return (largest + plain.log(total)) - z[np.arange(len(y)), y]

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        _, shares, total = _exponentials(z)
        shares = shares / total[:, None]
        shares[np.arange(len(y)), y] -= 1.0
        return shares


def _exponentials(z: Floats) -> tuple[Floats, Floats, Floats]:
    """The largest score of each row, exp of what each is below it, and the sum of these, in the order of the classes."""
    largest = z.max(axis=1)
    shares = plain.exp(z - largest[:, None])
    total = shares[:, 0].copy()
    for k in range(1, z.shape[1]):
        total += shares[:, k]
    return largest, shares, total


@dataclass(frozen=True)
class ClassWeighted:
    """Another classification loss times a declared weight of the record's class: weights[0] for -1 or class 0, ..."""

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(0 <= weight <= MOST_WEIGHT for weight in self.weights):
            raise ValueError(f"weights are {self.weights!r}; pass numbers from 0 to {MOST_WEIGHT:g}")

    @property
    def name(self) -> str:
        return self.loss.name

    def __str__(self) -> str:
        return f"{self.loss} weighted {self.weights}"

    @property
    def task(self) -> str:
        return self.loss.task

    @property
    def kernel(self) -> int | None:
        return self.loss.kernel

    @property
    def lipschitz(self) -> float:
        return max(self.weights) * self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        return max(self.weights) * self.loss.smoothness

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return self._weight(y, z) * self.loss.value(z, y)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        slope = self.loss.slope(z, y)
        weight = self._weight(y, z)
        return weight * slope if slope.ndim == 1 else weight[:, None] * slope

    def row_value(self, z: Floats, y: Labels) -> Floats:
        return self.row_weights(y) * self.loss.row_value(z, y)

    def row_slope(self, z: Floats, y: Labels) -> Floats:
        slope, weight = self.loss.row_slope(z, y), self.row_weights(y)
        return slope * weight if slope.ndim == 1 else slope * weight[:, None]

    def row_weights(self, y: Labels) -> Floats:
        """The weight of each record's class."""
        return np.array(self.weights)[(y > 0).astype(np.int64) if self.task == "binary" else y.astype(np.int64)]

    def _weight(self, y: Tensor, z: Tensor) -> Tensor:
        return torch.tensor(self.weights, dtype=z.dtype)[
            (y > 0).long() if self.task == "binary" or y.is_floating_point() else y
        ]


def check_weights(loss: Loss, outputs: int) -> None:
    """Refuse weights that are not one for each class."""
    weights = getattr(loss, "weights", None)
    if weights is not None and len(weights) != max(outputs, 2):
        raise ValueError(f"weights are {len(weights)} for {max(outputs, 2)} classes; pass one for each")


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Logistic(), Hinge(), HuberHinge(), Squared(), Softmax())}


def loss_named(loss: str | Loss) -> Loss:
    """The loss with that name; a loss object is returned as it is.

    >>> loss_named("logistic").smoothness
    0.25
    """
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss is {loss!r}; pass one of {', '.join(LOSSES)}")
    return LOSSES[loss]
