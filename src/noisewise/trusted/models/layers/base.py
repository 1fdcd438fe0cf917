"""What stands between two dense layers: an elementwise function, registered by the file that it lives in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor = Any  # torch is an extra

Array = NDArray[Any]
_known: dict[str, Layer] = {}
LAYERS: Mapping[str, Layer] = MappingProxyType(_known)
_closed: list[bool] = []


class Layer(ABC):
    """An elementwise layer. It has no parameters, so that it adds nothing to the norm of a record's gradient.

    Exact sums of private records rest on ``forward`` and ``backward`` treating each entry by itself.
    """

    name: str = ""

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """The value; ``z`` may be used up."""

    @abstractmethod
    def derivative(self, a: Tensor) -> Tensor:
        """The derivative where the value is ``a``, with a graph where that is asked for."""

    def backward(self, b: Tensor, a: Tensor) -> Tensor:
        """Turns the output gradient ``b`` into the input gradient, in place; ``a`` is the value."""
        return b.mul_(self.derivative(a))

    @abstractmethod
    def by_entry(self, z: Array) -> Array:
        """The value once more, in numpy: what a trained model predicts by, where there is no torch."""


L = TypeVar("L", bound=type[Layer])


def layer(kind: L) -> L:
    """Register a layer. The passes of private records run it, so it lives in this room, where the laws try it."""
    if _closed or not kind.__module__.startswith(f"{__package__}."):
        raise TypeError(
            f"{kind.__name__} is not defined in the room of layers; add a file to noisewise/trusted/models/layers"
        )
    _known[kind.name] = kind()
    return kind


def close() -> None:
    """No layer is registered from now on: called when the room is complete."""
    _closed.append(True)
