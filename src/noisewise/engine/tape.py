"""One forward and backward pass that keeps the books from which every record's gradient norm and the clipped sum come.

A function mode sees each torch function that is given a trainable parameter. In its place runs a rule: the same function, whose
backward pass computes the gradient of the input alone and books what the parameter's gradient is made of (:mod:`.entries`). So
one backward pass is enough, no gradient of a single record is stored where it is large, and the module is not wrapped:
names in its state_dict stay, and parameters that are used by functions, tied, or used twice are seen as well.

What a rule does not know runs as it is: a function of parameters alone (a transposed, masked or normalised weight) makes a tensor
that is tracked in their place, and one of parameters and records is differentiated record by record (:mod:`.rules.other`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from . import entries as books
from .entries import ROOM, Entry
from .layout import Call, Layout, Refused, Where

RULES: dict[Any, Callable[..., Any]] = {}
Rule = Callable[["Use"], Any]


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Register what runs in place of these torch functions."""

    def registered(run: Rule) -> Rule:
        for function in functions:
            RULES[function] = run
        return run

    return registered


@dataclass(frozen=True)
class Tracked:
    """A parameter, or a tensor made of parameters alone, whose gradients of single records are booked."""

    value: Tensor
    number: int


@dataclass(frozen=True)
class Through(Entry):
    """Gradients of a parameter by way of a tensor that is made of it."""

    made: Tensor
    source: Tensor
    entry: Entry
    part: slice | None = None

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return self.source.shape

    @property
    def batch(self) -> int:
        return self.entry.batch

    @property
    def terms(self) -> int:
        return self.entry.terms

    def squared_norms(self) -> Tensor:
        return books.multiplied_out([self])

    def term_norms(self) -> Tensor:
        return self.squared_norms().sqrt()

    def per_record(self, rows: slice) -> Tensor:
        given = self.entry.per_record(rows)
        (gradients,) = torch.autograd.grad(
            self.made, self.source, given, retain_graph=True, is_grads_batched=True, allow_unused=True
        )
        return torch.zeros(len(given), *self.shape).to(given) if gradients is None else gradients

    def weighted(self, factors: Tensor, dead: Tensor | None) -> Tensor:
        given = self.entry.weighted(factors, dead)
        (total,) = torch.autograd.grad(self.made, self.source, given, retain_graph=True, allow_unused=True)
        return torch.zeros_like(self.source) if total is None else total

    def scaled(self, by: float) -> Entry:
        return Through(self.made, self.source, self.entry.scaled(by))


class Use:
    """One call of a function with parameters: its arguments, and the way to book what becomes of them."""

    def __init__(self, tape: Tape, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call) -> None:
        self.tape, self.function, self.args, self.kwargs, self.call = tape, function, args, kwargs, call

    def tracked(self, value: Any) -> Tracked | None:
        return self.tape.tracked.get(id(value)) if isinstance(value, Tensor) else None

    def where(self, value: Tensor) -> Where | None:
        """Where records lie in one of the arguments."""
        for tensor, place in zip(tensors_in((self.args, self.kwargs)), self.call.tensors, strict=True):
            if tensor is value:
                return place
        return None

    def book(self, tracked: Tracked | None, entry: Callable[[], Entry]) -> None:
        """Keep what a backward pass found; ``entry`` is made only for what trains."""
        if tracked is not None:
            self.tape.booked(tracked, entry())


class Tape(TorchFunctionMode):
    """The books of one pass over a batch: ``with tape: outputs = module(*inputs)``, then a backward pass to ``tape.token``."""

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        batch: int,
        *,
        seed: int | None = None,
        parameters: Sequence[Tensor] | None = None,
    ) -> None:
        """``parameters``: what trains, in the layout's order, where the caller has checked that already."""
        super().__init__()
        self.layout, self.batch, self.seed = layout, batch, seed
        self.parameters = layout.parameters(module) if parameters is None else parameters
        device = self.parameters[0].device
        self.token = torch.zeros((), device=device, requires_grad=True)
        self.scale = 1.0
        self.tracked = {id(value): Tracked(value, number) for number, value in enumerate(self.parameters)}
        self.made: list[Tensor] = []
        self.entries: list[list[Entry]] = [[] for _ in self.parameters]
        self.of_made: list[tuple[Tensor, Entry]] = []
        self.calls = 0
        self._end: Callable[[Tape], None] | None = None
        self._queued = False
        self._joined: list[list[Entry]] | None = None
        self._random: Any = None

    # --- the forward pass ---

    def __enter__(self) -> Tape:
        kind = self.token.device.type
        if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
            self.refuse("autocast is on, whose numbers are too coarse for norms that a promise rests on; switch it off")
        if self.seed is not None:
            devices = _accelerators(self.token.device)
            self._random = torch.random.fork_rng(devices=devices, enabled=True)
            self._random.__enter__()
            torch.default_generator.manual_seed(self.seed)  # torch.manual_seed notes where it is called from, each time
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(self.seed)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._random is not None:
            self._random.__exit__(*error)
            self._random = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        number = self.calls
        self.calls += 1
        if not self._concerned(args) and not (kwargs and self._concerned(kwargs.values())):
            if func is Tensor.view and self.layout.channels_last and not args[0].is_contiguous():
                return (
                    args[0].contiguous().view(*args[1:], **kwargs)
                )  # pictures may lie another way than the module thinks
            return func(*args, **kwargs)
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        return self._used(number, func, args, kwargs)

    def _concerned(self, values: Any) -> bool:
        tracked = self.tracked
        for value in values:
            if isinstance(value, Tensor):
                if id(value) in tracked:
                    return True
            elif isinstance(value, list | tuple) and any(id(one) in tracked for one in value):
                return True
        return False

    def _used(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = RULES.get(func)
        if run is None and _tells_a_fact(func):
            return func(*args, **kwargs)
        calls = self.layout.calls
        call = calls[number] if number < len(calls) else None
        if call is None or call.function != func:
            self.refuse("the module does not do what it did on made-up rows: its path must not depend on records")
        use = Use(self, func, args, kwargs, call)
        if any(place is not None for place in call.tensors):
            return (run or RULES[None])(use)
        if any(place is not None for place in call.results):
            return RULES["repeated"](use)
        return self._made_of_parameters(func(*args, **kwargs))

    def otherwise(self, use: Use) -> Any:
        """What a rule does not know."""
        return RULES[None](use)

    def refuse(self, why: str) -> NoReturn:
        raise Refused(why)

    def _made_of_parameters(self, result: Any) -> Any:
        """What parameters alone are turned into is tracked in their place, if it has a gradient."""
        for value in tensors_in(result):
            if value.requires_grad and id(value) not in self.tracked:
                self.tracked[id(value)] = Tracked(value, -1)
                self.made.append(value)
        return result

    # --- the backward pass ---

    def backward(self, total: Tensor) -> None:
        """The backward pass from a sum of losses; no parameter's ``grad`` is touched."""
        torch.autograd.grad(total, self.token, allow_unused=True)

    def booked(self, tracked: Tracked, entry: Entry) -> None:
        if tracked.number < 0:
            self.of_made.append((tracked.value, entry))
        else:
            self.entries[tracked.number].append(entry)
        if self._end is not None and not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ended)

    def _ended(self) -> None:
        self._queued = False
        if self._end is not None:
            self._end(self)

    def on_end(self, call: Callable[[Tape], None]) -> None:
        """Call this at the end of the backward pass."""
        self._end = call

    # --- what the books say ---

    def uses(self) -> list[list[Entry]]:
        """All entries of each parameter."""
        if self._joined is None:
            joined = [[*entries] for entries in self.entries]
            for made, entry in self.of_made:
                for number, source in enumerate(self.parameters):
                    if _reaches(made, source):
                        joined[number].append(Through(made, source, entry))
            self._joined = joined
        return self._joined

    def squared_norms(self) -> Tensor:
        """(parameters, batch): of every record's gradient; not finite where a gradient is not."""
        with torch.no_grad():
            found = [books.squared_norms(entries) if entries else None for entries in self.uses()]
            some = next((value for value in found if value is not None), None)
            empty = torch.zeros(self.batch, device=self.token.device, dtype=None if some is None else some.dtype)
            return torch.stack([empty if value is None else value for value in found]) * self.scale**2

    def term_norms(self) -> Tensor:
        """(batch,): a bound on the sum of the norms of all terms of a record's gradient, which may cancel each other."""
        with torch.no_grad():
            parts = [entry.term_norms() for entries in self.uses() for entry in entries]
            return (
                torch.stack(parts).sum(0) * self.scale if parts else torch.zeros(self.batch, device=self.token.device)
            )

    def sums(self, factors: Tensor) -> list[Tensor]:
        """The sum of factor times gradient for each parameter; a factor of 0 leaves the record out, whatever its numbers."""
        with torch.no_grad():
            each = factors if factors.dim() == 2 else factors.expand(len(self.parameters), -1)
            zero = factors == 0
            masked = factors.device.type == "meta" or bool(zero.any())
            none = zero if factors.dim() == 2 else zero.expand(len(self.parameters), -1)
            return [
                books.weighted(entries, factor * self.scale, dead if masked else None)
                if entries
                else torch.zeros_like(parameter)
                for entries, factor, dead, parameter in zip(self.uses(), each, none, self.parameters, strict=True)
            ]

    def free(self) -> None:
        """Forget the books."""
        self.entries, self.of_made, self._joined = [[] for _ in self.parameters], [], None
        self.made.clear()


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Tensors in nested arguments or results, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        yield from tensors_in([*values.values()])


def _tells_a_fact(func: Any) -> bool:
    """Whether a function reads a shape or a type and the like: nothing that has a gradient."""
    name = getattr(func, "__name__", "")
    owner = getattr(func, "__self__", None)
    if name == "__get__":
        return getattr(owner, "__name__", "") not in ("T", "mT", "H", "mH", "real", "imag")
    return name in _FACTS


_FACTS = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "is_floating_point", "is_complex", "element_size",
    "__len__", "__hash__", "__repr__", "detach", "data_ptr", "get_device", "__format__", "register_hook", "is_nonzero",
    "storage_offset", "untyped_storage", "requires_grad_", "is_inference", "is_same_size", "tolist", "item", "__reduce_ex__",
    "has_names", "is_shared", "type", "__deepcopy__", "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "zeros_like",
    "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
}  # fmt: skip


def _reaches(made: Tensor, source: Tensor) -> bool:
    """Whether a tensor is made of this parameter."""
    todo, seen = [made.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if getattr(node, "variable", None) is source:
            return True
        todo += [following for following, _ in node.next_functions]
    return False


def _accelerators(device: torch.device) -> Sequence[int]:
    return [device.index or 0] if device.type == "cuda" else []


__all__ = ["ROOM", "RULES", "Refused", "Tape", "Tracked", "Use", "rule", "tensors_in"]
