"""Forward and backward passes of a perceptron in which a record's bits do not depend on the other records.

A float product may round a row differently in a matrix of other height, and elementwise functions of torch treat the last
few entries of a tensor by other instructions. So rows run on one thread, in chunks padded to a height that is a multiple of
16, and elementwise functions on whole multiples of 64 entries. That this is enough here and now is *tested* before a height
is used (:func:`steady`): made-up rows must give the same bits at every place, beside rows of zeros and rows that
are not finite, and in every height as in the public one that belongs to the expected size of a batch. A height that fails
is not used (a greater one is); where the public one fails, products run in whole numbers of 15 bits in double precision,
which are exact in any order; and where even those passes fail, questions are refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models import MLP
from ..torch_extra import Tensor, torch
from .perceptron_reference import MAX_EXACT_INTEGER, digits_for, spread_for

ROWS_PER_STEP = 16  # heights are multiples of it: products of fewer rows were seen to round differently
MAX_ROWS_PER_PASS = 512
SUBNORMAL, HALF = np.float32(2.0**-130), np.float32(0.5)
WHOLE = 64  # entries; no vector loop of torch leaves a rest of such a tensor


def up_to(count: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-count // step) * step


def height_for(expected: int) -> int:
    """The public height of chunks for batches of about ``expected`` records."""
    return min(up_to(max(math.ceil(expected + 3 * math.sqrt(expected)), 1), ROWS_PER_STEP), MAX_ROWS_PER_PASS)


TwoWay = tuple[Tensor, Tensor, Tensor | None]  # weights, their transpose, bias


@dataclass(frozen=True, slots=True)
class Views:
    """The tensors of a pass over ``height`` rows. Flat ones end at a multiple of 64 entries."""

    height: int
    inputs: list[Tensor]
    flat_inputs: list[Tensor]
    slopes: list[Tensor]
    flat_slopes: list[Tensor]
    scores: Tensor
    padded_scores: Tensor  # of a multiple of 64 rows
    labels: Tensor


class Workspace:
    """Memory for passes over chunks of at most ``tallest`` rows, used again and again by one thread."""

    def __init__(self, model: MLP, tallest: int) -> None:
        self.model, self.tallest = model, tallest
        self.input_at, self.slope_at = _places(model.sizes[:-1], tallest), _places(model.sizes[1:], tallest)
        self.inputs, self.slopes = torch.zeros(self.input_at[-1]), torch.zeros(self.slope_at[-1])
        rows = up_to(tallest, WHOLE)
        self.scores = torch.zeros(rows, model.outputs)
        self.labels = torch.zeros(rows, dtype=torch.int64 if model.loss.task == "classes" else torch.float32)
        self.product = torch.zeros(max(into * out for into, out in pairwise(model.sizes)))
        self._theta = torch.zeros(model.dimension)
        self._layers: list[TwoWay] = [(weights, weights.T, bias) for weights, bias in model.layers(self._theta)]
        self._views: dict[int, Views] = {}
        inputs, slopes = self.inputs.numpy(), self.slopes.numpy()
        self.rows, self.marks = inputs[: tallest * model.features].reshape(tallest, -1), self.labels.numpy()
        self.arrays = (  # as the compiled kernel wants them
            np.array(model.sizes, np.uint64), np.array([digits_for(width) for width in model.sizes]),
            np.array([spread_for(into, out) for into, out in pairwise(model.sizes)]),
            inputs, inputs.view(np.int32), np.array(self.input_at, np.uint64),
            slopes, slopes.view(np.int32), np.array(self.slope_at, np.uint64),
        )  # fmt: skip

    def layers(self, theta: Tensor) -> list[TwoWay]:
        """The layers of theta in single precision, until the next one takes its place.

        All have one address, because products may look at it.
        """
        self._theta.copy_(theta.detach())
        return self._layers

    def views(self, height: int) -> Views:
        if height not in self._views:
            sizes, padded = self.model.sizes, self.scores[: up_to(height, WHOLE)]
            inputs = _flat(self.inputs, self.input_at, sizes[:-1], height)
            slopes = _flat(self.slopes, self.slope_at, sizes[1:], height)
            self._views[height] = Views(
                height, _matrices(inputs, sizes[:-1], height), inputs, _matrices(slopes, sizes[1:], height), slopes,
                self.scores[:height], padded[:, 0] if self.model.outputs == 1 else padded, self.labels[: len(padded)],
            )  # fmt: skip
        return self._views[height]


def _places(widths: tuple[int, ...], rows: int) -> list[int]:
    return list(accumulate((up_to(rows * width, WHOLE) for width in widths), initial=0))


def _flat(flat: Tensor, places: list[int], widths: tuple[int, ...], rows: int) -> list[Tensor]:
    """Each layer's first ``rows`` rows, and what follows up to a multiple of 64 entries."""
    return [flat[at : at + up_to(rows * width, WHOLE)] for at, width in zip(places, widths, strict=False)]


def _matrices(flat: list[Tensor], widths: tuple[int, ...], rows: int) -> list[Tensor]:
    return [part[: rows * width].view(rows, width) for part, width in zip(flat, widths, strict=True)]


_local = threading.local()


def workspace_for(model: MLP, tallest: int) -> Workspace:
    """This thread's workspace; the last one is kept."""
    workspace: Workspace | None = getattr(_local, "workspace", None)
    if workspace is None or workspace.tallest != tallest or not (workspace.model is model or workspace.model == model):
        workspace = _local.workspace = Workspace(model, tallest)
    return workspace


@contextmanager
def one_thread() -> Iterator[None]:
    """In here torch runs on one thread, without autograd, and does not flush subnormal numbers to zero.

    Flushing is a setting of each thread, so a record could meet either one.
    """
    threads, flushed = torch.get_num_threads(), SUBNORMAL * HALF == 0
    if threads != 1:
        torch.set_num_threads(1)
    if flushed:
        torch.set_flush_denormal(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        if flushed:
            torch.set_flush_denormal(True)
        if threads != 1:
            torch.set_num_threads(threads)


def forward(model: MLP, layers: list[TwoWay], views: Views, *, exactly: bool) -> None:
    """Fills in the inputs of all layers but the first, and the scores."""
    product = _whole_product if exactly else _float_product
    *hidden, last = layers
    for number, layer in enumerate(hidden, 1):
        flat = views.flat_inputs[number]
        product(views.inputs[number - 1], layer, views.inputs[number])
        value = model.between.forward(flat)
        if value is not flat:
            flat.copy_(value)
    product(views.inputs[-1], last, views.scores)


def backward(model: MLP, layers: list[TwoWay], views: Views, *, exactly: bool) -> None:
    """Fills in the output gradients of all layers, from the scores."""
    product = _whole_product if exactly else _float_product
    slopes = model.loss.slope(views.padded_scores, views.labels)
    views.slopes[-1].copy_(slopes.view(len(slopes), -1)[: views.height])
    for number in range(len(layers) - 1, 0, -1):
        weights, transposed, _ = layers[number]
        product(views.slopes[number], (transposed, weights, None), views.slopes[number - 1])
        model.between.backward(views.flat_slopes[number - 1], views.flat_inputs[number])


def _float_product(rows: Tensor, layer: TwoWay, into: Tensor) -> None:
    """rows @ weights^T + bias."""
    _, transposed, bias = layer
    if bias is None:
        torch.mm(rows, transposed, out=into)
    else:
        torch.addmm(bias, rows, transposed, out=into)


def _whole_product(rows: Tensor, layer: TwoWay, into: Tensor) -> None:
    """The same of rows and weights rounded to whole numbers of 15 bits: exact in double precision up to 2^22 columns."""
    weights, _, bias = layer
    left, places = _in_whole(rows.numpy())
    flat, (place,) = _in_whole(weights.reshape(1, -1).numpy())
    product = (torch.from_numpy(left) @ torch.from_numpy(flat).view(weights.shape).T).numpy()
    with np.errstate(over="ignore"):
        into.copy_(torch.from_numpy(np.ldexp(product, -(places + place)[:, None]).astype(np.float32)))
    if bias is not None:
        into.add_(bias)
    into[torch.from_numpy(~np.isfinite(rows.numpy()).all(axis=1))] = math.nan


def _in_whole(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Whole numbers of 15 bits and the power of two of each row; rows that are not finite become zeros."""
    peaks = (rows.view(np.int32) & 0x7FFFFFFF).max(axis=1, initial=0)
    good = peaks < 0x7F800000
    places = 14 + 127 - np.maximum(np.where(good, peaks, 0) >> 23, 1)
    return np.rint(np.ldexp(np.where(good[:, None], rows, 0).astype(np.float64), places[:, None])), places


# --- the self-test of passes, once for each height ---
#
# Evidence, not proof: a product that sums in another order at another place gives other bits for almost any rows.

# How far rows are shifted (-1: reversed), and what replaces every second row, from which row on.
TRIALS: tuple[tuple[int, float | None, int], ...] = (
    (0, None, 0),
    (7, None, 0),
    (-1, None, 0),
    (3, 0.0, 0),
    (11, 1e30, 1),
    (5, 1e30, 0),
    (2, float("nan"), 1),
)


def usual_precision() -> bool:
    """Whether float32 products really run in float32: torch has settings that make them quicker and coarser."""
    setting = getattr(torch._C, "_get_fp32_precision_getter", None)
    if setting is None:
        return torch.get_float32_matmul_precision() == "highest"
    return setting("mkldnn", "matmul") in ("none", "ieee")


def way(model: MLP, tallest: int) -> bool:
    """Whether passes must run in whole numbers (True) or may run in single precision (False)."""
    if usual_precision() and steady(model, tallest, tallest, False):
        return False
    if not steady(model, tallest, tallest, True):
        raise RuntimeError(
            "on this machine a perceptron's pass gives a record other bits in other company, so that its sums have no "
            "sensitivity; use a linear model, or another build of torch"
        )
    return True


def height_for_rows(model: MLP, count: int, tallest: int, exactly: bool) -> int:
    """The least height that holds ``count`` rows and gives the bits of the tallest."""
    for height in range(up_to(max(count, 1), ROWS_PER_STEP), tallest, ROWS_PER_STEP):
        if steady(model, tallest, height, exactly):
            return height
    return tallest


@lru_cache(maxsize=4096)
def steady(model: MLP, tallest: int, height: int, exactly: bool) -> bool:
    """Whether made-up rows have the same bits in ``height`` rows, at every place and in any company, as in ``tallest``."""
    with one_thread():
        workspace = Workspace(model, tallest)
        rows, labels, theta = _made_up(model, tallest)
        layers = workspace.layers(theta)
        right = _bits(workspace, layers, rows, labels, exactly)
        for shift, company, begin in TRIALS:
            order = torch.arange(tallest).roll(shift) if shift >= 0 else torch.arange(tallest).flip(0)
            order = order[:height]
            placed, judged = rows[order], torch.ones(height, dtype=torch.bool)
            if company is not None:
                placed[begin::2], judged[begin::2] = company, False
            moved = _bits(workspace, layers, placed, labels[order], exactly)
            if not all(torch.equal(a[judged], b[order[judged]]) for a, b in zip(moved, right, strict=True)):
                return False
    return True


def _made_up(model: MLP, count: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(count, model.features, generator=generator)
    theta = torch.from_numpy(model.start())
    theta += 0.1 * torch.randn(len(theta), generator=generator) / model.features**0.5
    if model.loss.task == "classes":
        return rows, torch.randint(model.outputs, (count,), generator=generator), theta
    return rows, 2.0 * torch.randint(2, (count,), generator=generator) - 1, theta


def _bits(workspace: Workspace, layers: list[TwoWay], rows: Tensor, labels: Tensor, exactly: bool) -> list[Tensor]:
    """All that a pass computes, as integers, and the losses."""
    views = workspace.views(len(rows))
    views.inputs[0].copy_(rows)
    views.labels[: len(rows)] = labels
    forward(workspace.model, layers, views, exactly=exactly)
    losses = workspace.model.loss.value(views.padded_scores, views.labels)[: len(rows)]
    backward(workspace.model, layers, views, exactly=exactly)
    return [part.clone().view(torch.int32) for part in (*views.inputs[1:], views.scores, losses, *views.slopes)]


@lru_cache(maxsize=256)
def whole_products_hold(sizes: tuple[int, ...], tallest: int) -> bool:
    """Whether float32 products of whole numbers are exact up to 2^24, for the shapes of these layers."""
    generator = torch.Generator().manual_seed(2)
    high = int((MAX_EXACT_INTEGER / tallest) ** 0.5)
    with one_thread():
        for into, out in pairwise(sizes):
            for low in (-high, high - 2):  # sums near zero, and sums near 2^24
                b = torch.randint(low, high + 1, (tallest, out), generator=generator)
                a = torch.randint(low, high + 1, (tallest, into), generator=generator)
                product = torch.mm(b.float().T, a.float()).double()
                if not torch.equal(product, torch.mm(b.double().T, a.double())):
                    return False
    return True
