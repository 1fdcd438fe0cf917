"""Private records of a perceptron: exact integer sums, forward passes that do not depend on a record's company.

Rows stand on the grid like those of a linear model. Passes run in single precision on padded chunks and are tested before they
are used (``perceptron_passes``); what a record adds is an integer vector of norm at most ``bound``, checked in integers
(``perceptron_reference``), and integers are added. So one record more or less moves a sum by at most ``bound`` units, one
replaced by at most twice that, whatever the order, the chunks and the threads. Kinks (relu, hinge) are harmless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import Arithmetic
from ..fast.kernels import compiled
from ..models import MLP
from ..torch_extra import Tensor, torch
from . import perceptron_passes as passes
from . import perceptron_reference as reference
from .grid import MAX_ROW_NORM, ROWS_PER_CHUNK, Allocator, GridRows, in_memory, in_new_basis
from .linear import LinearRecords, cut_losses, ramp
from .perceptron_passes import Views, Workspace
from .perceptron_reference import MAX_DOUBLE_ENTRIES
from .protocol import HeldRecords
from .threads import threads, together
from .totals import Drawn, FloatRows, Floats, Integers, IntegerTotal

RECORDS_PER_PASS = 512  # where no batch size is public
MIN_CLIP = 1e-20
COUNT = 1 << 20  # units of a count or a loss that one record adds at most
CHUNKS_PER_THREAD = 4  # that are worth a thread of their own
BOUNDED = Arithmetic(
    "bounded",
    (
        "AES is pseudo-random",
        "products of single precision give a row the same bits in every place and in every chunk height that was used, "
        "as tested before its first use",
    ),
)
MAX_BLOCKS = 6  # up to that, single precision is quicker; beyond, double precision does it in one
R = TypeVar("R")


class PerceptronRecords(HeldRecords):
    """Rows on the grid, and a perceptron; questions about rows alone are answered as for a linear model."""

    __slots__ = ("_model", "_plain", "_rows")

    def __init__(self, rows: GridRows, model: MLP) -> None:
        self._model, self._plain = model, LinearRecords(rows, model.loss, model.outputs)
        self._rows = single_rows(rows)

    @property
    def arithmetic(self) -> Arithmetic:
        return BOUNDED

    @property
    def columns(self) -> int:
        return self._plain.columns

    def __len__(self) -> int:
        return len(self._plain)

    def in_basis(self, matrix: Floats, store: Allocator = in_memory) -> PerceptronRecords:
        """The same records with every row x replaced by x @ matrix."""
        return PerceptronRecords(in_new_basis(self._plain.rows, matrix, store), self._model)

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``; one that is not finite counts as zero.

        *Sensitivity.* Every record adds an integer vector of norm at most ``bound`` that depends on the record, theta
        and clip alone.
        """
        if not MIN_CLIP <= clip <= 1 / MIN_CLIP:
            raise ValueError(f"clip is {clip!r}; pass a number between {MIN_CLIP} and {1 / MIN_CLIP}")
        bound = reference.bound_for(self._model.sizes, _height(drawn))

        def fold(chunks: Iterator[Piece]) -> NDArray[np.int64]:
            total, fresh = np.empty(self._model.dimension, np.int64), True
            for piece in chunks:
                add_sum(piece, float(clip), bound, total, fresh=fresh)
                fresh = False
            if fresh:
                total[:] = 0
            return total

        total, *others = self._over(drawn, theta, fold)
        for part in others:
            total += part
        return IntegerTotal(total, bound, clip)

    def short(self, drawn: Drawn, theta: Floats, threshold: float, **seen: Any) -> IntegerTotal:
        """How many gradients are short, along a ramp."""

        def fold(chunks: Iterator[Piece]) -> int:
            return sum(int(ramp(norms(piece), piece.alive, threshold, COUNT).sum()) for piece in chunks)

        return IntegerTotal(np.array([sum(self._over(drawn, theta, fold))], np.int64), COUNT, 0.5)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound] at each theta; one that is not finite counts as the bound."""

        def fold(chunks: Iterator[Piece]) -> int:
            return sum(int(cut_losses(self._values(piece), piece.alive, bound, COUNT).sum()) for piece in chunks)

        totals = [sum(self._over(drawn, theta, fold, backwards=False)) for theta in thetas]
        return IntegerTotal(np.array(totals), COUNT, bound)

    def _values(self, piece: Piece) -> Floats:
        values = self._model.loss.value(piece.views.padded_scores, piece.views.labels)[: piece.count]
        return values.double().numpy()

    def unit_rows(self, drawn: Drawn) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Chunks of records, as for a linear model."""
        return self._plain.unit_rows(drawn)

    def row_sum(self, drawn: Drawn) -> IntegerTotal:
        """Sum of x, as for a linear model."""
        return self._plain.row_sum(drawn)

    def scored(self, drawn: Drawn, theta: Floats) -> Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]:
        """Scores, labels, who is alive; scores of one that is not are NaN."""
        for here in self._plain.parts(drawn, ROWS_PER_CHUNK):
            numbers = np.arange(here.start, here.stop) if isinstance(here, slice) else here
            scores = np.empty((len(numbers), self._model.outputs))

            def fold(chunks: Iterator[Piece], scores: Floats = scores) -> None:
                for piece in chunks:
                    part = piece.views.scores[: piece.count].numpy()
                    scores[piece.start : piece.start + piece.count] = np.where(piece.alive[:, None], part, math.nan)

            self._over(Drawn(numbers, _expected(drawn)), theta, fold, backwards=False)
            flat = scores[:, 0] if self._model.outputs == 1 else scores
            yield flat, self._plain.labels(here), self._plain.rows.alive[here]

    def float_rows(self) -> FloatRows:
        """Rows and labels in double precision."""
        return self._plain.float_rows()

    def _over(
        self, drawn: Drawn, theta: Floats, fold: Callable[[Iterator[Piece]], R], *, backwards: bool = True
    ) -> list[R]:
        """``fold`` of all chunks; where there are many, of each thread's share of them."""
        single = torch.from_numpy(np.ascontiguousarray(theta, dtype=np.float32))
        model, tallest = self._model, _height(drawn)
        exactly = passes.way(model, tallest)
        starts = range(0, drawn.count(len(self)), tallest)

        def share(some: range) -> R:
            return fold(
                pieces(model, single, self._rows, drawn.rows, tallest, some, exactly=exactly, backwards=backwards)
            )

        workers = min(threads(), len(starts) // CHUNKS_PER_THREAD)
        if workers <= 1:
            return [share(starts)]
        return together(share, [starts[worker::workers] for worker in range(workers)])


def held(rows: GridRows, model: MLP, store: Allocator) -> PerceptronRecords:
    """Rows of a perceptron."""
    return PerceptronRecords(rows, model)


def _expected(drawn: Drawn) -> int:
    """From public facts alone: all records, and batches whose size is unknown, go in full chunks."""
    known = drawn.rows is not None and math.isfinite(drawn.expected)
    return min(math.ceil(drawn.expected), RECORDS_PER_PASS) if known else RECORDS_PER_PASS


def _height(drawn: Drawn) -> int:
    return passes.height_for(_expected(drawn))


# --- chunks of records, and what they add ---


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
    """A chunk on the workspace after its pass: ``count`` records, their squared lengths, and which are alive."""

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
    workspace, kernels = passes.workspace_for(model, tallest), _kernels()
    count = len(rows.y) if chosen is None else len(chosen)
    with passes.one_thread():
        layers = workspace.layers(theta)
        for start in starts:
            size = min(tallest, count - start)
            views = workspace.views(passes.height_for_rows(model, size, tallest, exactly))
            here: Any = slice(start, start + size) if chosen is None else chosen[start : start + size]
            _fill(kernels, rows, here, workspace.rows[:size])
            workspace.marks[:size] = rows.y[here]
            workspace.rows[size : views.height], workspace.marks[size : views.height] = 0, 0
            passes.forward(model, layers, views, exactly=exactly)
            if backwards:
                passes.backward(model, layers, views, exactly=exactly)
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
    single = passes.usual_precision() and passes.whole_products_hold(workspace.model.sizes, workspace.tallest)
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
