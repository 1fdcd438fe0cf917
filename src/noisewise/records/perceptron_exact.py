"""Clipped sums of a perceptron's gradients in exact integers, for private records.

A record's forward and backward pass does not depend on its company (``perceptron_passes``), what it adds is an integer vector
of norm at most ``bound``, checked in integers (``perceptron_reference``), and integers are added: so one record more or less
moves a sum by at most ``bound`` units, one replaced by at most twice that, whatever the order, the chunks and the threads.
Kinks (relu, hinge) are harmless. The passes themselves are ordinary float products, tested before they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..kernels import compiled
from ..models import MLP, RowSource
from . import perceptron_reference as reference
from . import perceptron_selftest as selftest
from .grid import CHUNK, LONGEST, Store, in_memory
from .perceptron_passes import Desk, Views, backward, desk_for, forward, height_for, layers_of, one_thread
from .perceptron_reference import SMALL, bound_for

LEAST_CLIP = 1e-20
COUNT = 1 << 20  # units of a count or a loss that one record adds at most
RAMP = 0.1  # a norm counts as short below 0.9, as long above 1.1 thresholds, and in proportion between
BLOCKS = 6  # single precision pays up to so many blocks; beyond, double precision does in one
SHARE = 4  # chunks that are worth a thread of their own
Integers = NDArray[np.int64]
R = TypeVar("R")


@dataclass(frozen=True, slots=True, repr=False)
class PerceptronRows:
    """Rows in single precision, labels, squared lengths, and which records are ``alive``; the others are zeros."""

    X: Tensor
    y: Tensor
    squares: NDArray[np.float64]
    alive: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk on the desk after its pass: so many records, their squared lengths, and who is alive."""

    desk: Desk
    views: Views
    start: int
    count: int
    squares: NDArray[np.float64]
    alive: NDArray[np.bool_]


@dataclass(frozen=True)
class ExactPerceptron:
    """The questions about private records that a perceptron can answer in exact integers."""

    model: MLP

    def lay_out(self, X: Tensor | RowSource, y: Tensor, store: Store = in_memory) -> PerceptronRows:
        """A copy of the rows; those with an entry or label that cannot be used, or longer than 2^40, become zeros."""
        model = self.model
        part = partial(torch.narrow, X, 0) if isinstance(X, Tensor) else X
        rows = torch.from_numpy(store(len(y), model.features, np.float32))
        if model.loss.task == "classes":
            labels = y.to(torch.int64, copy=True)
            alive = ((labels >= 0) & (labels < model.outputs)).numpy()
        else:
            labels = y.to(torch.float32, copy=True)
            alive = torch.isfinite(labels).numpy()
        squares = np.zeros(len(y))
        for start in range(0, len(y), CHUNK):
            here = slice(start, min(start + CHUNK, len(y)))
            chunk = part(start, here.stop - start).to(torch.float32).contiguous()
            long = _squared_lengths(chunk.numpy())
            alive[here] &= (long >= 0) & (long < LONGEST**2)
            good = alive[here]
            squares[here] = np.where(good, long, 0.0)
            rows[here] = torch.where(torch.from_numpy(good)[:, None], chunk, 0.0)
        labels[torch.from_numpy(~alive)] = 0
        return PerceptronRows(rows, labels, squares, alive)

    def total(
        self, theta: Tensor, rows: PerceptronRows, indices: Tensor | None, clip: float, expected: int
    ) -> tuple[Integers, int]:
        """Sum of gradients clipped to norm ``clip``, in units of clip / bound; one that is not finite counts as zero.

        *Sensitivity.* Every record adds an integer vector of norm at most ``bound`` that depends on the record, theta
        and clip alone.
        """
        total, _, bound, _ = self.total_and_short(theta, rows, indices, clip, expected, None)
        return total, bound

    def total_and_short(
        self,
        theta: Tensor,
        rows: PerceptronRows,
        indices: Tensor | None,
        clip: float,
        expected: int,
        threshold: float | None,
    ) -> tuple[Integers, Integers, int, int]:
        """The clipped sum and the count of short gradients of one batch, with the bounds of both."""
        if not LEAST_CLIP <= clip <= 1 / LEAST_CLIP:
            raise ValueError(f"clip is {clip!r}; pass a number between {LEAST_CLIP} and {1 / LEAST_CLIP}")
        bound = bound_for(self.model.sizes, height_for(expected))

        def fold(pieces: Iterator[_Piece]) -> tuple[Integers, Integers]:
            total, short = np.empty(self.model.dimension, np.int64), np.zeros(1, np.int64)
            fresh = True
            for piece in pieces:
                norms = _add_sum(self.model, piece, float(clip), bound, total, fresh=fresh)
                fresh = False
                if threshold is not None:
                    short += _ramp(norms, threshold).sum()
            if fresh:
                total[:] = 0
            return total, short

        (total, short), *others = self._over(theta, rows, indices, expected, fold)
        for part, count in others:
            total += part
            short += count
        return total, short, bound, COUNT

    def short_total(
        self, theta: Tensor, rows: PerceptronRows, indices: Tensor | None, threshold: float, expected: int
    ) -> tuple[Integers, int]:
        """Sum of a ramp from +1/2 (short gradients) to -1/2 (long or not finite), in units of 1 / (2 bound)."""

        def fold(pieces: Iterator[_Piece]) -> int:
            return sum(int(_ramp(_norms(piece), threshold).sum()) for piece in pieces)

        return np.array([sum(self._over(theta, rows, indices, expected, fold))], np.int64), COUNT

    def loss_total(
        self, theta: Tensor, rows: PerceptronRows, indices: Tensor | None, loss_bound: float, expected: int
    ) -> tuple[int, int]:
        """Sum of min(loss, loss_bound), in units of loss_bound / bound; a loss that is not finite counts as its bound."""

        def fold(pieces: Iterator[_Piece]) -> int:
            return sum(int(_shares(self.model, piece, loss_bound).sum()) for piece in pieces)

        return sum(self._over(theta, rows, indices, expected, fold, backwards=False)), COUNT

    def scores(self, theta: Tensor, rows: PerceptronRows, indices: Tensor | None, expected: int) -> Tensor:
        """Each record's scores; those of a record that is not alive are NaN."""
        scores = torch.empty(len(rows) if indices is None else len(indices), self.model.outputs)

        def fold(pieces: Iterator[_Piece]) -> None:
            for piece in pieces:
                here = scores[piece.start : piece.start + piece.count]
                here.copy_(piece.views.scores[: piece.count])
                here[torch.from_numpy(~piece.alive)] = math.nan

        self._over(theta, rows, indices, expected, fold, backwards=False)
        return scores[:, 0] if self.model.outputs == 1 else scores

    def _over(
        self,
        theta: Tensor,
        rows: PerceptronRows,
        indices: Tensor | None,
        expected: int,
        fold: Callable[[Iterator[_Piece]], R],
        *,
        backwards: bool = True,
    ) -> list[R]:
        """``fold`` of all chunks; where there are many, of each thread's share of them."""
        model, tallest = self.model, height_for(expected)
        exactly = selftest.way(model, tallest)
        chosen = None if indices is None else indices.numpy()
        starts = range(0, len(rows) if chosen is None else len(chosen), tallest)

        def share(some: range) -> R:
            return fold(_pieces(model, theta, rows, chosen, tallest, some, exactly=exactly, backwards=backwards))

        workers = min(torch.get_num_threads(), len(starts) // SHARE)
        if workers <= 1:
            return [share(starts)]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(share, [starts[worker::workers] for worker in range(workers)]))


def _pieces(
    model: MLP,
    theta: Tensor,
    rows: PerceptronRows,
    chosen: NDArray[Any] | None,
    tallest: int,
    starts: range,
    *,
    exactly: bool,
    backwards: bool,
) -> Iterator[_Piece]:
    """Chunks of the records, each on this thread's desk after its pass; the next one takes its place."""
    desk, X, y = desk_for(model, tallest), rows.X.numpy(), rows.y.numpy()
    count = len(y) if chosen is None else len(chosen)
    with one_thread():
        layers = layers_of(model, theta)
        for start in starts:
            size = min(tallest, count - start)
            views = desk.views(selftest.height_for_rows(model, size, tallest, exactly))
            if chosen is None:
                here: Any = slice(start, start + size)
                desk.rows[:size], desk.marks[:size] = X[here], y[here]
            else:
                here = chosen[start : start + size]
                np.take(X, here, 0, desk.rows[:size], "clip")  # places are known to exist; "raise" would copy
                np.take(y, here, 0, desk.marks[:size], "clip")
            desk.rows[size : views.height], desk.marks[size : views.height] = 0, 0
            forward(model, layers, views, exactly=exactly)
            if backwards:
                backward(model, layers, views, exactly=exactly)
            yield _Piece(desk, views, start, size, rows.squares[here], rows.alive[here])


def _squared_lengths(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    kernels = _kernels()
    if kernels is None:
        return reference.squared_lengths(rows)
    lengths = np.empty(len(rows))
    flat, width = rows.reshape(-1), rows.shape[1]
    kernels.squared_lengths(flat, flat.view(np.int32), width, reference.digits_for(width), lengths)
    return lengths


def _ramp(norms: NDArray[np.float64], threshold: float) -> Integers:
    share = np.clip((threshold - norms) / (2 * RAMP * threshold), -0.5, 0.5)
    return np.rint(share * 2 * COUNT).astype(np.int64)


def _shares(model: MLP, piece: _Piece, loss_bound: float) -> Integers:
    """min(loss, loss_bound) of each record, in units of loss_bound / COUNT."""
    losses = model.loss.value(piece.views.padded_scores, piece.views.labels)[: piece.count].double().numpy()
    usable = piece.alive & np.isfinite(losses)
    share = np.clip(np.where(usable, losses, loss_bound) / loss_bound, 0.0, 1.0)
    return np.rint(share * COUNT).astype(np.int64)


def _norms(piece: _Piece) -> NDArray[np.float64]:
    """Gradient norm of each record; infinite if not finite or not alive."""
    views, count = piece.views, piece.count
    squared, usable = np.zeros(count), piece.alive.copy()
    for number, (a, b) in enumerate(zip(views.inputs, views.slopes, strict=True)):
        a2 = piece.squares if number == 0 else _squared_lengths(a[:count].numpy())
        b2 = _squared_lengths(b[:count].numpy())
        usable &= (a2 >= 0) & (b2 >= 0)
        squared += b2 * (a2 + 1.0)
    return np.sqrt(np.where(usable, squared, np.inf))


def _add_sum(
    model: MLP, piece: _Piece, clip: float, bound: int, total: Integers, *, fresh: bool
) -> NDArray[np.float64]:
    """Adds the piece's clipped gradients to ``total``, or writes them there; returns the norms before clipping."""
    desk, views, count = piece.desk, piece.views, piece.count
    kernels = _kernels()
    biases, norms, blocks = _in_whole(kernels, piece, clip, bound)
    single = selftest.usual_precision() and selftest.whole_products_hold(model.sizes, desk.tallest)
    at = bias_at = 0
    for a, b, begins in zip(views.inputs, views.slopes, blocks, strict=True):
        out, into = b.shape[1], a.shape[1]
        weights, bias = total[at : at + out * into], total[at + out * into : at + out * into + out]
        edges = [0, *begins.nonzero()[0].tolist(), count]
        if not single or out * into <= SMALL or len(edges) > BLOCKS:
            in_double = b.numpy()[:count].astype(np.float64).T @ a.numpy()[:count].astype(np.float64)
            _put(None, in_double.reshape(-1), weights, fresh)
        else:
            product = desk.product[: out * into]
            for start, end in pairwise(edges):
                torch.mm(b[start:end].T, a[start:end], out=product.view(out, into))
                _put(kernels, product.numpy(), weights, fresh and start == 0)
        _put(None, biases[bias_at : bias_at + out], bias, fresh)
        at, bias_at = at + out * into + out, bias_at + out
    return norms


def _put(kernels: Any, products: NDArray[Any], into: Integers, fresh: bool) -> None:
    if kernels is not None:
        (kernels.set_whole if fresh else kernels.add_whole)(products, into)
    elif fresh:
        into[:] = products
    else:
        into += products.astype(np.int64, copy=False)


def _in_whole(kernels: Any, piece: _Piece, clip: float, bound: int) -> tuple[Integers, NDArray[np.float64], Integers]:
    """Puts whole inputs and output gradients in place of the real ones; biases' sums, norms, beginnings of blocks."""
    desk, count, sizes = piece.desk, piece.count, piece.desk.model.sizes
    if kernels is None:
        a, b = ([part.numpy()[:count] for part in parts] for parts in (piece.views.inputs, piece.views.slopes))
        whole_a, whole_b, biases, norms, blocks = reference.whole_parts(a, b, piece.squares, piece.alive, clip, bound)
        for target, part in zip((*a, *b), (*whole_a, *whole_b), strict=True):
            target[:] = part
        return biases, norms, blocks
    biases, norms = np.zeros(sum(sizes[1:]), np.int64), np.empty(count)
    blocks = np.zeros((len(sizes) - 1, count), np.int64)
    kernels.whole_parts(count, *desk.arrays, piece.squares, piece.alive, clip, bound, biases, norms, blocks)
    return biases, norms, blocks


def _kernels() -> Any:
    """The compiled kernels, or None where the reference is in use."""
    if not compiled():
        return None
    from . import perceptron_kernels

    return perceptron_kernels
