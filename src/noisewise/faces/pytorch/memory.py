"""Large batches on small memory: a batch goes through the module in pieces, and has one step and one price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ...trusted import validate
from .loader import DPDataLoader
from .optimizer import DPOptimizer


class BatchMemoryManager:
    """``with BatchMemoryManager(data_loader=, max_physical_batch_size=, optimizer=) as loader``: train on its pieces.

    The loop stays as it is, ``zero_grad``, ``backward`` and ``step`` for each piece; only the step after the last piece of a
    batch is one. The result is that of the whole batch at once, up to the rounding of sums. Records are read piece by piece.
    """

    def __init__(self, *, data_loader: DataLoader[Any], max_physical_batch_size: int, optimizer: Optimizer) -> None:
        validate.whole(max_physical_batch_size=max_physical_batch_size)
        if not isinstance(data_loader, DPDataLoader):
            raise TypeError("data_loader is not private; pass the one that make_private returned")
        if not isinstance(optimizer, DPOptimizer) or optimizer.run is not data_loader.run:
            raise ValueError("optimizer and data_loader are not of one run; pass both as make_private returned them")
        self._pieces = Pieces(data_loader, int(max_physical_batch_size))

    def __enter__(self) -> Pieces:
        return self._pieces

    def __exit__(self, *_: object) -> None:
        return None


class Pieces:
    """A private data loader that hands out its batches in pieces."""

    def __init__(self, loader: DPDataLoader, most: int) -> None:
        self._loader, self._most = loader, most

    def __iter__(self) -> Iterator[Any]:
        return self._loader.pieces(self._most)

    def __len__(self) -> int:
        """How many pieces there are if batches have their expected size."""
        return len(self._loader) * -(-int(self._loader.batch_size or 1) // self._most)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def wrap_data_loader(*, data_loader: DataLoader[Any], max_batch_size: int, optimizer: Optimizer) -> Pieces:
    """The pieces without a ``with`` block."""
    pieces = BatchMemoryManager(data_loader=data_loader, max_physical_batch_size=max_batch_size, optimizer=optimizer)
    with pieces as loader:
        return loader
