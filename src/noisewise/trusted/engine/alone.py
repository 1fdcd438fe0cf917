"""Passes in which every record is alone: module and loss see a batch of one, whatever else is computed beside it.

What the guarantee rests on. *By construction*: a value of one record cannot reach another, Python, or a later pass. The module
computes on tensors of functorch's batch level, of which each function sees one record; what reads a value into Python
(``item``, ``if x.max() > 1``, ``x[mask]``) raises; tensors carry the mark of their pass; modules that keep something are refused.
*By test*: that torch's batching rules compute each record by itself, for the functions on the list (:mod:`.allowed`). So in real
numbers a record's gradient is a function of the record, the parameters and its own random draws.

Values never raise here: places and labels are checked record by record (``Tape.legal``), and where a function raises all the same
the pass counts as failed, whatever the module made of the exception. Its records are then run again in smaller passes; one that
fails alone counts as zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .public_facts import Layout, Refused
from .state import after_pass, before_pass
from .tape import Tape, map_tensors, tensors_in
from .torch_names import generator_of, is_batched, level, taken_for_compiled

HOOKS = "hooks on saved tensors (checkpointing, offloading) see all records at once; switch them off"


class Failed(RuntimeError):
    """A function raised in a pass, even if the module caught the exception."""


@contextmanager
def opened(tape: Tape, *things: Any, seed: int | None = None) -> Iterator[None]:
    """Open the level of a pass: each record alone, recorded by the tape; ``things`` (module, loss) are restored afterwards."""
    if torch.is_anomaly_enabled():
        tape.refuse("torch's search for anomalies is on, which stops at a record that is not finite; switch it off")
    if coarse := too_coarse(tape.token.device.type):
        tape.refuse(f"{coarse}, whose numbers are too coarse for norms that a promise rests on; switch it off")
    kept = before_pass(*things)
    try:
        with (
            random_from(seed, tape.token.device),
            torch.autograd.graph.disable_saved_tensors_hooks(HOOKS),
            taken_for_compiled(),
            level(tape.batch) as tape.level,
            tape,
        ):
            tape.seed = tape.generator.initial_seed()
            yield
    finally:
        after_pass(kept)
    if tape.failed is not None:
        raise Failed(tape.failed)


@contextmanager
def random_from(seed: int | None, device: torch.device) -> Iterator[None]:
    """The module draws from this seed; the generators of the caller stay as they were."""
    if seed is None:
        yield
        return
    own = {torch.default_generator, generator_of(device)}  # torch.manual_seed is slow: it records its caller each time
    before = [(generator, generator.get_state()) for generator in own]
    try:
        for generator in own:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def one_each(tape: Tape, values: Any, *, copied: bool = False) -> Any:
    """Tensors of all records, (batch, ...), as one record's batch of one."""

    def one(value: Tensor) -> Tensor:
        single = value.detach().unsqueeze(1)
        return tape.wrapped(single.clone() if copied else single)

    return map_tensors(one, values)


class LossOfOne:
    """The loss of one record, as a batch of one: one number.

    A loss of torch's with a ``reduction`` is asked for single entries, whose mean or sum is taken: a mean of torch's over one
    record would cancel the weight of its class.
    """

    def __init__(self, loss: Callable[..., Any]) -> None:
        self.how, self.call = getattr(loss, "reduction", None), loss
        if self.how in ("mean", "sum"):
            self.call = copy.copy(loss)
            self.call.reduction = "none"  # type: ignore[attr-defined]

    def of_rows(self, rows: int, outputs: Any, *targets: Any) -> Any:
        """The loss of ``rows`` rows; one number for each row where single entries were requested."""
        values = self.call(outputs, *targets)
        if not isinstance(values, Tensor) or self.how not in ("mean", "sum"):
            return values
        entries = values.reshape(rows, -1)
        return entries.mean(1) if self.how == "mean" else entries.sum(1)

    def __call__(self, outputs: Any, *targets: Any) -> Tensor:
        values = self.of_rows(1, outputs, *targets)
        if not isinstance(values, Tensor) or values.numel() != 1:
            raise Refused("the loss of one record, as a batch of one, must be one number; take its mean or sum")
        return values.reshape(())


def losses_of(
    tape: Tape, module: nn.Module, loss: Any, inputs: Any, targets: Any, layout: Layout, seed: int | None = None
) -> Tensor:
    """The loss of each record, (batch,), after a forward pass."""
    loss = loss if isinstance(loss, LossOfOne) else LossOfOne(loss)
    with opened(tape, module, loss.call, seed=seed):
        outputs = module(*one_each(tape, inputs, copied=layout.writes))
        tape.laid_out = all(value.is_contiguous() for value in tensors_in(outputs))
        losses = tape.physical(loss(outputs, *one_each(tape, targets)))
    if losses is None:
        raise Refused("the loss does not depend on the record; compute it from the module's outputs")
    return losses if tape.bad is None else losses.masked_fill(tape.bad, torch.nan)


def passed(
    module: nn.Module, loss: Any, inputs: Sequence[Tensor], targets: Any, layout: Layout, *, seed: int | None = None
) -> tuple[Tape, Tensor]:
    """One pass forwards and backwards: the books of every parameter, and the loss of each record."""
    tape = Tape(layout.parameters(module), len(inputs[0]), channels_last=layout.channels_last)
    losses = losses_of(tape, module, loss, inputs, targets, layout, seed)
    backward(tape, losses)
    return tape, losses.detach()


def backward(tape: Tape, losses: Tensor) -> None:
    """Fill the books; no parameter's ``grad`` is touched."""
    if losses.requires_grad:
        torch.autograd.grad(losses.sum(), tape.token, allow_unused=True)


def values(
    module: nn.Module, loss: Callable[..., Any], inputs: Sequence[Tensor], targets: Sequence[Tensor], layout: Layout
) -> tuple[Tensor, Tensor]:
    """The loss of each record without a gradient, and which of them have a label or a place that is out of range."""
    tape = Tape([], len(inputs[0]), channels_last=layout.channels_last)
    with torch.no_grad():
        losses = losses_of(tape, module, loss, inputs, targets, layout)
    return losses, torch.zeros_like(losses, dtype=torch.bool) if tape.bad is None else tape.bad


def outputs_of(tape: Tape, values: Any, show: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """What a module gave for one record as tensors of all: ``show`` gets (batch, ...) and what the module's own dimensions are."""

    def one(value: Tensor) -> Tensor:
        whole = tape.physical(value) if is_batched(value) else None
        return value if whole is None else show(whole, value)

    return map_tensors(one, values)


def too_coarse(kind: str) -> str | None:
    """The setting that makes products on such a device coarser than their type, if there is one."""
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        return "autocast is on"
    if kind == "cuda" and torch.backends.cuda.matmul.allow_tf32:
        return "torch.backends.cuda.matmul.allow_tf32 is on"
    if kind == "cuda" and torch.backends.cudnn.allow_tf32:
        return "torch.backends.cudnn.allow_tf32 is on, as it is by default"
    return None
