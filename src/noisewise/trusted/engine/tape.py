"""The books of one pass in which every record is alone: a function mode under functorch's batch level.

The module and its loss see one record, as a batch of one; under the level is a tensor of all records. The mode sees every torch
function. It lets through those that were tested to keep records apart (:mod:`.allowed`). Where one is given a trainable parameter, a
rule runs instead: the same function, whose backward pass computes the gradient of the input only and books the factors of the
parameter's gradient (:mod:`.entries`). A function without a rule gets the parameter repeated for every record (a view), whose
gradient comes back record by record. Nothing runs twice, and the module is not wrapped.

Tensors of records carry the mark of their pass: a tensor that a module kept from an earlier pass is refused.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .allowed import FACTS, WITHHELD, functions
from .books import Books, Tracked
from .entries import Direct
from .public_facts import Refused
from .torch_names import add_level, below, current_level, generator_of, is_batched, under_level

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}  # in place of functions that are given a parameter
ALWAYS: dict[Any, Rule] = {}  # in place of functions that are given a record
ALLOWED = functions()
FACT = {
    one if callable(one) else one.__get__ for one in (getattr(Tensor, name, None) for name in FACTS) if one is not None
}
MARK = "_noisewise_pass"
HOOKS = {Tensor.register_hook, Tensor.register_post_accumulate_grad_hook, Tensor.retain_grad, Tensor.grad_fn.__get__}  # type: ignore[union-attr]
TRANSFORMED = "a transform of torch.func (grad, vmap, jvp) inside of the module or the loss; leave it out"
OTHERS = "an object with a __torch_function__ of its own, whose work cannot be seen; use plain tensors"
KEPT = (
    "a tensor that was kept from another pass, or made by what cannot be seen (a script of torch.jit, a class of tensors); keep "
    "nothing of a record in the module, in a global or in a closure, and use torch functions"
)
SEEDED = (
    "torch's random numbers are seeded in the module or the loss: a record's depend on its place then; leave that out"
)
PLAIN = {Tensor, torch.nn.Parameter}
CLEARED = {  # memory that was not cleared may hold other records
    torch.empty: torch.zeros, torch.empty_like: torch.zeros_like, Tensor.new_empty: Tensor.new_zeros,
}  # fmt: skip
PARTED = {  # functions in Python whose parts have rules for parameters
    F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm, F.batch_norm, F.multi_head_attention_forward,
}  # fmt: skip


def rule(*names: Any, always: bool = False, both: bool = False) -> Callable[[Rule], Rule]:
    """Register what runs in place of these torch functions; a rule returns NotImplemented for a case that it does not cover."""

    def registered(run: Rule) -> Rule:
        for name in names:
            for rules in (RULES, ALWAYS) if both else (ALWAYS,) if always else (RULES,):
                rules[name] = run
        return run

    return registered


class Tape(Books, TorchFunctionMode):
    """The books of one pass over ``batch`` records; :mod:`.alone` runs it."""

    def __init__(self, parameters: Sequence[Tensor], batch: int, *, channels_last: bool = False) -> None:
        Books.__init__(self, parameters, batch)
        TorchFunctionMode.__init__(self)
        self.channels_last, self.mark, self.level = channels_last, object(), 0
        self.generator, self.seed = generator_of(self.token.device), 0  # and its seed when the pass began
        self.failed: str | None = None  # the function that raised first, even if the module caught it
        self.spread = 0  # numbers a record of parameters without a rule
        self.pooled = self.laid_out = False  # pictures were pooled; and no output of the module is laid out by pixel
        self.tracked = {id(value): Tracked(value, number, value.shape) for number, value in enumerate(parameters)}
        self._spread: dict[int, Tensor] = {}

    # --- the forward pass ---

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FACT and PLAIN.issuperset(types):
            return func(*args, **kwargs)
        records = True  # until it is known
        try:
            if current_level() != self.level:  # another level hides what is a record
                self.refuse(TRANSFORMED)
            if not PLAIN.issuperset(types):
                self.refuse(f"{name_of(func)} is given {OTHERS}")
            if self.generator.initial_seed() != self.seed:
                self.refuse(SEEDED)
            records, tracked = self._look(func, args, kwargs)
            if tracked and func in HOOKS:
                self.refuse_function(func)
            if not records and not tracked:
                return self._marked(self._of_neither(func, args, kwargs))
            if tracked and torch.is_grad_enabled():
                return self._marked(self._used(func, args, kwargs, records))
            return self._marked(self.let_through(func, args, kwargs) if records else func(*args, **kwargs))
        except Exception as error:
            if records or isinstance(error, Refused):
                self.failed = self.failed or name_of(func)
            raise

    def _look(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[bool, bool]:
        """Whether there are records among the arguments, and whether there are parameters."""
        records = tracked = False
        for value in tensors_in((args, kwargs)):
            if is_batched(value):
                records = True
                if value.__dict__.get(MARK) is not self.mark:
                    self.refuse(f"{name_of(func)} is given {KEPT}")
            elif id(value) in self.tracked:
                tracked = True
        return records, tracked

    def _of_neither(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        func = CLEARED.get(func, func)
        if kwargs.get("generator") is not None:
            self.refuse("a generator of the module's own; leave generator= out, random numbers come from a secret seed")
        return func(*args, **kwargs)

    def let_through(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A function of records: by its rule, as it is if it was tested, in its parts if torch wrote it in Python, or refused."""
        func = CLEARED.get(func, func)
        run = ALWAYS.get(func)
        if run is not None:
            found = run(self, *args, **kwargs)
            if found is not NotImplemented:
                return found
        if has_parts(func):
            return self._in_parts(func, args, kwargs)
        if func in ALLOWED:
            if kwargs and (kwargs.get("generator") is not None or kwargs.get("out") is not None):
                self.refuse(f"{name_of(func)} with generator= or out=; leave it out")
            return func(*args, **kwargs)
        return self.refuse_function(func)

    def _in_parts(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        with self:
            return in_parts(func)(*args, **kwargs)

    def _used(self, func: Any, args: Any, kwargs: dict[str, Any], records: bool) -> Any:
        """A function that is given a parameter."""
        run = RULES.get(func)
        if run is not None:
            found = run(self, *args, **kwargs)
            if found is not NotImplemented:
                return found
        elif func not in ALWAYS and has_parts(func):
            return self._in_parts(func, args, kwargs)
        if not records:
            found = func(*args, **kwargs)
            if not any(map(is_batched, tensors_in(found))):
                return self.made(found, func, args, kwargs)
        return self.let_through(func, *self._all_spread((args, kwargs)))  # records, or random numbers of each

    def _marked(self, found: Any) -> Any:
        for value in tensors_in(found):
            if is_batched(value):
                value.__dict__[MARK] = self.mark
        return found

    def refuse(self, why: str) -> NoReturn:
        raise Refused(why)

    def refuse_function(self, func: Any) -> NoReturn:
        name = name_of(func)
        why = WITHHELD.get(name.removeprefix("linalg_"), "it was not tested to keep records apart (docs/operations.md)")
        raise Refused(f"{name} of a record is not allowed: {why}")

    # --- under the level, for rules ---

    def key(self, value: Any) -> Tracked | None:
        return self.tracked.get(id(value)) if isinstance(value, Tensor) else None

    def shared(self, *values: Tensor | None) -> bool:
        """Whether all records share these tensors, and none of them was computed from parameters."""
        keys = [self.key(value) for value in values]
        return not any(value is not None and is_batched(value) for value in values) and not any(
            key is not None and key.made is not None for key in keys
        )

    def physical(self, value: Tensor) -> Tensor | None:
        """The tensor of all records, which come first; None if it holds none."""
        whole, at = under_level(value, self.level)
        if at is None:
            return None
        return whole.movedim(at, 0) if at else whole

    def wrapped(self, whole: Tensor) -> Tensor:
        """One record's tensor again, of a tensor of all records."""
        inside: Tensor = add_level(whole, 0, self.level)
        inside.__dict__[MARK] = self.mark
        return inside

    def legal(self, ids: Tensor, low: int, high: int, also: int | None = None) -> Tensor:
        """Indices of all records (under the level): those outside of low .. high - 1 become ``low``.

        An index out of range would raise for the whole batch. Its record counts as zero instead; ``also`` is legal too.
        """
        out = (ids < low) | (ids >= high)
        if also is not None:
            out &= ids != also
        self.leave_out(out.reshape(len(out), -1).any(1))
        return ids.masked_fill(out, max(low, 0))

    def legal_of_one(self, ids: Tensor, low: int, high: int) -> Tensor:
        """The same for one record's indices (above the level); those that all records share stay as they are."""
        whole = None if ids.dtype == torch.bool or ids.is_floating_point() else self.physical(ids)
        if whole is None:
            return ids
        with below():
            checked = self.legal(whole, low, high)
        return self.wrapped(checked)

    def only_where(self, good: Tensor) -> None:
        """Leave out records for which one of these booleans (above the level) is false."""
        whole = self.physical(good)
        if whole is not None:
            with below():
                self.leave_out(~whole.reshape(len(whole), -1).all(1))

    def repeated(self, key: Tracked) -> Tensor:
        """A parameter repeated for every record, with gradients booked record by record; or what is computed from such."""
        found = self._spread.get(id(key))
        if found is None:
            if key.made is not None:
                func, given, place = key.made
                args, kwargs = pytree.tree_map_only(Tracked, self.repeated, given)
                found = self._marked(tensors_in(self.let_through(func, args, kwargs))[place])
            else:
                with below():
                    each = key.value.detach().expand(self.batch, *key.value.shape)
                    each = self.booked(each, lambda b: self.book(key, lambda: Direct(b, key.value.shape)))
                found = self.wrapped(each)
                self.spread += key.value.numel()
            self._spread[id(key)] = found
        return found

    def booked(self, result: Tensor, book: Callable[..., None], *given: Tensor) -> Tensor:
        """A result (under the level) of ``given`` and detached parameters: ``book`` gets its gradient and ``given``."""
        booked: Tensor = _Booked.apply(self.token, result, book, *given)
        return booked

    def _all_spread(self, values: Any) -> Any:
        def one(value: Tensor) -> Tensor:
            key = self.tracked.get(id(value))
            return value if key is None else self.repeated(key)

        return map_tensors(one, values)

    def made(self, found: Any, func: Any, args: Any, kwargs: Any, **known: Any) -> Any:
        """Track a result that was computed from parameters only; ``known``: further fields of :class:`.books.Tracked`."""
        given = map_tensors(lambda value: self.tracked.get(id(value), value), (args, kwargs))
        for place, value in enumerate(tensors_in(found)):
            if value.requires_grad:
                facts: dict[str, Any] = {"number": -1, "shape": value.shape} | known
                self.tracked[id(value)] = Tracked(value, **facts, made=(func, given, place))
        return found

    def free(self) -> None:
        """Forget the books and all tracked tensors."""
        super().free()
        self.tracked.clear()
        self._spread.clear()


class _Booked(torch.autograd.Function):
    """The identity, which books the gradient that comes back through it."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, result: Tensor, book: Any, *given: Tensor) -> Tensor:
        ctx.book = book
        ctx.save_for_backward(*given)
        if result._base is None:  # what is returned may be written to, as nn.ReLU(inplace=True) does
            ctx.mark_dirty(result)
        return result

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        (b,), given = outputs, ctx.saved_tensors
        ctx.book(b, *[value.detach() for value in given])
        return None, b, None, *[None] * len(given)


def tensors_in(values: Any) -> list[Tensor]:
    """Tensors in nested arguments or results, in order."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, list | tuple):
        return []
    return [one for value in values for one in ((value,) if isinstance(value, Tensor) else tensors_in(value))]


def map_tensors(change: Callable[[Tensor], Any], values: Any) -> Any:
    """The same nested values with every tensor changed; quick for what calls are made of, torch's own way for the rest."""
    if isinstance(values, Tensor):
        return change(values)
    kind = type(values)
    if kind is tuple or kind is list:
        return kind([map_tensors(change, value) for value in values])
    if kind is dict:
        return {name: map_tensors(change, value) for name, value in values.items()}
    if values is None or isinstance(values, int | float | str):
        return values
    return pytree.tree_map_only(Tensor, change, values)


def name_of(func: Any) -> str:
    """The name under which a function is documented."""
    owner = getattr(func, "__self__", None)
    name = getattr(func, "__name__", str(func))
    return getattr(owner, "__name__", name) if name in ("__get__", "__set__") else name


def has_parts(func: Any) -> bool:
    """Whether torch wrote the function in Python, from functions that have rules or are allowed while it is not."""
    of_python = isinstance(func, types.FunctionType) and func.__module__ == "torch.nn.functional"
    return func in PARTED or (of_python and func not in ALLOWED)


_PARTS: dict[Any, Any] = {}


def in_parts(func: Any) -> Any:
    """A copy of a function of torch.nn.functional that is not seen by a mode, while the functions that it calls are."""
    if func not in _PARTS:

        def no(*_: Any) -> bool:
            return False

        guards = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
        copy = types.FunctionType(
            func.__code__,
            {**func.__globals__, **dict.fromkeys(guards, no)},
            func.__name__,
            func.__defaults__,
            func.__closure__,
        )
        copy.__kwdefaults__ = func.__kwdefaults__
        _PARTS[func] = copy
    return _PARTS[func]
