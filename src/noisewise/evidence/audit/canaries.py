"""Worst cases: two neighbouring data sets on which a method shows one record as clearly as it ever may.

A canary is a record whose clipped gradient has the full norm C, at every step and in the same direction, among records
whose gradients are zero. Then each answer differs between the two worlds by as much as its sensitivity allows, and an
audit needs few runs. The canary depends on the loss and the method:

* squared loss: a row of norm 1 with a label of a million. Its gradient is clipped to C whatever theta is.
* other losses: a row w with a public start on the wrong side of it, so far that the slope stays at its largest. For
  replace_one two such rows, almost opposite: w = +-cos(0.1) u - sin(0.1) v with a start far along v.
* pnsgd starts at 0, where the slopes of u and -u are both largest; the canary is the only private record.
* tables: the canary is in a corner, where one hat of each column has all of it; theta has features that follow from answers, so
  that nobody knows where the canary pulls it but for the sign.
* sufficient_statistics: the other rows lie along v, so that u raises the smallest eigenvalue by 1.

u and v are orthonormal and lie between the axes, so that a clip by coordinates would show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...guest import method_named
from ...methods import Method
from ...trusted.events import FULL, Adjacency
from ...trusted.features import TableColumn
from ...trusted.losses import Loss, loss_named
from ...trusted.models import Additive, Linear
from ...trusted.units import RECORD, Unit

Array = NDArray[Any]
U, V = np.array([0.6, 0.8], np.float32), np.array([-0.8, 0.6], np.float32)
OTHERS = 5  # units beside the canary
FAR_LABEL = 1e6
LONG_ROW_NORM = 1000.0  # of a row whose gradient must reach any clip norm
TILT_RADIANS = 0.1
ONE_SHOT = ("objective_perturbation", "output_perturbation", "pnsgd")  # these cut rows to their bound and never clip


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets, [0] without and [1] with the canary (replace_one: its counterpart in its place), and what is public.

    The first ``common`` rows are the same in both. ``direction`` is where the canary pulls theta, of norm 1.
    """

    model: Linear
    X: tuple[Array, Array]
    y: tuple[Array, Array]
    common: int
    size: float | None
    direction: Array
    row_bound: float = 1.0
    public: tuple[Array, Array] | None = None
    start: Array | None = None
    unit: Unit = RECORD

    def along(self, theta: Array) -> float:
        """How far theta lies in the canary's direction."""
        return float(theta @ self.direction if theta.shape == self.direction.shape else theta.sum())


@dataclass(frozen=True)
class CanarySetting:
    """A method with few steps and a promise that an audit of few runs can test."""

    method: Method
    epsilon: float
    delta: float
    adjacency: Adjacency
    runs: int
    confidence: float


def worst_case(
    method: str | Method,
    *,
    adjacency: Adjacency = "add_remove",
    loss: str | None = None,
    size_is_public: bool = True,
    rows_per_unit: int | None = None,
) -> Neighbours:
    """The neighbouring data sets for a method, by default with the loss that reveals the most.

    ``rows_per_unit``: the canary is a person with that many equal rows, and so is its counterpart.
    """
    method = method_named(method)
    name = loss or method.losses[0]
    if loss is None and method.name not in ONE_SHOT and "squared" in method.losses:
        name = "squared"  # its gradient is clipped, whatever theta is
    elif loss is None and "huber_hinge" in method.losses:
        name = "huber_hinge"  # its slope reaches its bound
    if name not in method.losses:
        raise ValueError(f"loss is {name!r}; {method.name} takes {', '.join(method.losses)}")
    classes = 2 if loss_named(name).task == "classes" else 1
    model = Linear(2, loss_named(name), classes)
    if method.table:
        model = Additive(1, loss_named(name), classes, columns=(TableColumn("cells", (-1.0, 1.0), (0.0, 1.0)),) * 2)
    unit = Unit(rows_per_unit)
    copies = unit.most
    others = 0 if method.name == "pnsgd" else OTHERS * copies  # so that a smallest eigenvalue can rise by ``copies``
    rest = np.tile(V if method.name == "sufficient_statistics" else np.zeros_like(V), (others, 1))
    rows, labels, start = _canary(method, model.loss, adjacency)
    if method.table:
        rows, start = [np.ones_like(U)] * len(rows), None
    flag = np.zeros(others, np.int64 if classes > 1 else np.float32)
    worlds = [(rest, flag)] if adjacency == "add_remove" else []
    worlds += [
        (np.concatenate([rest, np.tile(row, (copies, 1))]), np.append(flag, np.full(copies, label, flag.dtype)))
        for row, label in zip(rows, labels, strict=True)
    ]
    direction = U if classes == 1 else np.concatenate([U, -U]) / math.sqrt(2)
    return Neighbours(
        model=model,
        X=(worlds[0][0], worlds[1][0]),
        y=(worlds[0][1], worlds[1][1]),
        common=others,
        size=float(others + copies) if size_is_public or unit.fixes_size(adjacency) else None,
        direction=direction,
        public=_public_rows(method, flag.dtype) if method.needs_public else None,
        start=start,
        unit=unit,
    )


def _canary(method: Method, loss: Loss, adjacency: Adjacency) -> tuple[list[Array], list[float], Array | None]:
    """Rows and labels of the canary and, for replace_one, its counterpart before it; and the public start."""
    alone = adjacency == "add_remove"
    if math.isinf(loss.lipschitz):
        labels = [FAR_LABEL] if alone else [-FAR_LABEL, FAR_LABEL]
        return [U] * len(labels), labels, None
    tilt = 0.0 if method.name == "pnsgd" else TILT_RADIANS
    length, far = (1.0, 20.0) if method.name in ONE_SHOT else (LONG_ROW_NORM, 100.0)
    signs = [1.0] if alone else [-1.0, 1.0]
    rows = [length * (sign * math.cos(tilt) * U - math.sin(tilt) * V) for sign in signs]
    if loss.task == "classes":  # class 0 is true; the start is sure of class 1
        return rows, [0] * len(signs), np.concatenate([far / 2 * V, -far / 2 * V])
    start = None if method.name == "pnsgd" else far * V
    return rows, [1.0] * len(signs), start


def _public_rows(method: Method, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Public rows of zeros; public_subspace gets two that span the canary's direction, whatever theta is."""
    if method.name == "public_subspace":
        return np.stack([U, U]), np.array([1, -1] if dtype.kind == "f" else [0, 1], dtype)
    return np.zeros((2, 2), np.float32), np.zeros(2, dtype)


_PROMISE: dict[str, Any] = {"epsilon": 2.0, "delta": 0.25, "adjacency": "add_remove", "runs": 360, "confidence": 0.999}
# What the small setting of a method changes. A large delta, because few runs see only large probabilities; claims that
# are not of Gaussian DP need more runs, since only the exact interval is valid for them.
_SMALL_SETTINGS: dict[str, dict[str, Any]] = {
    "agd": {"candidates": 3, "runs": 600},
    "agd_avg": {"candidates": 3, "runs": 600},
    "additive": {"ranks": False, "pairs": 0},
    "growing_batch": {"steps": 3, "first_rate": 0.5, "last_rate": 0.8, "stages": 2, "runs": 1200, "confidence": 0.99},
    "objective_perturbation": {"l2": 1e3, "epsilon": 3.0, "runs": 3200, "confidence": 0.95},
    "output_perturbation": {"length": 1.0},
    "pnsgd": {"learning_rate": 1e-3, "passes": 1, "adjacency": "replace_one"},
    "projected_sgd": {"steps": 3, "sampling": ("poisson", 0.5), "runs": 1200, "confidence": 0.99},
    "sgd_adv": {"sampling": FULL, "steps": 1},
    "sgd_ma": {"sampling": FULL, "steps": 1, "epsilon": 6.0, "delta": 1e-3, "runs": 800},
}


def small_setting(name: str, isolation: str = "sandbox") -> CanarySetting:
    """One small setting of a method, at which an audit is quick and a version with half the noise is found."""
    chosen = dict(_SMALL_SETTINGS.get(name, {}))
    promise = {key: chosen.pop(key) for key in _PROMISE if key in chosen}
    method = method_named(name, isolation)
    if "steps" in method.settings():
        chosen.setdefault("steps", 2)
    return CanarySetting(method.with_settings(**chosen), **{**_PROMISE, **promise})
