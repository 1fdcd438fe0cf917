"""Functions that raise for all records at once if one record has some value, or leak that value otherwise.

A module could catch the exception, remember it, and treat all records differently from then on. So values are checked record by
record, a record with an illegal value counts as zero, and a function that cannot be checked is refused. This file is imported
last, when all other rules are registered.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..allowed import RAISES
from ..tape import ALLOWED, ALWAYS, Tape, name_of, rule
from ..torch_names import is_batched


def _without_nan(function: Any) -> Any:
    """The gradient at NaN depends on its place in memory; here it has none."""

    def run(tape: Tape, input: Tensor, *rest: Any, **more: Any) -> Any:
        if not input.is_floating_point():
            return NotImplemented
        odd = input.isnan()
        found = torch.where(odd, torch.nan, function(torch.where(odd, 0, input), *rest, **more))
        return input.copy_(found) if more.get("inplace") else found

    return run


for one in (
    F.celu, F.elu, F.hardshrink, F.hardswish, F.hardtanh, F.relu6, F.selu, F.softshrink, torch.celu, torch.selu,
    torch.hardshrink, torch.logit, torch.special.logit, Tensor.logit, Tensor.hardshrink,
):  # fmt: skip
    rule(one, always=True)(_without_nan(one))


@rule(F.grid_sample, always=True)
def grid_sample(tape: Tape, input: Tensor, grid: Tensor, *rest: Any, **more: Any) -> Any:
    """Coordinates that are not finite, or very far away, write outside of memory."""
    return F.grid_sample(input, _fitting(tape, grid, grid.abs() < 1e6, 0), *rest, **more)


@rule(torch.prod, Tensor.prod, always=True)
def prod(tape: Tape, input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """A zero in one record changes how torch computes the gradients of all; here factors are multiplied one by one."""
    value = input if dtype is None else input.to(dtype)
    value, at = (value.flatten(), 0) if dim is None else (value, dim)
    if not value.dim():
        return value
    found = reduce(torch.mul, value.unbind(at)) if value.shape[at] else value.sum(at) + 1
    return found.unsqueeze(at) if keepdim and dim is not None else found


@rule(torch.triu, Tensor.triu, Tensor.triu_, torch.tril, Tensor.tril, Tensor.tril_, always=True)
def triangle(tape: Tape, input: Tensor, *rest: Any, **more: Any) -> Any:
    """Of a record that is no matrix torch takes the records for rows."""
    return NotImplemented if input.dim() > 1 else tape.refuse("triu and tril take matrices; give them two dimensions")


@rule(torch.roll, Tensor.roll, always=True)
def roll(tape: Tape, input: Tensor, *rest: Any, **more: Any) -> Any:
    """torch shifts the records where each of them is a single number."""
    return NotImplemented if input.dim() else input.clone()


# --- matrices that cannot be inverted ---


def _good(tape: Tape, found: Tensor, info: Tensor) -> Tensor:
    tape.only_where(info == 0)
    return found


@rule(torch.linalg.inv, torch.inverse, Tensor.inverse, always=True)
def inv(tape: Tape, A: Tensor) -> Any:
    return _good(tape, *torch.linalg.inv_ex(A))


@rule(torch.linalg.solve, always=True)
def solve(tape: Tape, A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    if A.shape[-1] not in B.shape[-2:]:  # in company torch may take it for another shape
        tape.refuse("linalg.solve with sides that do not fit")
    return _good(tape, *torch.linalg.solve_ex(A, B, left=left))


@rule(torch.linalg.cholesky, torch.cholesky, Tensor.cholesky, always=True)
def cholesky(tape: Tape, input: Tensor, upper: bool = False) -> Any:
    found = _good(tape, *torch.linalg.cholesky_ex(input))
    return found.mH if upper else found


# --- whole numbers divided by zero, and chances outside of 0 to 1 ---


def _whole(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return isinstance(value, int)
    return not value.is_floating_point() and not value.is_complex()


def _over(function: Any, *, backwards: bool = False) -> Any:
    """Whole numbers over whole numbers: torch raises for zero, and the least number over -1 may end the process."""
    name = name_of(function)

    def run(tape: Tape, input: Any, other: Any, **more: Any) -> Any:
        by, of = (input, other) if backwards else (other, input)
        how = more.get("rounding_mode")
        if ("div" in name and "floor" not in name and how is None) or not _whole(by) or not _whole(of):
            return NotImplemented
        if how == "trunc":
            tape.refuse(f"{name} of whole numbers with rounding_mode='trunc'; use 'floor'")
        if not isinstance(by, Tensor) or not is_batched(by):
            return NotImplemented
        by = _fitting(tape, by, by != 0, 1)
        return function(by, of, **more) if backwards else function(of, by, **more)

    return run


for one in (
    torch.div, Tensor.div, Tensor.div_, torch.divide, Tensor.divide, Tensor.divide_, torch.floor_divide, Tensor.floor_divide,
    Tensor.floor_divide_, torch.remainder, Tensor.remainder, Tensor.remainder_, torch.fmod, Tensor.fmod, Tensor.fmod_,
    Tensor.__floordiv__, Tensor.__mod__, Tensor.__ifloordiv__, Tensor.__imod__,
):  # fmt: skip
    rule(one, always=True)(_over(one))
for one in (Tensor.__rfloordiv__, Tensor.__rmod__):
    rule(one, always=True)(_over(one, backwards=True))


def _fitting(tape: Tape, values: Tensor, fits: Tensor, other: float) -> Tensor:
    """Values with ``other`` in place of illegal ones; a record with such a value counts as zero."""
    tape.only_where(fits)
    return torch.where(fits, values, other)


def _chance(tape: Tape, p: Tensor) -> Tensor:
    return _fitting(tape, p, (p >= 0) & (p <= 1), 0.5)


@rule(torch.bernoulli, Tensor.bernoulli, always=True)
def bernoulli(tape: Tape, input: Tensor, *rest: Any, **more: Any) -> Any:
    return NotImplemented if rest or more else torch.bernoulli(_chance(tape, input))


@rule(Tensor.bernoulli_, always=True)
def bernoulli_(tape: Tape, input: Tensor, p: Any = 0.5, **more: Any) -> Any:
    return NotImplemented if more or not isinstance(p, Tensor) else input.bernoulli_(_chance(tape, p))


@rule(F.binary_cross_entropy, always=True)
def binary_cross_entropy(tape: Tape, input: Tensor, target: Tensor, *rest: Any, **more: Any) -> Any:
    return F.binary_cross_entropy(_chance(tape, input), _chance(tape, target), *rest, **more)


# --- the rest of what raises ---


def _shared(args: Any, more: Any) -> bool:
    """Whether all arguments but the first are the same for every record."""
    return not any(isinstance(one, Tensor) and is_batched(one) for one in (*args[1:], *more.values()))


def _no_singular(args: Any, more: Any) -> bool:
    """A norm that needs no singular values."""
    order, along = (*args[1:2], more.get("ord"))[0], (*args[2:3], more.get("dim"))[0]
    return order not in ("nuc", 2, -2) or (order != "nuc" and isinstance(along, int))


FINE = {  # when these do not raise on a record's values
    "normal": lambda args, more: not isinstance((*args, more.get("std"))[1], Tensor),
    "norm": lambda args, more: "nuc" not in (*args[1:2], more.get("p")),
    "linalg_norm": _no_singular,
    "linalg_matrix_norm": _no_singular,
    "matrix_power": lambda args, more: (*args, more.get("n"))[1] >= 0,
    "linalg_matrix_power": lambda args, more: (*args, more.get("n"))[1] >= 0,
    "nanquantile": _shared,
    "quantile": _shared,
    "repeat_interleave": _shared,
    "searchsorted": lambda args, more: more.get("sorter") is None and args[0].dim() > 0,
}


def _withheld(name: str) -> Any:
    def run(tape: Tape, *args: Any, **more: Any) -> Any:
        if name in FINE and FINE[name](args, more):
            return NotImplemented
        return tape.refuse(f"{name} of a record is not allowed: it raises on some values, for all records at once")

    return run


for one in [*ALLOWED]:
    if one not in ALWAYS and name_of(one).removeprefix("linalg_").removeprefix("_") in RAISES:
        rule(one, always=True)(_withheld(name_of(one)))
