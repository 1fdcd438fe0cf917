"""Does a record's answer depend on its company? Every allowed function, over torch's own table of test inputs.

    python tests/engine/operator_table.py [--write docs/operations.md]

A function is called for three records at once, each record for itself (``in_company``). The law: a record's results and
gradients in company are those of the record alone, and they stay the same when the company becomes hostile (not a number,
infinite, 1e200, zero, ids out of range both ways). Each argument is a record's own or shared, in turn. An exception for the
whole batch is no mixing; it is noted, for ``RAISES``. Every entry of the table runs in a process of its own with a time
limit, because an operation may crash.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from noisewise.trusted.engine import allowed
from noisewise.trusted.engine.alone import opened
from noisewise.trusted.engine.tape import Tape
from noisewise.trusted.engine.torch_names import is_batched

RECORDS = 3
ALONE, COMPANY = 1e-9, 1e-12  # how far from the record alone, and from itself in other company
SECONDS = 600  # for one entry of the table; far more than it takes, even on a busy machine
MEMORY = 6 << 30
SAMPLES = 5  # inputs of an entry
# Entries that are made of several functions, and whose results are rounding noise where a matrix is singular.
SKIPPED = ("pca_lowrank", "svd_lowrank")


def in_company(function: Callable[..., list[Tensor]], batch: list[Tensor], spread: list[bool]) -> list[Tensor]:
    """``function`` for each record alone, as the engine runs it. What is spread has the records in front; so have the results.

    A record that the engine would count as zero (a place out of range, a matrix without an inverse) has results of NaN.
    """
    records = next(len(value) for value, one in zip(batch, spread, strict=True) if one)
    tape = Tape([], records)
    with opened(tape):
        given = [tape.wrapped(value) if one else value for value, one in zip(batch, spread, strict=True)]
        found = [
            tape.physical(value) if is_batched(value) else value.expand(records, *value.shape)
            for value in function(*given)
        ]
    if tape.bad is None:
        return found
    bad = tape.bad
    return [torch.where(bad.view(-1, *[1] * (one.dim() - 1)), _nothing(one), one) for one in found]


def by_vmap(function: Callable[..., list[Tensor]], batch: list[Tensor], spread: list[bool]) -> list[Tensor]:
    """The same by torch alone, without the list and the forms of the engine."""
    dimensions = tuple(0 if one else None for one in spread)
    return torch.func.vmap(function, in_dims=dimensions, randomness="different")(*batch)


def _nothing(like: Tensor) -> Tensor:
    return torch.full_like(like, torch.nan if like.is_floating_point() or like.is_complex() else 0)


# ---- what is called


@dataclass
class Case:
    """One function with one set of arguments."""

    entry: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flat, self.spec = pytree.tree_flatten((self.arguments, self.options))
        self.tensors = [n for n, one in enumerate(self.flat) if isinstance(one, Tensor) and one.layout == torch.strided]

    def function(self, at: Sequence[int]) -> Callable[..., list[Tensor]]:
        """The call as a function of its tensors. Those ``at`` these places are copied, as it may write in place."""

        def run(*given: Tensor) -> list[Tensor]:
            flat = [*self.flat]
            for place, one in zip(self.tensors, given, strict=True):
                flat[place] = one.clone() if place in at else one
            arguments, options = pytree.tree_unflatten(flat, self.spec)
            return [one for one in pytree.tree_leaves(self.call(*arguments, **options)) if isinstance(one, Tensor)]

        return run


class Seen(TorchFunctionMode):
    """Which functions are called, as the engine sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


@cache
def known() -> dict[Any, str]:
    return allowed.functions()


@cache
def facts() -> frozenset[Any]:
    found = [getattr(space, name) for space in (Tensor, torch) for name in allowed.FACTS if hasattr(space, name)]
    return frozenset([*found, *(one.__get__ for one in found if not callable(one))])


def table() -> list[Any]:
    """torch's own operator table. It imports a package for its tests that nothing here needs."""
    if "expecttest" not in sys.modules:
        made = types.ModuleType("expecttest")
        made.TestCase, made.assert_expected_inline = unittest.TestCase, None  # type: ignore[attr-defined]
        sys.modules["expecttest"] = made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as inputs
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = (
        True  # which the import forbids all others
    )
    inputs.wrapper_set_seed = lambda call, *args, **kwargs: call(*args, **kwargs)  # the seed is ours
    return inputs.op_db


def title(entry: Any) -> str:
    return entry.name + ("." + entry.variant_test_name if entry.variant_test_name else "")


SPACES = {
    "torch": torch,
    "torch.Tensor": Tensor,
    "torch.nn.functional": F,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
}


def variants(entry: Any) -> list[Callable[..., Any]]:
    """An entry's function, and whatever goes by its name or another name of it: methods, operators, in place."""
    found = [entry.op]
    for one in (entry, *entry.aliases):
        kinds = ("op", "method_variant", "inplace_variant", "operator_variant", "inplace_operator_variant")
        found += [getattr(one, kind, None) for kind in kinds]
        name = one.name.split(".")[-1]
        forms = (name, name + "_", f"__{name}__", f"__r{name}__", f"__i{name}__")
        found += [getattr(space, form, None) for space in SPACES.values() for form in forms]
    return list(dict.fromkeys(one for one in found if callable(one)))


def spaced(values: Iterable[Any], count: int) -> list[Any]:
    """So many of them, spread over the first few dozen."""
    some = [*itertools.islice(values, 30 * count)]
    if len(some) <= count:
        return some
    return [some[round(n * (len(some) - 1) / max(count - 1, 1))] for n in range(count)]


def dtype_of(entry: Any) -> torch.dtype | None:
    here = entry.supported_dtypes("cpu")
    return next(
        (one for one in (torch.float64, torch.float32, torch.int64, torch.bool, torch.complex128) if one in here), None
    )


def cases(entry: Any, count: int = SAMPLES, permitted: bool = True, forms: int | None = None) -> Iterator[Case]:
    """Each variant of an entry (or some) with a few of its inputs."""
    kind = dtype_of(entry)
    if kind is None:
        return
    torch.manual_seed(0)
    inputs = spaced(entry.sample_inputs("cpu", kind, requires_grad=False), count)
    if kind != torch.int64 and torch.int64 in entry.supported_dtypes("cpu"):
        inputs[2:2] = spaced(entry.sample_inputs("cpu", torch.int64, requires_grad=False), 1)
    for number, call in enumerate(variants(entry)[:forms]):
        if permitted and number and not (call in known() or getattr(call, "__module__", "") == "_operator"):
            continue
        for one in inputs if number < 3 else inputs[:4]:
            case = Case(title(entry), call, (one.input, *one.args), one.kwargs)
            if case.tensors:
                yield case


ARITHMETIC = """
__add__ __sub__ __mul__ __truediv__ __div__ __floordiv__ __mod__ __pow__ __radd__ __rsub__ __rmul__ __rtruediv__ __rdiv__
__rfloordiv__ __rmod__ __rpow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iadd__ __isub__ __imul__ __itruediv__ __idiv__
__ifloordiv__ __imod__ add_ sub_ mul_ div_ floor_divide_ true_divide_ fmod_ remainder_ floor_divide remainder fmod div
true_divide
"""
BITS = """
__and__ __or__ __xor__ __rand__ __ror__ __rxor__ __iand__ __ior__ __ixor__ __lshift__ __rshift__ __ilshift__ __irshift__
__rlshift__ __rrshift__
"""


def further() -> Iterator[Case]:
    """Functions that torch's table leaves out, and uses of others that it does not show."""
    torch.manual_seed(0)

    def x(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    def ids(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape)

    def case(call: Callable[..., Any], *arguments: Any, **options: Any) -> Case:
        name = getattr(call, "__name__", "attribute")
        return Case("further: " + name, call, arguments, options)

    def wrote(name: str) -> Callable[..., Tensor]:
        def run(value: Tensor, *arguments: Any) -> Tensor:
            getattr(value, name)(*arguments)
            return value

        run.__name__ = name
        return run

    whole = ids(9, 2, 3) + 1
    for name in ARITHMETIC.split():
        call = getattr(Tensor, name)
        yield case(call, x(2, 3), x(2, 3))
        yield case(call, x(2, 3), 2.5)
        if "floor" in name or not ("true" in name or "div_" in name):
            yield case(call, whole, whole.flip(0))
            yield case(call, whole, 2)
    for name in BITS.split():
        yield case(getattr(Tensor, name), whole, whole.flip(0))
        if "shift" not in name:
            yield case(getattr(Tensor, name), whole > 3, whole > 5)
    yield from (
        case(getattr(Tensor, name), x(2, 3))
        for name in ("__neg__", "__abs__", "__pos__", "__reversed__", "cpu", "detach")
    )
    yield case(torch.detach, x(2, 3))
    yield case(Tensor.__invert__, whole > 3)
    for name in ("pow_", "__ipow__", "float_power_"):
        yield case(getattr(Tensor, name), x(2, 3), 2)
    yield case(Tensor.cumprod_, x(2, 3), 1)
    for name in ("hypot_", "copy_", "type_as", "copysign_", "ldexp_"):
        yield case(getattr(Tensor, name), x(2, 3), x(2, 3))
    yield case(torch.ldexp_, x(2, 3), x(2, 3))
    yield case(Tensor.copy_, x(2, 3), x(3))
    for dtype in (torch.float32, torch.int64, torch.bool, torch.float16):
        yield case(Tensor.type, x(2, 3), dtype)
        yield case(Tensor.to, x(2, 3), dtype)
    yield case(Tensor.to, x(2, 3), x(1).float())
    for name in ("T", "mT", "H", "mH", "real"):
        yield case(getattr(Tensor, name).__get__, x(2, 3))
    yield case(lambda v: torch.view_as_complex(v).imag, x(4, 2))
    yield case(lambda v: torch.view_as_complex(v).real, x(4, 2))
    for name in ("detach_", "t_", "fill_diagonal_", "random_", "zero_"):
        yield case(getattr(Tensor, name), x(3, 3), *([0.5] if name == "fill_diagonal_" else []))
    # taking and putting parts
    for at in (
        0,
        -1,
        slice(1, None),
        (slice(None), 1),
        (..., None),
        (0, 1),
        [0, 2],
        (slice(None, None, 2), None),
        torch.tensor([0, 2]),
    ):
        yield case(Tensor.__getitem__, x(3, 4), at)
        yield case(wrote("__setitem__"), x(3, 4), at, 0.5)
    yield case(wrote("__setitem__"), x(3, 4), 0, x(4))
    yield case(wrote("__setitem__"), x(3, 4), (slice(None), slice(1, 3)), x(3, 2))
    yield case(wrote("__setitem__"), x(3, 4), ids(3, 2), x(2, 4))
    yield case(wrote("__setitem__"), x(3, 4), (ids(3, 2), ids(4, 2)), x(2))
    yield case(wrote("__setitem__"), x(3, 4), x(3, 4) > 0, 0.0)
    yield case(Tensor.__getitem__, x(3, 4), ids(3, 2))
    yield case(Tensor.__getitem__, x(3, 4), (ids(3, 2), ids(4, 2)))
    yield case(Tensor.__getitem__, x(3, 4), (slice(None), ids(4, 2, 2)))
    yield case(Tensor.__getitem__, x(1, 7, 3), (torch.arange(1), ids(7, 1)))
    yield case(lambda v: torch.stack([*v]), x(3, 2))
    for call in (Tensor.roll, torch.roll):
        yield case(call, x(), 1)
        yield case(call, x(3, 4), (1, 2), (0, 1))
        yield case(call, x(3, 4), 5)
    for call in (torch.prod, Tensor.prod):
        yield case(call, x(4, 3), 0)
        yield case(call, x(4, 3))
        yield case(call, whole)
    for call in (torch.cumprod, Tensor.cumprod):
        yield case(call, x(4, 3), 0)
    # made without a record, beside one
    for make in (torch.zeros, torch.ones, torch.rand, torch.randn):
        yield case(lambda v, make=make: v + make(2, 3, dtype=v.dtype), x(2, 3))
    yield case(lambda v: v + torch.full((2, 3), 2.0), x(2, 3))
    yield case(lambda v: v + torch.arange(3), x(2, 3))
    yield case(lambda v: v + torch.eye(3, dtype=v.dtype), x(3, 3))
    yield case(lambda v: v + torch.linspace(0, 1, 3), x(2, 3))
    yield case(lambda v: v + torch.logspace(0, 1, 3), x(2, 3))
    yield case(lambda v: v + torch.tensor([1.0, 2.0, 3.0]), x(2, 3))
    yield case(lambda v: v + torch.scalar_tensor(2.0), x(2, 3))
    yield case(lambda v: v + v.new_tensor([1.0, 2.0, 3.0]), x(2, 3))
    yield case(lambda v: v[:, torch.randperm(3)], x(2, 3))
    yield case(lambda v: v + torch.randint(0, 5, (3,)), x(2, 3))
    for make in (
        torch.bartlett_window,
        torch.blackman_window,
        torch.hamming_window,
        torch.hann_window,
        torch.kaiser_window,
    ):
        yield case(lambda v, make=make: v * make(3), x(2, 3))
    for make in (torch.fft.fftfreq, torch.fft.rfftfreq):
        yield case(lambda v, make=make: v[0, 0] * make(3), x(2, 3))
    yield case(torch.as_tensor, x(2, 3))
    yield case(torch.asarray, x(2, 3))
    yield case(torch.poisson, x(2, 3).abs())
    yield case(torch.binomial, torch.full((2, 3), 5.0), torch.full((2, 3), 0.5))
    # layers and losses by the names that modules use
    image = x(1, 2, 6, 6)
    yield from (
        case(call, x(1, 2, 6), 2)
        for call in (torch.max_pool1d, torch.adaptive_max_pool1d, F._max_pool1d, F._adaptive_max_pool1d)
    )
    yield from (case(call, image, 2) for call in (torch.max_pool2d, F._max_pool2d, F._adaptive_max_pool2d))
    yield from (case(call, x(1, 2, 6, 6, 6), 2) for call in (torch.max_pool3d, F._max_pool3d, F._adaptive_max_pool3d))
    yield case(F._fractional_max_pool2d, image, 2, (3, 3))
    yield case(F._fractional_max_pool3d, x(1, 2, 6, 6, 6), 2, (3, 3, 3))
    yield from (case(call, x(1, 2, 6).abs(), 2.0, 2) for call in (F.lp_pool1d,))
    yield case(F.lp_pool2d, image, 2.0, 2)
    yield case(F.lp_pool3d, x(1, 2, 4, 4, 4), 2.0, 2)
    yield case(F.fold, x(1, 8, 9), (4, 4), 2)
    yield case(F.affine_grid, x(1, 2, 3), [1, 2, 4, 4])
    for mode, padding in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")):
        yield case(F.grid_sample, image, x(1, 3, 4, 2), mode, padding, False)
    for padding in ("zeros", "border", "reflection"):
        yield case(F.grid_sample, x(1, 2, 3, 4, 4), x(1, 2, 3, 3, 3), "bilinear", padding, True)
    yield case(F.native_channel_shuffle, x(1, 4, 3, 3), 2)
    yield from (case(call, x(2, 6), 0.5, True) for call in (torch.dropout, torch.alpha_dropout))
    yield from (
        case(call, x(1, 4, 3), 0.5, True) for call in (torch.feature_dropout, torch.feature_alpha_dropout, F.dropout1d)
    )
    yield from (
        case(call, x(2, 6), 0.5, True)
        for call in (torch.dropout_, torch.alpha_dropout_, torch.feature_dropout_, torch.feature_alpha_dropout_)
    )
    yield case(F.gumbel_softmax, x(2, 5))
    yield case(F.gumbel_softmax, x(2, 5), hard=True)
    yield case(torch.cosine_embedding_loss, x(1, 5), x(1, 5), torch.tensor([1]))
    yield case(torch.margin_ranking_loss, x(5), x(5), x(5).sign())
    yield case(torch.kl_div, x(1, 5), x(1, 5).softmax(1))
    yield case(torch.poisson_nll_loss, x(5), x(5).abs(), True, False, 1e-8, 1)
    yield case(torch.instance_norm, x(1, 2, 5), x(2), x(2), None, None, True, 0.1, 1e-5, False)
    yield case(F.instance_norm, x(1, 2, 5), x(2), x(2).abs())
    yield case(torch.chain_matmul, x(2, 3), x(3, 4), x(4, 2))
    yield case(torch._weight_norm, x(4, 3), x(4, 1))
    yield case(torch.norm_except_dim, x(4, 3), 2, 0)
    for bag in ("sum", "mean", "max"):
        yield case(F.embedding_bag, ids(5, 1, 4), x(5, 3), mode=bag)
        yield case(F.embedding_bag, ids(5, 6), x(5, 3), torch.tensor([0, 2]), mode=bag)
    yield case(F.embedding_bag, ids(5, 1, 4), x(5, 3), mode="sum", per_sample_weights=x(1, 4))
    yield case(F.embedding, ids(5, 1, 4), x(5, 3), 1)
    yield case(F.embedding, ids(5, 1, 4), x(5, 3), max_norm=1.0)
    yield case(F.one_hot, ids(5, 3), 7)
    yield case(F.cross_entropy, x(1, 5), ids(5, 1), weight=x(5).abs(), label_smoothing=0.1)
    yield case(F.cross_entropy, x(1, 5, 4), ids(5, 1, 4), ignore_index=2)
    yield case(F.cross_entropy, x(1, 5, 4), ids(5, 1, 4), reduction="none")
    yield case(F.cross_entropy, x(1, 5), x(1, 5).softmax(1))
    yield case(F.nll_loss, x(1, 5).log_softmax(1), ids(5, 1), reduction="sum")
    query = x(1, 2, 4, 3)
    yield case(F.scaled_dot_product_attention, query, query.flip(1), query.flip(2), is_causal=True)
    yield case(
        F.scaled_dot_product_attention, query, query.flip(1), query.flip(2), attn_mask=torch.ones(4, 4).tril() > 0
    )
    yield case(
        F.scaled_dot_product_attention, query, query.flip(1), query.flip(2), attn_mask=x(1, 1, 4, 4), dropout_p=0.5
    )
    # recurrent layers
    h, c = x(1, 1, 4), x(1, 1, 4)
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        weights = [x(4 * gates, 3), x(4 * gates, 4), x(4 * gates), x(4 * gates)]
        state = (h, c) if name == "lstm" else h
        call = getattr(torch, name)
        yield case(call, x(1, 5, 3), state, weights, True, 1, 0.0, False, False, True)
        cell = getattr(torch, name + "_cell")
        yield case(cell, x(1, 3), (h[0], c[0]) if name == "lstm" else h[0], *weights)


# ---- the law


def leaf(value: Tensor) -> Tensor:
    value = value.detach().clone()
    return value.requires_grad_() if value.is_floating_point() else value


def gradients(results: list[Tensor], given: list[Tensor], records: int | None) -> list[Tensor | None]:
    """Of a fixed mixture of all results, with respect to all numbers that came in."""
    total: Any = 0
    for one in results:
        if one.requires_grad and (one.is_floating_point() or one.is_complex()):
            shape = one.shape if records is None else one.shape[1:]
            angle = torch.arange(float(math.prod(shape)), dtype=torch.float64).view(shape)
            if one.is_complex():
                total = total + (one.real * angle.cos()).sum() + (one.imag * angle.sin()).sum()
            else:
                total = total + (one * angle.cos().to(one.dtype)).sum()
    wanted = [one for one in given if one.requires_grad]
    if not isinstance(total, Tensor) or not wanted:
        return [None] * len(wanted)
    return list(torch.autograd.grad(total, wanted, allow_unused=True))


def close(one: Tensor | None, other: Tensor | None, tolerance: float) -> bool:
    if one is None or other is None:
        return all(value is None or not value.any() for value in (one, other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.detach(), other.detach()
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    finite = one.abs()[one.isfinite()]
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    if one.dtype in (torch.float32, torch.complex64):
        tolerance = max(tolerance, 1e-5)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def others(values: list[Tensor], turn: int) -> Iterator[list[Tensor]]:
    """Another record of the same kind: the first of these that the function takes."""

    def turned(value: Tensor) -> Tensor:
        return value.flip(0).roll(turn) if value.dim() else value

    for scale in (0.75, 1.25) if turn == 1 else (1.25, 0.75):
        yield [turned(one) * scale if one.is_floating_point() or one.is_complex() else turned(one) for one in values]
        yield [one * scale if one.is_floating_point() or one.is_complex() else one for one in values]
    yield [one * (1 + 0.01 * turn) if one.is_floating_point() else one for one in values]
    yield values


NUMBERS = {"nan": torch.nan, "inf": torch.inf, "huge": -1e200, "zero": 0.0}
SHIFTS = {"+3": 3, "-9": -9, "+1000": 1000, "-1000": -1000, "+2^40": 2**40}


def wild(value: Tensor) -> Tensor:
    """Numbers whose products overflow in one order and not in another."""
    few = value.new_tensor([1e200, 1e200, 1e-300, 3.0] if value.dtype == torch.float64 else [1e30, 1e30, 1e-35, 3.0])
    return few.repeat(value.numel() // 4 + 1)[: value.numel()].view(value.shape)


def hostile(values: list[Tensor]) -> dict[str, list[Tensor]]:
    """Records that nobody wants beside them."""
    found = {}
    if any(one.is_floating_point() or one.is_complex() for one in values):
        for name, number in NUMBERS.items():
            found[name] = [
                (one * number if name == "huge" else torch.full_like(one, number))
                if one.is_floating_point() or one.is_complex()
                else one
                for one in values
            ]
        found["wild"] = [wild(one) if one.is_floating_point() or one.is_complex() else one for one in values]
    whole = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    if any(one.dtype in whole for one in values):
        for name, by in SHIFTS.items():
            found["whole numbers " + name] = [one + by if one.dtype in whole else one for one in values]
        found["whole numbers zero"] = [one * 0 if one.dtype in whole else one for one in values]
    if any(one.dtype == torch.bool for one in values):
        found["all false"] = [torch.zeros_like(one) if one.dtype == torch.bool else one for one in values]
    return found


Outcome = tuple[list[Tensor], list[Tensor | None]]


class Trial:
    """One case, with some arguments a record's own and the rest shared."""

    def __init__(self, case: Case, at: Sequence[int], note: Callable[[str, str], None], run: Any = in_company) -> None:
        self.case, self.at, self.note, self.run_all = case, at, note, run
        self.function = case.function(at)
        self.calls = 0
        self.forward_only = False
        self.left: list[Tensor] = []  # what is shared, after the call for one record

    def alone(self, record: list[Tensor]) -> Outcome:
        """The record without company; as the engine runs a single one where numbers are not finite: torch's own form may crash."""
        if all(one.isfinite().all() for one in record):
            return self._alone(record)
        return self.together([record])[0]

    def _alone(self, record: list[Tensor]) -> Outcome:
        given = [leaf(one) for one in record]
        torch.manual_seed(0)
        batch = self.filled(given)
        results = self.function(*batch)
        self.left = [one for place, one in zip(self.case.tensors, batch, strict=True) if place not in self.at]
        try:
            return results, gradients(results, given, None)
        except (RuntimeError, NotImplementedError):
            self.forward_only = True
            return results, []

    def filled(self, own: list[Tensor]) -> list[Tensor]:
        """All tensors of the call: a record's own, and copies of those that are shared."""
        rest = iter(own)
        return [next(rest) if place in self.at else self.case.flat[place].clone() for place in self.case.tensors]

    def together(self, records: list[list[Tensor]], seed: int = 0) -> list[Outcome]:
        given = [leaf(torch.stack(one)) for one in zip(*records, strict=True)]
        torch.manual_seed(seed)
        self.calls += 1
        batch = self.filled(given)
        results = self.run_all(self.function, batch, [place in self.at for place in self.case.tensors])
        after = [one for place, one in zip(self.case.tensors, batch, strict=True) if place not in self.at]
        if not all(close(one, left, 0.0) for one, left in zip(after, self.left, strict=True)):
            self.note("mixes (any)", "writes into what is shared")
        found: list[Tensor | None] = []
        if not self.forward_only:
            found = gradients(results, given, len(records))
        return [
            ([one[n] for one in results], [None if one is None else one[n] for one in found])
            for n in range(len(records))
        ]

    def compare(self, what: str, one: Outcome, other: Outcome, tolerance: float) -> bool:
        for kind, left, right in (("results", one[0], other[0]), ("gradients", one[1], other[1])):
            if kind == "gradients" and self.forward_only:
                continue
            if len(left) != len(right) or not all(close(a, b, tolerance) for a, b in zip(left, right, strict=True)):
                self.note(what, kind)
                return False
        return True

    def run(self) -> None:
        base = [self.case.flat[place] for place in self.at]
        if len({one.dtype for one in base} & {torch.uint16, torch.uint32, torch.uint64}):
            return
        try:
            own = {"base": (base, self.alone(base))}
        except Exception as error:
            self.note("not called", str(error)[:80])
            return
        for name, turn in (("other", 1), ("far", 2)):
            for record in others(base, turn):
                try:
                    own[name] = record, self.alone(record)
                    break
                except Exception:
                    continue
        if len(own) < 3:
            self.note("not called", "no other record")
            return
        other, far = own["other"][0], own["far"][0]
        try:
            first = self.together([base, other, far])
        except Exception as error:
            self.note("refused", str(error).split("\n")[0][:120])
            return
        again = self.together([base, other, far], seed=1)
        random = not all(
            close(a, b, COMPANY)
            for left, right in zip(first, again, strict=True)
            for a, b in zip(left[0], right[0], strict=True)
        )
        if random:
            self.note("random", "")
        else:
            for (_, alone), company in zip(own.values(), first, strict=True):
                if not self.compare("wrong", alone, company, ALONE):
                    return
        before: dict[Any, Outcome] = {}

        def same(name: str, place: int, found: Outcome, company: str) -> bool:
            if not self.compare(f"mixes ({company})", before.setdefault((name, place), found), found, COMPANY):
                return False
            if random:
                return True
            own = f"place ({company}{', its own' if name == company else ''})"
            return self.compare(own, before.setdefault(name, found), found, COMPANY)

        for place, name in enumerate(("base", "other", "far")):
            same(name, place, first[place], "ordinary")
        second = self.together([other, base, other])
        for place, name in enumerate(("other", "base", "other")):
            same(name, place, second[place], "ordinary")
        enemies = hostile(base)
        for kind, bad in enemies.items():
            companies = [
                (("base", kind, "far"), [base, bad, far]),
                ((kind, "base", kind), [bad, base, bad]),
                ((kind, "other", "far"), [bad, other, far]),
            ]
            if "wild" in enemies and kind != "wild":
                companies.append((("wild", kind, "far"), [enemies["wild"], bad, far]))
            for names, records in companies:
                try:
                    found = self.together(records)
                except Exception as error:
                    self.note("raises", f"{kind}: " + str(error).split("\n")[0][:120])
                    continue
                for place, name in enumerate(names):
                    same(name, place, found[place], kind)
            if not random and kind in before:
                try:
                    alone = self.together([bad])[0]  # torch's own form may crash
                except Exception:
                    self.note("raises alone", kind)
                else:
                    self.compare(f"differs alone ({kind})", alone, before[kind], 1e-6)


def ways(case: Case) -> list[list[int]]:
    """All arguments a record's own, and each of them in turn while the rest are shared."""
    every = case.tensors
    return [every, *([one] for one in every if len(every) > 1)]


def labels(case: Case) -> tuple[list[str], list[str]]:
    """The functions that the engine would see, by their names: those on the list, and the rest."""
    with Seen() as seen:
        case.function(case.tensors)(*[case.flat[place] for place in case.tensors])
    clone = [n for n, one in enumerate(seen.functions) if one == Tensor.clone][: len(case.tensors)]
    called = [one for n, one in enumerate(seen.functions) if n not in clone and one not in facts()]
    direct = [case.call] if case.call in known() else []  # an operator's method may be seen under its plain name
    return (
        sorted({known()[one] for one in [*direct, *called] if one in known()}),
        sorted({getattr(one, "__qualname__", str(one)) for one in called if one not in known()}),
    )


def examine(given: Iterable[Case], tell: Callable[[dict[str, Any]], None], permitted: bool = True) -> None:
    """Try cases, and tell one line for each way: names, calls, notes."""
    for case in given:
        try:
            names, strange = labels(case)
        except Exception as error:
            tell(
                {
                    "entry": case.entry,
                    "names": [],
                    "calls": 0,
                    "notes": [["not called", str(error)[:80]]],
                    "call": str(case.call),
                }
            )
            continue
        if permitted and (strange or not names):
            tell({"entry": case.entry, "names": [], "calls": 0, "notes": [["not on the list", ", ".join(strange)]]})
            continue
        if not permitted:
            names = names + strange
        for at in ways(case):
            way = "all" if len(at) == len(case.tensors) else f"argument {case.tensors.index(at[0])}"
            line: dict[str, Any] = {"entry": case.entry, "names": names, "way": way, "calls": 0}
            tell({**line, "begun": True})
            notes: list[tuple[str, str]] = []
            trial = Trial(case, at, lambda *said, notes=notes: notes.append(said), in_company if permitted else by_vmap)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    trial.run()
                except Exception as error:
                    notes.append(("harness", "".join(traceback.format_exception(error))[-400:]))
            if any("performance drop" in str(one.message) for one in warned):
                notes.append(("loop", ""))
            tell({**line, "calls": trial.calls, "notes": sorted(set(notes))})


# ---- processes


def apart(
    jobs: dict[str, Callable[[Callable[[dict[str, Any]], None]], None]], at_once: int = 1
) -> list[dict[str, Any]]:
    """Run jobs, each in a process of its own with a time limit; give back all lines they told."""
    waiting, running, lines = [*jobs.items()], {}, []
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < at_once:
                name, job = waiting.pop(0)
                path = Path(folder) / f"{len(waiting)}.jsonl"
                path.touch()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
                    pid = os.fork()
                if not pid:
                    child(job, path)
                running[pid] = name, path
            for pid, (name, path) in [*running.items()]:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    del running[pid]
                    told = [json.loads(line) for line in path.read_text().splitlines()]
                    lines += [line for line in told if "begun" not in line]
                    if status:
                        last = told[-1] if told else {"entry": name, "names": [], "calls": 0}
                        how = "too slow" if os.WTERMSIG(status) == signal.SIGALRM else f"ended with status {status}"
                        lines.append({**last, "notes": [["crashed", how]]})
            time.sleep(0.002)
    return lines


def child(job: Callable[[Callable[[dict[str, Any]], None]], None], path: Path) -> None:
    status = 1
    try:
        faulthandler.disable()
        torch.set_num_threads(1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with path.open("w") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")

            def tell(line: dict[str, Any]) -> None:
                file.write(json.dumps(line) + "\n")
                file.flush()

            job(tell)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


# ---- all of it


BAD = ("mixes", "wrong", "place", "crashed", "harness")


def jobs(entries: Iterable[Any], count: int = SAMPLES, forms: int | None = None) -> dict[str, Any]:
    """What ``apart`` runs, for entries of the table."""

    def job(entry: Any, tell: Callable[[dict[str, Any]], None]) -> None:
        examine(cases(entry, count, forms=forms), tell)

    return {title(entry): partial(job, entry) for entry in entries if entry.name not in SKIPPED}


def further_jobs(few: int = 1) -> dict[str, Any]:
    """The same for what the table leaves out, some at a time: every ``few``-th case."""

    def job(part: list[Case], tell: Callable[[dict[str, Any]], None]) -> None:
        examine(part, tell)

    every = [*further()][::few]
    return {f"further {n}": partial(job, every[n : n + 10]) for n in range(0, len(every), 10)}


@dataclass
class Verdict:
    """What was found of all calls."""

    lines: list[dict[str, Any]]

    def bad(self) -> list[str]:
        """Each break of the law, in words."""
        return [
            f"{' + '.join(line['names']) or line['entry']} ({line['entry']}, {line.get('way', '')}): {what} {detail}"
            for line in self.lines
            for what, detail in line["notes"]
            if what.split(" (")[0] in BAD
        ]

    @property
    def calls(self) -> int:
        return sum(line["calls"] for line in self.lines)

    def tested(self) -> Counter[str]:
        """Calls by function, of those that torch could run for each record."""
        found: Counter[str] = Counter()
        for line in self.lines:
            if not any(what in ("refused", "not called") for what, _ in line["notes"]):
                found.update(dict.fromkeys(line["names"], line["calls"]))
        return found

    def noted(self) -> dict[str, set[str]]:
        """Notes by function; those of a call of several functions are nobody's."""
        found: dict[str, set[str]] = defaultdict(set)
        for line in self.lines:
            if len({name.rpartition(".")[2].strip("_") for name in line["names"]}) == 1:
                for name in line["names"]:
                    found[name] |= {what.split(" (")[0] for what, _ in line["notes"]}
        return found

    def raises(self) -> set[str]:
        """Functions that raised because of values."""
        return {name for name, notes in self.noted().items() if notes & {"raises", "raises alone"}}


def untested(verdict: Verdict) -> set[str]:
    """Functions of the list without a call; those that only tell facts need none."""
    left = {*known().values()} - {*verdict.tested()}
    return {name for name in left if name.rpartition(".")[2] not in allowed.FACTS}


WORDS = {
    "raises": "raises on some values",
    "random": "random: tested at one place with one seed",
    "loop": "slow: one record after the other",
    "refused": "torch refuses some uses",
    "differs alone": "differs from the record alone for numbers that are not finite, or for ties",
}


def page(verdict: Verdict, seconds: float) -> str:
    """docs/operations.md."""
    tested, noted = verdict.tested(), verdict.noted()
    lines = [
        "# Operations",
        "",
        "A module that trains privately may use the functions of torch on this page. Each was tested to keep records apart.",
        "",
        "## How it was tested",
        "",
        f"With torch {torch.__version__} on a CPU: {verdict.calls:,} calls, {len(tested):,} functions, {seconds / 60:.0f} minutes. The inputs "
        "are those of torch's own operator table, and some of ours for functions that it leaves out. A function ran for three "
        "records at once, each for itself. Every argument was a record's own or shared, in turn.",
        "",
        "1. Results and gradients of each record must be those of the record alone.",
        "2. They must stay the same beside any other records, and at any place: ordinary ones, and hostile ones that hold numbers which "
        "are not numbers, infinite, 1e200 or zero, numbers whose products overflow, and ids out of range.",
        "3. What records share must not change.",
        "",
        "Random functions were tested with one seed and at one place. An exception stops the whole call, so it mixes nothing; the "
        "engine checks values that would make a function raise record by record, or refuses the function.",
        "",
        "Run it again: `python tests/engine/operator_table.py --write docs/operations.md`.",
        "",
        "## Allowed",
        "",
    ]
    for space in allowed.NAMES:
        lines += [f"### {space}", "", "| Function | Calls | Note |", "| --- | ---: | --- |"]
        for name in allowed.NAMES[space].split():
            whole = f"{space}.{name}"
            notes = [WORDS[one] for one in WORDS if one in noted.get(whole, ())]
            if name in allowed.GUARDED:
                notes.insert(0, "the engine's own form")
            if name in allowed.FACTS:
                notes = ["tells a fact that is public"]
            lines.append(f"| `{name}` | {tested.get(whole, 0):,} | {'; '.join(notes)} |")
        lines.append("")
    lines += [
        "## In a form of the engine's own",
        "",
        "| Function | What torch's own would do, and what is done |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(allowed.GUARDED.items())]
    lines += ["", "## Not allowed", "", "| Function | Why |", "| --- | --- |"]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(allowed.WITHHELD.items())]
    lines += ["", "Whatever is not on this page is not allowed either: it was not tested.", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Test that allowed functions keep records apart.")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--only", nargs="*", help="entries of torch's table, by name")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.monotonic()
    entries = [entry for entry in table() if not chosen.only or entry.name in chosen.only]
    work = jobs(entries) | ({} if chosen.only else further_jobs())
    verdict = Verdict(apart(work, chosen.jobs))
    seconds = time.monotonic() - begun
    tested, bad = verdict.tested(), verdict.bad()
    print(f"{len(entries)} entries, {len(tested)} functions, {verdict.calls} calls, {seconds:.0f} seconds")
    print(f"{len(bad)} break the law", *bad, sep="\n  ")
    raised = {name.rpartition(".")[2] for name in verdict.raises()}
    print("raise on values, not in RAISES:", *sorted(raised - {*allowed.RAISES}))
    if not chosen.only:
        print("in RAISES, never seen to raise:", *sorted({*allowed.RAISES} - raised))
        print("never tested:", *sorted(untested(verdict)))
        if chosen.write:
            chosen.write.write_text(page(verdict, seconds))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
