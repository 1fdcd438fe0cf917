"""Batches for a loop of the user's own: each record joins each batch by a secret coin, and a batch is paid for first.

Shuffling and cutting into batches, as loaders do, is not what Poisson prices are for. Here a batch of rate q holds each
record independently with probability q, so its size varies, and it may be empty.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from torch.optim import Optimizer
from torch.utils._pytree import tree_map
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from ...trusted import validate
from ...trusted.events import FULL, Sampling
from ...trusted.process import hide_memory
from ...trusted.torch_extra import Tensor, torch
from .handed_over import unmarked, with_mark
from .optimizer import DPOptimizer
from .run import EngineRun

RowNumbers = NDArray[np.int64]


class DPDataLoader(DataLoader[Any]):
    """The loader that ``make_private`` returns: as many batches in an epoch as the given one has, each a Poisson batch.

    Drawing pays: ``BudgetExhausted`` ends a loop, also in the middle of an epoch, and no batch is left to step on.
    ``batch_size`` is the expected one. With ``num_workers`` the records of one batch are read by several processes; none is
    read before its batch is paid for.
    """

    def __init__(self, loader: DataLoader[Any], run: EngineRun, *, batches: int, empty: Any) -> None:
        super().__init__(
            loader.dataset,
            batch_size=loader.batch_size,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
        )
        self.run, self._batches, self._empty = run, batches, empty
        self._tensors, self._places = tensors_of(loader)
        self._feed = _Feed()
        self._workers: DataLoader[Any] | None = None

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a private data loader is not copied or pickled: the copy would draw batches that nobody pays for"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    @property
    def sample_rate(self) -> float:
        """The probability with which each record joins a batch."""
        return 1.0 if self.run.sampling == FULL else float(self.run.sampling[-1])

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self.pieces(None)

    def pieces(self, most: int | None) -> Iterator[Any]:
        """The batches of an epoch, each in pieces of at most so many records."""
        for _ in range(self._batches):
            batch, rows = self.run.draw(self.dataset)
            cuts = range(most, len(rows), most) if most is not None and len(rows) else []
            parts = np.split(rows, list(cuts))
            for place, part in enumerate(parts, 1):
                piece = self.records(part)
                piece = with_mark(piece, self.run.hand_out(batch, len(part), last=place == len(parts)))
                self.run.marks = bool(unmarked(piece)[1])
                yield piece

    def records(self, rows: RowNumbers) -> Any:
        """These records as a batch; no rows give tensors without rows."""
        if not len(rows):
            return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, self._empty)
        if self._tensors is not None:
            chosen = torch.from_numpy(rows if self._places is None else self._places[rows])
            return [tensor[chosen] for tensor in self._tensors]
        batch = self.collate_fn(self._fetched(rows.tolist()))
        if self.pin_memory and torch.cuda.is_available():
            return tree_map(lambda leaf: leaf.pin_memory() if isinstance(leaf, Tensor) else leaf, batch)
        return batch

    def _fetched(self, rows: list[int]) -> list[Any]:
        if self.num_workers == 0:
            several = getattr(self.dataset, "__getitems__", None)
            return list(several(rows)) if callable(several) else [self.dataset[row] for row in rows]
        if self._workers is None:
            self._workers = DataLoader(
                self.dataset,
                batch_sampler=self._feed,
                num_workers=self.num_workers,
                collate_fn=_as_they_are,
                timeout=self.timeout,
                worker_init_fn=partial(_begin, self.worker_init_fn),
                multiprocessing_context=self.multiprocessing_context,
                persistent_workers=True,
            )
        share = -(-len(rows) // self.num_workers)
        self._feed.parts = [rows[start : start + share] for start in range(0, len(rows), share)]
        return [record for part in self._workers for record in part]


def _begin(then: Callable[[int], None] | None, worker: int) -> None:
    """What a worker does first, which will hold records: a spawned one has not inherited that its memory is hidden."""
    hide_memory()
    if then is not None:
        then(worker)


class _Feed(Sampler[list[int]]):
    """The rows of one batch, cut for the workers."""

    def __init__(self) -> None:
        self.parts: Sequence[list[int]] = ()

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def _as_they_are(records: list[Any]) -> list[Any]:
    return records


def tensors_of(loader: DataLoader[Any]) -> tuple[tuple[Tensor, ...] | None, RowNumbers | None]:
    """The tensors that rows can be taken from at once, and where, if that gives what the data set and the loader would."""
    if loader.collate_fn is not default_collate or loader.num_workers or loader.pin_memory:
        return None, None
    whole: Any = loader.dataset
    places = np.asarray(whole.indices, dtype=np.int64) if type(whole) is Subset else None
    data = whole if places is None else whole.dataset
    return (data.tensors, places) if type(data) is TensorDataset else (None, None)


def check_loader(loader: Any) -> None:
    """Refuse what Poisson batches cannot be drawn from; only the kind of the loader is looked at."""
    if isinstance(loader, DPDataLoader):
        raise ValueError("data_loader is private already; pass the one that it was made from")
    if not isinstance(loader, DataLoader):
        raise TypeError(f"data_loader is a {type(loader).__name__}; pass a torch DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError(
            "data_loader has an IterableDataset; pass a data set with a length, so that each record can join"
        )
    plain = type(loader.batch_sampler) is BatchSampler and type(loader.sampler) in (RandomSampler, SequentialSampler)
    if not plain or loader.batch_size is None:
        odd = loader.sampler if type(loader.sampler) not in (RandomSampler, SequentialSampler) else loader.batch_sampler
        raise ValueError(
            f"data_loader has a {type(odd).__name__}, but each record has to join each batch with the same probability; "
            "pass a loader with batch_size and no sampler (for weights, weigh the losses)"
        )


def explain_loader(loader: DataLoader[Any]) -> None:
    """Say what of the loader has no effect."""
    if isinstance(loader.sampler, RandomSampler) and loader.generator is not None:
        warnings.warn(
            "the generator of data_loader is not used: who is in a batch is drawn from a secret stream", stacklevel=3
        )
    if loader.drop_last:
        warnings.warn(
            "drop_last=True is not needed and has no effect: batches are drawn anew each time, so no batch is left over",
            stacklevel=3,
        )


class Draws(NamedTuple):
    """How batches are drawn: from so many records, how, and how many of them are an epoch. All of it is public."""

    size: int
    sampling: Sampling
    batches: int


def draws_of(loader: DataLoader[Any], *, size: int | None, poisson: bool) -> Draws:
    """Batches of the expected size that the loader has, on so many records; on its data set's own number without one."""
    assert loader.batch_size is not None
    many = len(loader.dataset) if size is None else size  # type: ignore[arg-type]
    validate.whole(public_size=many)
    if loader.batch_size >= many:
        return Draws(many, FULL, 1)
    kind: Literal["poisson", "fixed"] = "poisson" if poisson else "fixed"
    return Draws(many, (kind, loader.batch_size / many), -(-many // loader.batch_size))


def empty_batch(loader: DataLoader[Any]) -> Any:
    """A batch without records. Of the first record nothing is kept but the shapes and kinds of its numbers."""
    with torch.random.fork_rng(devices=[]):  # an augmentation of this record must not change what comes after
        return _emptied(loader.collate_fn([loader.dataset[0]]))


def _emptied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value[:0].clone() if value.dim() else torch.zeros_like(value)
    if isinstance(value, Mapping):
        return {name: _emptied(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_emptied, value))
    if isinstance(value, tuple | list):
        return type(value)(_emptied(one) for one in value if isinstance(one, Tensor | Mapping | tuple | list))
    return type(value)()


# Large batches on small memory: a batch goes through the module in pieces, and has one step and one price.


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
