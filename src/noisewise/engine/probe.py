"""A module and its loss on made-up rows, before any private one: batches of three and five against a loop over single records.

What this finds: records that are mixed (batch norm, means over the batch, transposed batches, losses whose mean counts labels),
buffers that a pass changes, parameters that slip by the books, norms that are wrong. It is evidence on made-up rows, not a
proof: module and loss are trusted code, and a statement names them.
"""

from __future__ import annotations

import copy
import inspect
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

from .clip import per_record_losses
from .entries import Direct, Entry, Outer
from .layout import Call, Layout, Refused, Spec, trainable, where_records_lie
from .tape import Tape, tensors_in

COUNTS = (3, 5)
IGNORED = -100  # what torch's losses leave out by default
BATCH_NORMS = nn.modules.batchnorm._BatchNorm
_DROPOUTS = {
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
    torch.dropout,
    torch.feature_dropout,
}
_WITH_DROPOUT = {
    F.multi_head_attention_forward: inspect.signature(F.multi_head_attention_forward),
    F.scaled_dot_product_attention: inspect.signature(
        lambda query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False: None
    ),
}


class Quiet(TorchFunctionMode):
    """Nothing random happens in here: dropout passes everything on, and made-up numbers are their means."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func in (torch.randn_like, torch.rand_like):
            return torch.zeros_like(args[0]) + (0.5 if func is torch.rand_like else 0.0)
        if func in _WITH_DROPOUT:
            given = _WITH_DROPOUT[func].bind(*args, **kwargs)
            given.arguments["dropout_p"] = 0.0
            return func(*given.args, **given.kwargs)
        if func in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu) and isinstance(args[2], list | tuple):
            args = (*args[:5], 0.0, *args[6:])
        return func(*args, **kwargs)


class Watched(TorchFunctionMode):
    """Every torch function of a pass, with the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, list[torch.Size], list[torch.Size]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        shapes = [Tensor.size(value) for value in tensors_in((args, kwargs))]
        self.seen.append((func, shapes, []))
        here = len(self.seen) - 1
        result = func(*args, **kwargs)
        self.seen[here][2].extend(Tensor.size(value) for value in tensors_in(result))
        return result


def probed(
    module: nn.Module,
    inputs: Sequence[Spec],
    targets: Sequence[Spec] = (),
    loss: Any = None,
    *,
    loss_reduction: str = "mean",
    as_called: bool = False,
) -> Layout:
    """The layout of a module that treats every record by itself; :class:`Refused` otherwise."""
    names = {name: value.shape for name, value in trainable(module).items()}
    if not names:
        raise Refused("nothing trains; set requires_grad on the parameters that should")
    for name, part in module.named_modules():
        if isinstance(part, BATCH_NORMS) and part.training is not False:
            raise Refused(
                f"{name or 'the module'} is a batch norm, which mixes the records of a batch; use GroupNorm instead"
            )
    for name, value in trainable(module).items():
        if value.dtype not in (torch.float32, torch.float64):
            raise Refused(
                f"{name} is {value.dtype}, too coarse for norms that a promise rests on; train in float32 or float64"
            )
    frozen = tuple(name for name, value in module.named_parameters() if not value.requires_grad)
    layout = Layout(tuple(names), tuple(names.values()), frozen)
    asked = tuple(inputs), tuple(targets), loss, loss_reduction, as_called
    try:
        return _tried(layout, _Run(_copied(module), torch.float64, *asked))
    except Refused:
        raise
    except Exception:  # a module with numbers of its own kind, such as x.float()
        return _in_its_own_precision(layout, module, asked)


def _in_its_own_precision(layout: Layout, module: nn.Module, asked: tuple[Any, ...]) -> Layout:
    own = _copied(module)
    try:
        return _tried(layout, _Run(own, next(iter(trainable(own).values())).dtype, *asked))
    except Refused:
        raise
    except Exception as error:  # made-up rows only: whatever it says is public
        said = (str(error).splitlines() or [""])[0]
        raise Refused(
            f"the module or the loss fails on made-up rows of the shapes it was given: {type(error).__name__}: {said}"
        ) from error


def _tried(layout: Layout, run: _Run) -> Layout:
    with _plain_settings(run.kind), Quiet():
        layout = run.by_pixel(replace(layout, calls=run.calls()))
        for variant in range(3):
            for count in COUNTS:
                layout = run.compared(layout, count, variant)
    return layout


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module).train()
    except Exception as error:
        raise Refused("the module cannot be copied (copy.deepcopy), so it cannot be tried on made-up rows") from error


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


class _Run:
    """A copy of the module, in double precision where it takes that, and rows to try it on."""

    def __init__(
        self,
        module: nn.Module,
        kind: torch.dtype,
        inputs: Any,
        targets: Any,
        loss: Any,
        reduction: str,
        as_called: bool,
    ) -> None:
        self.module, self.kind, self.inputs, self.targets = module.to(kind), kind, inputs, targets
        self.loss = copy.deepcopy(loss).to(kind) if isinstance(loss, nn.Module) else loss
        self.reduction, self.as_called = reduction, as_called
        self.parameters = [*trainable(module).values()]
        self.device = self.parameters[0].device
        sizes = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
        self.high = max(min(sizes, default=2), 1)

    def rows(self, count: int, variant: int) -> tuple[list[Tensor], list[Tensor]]:
        """Made-up records: usual numbers, large ones, or mostly zeros; labels may be those that losses leave out."""
        made = torch.Generator().manual_seed(10 * variant + count)
        inputs = [_made_up(spec, count, made, spec.high or self.high, variant) for spec in self.inputs]
        targets = [_made_up(spec, count, made, spec.high or 2, variant) for spec in self.targets]
        if variant == 2:
            for target, spec in zip(targets, self.targets, strict=True):
                if not spec.dtype.is_floating_point and spec.dtype != torch.bool:
                    target.view(count, -1)[::2, :1] = IGNORED
        return [self._given(value) for value in inputs], [self._given(value) for value in targets]

    def _given(self, value: Tensor) -> Tensor:
        return value.to(self.device, self.kind if value.is_floating_point() else None)

    def total(self, outputs: Any, targets: list[Tensor], count: int) -> Tensor:
        """The sum of the records' losses, or of a made-up function of outputs."""
        if self.loss is not None:
            asked = per_record_losses(self.loss, outputs, targets, count, self.reduction, as_called=self.as_called)
            return asked.sum()
        values = [
            value for value in pytree.tree_leaves(outputs) if isinstance(value, Tensor) and value.is_floating_point()
        ]
        if not values:
            raise Refused("the module gives no tensor of floating-point numbers; a loss is made of such")
        return sum((value.sin() + value * value / 2).sum() for value in values)  # type: ignore[return-value]

    def calls(self) -> tuple[Call | None, ...]:
        """Where records lie in the tensors of every function, found by comparing two batches."""
        seen = []
        for count in COUNTS:
            inputs, _ = self.rows(count, 0)
            _forward(self.module, inputs)  # what is made at the first pass and kept
            with Watched() as watched:
                _forward(self.module, inputs)
            seen.append(watched.seen)
        few, more = seen
        if [call[0] for call in few] != [call[0] for call in more]:
            raise Refused("the module does something else in a larger batch; treat every record by itself")
        return tuple(_placed(one, other) for one, other in zip(few, more, strict=True))

    def by_pixel(self, layout: Layout) -> Layout:
        """Pictures that are pooled lie by pixel, unless the module minds, or hands out pictures that lie so."""
        if not any(call is not None and call.function is F.max_pool2d for call in layout.calls):
            return layout
        tried, (inputs, _) = replace(layout, channels_last=True), self.rows(COUNTS[0], 0)
        try:
            with Tape(self.module, tried, COUNTS[0]):
                outputs = _forward(self.module, inputs)
        except Exception:  # whatever it says is said again, or does not matter
            return layout
        return tried if all(value.is_contiguous() for value in tensors_in(outputs)) else layout

    def compared(self, layout: Layout, count: int, variant: int) -> Layout:
        """Norms and a weighted sum from the books against a loop over records."""
        inputs, targets = self.rows(count, variant)
        weights = torch.linspace(0.5, 1.5, count, dtype=torch.float64, device=self.device)
        before = {name: value.clone() for name, value in self.module.named_buffers()}
        tape = Tape(self.module, layout, count)
        with tape:
            outputs = _forward(self.module, inputs)
        try:
            total = self.total(outputs, targets, count)
        except (IndexError, RuntimeError):
            if variant < 2:
                raise
            return layout  # there is no label that this loss leaves out
        slipped = torch.autograd.grad(total, [tape.token, *self.parameters], allow_unused=True)[1:]
        for name, gradient in zip(layout.names, slipped, strict=True):
            if gradient is not None:
                raise Refused(
                    f"{name} is used in a way that has no rule; freeze it, or write it as a torch function of records"
                )
        self._refuse_changed(before)
        squared, sums = self._loop(inputs, targets, weights, count)
        _alike(layout.names, tape.squared_norms(), squared, tape.sums(weights), sums)
        uses = tape.uses()
        terms = max([layout.terms, *[entry.terms for entries in uses for entry in entries]])
        return replace(layout, terms=terms, plain_linear=all(map(_plain, uses)))

    def _loop(
        self, inputs: list[Tensor], targets: list[Tensor], weights: Tensor, count: int
    ) -> tuple[Tensor, list[Tensor]]:
        squared = torch.zeros(len(self.parameters), count, dtype=torch.float64, device=self.device)
        sums = [torch.zeros_like(value) for value in self.parameters]
        for row in range(count):
            own = [value[row : row + 1] for value in inputs]
            total = self.total(_forward(self.module, own), [value[row : row + 1] for value in targets], 1)
            found = torch.autograd.grad(total, self.parameters, allow_unused=True)
            for number, gradient in enumerate(found):
                if gradient is not None:
                    squared[number, row] = gradient.double().square().sum()
                    sums[number] += gradient * weights[row].to(gradient.dtype)
        return squared, sums

    def _refuse_changed(self, before: dict[str, Tensor]) -> None:
        for name, value in self.module.named_buffers():
            if name not in before or not torch.equal(value, before[name]):
                raise Refused(
                    f"a forward pass changes the buffer {name}, which would store private values; switch that off"
                )


def _plain(entries: list[Entry]) -> bool:
    """Whether a parameter is used once, without a sequence."""
    if len(entries) != 1:
        return False
    (use,) = entries
    return (isinstance(use, Outer) and use.a.dim() == 2) or (isinstance(use, Direct) and use.terms == 1)


def _forward(module: nn.Module, inputs: list[Tensor]) -> Any:
    return module(*inputs)


def _placed(few: Any, more: Any) -> Call | None:
    function, shapes, results = few
    if not shapes and not results:
        return None
    if len(shapes) != len(more[1]) or len(results) != len(more[2]):
        raise Refused("a function is given more tensors in a larger batch; treat every record by itself")

    def places(one: list[torch.Size], other: list[torch.Size]) -> tuple[Any, ...]:
        return tuple(where_records_lie(tuple(a), tuple(b), COUNTS) for a, b in zip(one, other, strict=True))

    return Call(function, places(shapes, more[1]), places(results, more[2]))


def _made_up(spec: Spec, count: int, made: torch.Generator, high: int, variant: int) -> Tensor:
    shape = (count, *spec.shape)
    if spec.dtype == torch.bool:
        return torch.randint(2, shape, generator=made).bool()
    if not spec.dtype.is_floating_point and not spec.dtype.is_complex:
        return torch.randint(high, shape, generator=made).to(spec.dtype)
    values = torch.randn(shape, generator=made, dtype=torch.float64)
    if variant == 1:
        values = values.mul_(3).exp().mul_(values.sign())
    if variant == 2:
        values = torch.where(torch.rand(shape, generator=made) < 0.7, 0.0, values)
    return values


def _alike(names: tuple[str, ...], found: Tensor, squared: Tensor, sums: list[Tensor], right: list[Tensor]) -> None:
    """Refuse what is not the same up to rounding; numbers that are not finite say nothing."""
    size = float(squared.nan_to_num(0.0, 0.0, 0.0).sum(0).max())
    off = 1e-7 if found.dtype == torch.float64 else 1e-4
    for name, one, other, total, expected in zip(names, found, squared, sums, right, strict=True):
        near = torch.isclose(one.double(), other, rtol=100 * off, atol=off**2 * size + 1e-290, equal_nan=True)
        close = torch.isclose(total, expected, rtol=100 * off, atol=off * math.sqrt(size), equal_nan=True)
        if not bool(near.all() and close.all()):
            raise Refused(
                f"{name}: gradients in a batch are not those of single records; the module or the loss mixes records (a mean "
                "over the batch, batch norm, a transposed batch, a loss whose mean counts labels), or is random in its own way"
            )
