"""What a loss is: value, slope, and facts about itself that anyone may ask for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor = Any  # torch is an extra

Floats = NDArray[np.float64]
Labels = NDArray[np.float64] | NDArray[np.int64]


class Loss(ABC):
    """One per-record loss, convex in the model's output ``z``, of shape (n,), or (n, K) for classes.

    ``task`` says what labels are: -1 and +1 ("binary"), 0 .. K-1 ("classes"), or real ("regression"). ``lipschitz`` bounds
    the norm of the slope in ``z`` and ``smoothness`` its rate of change; infinite where no bound exists. Sensitivity proofs
    rest on these and on convexity, so a loss is trusted code, and a statement says so if it comes from elsewhere.

    ``row_value`` and ``row_slope`` work on arrays, from + - * / alone: their bits for one record do not depend on its
    company. A loss of ours whose ``kernel`` is a number also has the same slope, bit for bit, in the compiled kernels.
    ``value`` and ``slope`` say the same of torch tensors, with gradients where that is asked for: perceptrons and
    meta-training use them.
    """

    name: str = ""
    lipschitz: float = math.inf
    kernel: int | None = None
    typical_norm: float = 11.0  # of theta at the end of a run on unit rows
    learning: float = 1.0  # how long a walk on a table's effects is, relative to the logistic loss
    effect_clip: float = 0.5  # the clip norm of such a walk
    protector: str | None = None  # the learned one that was trained for slopes like these, if any was
    has_probabilities: bool = False

    @property
    def task(self) -> str:
        return "binary"

    @property
    def smoothness(self) -> float:
        return math.inf

    @property
    def typical_clip(self) -> float:
        """The norm of a record's gradient at the start on rows of length 1: the slope at score 0."""
        return 1.0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not _ours(cls):  # it may slope otherwise than the one it is made from
            cls.kernel = None

    def __str__(self) -> str:
        return self.words if _ours(type(self)) else f"{self.words}, from {type(self).__module__}"

    @property
    def words(self) -> str:
        """The loss with its settings, as a statement names it."""
        return self.name

    @abstractmethod
    def value(self, z: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def slope(self, z: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def row_value(self, z: Floats, y: Labels) -> Floats: ...

    @abstractmethod
    def row_slope(self, z: Floats, y: Labels) -> Floats: ...

    def near_slope(self, z: Floats, y: Labels) -> Floats:
        """``row_slope`` to the last bits of double precision, for whole walks, whose proofs grant rounding no more than that.

        ``row_slope`` itself may be wrong by 1e-11, which :func:`noisewise.trusted.elementwise.exp` is.
        """
        return self.row_slope(z, y)

    def probabilities(self, z: Floats) -> Floats:
        """The probability of each class, one column each, where ``has_probabilities``."""
        raise ValueError(f"the loss is {self.name}, which models no probabilities; pass another, or use predict")

    def as_classifier(self) -> Loss:
        """The same loss on labels -1 and +1, or on classes."""
        return self


def _ours(kind: type) -> bool:
    return kind.__module__.startswith(f"{__package__}.")


def shares(log_odds: Floats) -> Floats:
    """exp of each entry over the sum of its row."""
    odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    of_all: Floats = odds / odds.sum(axis=1, keepdims=True)
    return of_all


def of_two(z: Floats) -> Floats:
    """Probabilities of two classes from the log-odds of the second."""
    return shares(np.column_stack([np.zeros_like(z), z]))
