"""A module and its loss on made-up rows, before any private row: a pass is compared with a plain loop over single records.

This checks correctness: norms and sums are those of the loop, the module does in a batch what it does for each record alone (else
something else would be trained than its owner means), and nothing fails for reasons that all records share. That records do not
mix does not rest on it (:mod:`.alone`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .alone import LossOfOne, backward, losses_of
from .entries import Direct, Entry, Outer
from .public_facts import Layout, Refused, Spec, layout_of, trainable
from .state import ModuleState, refuse_layers
from .tape import Tape, in_parts, tensors_in
from .torch_names import check_torch

TRIALS = ((3, "usual"), (1, "usual"), (5, "large"), (3, "padded"), (4, "constant"))
IGNORED = -100  # what torch's losses leave out by default
_DROPOUTS = {
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout,
    torch.feature_dropout,
}  # fmt: skip
_DRAWN = {
    torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_,
    Tensor.uniform_, Tensor.normal_, Tensor.exponential_,
}  # fmt: skip
_NO_RECORD = "a record is written into a tensor that belongs to none; make that tensor with x.new_zeros(...)"
_NO_RULE = "an autograd.Function of its own has no rule for single records; write it with torch functions"
_HINTS = {
    "control flow": "the module or the loss decides by a record's values (if x.max() > 1, mask.all()); use torch.where",
    "inplace arithmetic": _NO_RECORD,
    "match the broadcast shape": _NO_RECORD,
    "setup_context": _NO_RULE,
    "vmap staticmethod": _NO_RULE,
}


class Quiet(TorchFunctionMode):
    """Nothing is random in here: dropout passes everything on, and every random number is 1/2."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is F.multi_head_attention_forward:
            with self:
                return in_parts(func)(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            args, kwargs = (*args[:4], *[0.0] * len(args[4:5]), *args[5:]), {**kwargs}
            kwargs.pop("dropout_p", None)
        if func in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu) and isinstance(args[3], bool):
            args = (*args[:5], 0.0, *args[6:])
        found = func(*args, **kwargs)
        return found.fill_(0.5) if func in _DRAWN and "generator" not in kwargs else found  # made-up rows have one


def rehearsed(module: nn.Module, inputs: Sequence[Spec], targets: Sequence[Spec] = (), loss: Any = None) -> Layout:
    """The layout of a module that treats every record by itself; any other module is :class:`Refused`."""
    check_torch()
    refuse_layers(module)
    if not trainable(module):
        raise Refused("nothing trains; set requires_grad on the parameters that should")
    for name, value in trainable(module).items():
        if value.dtype not in (torch.float32, torch.float64):
            raise Refused(
                f"{name} is {value.dtype}, too coarse for norms that a promise rests on; train in float32 or float64"
            )
    first: Exception | None = None
    own = next(iter(trainable(module).values())).dtype
    for kind in (torch.float64, own):  # some make numbers of a kind of their own
        try:
            layout = _Rehearsal(_copied(module), kind, inputs, targets, _copied(loss)).layout()
            with _plain_settings(own):  # in the module's own kind of numbers, some of which may be too coarse
                _Rehearsal(_copied(module), own, inputs, targets, _copied(loss)).consistent(layout)
            return layout
        except Exception as error:  # made-up rows only: its message is public
            first = first or error
            if isinstance(error, Refused) and error.__cause__ is None:
                first = error
                break
    if isinstance(first, Refused):
        raise first
    raise _explained(first) from first


def _explained(error: Any) -> Refused:
    first_line = (str(error).splitlines() or [""])[0]
    hint = next((hint for part, hint in _HINTS.items() if part in str(error)), "")
    return Refused(
        "the module or the loss fails on made-up rows of the shapes it was given, each run alone as a batch of one: "
        f"{hint or f'{type(error).__name__}: {first_line}'}"
    )


def _copied(thing: Any) -> Any:
    try:
        return copy.deepcopy(thing)
    except Exception as error:
        raise Refused("the module or the loss cannot be copied (copy.deepcopy), so it cannot be rehearsed") from error


@contextmanager
def _plain_settings(kind: torch.dtype) -> Iterator[None]:
    """Tensors that a module makes are of this kind, and torch's random numbers and settings stay as they were."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(before)


class _Rehearsal:
    """A copy of the module, in double precision where it takes that, and rows to try it on."""

    def __init__(self, module: nn.Module, kind: torch.dtype, inputs: Any, targets: Any, loss: Any) -> None:
        self.module, self.kind, self.inputs, self.targets = module, kind, inputs, targets
        if kind == torch.float64:
            module.to(kind)
        self.loss = None if loss is None else LossOfOne(loss.to(kind) if isinstance(loss, nn.Module) else loss)
        self.parameters = [*trainable(module).values()]
        self.device = self.parameters[0].device
        sizes = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
        self.words, self.classes = max(min(sizes, default=2), 1), 2
        self.usual = 0.0  # the largest squared norm of usual rows: what is far below is rounding

    def layout(self) -> Layout:
        with _plain_settings(self.kind):
            with Quiet():
                layout = self._first(layout_of(self.module))
                for count, variant in TRIALS:
                    layout = self._compared(layout, count, variant)
            self.consistent(layout)
        return layout

    def rows(self, count: int, variant: str) -> tuple[list[Tensor], list[Tensor]]:
        made = torch.Generator().manual_seed(count)
        inputs = [_made_up(spec, count, made, spec.high or self.words, variant) for spec in self.inputs]
        targets = [_made_up(spec, count, made, spec.high or self.classes, variant) for spec in self.targets]
        targets = [value.sigmoid() if value.is_floating_point() else value for value in targets]  # some want fractions
        return [self._given(value) for value in inputs], [self._given(value) for value in targets]

    def _given(self, value: Tensor) -> Tensor:
        return value.to(self.device, self.kind if value.is_floating_point() else None)

    def _loss(self, outputs: Any, *targets: Any) -> Tensor:
        """The loss, or a made-up function of all outputs."""
        return self._made_up(outputs).sum() if self.loss is None else self.loss(outputs, *targets)

    def _made_up(self, outputs: Any) -> Tensor:
        """One number of each output; what is a number already stays as it is."""
        found = [value for value in tensors_in(pytree.tree_leaves(outputs)) if value.is_floating_point()]
        if not found:
            raise Refused("the module gives no tensor of floating-point numbers; a loss is made of such")
        return torch.stack([(value.sin() + value * value / 2).sum() if value.dim() else value for value in found])

    def _pass(self, layout: Layout, inputs: Any, targets: Any) -> tuple[Tape, Tensor]:
        tape = Tape(self.parameters, len(inputs[0]), channels_last=layout.channels_last)
        losses = losses_of(tape, self.module, self._loss, inputs, targets, layout)
        backward(tape, losses)
        return tape, losses.detach()

    def _first(self, layout: Layout) -> Layout:
        """The layout after the first calls: lazy parts are made, classes counted, and the memory layout of pictures chosen."""
        inputs, _ = self.rows(3, "usual")
        outputs = pytree.tree_leaves(self.module(*[value.clone() for value in inputs]))
        scores = next((value for value in outputs if isinstance(value, Tensor) and value.dim() > 1), None)
        self.classes = 2 if scores is None or scores.shape[1] < 2 else scores.shape[1]
        inputs, targets = self.rows(3, "usual")
        self._alone(inputs, targets, 0)
        state = ModuleState(self.module, getattr(self.loss, "call", None))
        self._alone(inputs, targets, 1)
        state.refuse_changes()
        before = [value._version for value in inputs]
        tape, _ = self._pass(layout, inputs, targets)
        layout = replace(layout, writes=[value._version for value in inputs] != before)
        if not tape.pooled:
            return layout
        by_pixel = replace(layout, channels_last=True)
        try:
            tape, _ = self._pass(by_pixel, *self.rows(3, "usual"))
        except Exception:  # it is raised again by a later pass, or does not matter
            return layout
        return by_pixel if tape.laid_out else layout

    def _compared(self, layout: Layout, count: int, variant: str) -> Layout:
        """Norms and a weighted sum from the books against a loop over records, and a batch against the same loop."""
        inputs, targets = self.rows(count, variant)
        weights = torch.linspace(0.5, 1.5, count, dtype=torch.float64, device=self.device)
        try:
            tape, _ = self._pass(layout, inputs, targets)
        except Refused:
            raise
        except Exception:
            if variant == "usual":
                raise
            return layout  # rows for which a function raises, such as a matrix without an inverse
        squared, sums, alone = self._loop(inputs, targets, weights)
        size = float(squared.nan_to_num(0.0, 0.0, 0.0).sum(0).max())
        if variant == "usual":
            self.usual = size
        _alike(layout.names, tape.squared_norms(), squared, tape.sums(weights), sums, max(size, self.usual))
        if variant == "usual" and count > 1:
            self._in_a_batch(inputs, targets, alone)
        uses = tape.uses()
        terms = max([layout.terms, *[entry.terms for entries in uses for entry in entries]])
        return replace(layout, terms=terms, plain_linear=all(map(_plain, uses)), spread=max(layout.spread, tape.spread))

    def _loop(self, inputs: Any, targets: Any, weights: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        squared = torch.zeros(len(self.parameters), len(weights), dtype=torch.float64, device=self.device)
        sums, alone = [torch.zeros_like(value) for value in self.parameters], []
        for row in range(len(weights)):
            outputs, loss = self._alone(inputs, targets, row)
            alone.append(self._made_up(outputs).detach() if self.loss is None else loss.detach().reshape(1))
            found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            for number, gradient in enumerate(found):
                if gradient is not None:
                    squared[number, row] = gradient.double().square().sum()
                    sums[number] += gradient * weights[row].to(gradient.dtype)
        return squared, sums, alone

    def _alone(self, inputs: Any, targets: Any, row: int) -> tuple[Any, Tensor]:
        """Outputs and loss of one record, by a plain call."""
        outputs = self.module(*[value[row : row + 1].clone() for value in inputs])
        return outputs, self._loss(outputs, *[value[row : row + 1] for value in targets])

    @torch.no_grad()
    def _in_a_batch(self, inputs: Any, targets: Any, alone: list[Tensor]) -> None:
        """Refuse a module that does something else in a batch than record by record, such as a mean over the batch."""
        outputs, own = self.module(*[value.clone() for value in inputs]), torch.stack(alone)
        whole = self._made_up(outputs) if self.loss is None else self.loss.of_rows(len(own), outputs, *targets)
        same = 1e-6 if self.kind == torch.float64 else 1e-3
        wanted = [own[:, 0]] if self.loss is not None and whole.dim() else [own.sum(0), own.mean(0)]
        near = [torch.isclose(whole.flatten(), one.to(whole), rtol=same, atol=1e-9, equal_nan=True) for one in wanted]
        if not bool(torch.stack(near).any(0).all()):
            raise Refused(
                "the module or the loss mixes records: in a batch the number is another than the mean or sum of single records' "
                "losses (a mean over the batch, batch norm, a transposed batch, or a loss that is a weighted mean: class weights, "
                "ignore_index); treat every record by itself, and pass torch's loss itself, or one with reduction='sum'"
            )

    def consistent(self, layout: Layout) -> None:
        """With dropout: each record's norm is that of its part of the sum."""
        inputs, targets = self.rows(3, "usual")
        tape, _ = self._pass(layout, inputs, targets)
        squared = tape.squared_norms().sum(0).double()
        for row, one in enumerate(torch.eye(3, dtype=torch.float64, device=self.device)):
            part = sum(value.double().square().sum() for value in tape.sums(one))
            if not torch.isclose(torch.as_tensor(part), squared[row], rtol=1e-3, atol=1e-12, equal_nan=True):
                raise Refused(
                    "norms are not those of the gradients that are summed; simplify what the module draws at random"
                )


def _plain(entries: list[Entry]) -> bool:
    """Whether a parameter is used once, without a sequence."""
    if len(entries) != 1:
        return False
    (use,) = entries
    return (isinstance(use, Outer) and use.a.dim() == 2) or (isinstance(use, Direct) and use.terms == 1)


def _made_up(spec: Spec, count: int, made: torch.Generator, high: int, variant: str) -> Tensor:
    """Usual numbers, large ones, rows that end in zeros (some of them with labels that losses leave out), constant rows."""
    shape = (count, *spec.shape)
    if spec.dtype == torch.bool:
        return torch.randint(2, shape, generator=made).bool()
    if not spec.dtype.is_floating_point and not spec.dtype.is_complex:
        values = torch.randint(high, shape, generator=made).to(spec.dtype)
    else:
        values = torch.randn(shape, generator=made, dtype=torch.float64)
        values = values.mul(3).exp().mul(values.sign()) if variant == "large" else values
    if variant == "padded" and spec.shape:
        for row in range(1, count):
            values[row].view(-1)[-(-values[row].numel() * row // count) :] = 0
    if variant == "constant" and spec.shape:
        values = values.view(count, -1)[:, :1].view(count, *[1] * len(spec.shape)).expand(shape).clone()
    return values


def _alike(
    names: tuple[str, ...], found: Tensor, squared: Tensor, sums: list[Tensor], right: list[Tensor], size: float
) -> None:
    """Refuse what is not the same up to rounding, for squared norms of this size; numbers that are not finite say nothing."""
    off = 1e-7 if found.dtype == torch.float64 else 1e-4
    for name, one, other, total, expected in zip(names, found, squared, sums, right, strict=True):
        odd = ~(one.isfinite() & other.isfinite())
        near = torch.isclose(one.double(), other, rtol=100 * off, atol=off**2 * size + 1e-290) | odd
        close = torch.isclose(total, expected, rtol=100 * off, atol=off * math.sqrt(size))
        if not bool(near.all() and (odd.any() or close.all())):
            raise Refused(
                f"{name}: the gradients found are not those of single records run in a plain loop; the parameter is used in a way that "
                "is not seen, or the module is random in its own way"
            )
