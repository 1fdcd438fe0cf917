"""A data set on its way to the curator: read once, every record, into tensors of our own.

Afterwards the user's data set code is never called again. What is refused here is refused before a curator exists, in words
about shapes and types, never about a value, a place or a count.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import Any

import numpy as np
from torch.overrides import get_default_nowrap_functions

from ...tables.refusal import Refusal, our_words
from ...trusted.engine import Spec
from ...trusted.engine.tape import map_tensors, tensors_in
from ...trusted.models.module import ModuleModel, TensorRows, own_settings
from ...trusted.torch_extra import Tensor, torch

PASS = "pass a TensorDataset, a tuple of tensors (inputs..., target), or a map-style data set of such tuples"


def handed_over(dataset: Any, name: str = "dataset") -> TensorRows:
    """All records of a data set as stacked tensors: the inputs of the module, and the target last."""
    if isinstance(dataset, torch.utils.data.TensorDataset):
        dataset = dataset.tensors
    if isinstance(dataset, tuple | list) and all(isinstance(part, Tensor | np.ndarray) for part in dataset):
        parts = _stacked(dataset, name)
    else:
        parts = _read(dataset, name)
    return TensorRows(tuple(parts[:-1]), tuple(parts[-1:]))


def specs_of(rows: TensorRows) -> tuple[list[Spec], list[Spec]]:
    """What is public of one record's tensors: shapes and types."""
    return tuple([Spec(tuple(part.shape[1:]), part.dtype) for part in parts] for parts in (rows.inputs, rows.targets))  # type: ignore[return-value]


def refuse_ranges(model: ModuleModel, rows: TensorRows, name: str = "dataset") -> None:
    """Refuse whole numbers that the module or its loss would stop at, such as a class or a word that it does not have.

    Made-up rows with the smallest and the largest whole numbers of the records go through: a check at the data holder.
    """
    if len(rows) == 0 or not any(not part.is_floating_point() for part in (*rows.inputs, *rows.targets)):
        return
    ends = rows._each(_ends)
    wrong = (
        f"{name} has whole numbers that the module or the loss cannot take; number classes from 0 to one less than the "
        "module has outputs, and words below the size of the embedding"
    )
    with our_words(wrong), own_settings():
        if not deepcopy(model).takes(ends):  # a module may keep what it was given
            raise Refusal(wrong)


def _ends(part: Tensor) -> Tensor:
    if part.is_floating_point():
        return torch.full((2, *part.shape[1:]), 0.5, dtype=part.dtype)
    if part.dtype == torch.bool:
        return torch.tensor([False, True]).view(2, *[1] * (part.ndim - 1)).expand(2, *part.shape[1:])
    ends = torch.stack([part.min(), part.max()])
    return ends.view(2, *[1] * (part.ndim - 1)).expand(2, *part.shape[1:]).clone()


def _stacked(dataset: Any, name: str) -> list[Tensor]:
    parts = [_tensor(part, name) for part in dataset]
    if len(parts) < 2 or any(part.ndim == 0 for part in parts):
        raise Refusal(f"{name} needs inputs and a target, one entry of the first dimension for each record; {PASS}")
    if len({len(part) for part in parts}) > 1 or len(parts[0]) == 0:
        raise Refusal(
            f"{name} has tensors of different or no length; pass as many entries of each as there are records"
        )
    return [part.clone() for part in parts]


def _read(dataset: Any, name: str) -> list[Tensor]:
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise Refusal(f"{name} is a DataLoader, which deals batches; pass its data set, loader.dataset")
    if isinstance(dataset, torch.utils.data.IterableDataset) or not (
        hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    ):
        raise Refusal(f"{name} is a {type(dataset).__name__}, whose records cannot be numbered; {PASS}")
    with our_words(f"{name} failed while its records were read; mend its __getitem__, or {PASS}"):
        count = len(dataset)
        if count < 1:
            raise Refusal(f"{name} is empty; {PASS}")
        parts: list[Tensor] = []
        for i in range(count):
            record = _record(dataset[i], name)
            if not parts:
                parts = [torch.empty((count, *part.shape), dtype=part.dtype) for part in record]
            if [(part.shape, part.dtype) for part in record] != [(part.shape[1:], part.dtype) for part in parts]:
                raise Refusal(
                    f"{name} has records of different shapes or types; pad or crop them to one shape, e.g. in a collate step "
                    "of your own, before they are handed over"
                )
            for all_of_it, part in zip(parts, record, strict=True):
                all_of_it[i] = part
    return parts


def _record(record: Any, name: str) -> list[Tensor]:
    if not isinstance(record, tuple | list) or len(record) < 2:
        raise Refusal(f"{name} has records that are no tuples (inputs..., target); {PASS}")
    return [_tensor(part, name) for part in record]


def _tensor(part: Any, name: str) -> Tensor:
    """A plain tensor of our own kind: numbers, on the CPU, without a graph."""
    if isinstance(part, numbers.Number | np.ndarray | np.generic) and not isinstance(part, complex):
        with our_words(f"{name} has an array that is not of numbers; {PASS}"):
            part = torch.as_tensor(part)
            part = part.float() if part.dtype == torch.float64 and part.ndim == 0 else part
    if not isinstance(part, Tensor):
        raise Refusal(f"{name} holds a {type(part).__name__} where a tensor is needed; {PASS}")
    with torch._C.DisableTorchFunctionSubclass():
        plain = part.detach().as_subclass(Tensor)
        if plain.is_complex() or plain.layout != torch.strided:
            raise Refusal(f"{name} holds a complex or sparse tensor; pass dense tensors of real numbers")
        return plain.cpu()


# Rows that a private loader hands out carry the mark of their piece, and so does what torch functions make of them.
#
# So rows of an earlier piece, or a batch into which another one's rows were written, are recognised when they come to the module.
# What is read into numpy or kept outside of tensors is not followed. In a batch of a class of its own, with no tensor that can be
# marked, rows are known by their number alone.


MIXED = object()  # the mark of what is made of rows of several pieces


class Handed(Tensor):
    """A tensor of rows that were handed out; ``piece`` says when."""

    piece: object

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if not isinstance(found, Tensor | tuple | list | None) or func in get_default_nowrap_functions():
            return found
        marks = {id(one.piece): one.piece for one in tensors_in((args, kwargs)) if isinstance(one, Handed)}
        piece = next(iter(marks.values())) if len(marks) == 1 else MIXED
        written = (kwargs or {}).get("out", args[0] if args and (found is None or found is args[0]) else None)
        if isinstance(written, Tensor):  # memory[0] = x[0], memory.copy_(x)
            written.__class__ = Handed
            written.piece = piece  # type: ignore[attr-defined]
        return map_tensors(lambda one: marked(one, piece), found)


def marked(tensor: Tensor, piece: object) -> Tensor:
    """The same tensor with the mark of a piece."""
    own = tensor if type(tensor) is Handed else tensor.as_subclass(Handed)
    own.piece = piece
    return own


def with_mark(batch: Any, piece: object) -> Any:
    """A batch whose tensors carry the mark, whatever it is made of."""
    if isinstance(batch, Tensor):
        return marked(batch, piece)
    if isinstance(batch, MutableMapping):
        for name in batch:
            batch[name] = with_mark(batch[name], piece)
        return batch
    if isinstance(batch, Mapping):
        return {name: with_mark(one, piece) for name, one in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(with_mark(one, piece) for one in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(with_mark(one, piece) for one in batch)
    return batch


def unmarked(values: Any) -> tuple[Any, list[object]]:
    """Arguments with ordinary tensors in place of marked ones, and the marks that these carried."""
    marks: list[object] = []

    def one(value: Tensor) -> Tensor:
        if not isinstance(value, Handed):
            return value
        marks.append(value.piece)
        with torch._C.DisableTorchFunctionSubclass():
            return value.as_subclass(Tensor)

    return map_tensors(one, values), marks
