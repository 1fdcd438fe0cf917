"""Clipped sums of a perceptron's gradients in exact integers, for private records.

A record's forward and backward pass does not depend on its company (``perceptron_passes``), what it adds is an integer vector
of norm at most ``bound``, checked in integers (``perceptron_reference``), and integers are added: so one record more or less
moves a sum by at most ``bound`` units, one replaced by at most twice that, whatever the order, the chunks and the threads.
Kinks (relu, hinge) are harmless. The passes themselves are ordinary float products, tested before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fast.kernels import compiled
from ..models import MLP
from ..torch_extra import Tensor, torch
from . import perceptron_reference as reference
from . import perceptron_selftest as selftest
from .grid import MAX_ROW_NORM, ROWS_PER_CHUNK, GridRows
from .perceptron_passes import Views, Workspace, backward, forward, one_thread, workspace_for
from .perceptron_reference import MAX_DOUBLE_ENTRIES
from .totals import Floats, Integers

MAX_BLOCKS = 6  # single precision pays up to so many blocks; beyond, double precision does in one


@dataclass(frozen=True, slots=True, repr=False)
class PerceptronRows:
    """Rows as directions on the grid and what each is multiplied by, labels, squared lengths, and who is ``alive``.

    A row is the product, in single precision, whenever it is looked at: half as much is read as of a copy of all rows.
    """

    X: NDArray[np.int16]  # columns are padded
    reach: NDArray[np.float32]  # 0 for those who are not alive
    y: NDArray[Any]
    squares: Floats
    alive: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk on the workspace after its pass: so many records, their squared lengths, and who is alive."""

    workspace: Workspace
    views: Views
    start: int
    count: int
    squares: Floats
    alive: NDArray[np.bool_]


def single_rows(rows: GridRows) -> PerceptronRows:
    """Rows of the grid as numbers; one that is longer than 2^40 after rounding becomes zeros."""
    squares, alive = np.zeros(len(rows)), rows.alive.copy()
    for start in range(0, len(rows), ROWS_PER_CHUNK):
        here = slice(start, start + ROWS_PER_CHUNK)
        long = _squared_lengths(rows.directions(here).astype(np.float32) * rows.reach[here][:, None])
        alive[here] &= (long >= 0) & (long < MAX_ROW_NORM**2)
        squares[here] = np.where(alive[here], long, 0.0)
    y = rows.y.astype(np.int64 if rows.y.dtype == np.int32 else np.float32)
    reach = np.where(alive, rows.reach, np.float32(0))
    return PerceptronRows(rows.X, reach, np.where(alive, y, y.dtype.type(0)), squares, alive)


def pieces(
    model: MLP,
    theta: Tensor,
    rows: PerceptronRows,
    chosen: Integers | None,
    tallest: int,
    starts: range,
    *,
    exactly: bool,
    backwards: bool,
) -> Iterator[Piece]:
    """Chunks of the records, each on this thread's workspace after its pass; the next one takes its place."""
    workspace, kernels = workspace_for(model, tallest), _kernels()
    count = len(rows.y) if chosen is None else len(chosen)
    with one_thread():
        layers = workspace.layers(theta)
        for start in starts:
            size = min(tallest, count - start)
            views = workspace.views(selftest.height_for_rows(model, size, tallest, exactly))
            here: Any = slice(start, start + size) if chosen is None else chosen[start : start + size]
            _fill(kernels, rows, here, workspace.rows[:size])
            workspace.marks[:size] = rows.y[here]
            workspace.rows[size : views.height], workspace.marks[size : views.height] = 0, 0
            forward(model, layers, views, exactly=exactly)
            if backwards:
                backward(model, layers, views, exactly=exactly)
            yield Piece(workspace, views, start, size, rows.squares[here], rows.alive[here])


def _fill(kernels: Any, rows: PerceptronRows, here: Integers | slice, into: NDArray[np.float32]) -> None:
    """Writes some rows as numbers."""
    if kernels is None:
        np.multiply(rows.X[here, : into.shape[1]], rows.reach[here][:, None], into, dtype=np.float32)
    elif isinstance(here, slice):
        kernels.fill(rows.X[here], rows.reach[here], into)
    else:
        kernels.fill_drawn(rows.X, rows.reach, here, into)


def _squared_lengths(rows: NDArray[np.float32]) -> Floats:
    kernels = _kernels()
    if kernels is None:
        return reference.squared_lengths(rows)
    lengths = np.empty(len(rows))
    flat, width = rows.reshape(-1), rows.shape[1]
    kernels.squared_lengths(flat, flat.view(np.int32), width, reference.digits_for(width), lengths)
    return lengths


def norms(piece: Piece) -> Floats:
    """Gradient norm of each record; infinite if not finite or not alive."""
    views, count = piece.views, piece.count
    squared, usable = np.zeros(count), piece.alive.copy()
    for number, (a, b) in enumerate(zip(views.inputs, views.slopes, strict=True)):
        a2 = piece.squares if number == 0 else _squared_lengths(a[:count].numpy())
        b2 = _squared_lengths(b[:count].numpy())
        usable &= (a2 >= 0) & (b2 >= 0)
        squared += b2 * (a2 + 1.0)
    return np.sqrt(np.where(usable, squared, np.inf))


def add_sum(piece: Piece, clip: float, bound: int, total: Integers, *, fresh: bool) -> None:
    """Adds the piece's clipped gradients to ``total``, or writes them there."""
    workspace, views, count = piece.workspace, piece.views, piece.count
    kernels = _kernels()
    biases, blocks = _in_whole(kernels, piece, clip, bound)
    single = selftest.usual_precision() and selftest.whole_products_hold(workspace.model.sizes, workspace.tallest)
    at = bias_at = 0
    for a, b, begins in zip(views.inputs, views.slopes, blocks, strict=True):
        out, into = b.shape[1], a.shape[1]
        weights, bias = total[at : at + out * into], total[at + out * into : at + out * into + out]
        edges = [0, *begins.nonzero()[0].tolist(), count]
        if kernels is not None and out * into <= MAX_DOUBLE_ENTRIES:
            kernels.put_small(a.numpy()[:count], b.numpy()[:count], weights, fresh)
        elif not single or out * into <= MAX_DOUBLE_ENTRIES or len(edges) > MAX_BLOCKS:
            in_double = b.numpy()[:count].astype(np.float64).T @ a.numpy()[:count].astype(np.float64)
            _put(None, in_double.reshape(-1), weights, fresh)
        else:
            product = workspace.product[: out * into]
            for start, end in pairwise(edges):
                torch.mm(b[start:end].T, a[start:end], out=product.view(out, into))
                _put(kernels, product.numpy(), weights, fresh and start == 0)
        _put(None, biases[bias_at : bias_at + out], bias, fresh)
        at, bias_at = at + out * into + out, bias_at + out


def _put(kernels: Any, products: NDArray[Any], into: Integers, fresh: bool) -> None:
    if kernels is not None:
        (kernels.set_whole if fresh else kernels.add_whole)(products, into)
    elif fresh:
        into[:] = products
    else:
        into += products.astype(np.int64, copy=False)


def _in_whole(kernels: Any, piece: Piece, clip: float, bound: int) -> tuple[Integers, Integers]:
    """Puts whole inputs and output gradients in place of the real ones; biases' sums, beginnings of blocks."""
    workspace, count, sizes = piece.workspace, piece.count, piece.workspace.model.sizes
    if kernels is None:
        a, b = ([part.numpy()[:count] for part in parts] for parts in (piece.views.inputs, piece.views.slopes))
        whole_a, whole_b, biases, _, blocks = reference.whole_parts(a, b, piece.squares, piece.alive, clip, bound)
        for target, part in zip((*a, *b), (*whole_a, *whole_b), strict=True):
            target[:] = part
        return biases, blocks
    biases, norms = np.zeros(sum(sizes[1:]), np.int64), np.empty(count)
    blocks = np.zeros((len(sizes) - 1, count), np.int64)
    kernels.whole_parts(count, *workspace.arrays, piece.squares, piece.alive, clip, bound, biases, norms, blocks)
    return biases, blocks


def _kernels() -> Any:
    """The compiled kernels, or None where the reference is in use."""
    if not compiled():
        return None
    from ..fast import perceptron_kernels

    return perceptron_kernels
