"""Losses of a linear score: value, slope, and the constants that sensitivity proofs need.

A loss maps the model's output ``z`` for one record and its label ``y`` to a number. Binary labels are -1 and +1,
classes are 0 .. K-1, targets of a regression are real. ``lipschitz`` bounds the norm of the slope in ``z`` and
``smoothness`` its rate of change; infinite where no bound exists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor


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
    def value(self, z: Tensor, y: Tensor) -> Tensor: ...
    def slope(self, z: Tensor, y: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(-y z))."""

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "binary"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-y * z)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(z).add_(y, alpha=-0.5).sub_(0.5)


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 - y z); not smooth."""

    name: ClassVar[str] = "hinge"
    task: ClassVar[str] = "binary"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.relu(1 - y * z)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.where(y * z < 1, -y, torch.zeros_like(y))


@dataclass(frozen=True)
class HuberHinge:
    """The hinge with its corner rounded over ``width`` on each side (Chaudhuri et al. 2011).

    With m = 1 - y z: 0 below -h, m above h, (m + h)^2 / (4 h) between.
    """

    width: float = 0.5
    name: ClassVar[str] = "huber_hinge"
    task: ClassVar[str] = "binary"
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


@dataclass(frozen=True)
class Squared:
    """(z - y)^2, for real targets and, with ``signs``, as a least-squares classifier of labels -1 and +1."""

    signs: bool = False
    name: ClassVar[str] = "squared"
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


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy of softmax(z) against the class y: log sum exp(z) - z_y."""

    name: ClassVar[str] = "softmax"
    task: ClassVar[str] = "classes"
    lipschitz: ClassVar[float] = math.sqrt(2)
    smoothness: ClassVar[float] = 0.5

    def __str__(self) -> str:
        return self.name

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(z, y, reduction="none")

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(z, dim=1).scatter_add_(1, y[:, None], z.new_full((len(y), 1), -1.0))


@dataclass(frozen=True)
class ClassWeighted:
    """Another classification loss times a declared weight of the record's class: weights[0] for -1 or class 0, ..."""

    loss: Loss
    weights: tuple[float, ...]

    @property
    def name(self) -> str:
        return self.loss.name

    def __str__(self) -> str:
        return f"{self.loss} weighted {self.weights}"

    @property
    def task(self) -> str:
        return self.loss.task

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

    def _weight(self, y: Tensor, z: Tensor) -> Tensor:
        return torch.tensor(self.weights, dtype=z.dtype)[
            (y > 0).long() if self.task == "binary" or y.is_floating_point() else y
        ]


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
