"""Whether passes of a given height leave a record's bits alone, and products of whole numbers are exact: tried, once.

Evidence, not proof: a product that sums in another order at another place gives other bits for almost any rows.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from ..models import MLP
from ..torch_extra import Tensor, torch
from .perceptron_passes import ROWS_PER_STEP, TwoWay, Workspace, backward, forward, one_thread, up_to
from .perceptron_reference import MAX_EXACT_INTEGER

# How rows are moved on, and what is put in place of every second row from the given one on.
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
    """Whether float32 products are what their name says: torch can be told to be quicker."""
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
