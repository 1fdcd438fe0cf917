"""The private names of torch that the engine rests on: all are in this file, and are tested before the first pass.

functorch's batch level keeps records apart: to the module, a tensor of all records looks like the tensor of one record. torch has no
public way to open a level by hand, look under it and close it again without wrapping the module in a function. So only versions
of torch on which the engine was tested are accepted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import torch
import torch.compiler
from torch import Tensor
from torch._C import _functorch as functorch
from torch._functorch import eager_transforms
from torch.overrides import TorchFunctionMode

from .public_facts import Refused

TESTED = ("2.13.0",)  # with the operator table and the fuzzer of tests/engine
VARIABLE = "NOISEWISE_UNTESTED_TORCH"

is_batched = functorch.is_batchedtensor
add_level = functorch._add_batch_dim
under_level = functorch._unwrap_batched
_stack = functorch.peek_interpreter_stack
_show_slow: Any = functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]


@contextmanager
def level(batch: int) -> Iterator[int]:
    """Open a level of ``batch`` records, each of which draws its own random numbers; yields the number of the level."""
    _show_slow(False)  # that a function runs record by record is not a fault
    shown, eager_transforms.get_unwrapped = eager_transforms.get_unwrapped, _nothing_shown  # type: ignore[assignment]
    number = functorch._vmap_increment_nesting(batch, "different")
    try:
        yield number
    finally:
        functorch._vmap_decrement_nesting()
        eager_transforms.get_unwrapped = shown
        _show_slow(True)


def _nothing_shown(*_: object) -> NoReturn:
    raise Refused("torch.func.debug_unwrap shows all records; leave it out")


def current_level() -> int:
    """The number of the innermost transform of torch.func; 0 outside of all."""
    top = _stack()
    return 0 if top is None else top.level()


class below:  # noqa: N801, read as a word: with below(): ...
    """``with below():`` works on tensors of all records, under the level."""

    __slots__ = ("_saved",)

    def __enter__(self) -> None:
        self._saved = functorch.pop_dynamic_layer_stack()

    def __exit__(self, *_: object) -> None:
        functorch.push_dynamic_layer_stack(self._saved)


def generator_of(device: torch.device) -> torch.Generator:
    """The default generator of the device."""
    return torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator


@contextmanager
def taken_for_compiled() -> Iterator[None]:
    """Libraries ask torch whether it is compiling, and then skip shortcuts that look at values (``if mask.all()``)."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextmanager
def no_other_modes() -> Iterator[None]:
    """No mode of torch functions but our own in here."""
    left = []
    while torch._C._len_torch_function_stack():
        left.append(torch._C._pop_torch_function_stack())
    try:
        with torch._C._EnableTorchFunction():
            yield
    finally:
        for mode in reversed(left):
            torch._C._push_on_torch_function_stack(mode)


def untested() -> str | None:
    """The assumption about torch that a statement names; None where this version was tested."""
    version = torch.__version__.partition("+")[0]
    if version in TESTED:
        return None
    return f"torch {version} keeps records apart as torch {', '.join(TESTED)} does, on which the engine was tested ({VARIABLE}=1)"


@cache
def check_torch() -> None:
    """Refuse a version of torch that was not tested, unless the environment asks for it, or one whose private names behave differently."""
    if untested() and os.environ.get(VARIABLE) != "1":
        raise Refused(
            f"torch {torch.__version__} was not tested with this engine, which stands on private names of torch; install "
            f"torch {TESTED[-1]}, or set {VARIABLE}=1, which the statement then says"
        )
    try:
        works = _self_test()
    except Exception as error:
        raise Refused(f"private names of torch {torch.__version__} work otherwise ({type(error).__name__})") from error
    if not works:
        raise Refused(f"private names of torch {torch.__version__} work otherwise; install torch {TESTED[-1]}")


class _Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def _self_test() -> bool:
    """Records stay apart, each draws for itself, a mode sees them, and reading a value raises."""
    rows, seen = torch.arange(6.0).view(3, 2), _Seen()
    with no_other_modes(), torch.random.fork_rng(devices=[]), level(3) as number:
        inside = add_level(rows, 0, number)
        with seen:
            total, drawn = inside.sum(), torch.rand(4)
        with below():
            hidden = current_level() == number
        found, at = under_level(total, number)
        random, _ = under_level(drawn, number)
        try:
            read = bool(total > 0)
        except RuntimeError:
            read = False
        inner = current_level() == number and is_batched(total) and tuple(inside.shape) == (2,)
    return (
        inner and not hidden and not read and at == 0 and torch.equal(found, rows.sum(1)) and tuple(random.shape) == (3, 4)
        and not torch.equal(random[0], random[1]) and Tensor.sum in seen.functions and torch.rand in seen.functions
        and current_level() == 0
    )  # fmt: skip
