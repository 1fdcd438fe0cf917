"""One fit in several processes: torchrun starts the same script in each, and every rank calls ``fit`` with the same data set.

A rank reads its pieces of the data set and no other record: contiguous pieces of a fixed length, piece p at rank p mod ranks.
Rank 0 trains; the others sum over their records for it, and get what it released in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...asking import entries
from ...methods import Method
from ...remote.gloo import common_line
from ...remote.holder import Holder, Holding, serve
from ...remote.processes import Lead, cut, spread_tensors
from ...remote.transport import RankLost, restarts
from ...statements.statement import Statement
from ...tables.refusal import Refusal, our_words
from ...trusted.engine import Refused
from ...trusted.events import from_dict, to_dict
from ...trusted.models.module import ModuleModel, TensorRows
from ...trusted.stores.modules import MAX_RECORDS
from ...trusted.torch_extra import Tensor, torch
from ...trusted.units import Released
from .fitted import FittedModule
from .handed_over import PASS, handed_over, specs_of
from .requested import Size

if TYPE_CHECKING:
    from torch.nn import Module

RECORDS_PER_PIECE = 1024  # public, and the same for any number of ranks


class ReadyModule(NamedTuple):
    """A fit that is decided, before the first question."""

    method: Method
    size: Size
    model: ModuleModel
    said: dict[str, Any]


def fitted_module(
    ready: ReadyModule, module: Module, theta: Any, statement: Statement, trace: Any, steps: int, size: float | None
) -> FittedModule:
    """What a fit leaves, from what was released."""
    trained = ready.model.trained(theta)
    if ready.model.double:
        trained = trained.to(next(module.parameters()).dtype)
    return FittedModule(trained, statement, tuple(trace), steps, size, ready.said, ready.model.path)


def among_ranks(
    dataset: Any,
    module: Module,
    prepared: Callable[[TensorRows, int], ReadyModule],
    run: Callable[[ReadyModule, Any, Any], FittedModule],
    *,
    may_restart: bool,
) -> FittedModule:
    """The same fitted module at every rank. ``may_restart``: what was spent is known to a process that torchrun starts anew."""
    line = common_line()
    made: list[ReadyModule] = []

    def make() -> Holding:
        records, parts = _count(dataset), cut(_count(dataset), RECORDS_PER_PIECE, line.rank, line.world_size)
        rows = _own(dataset, [number for part in parts for number in part])
        ready = prepared(rows, records)
        ready.model.world_size = line.world_size
        made.append(ready)
        numbers = tuple(range(line.rank, -(-records // RECORDS_PER_PIECE), line.world_size))
        stamp = _stamp(ready.model, records, rows)
        return Holding(numbers, tuple(map(len, parts)), rows.inputs, rows.targets, model=ready.model, stamp=stamp)

    holder = Holder({"module": make}, said=(Refusal, Refused))
    if line.rank:
        released = serve(line, holder)
        if released is None:
            raise RankLost("rank 0 stopped before there was a model; it says why")
        return fitted_module(made[-1], module, *_heard(*released))
    lead = Lead(line, holder)
    try:
        if (count := restarts()) and not may_restart:
            raise RuntimeError(
                f"torchrun has started this script anew (restart {count}), and what the attempt before it spent is written "
                "down nowhere; pass checkpoint= to go on, or fit inside nw.spending(..., store=FILE), which counts both"
            )
        pieces = -(-_count(dataset) // RECORDS_PER_PIECE)
        rows, targets = spread_tensors(lead, "module", pieces, lambda: _shapes(made[-1].model), MAX_RECORDS)
        fitted = run(made[-1], rows, targets)
        lead.stop(_released(fitted, made[-1].model))
        return fitted
    finally:
        lead.stop()


def _released(fitted: FittedModule, model: ModuleModel) -> tuple[Any, ...]:
    """What a fit leaves, as plain data: the weights, statement and trace that were released, the last two as JSON."""
    known = dict(fitted.module.named_parameters())
    theta = torch.cat([known[name].detach().reshape(-1).float().cpu() for name in model.layout.names])
    trace = json.dumps([{**line._asdict(), "event": to_dict(line.event)} for line in fitted.trace])
    return entries(theta), fitted.statement.to_json(), trace, fitted.steps, fitted.size


def _heard(theta: Any, statement: str, trace: str, steps: int, size: float | None) -> tuple[Any, ...]:
    """The same at another rank."""
    lines = tuple(Released(**{**line, "event": from_dict(line["event"])}) for line in json.loads(trace))
    return theta, Statement(json.loads(statement)), lines, steps, size


def _shapes(model: ModuleModel) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return [tuple(spec.shape) for spec in model.inputs], [tuple(spec.shape) for spec in model.targets]


def _count(dataset: Any) -> int:
    """How many records a data set has. Private."""
    parts = _tensors(dataset)
    with our_words(f"dataset has records that cannot be numbered; {PASS}"):
        lengths = {len(dataset)} if parts is None else {len(part) for part in parts}
        if len(lengths) != 1 or not min(lengths):
            raise Refusal(
                "dataset has tensors of different or no length; pass as many entries of each as there are records"
            )
        return lengths.pop()


def _own(dataset: Any, numbers: list[int]) -> TensorRows:
    """Some records of a data set; where there are none, their shapes."""
    wanted, parts = numbers or [0], _tensors(dataset)
    part = torch.utils.data.Subset(dataset, wanted) if parts is None else tuple(part[wanted] for part in parts)
    return handed_over(part).narrow(0, len(numbers))


def _tensors(dataset: Any) -> tuple[Any, ...] | None:
    """The tensors of a data set that is made of them."""
    if isinstance(dataset, torch.utils.data.TensorDataset):
        return tuple(dataset.tensors)
    whole = isinstance(dataset, tuple | list) and all(isinstance(part, Tensor | np.ndarray) for part in dataset)
    return tuple(dataset) if whole and len(dataset) else None


def _stamp(model: ModuleModel, records: int, rows: TensorRows) -> str:
    """SHA-256 of what must be the same at all ranks; what is trained is sent, and may differ."""
    layout = model.layout
    shape = (layout.names, [tuple(shape) for shape in layout.shapes], layout.frozen, layout.plain_linear, layout.terms)
    made = hashlib.sha256(repr((records, specs_of(rows), shape, model.chunk, model.bounded)).encode())
    for part in (model.module, model.loss.call):
        if isinstance(part, torch.nn.Module):
            for name, tensor in part.state_dict().items():
                if part is not model.module or name not in layout.names:
                    made.update(name.encode() + entries(tensor).tobytes())
    return made.hexdigest()
