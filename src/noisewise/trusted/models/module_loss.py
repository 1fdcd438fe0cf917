"""A user's loss for a torch module: what is known of it is its name, and of some of torch's how steep they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from ..losses import Loss
from ..torch_extra import Tensor, torch

SLOPES = {"CrossEntropyLoss": math.sqrt(2), "BCEWithLogitsLoss": 1.0, "L1Loss": 1.0, "SoftMarginLoss": 1.0}
FUNCTIONS = {  # losses of torch.nn.functional, and the modules that they are
    "cross_entropy": "CrossEntropyLoss",
    "nll_loss": "NLLLoss",
    "binary_cross_entropy": "BCELoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "mse_loss": "MSELoss",
    "l1_loss": "L1Loss",
    "smooth_l1_loss": "SmoothL1Loss",
    "huber_loss": "HuberLoss",
}


def path_of(thing: object) -> str:
    """Where code comes from, as text that its owner can import: of a function its own place, else that of its class."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(kind, '__module__', '?')}.{getattr(kind, '__qualname__', '?')}"


@dataclass(frozen=True)
class ModuleLoss(Loss):
    """A user's loss of outputs and targets; what is known of it is its name, and of some of torch's how steep they are."""

    call: Callable[..., Tensor]
    reduction: str = "mean"

    typical_norm: ClassVar[float] = 1.0  # type: ignore[misc]

    @property
    def name(self) -> str:  # type: ignore[override]
        return path_of(self.call)

    @property
    def task(self) -> str:
        return "module"

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        home, _, last = self.name.rpartition(".")
        return SLOPES.get(last, math.inf) if home.startswith("torch.") else math.inf

    def __str__(self) -> str:
        return self.name

    def _refuse(self, *_: object) -> NoReturn:
        raise ValueError("the loss of a module is a function of its outputs and targets, not of one score")

    value = slope = row_value = row_slope = _refuse  # type: ignore[assignment]


def as_module(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of torch.nn.functional as the module of the same loss, which can be asked for single records."""
    name = getattr(loss, "__name__", "")
    if getattr(loss, "__module__", "") == "torch.nn.functional" and name in FUNCTIONS:
        made: Callable[..., Tensor] = getattr(torch.nn, FUNCTIONS[name])()
        return made
    return loss
