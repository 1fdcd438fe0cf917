"""A user's loss for a torch module: its name, and a Lipschitz constant for some losses of torch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..engine.entries import Entry
from ..losses import Loss
from ..torch_extra import Tensor, torch

if TYPE_CHECKING:
    from .module import ModuleModel, TensorRows


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
    """The import path of a function, or of the class of an object."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(kind, '__module__', '?')}.{getattr(kind, '__qualname__', '?')}"


@dataclass(frozen=True)
class ModuleLoss(Loss):
    """A user's loss of outputs and targets: its name, and a Lipschitz constant for some losses of torch."""

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


# --- a self-test on made-up rows: whether a record's bits depend on its place in a chunk or on the other rows ---
#
# Evidence, not proof: a product that sums in another order at another place gives other bits for almost any rows.

# How far rows are shifted (None: reversed), and what replaces every second row, from which row on.
TRIALS: tuple[tuple[int | None, float | None, int], ...] = (
    (1, None, 0),
    (7, None, 0),
    (None, None, 0),
    (3, 0.0, 0),
    (5, 1e30, 1),
    (2, math.nan, 1),
)


def steady(model: ModuleModel, rows: TensorRows) -> bool:
    """Whether these made-up rows, a whole chunk, have the same losses and books at every place and in any company."""
    height, at = len(rows), torch.arange(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = _bits(model, rows)
        for shift, company, begin in TRIALS:
            order = at.flip(0) if shift is None else at.roll(shift)
            placed, judged = rows.take(order), torch.ones(height, dtype=torch.bool)
            if company is not None:
                judged[begin::2] = False
                for part in placed.inputs:
                    if part.is_floating_point():
                        part[begin::2] = company
            moved = _bits(model, placed)
            if len(moved) != len(right):
                return False
            for one, other in zip(moved, right, strict=True):
                if not torch.equal(one[judged], other[order][judged]):
                    return False
    return True


def _bits(model: ModuleModel, rows: TensorRows) -> list[Tensor]:
    """The loss of each record and all its booked tensors."""
    tape, losses = model.booked(rows, 1)
    found = [losses, *(part for entries in tape.uses() for entry in entries for part in _tensors(entry, len(rows)))]
    tape.free()
    return [part.detach().cpu().clone() for part in found]


def _tensors(entry: Any, rows: int) -> Iterator[Tensor]:
    for field in fields(entry):
        value = getattr(entry, field.name)
        if isinstance(value, Entry):  # of a tensor that is made of the parameter
            yield from _tensors(value, rows)
        elif isinstance(value, Tensor) and value.ndim and len(value) == rows:
            yield value
