"""Float iterations over the rows of linear models: the steps of walks and of a minimiser, in double precision.

Their results are private. A ``walk`` is the curator's frozen data, whose class has the proof of its price; noise is added there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models import Model
from ..stores.totals import FloatRows, Floats


def rows_of(records: FloatRows, row_bound: float) -> FloatRows:
    """Rows of norm at most ``row_bound`` and labels, real ones within [-1, 1]."""
    lengths = np.sqrt(np.square(records.rows).sum(1, keepdims=True))
    rows = records.rows * np.minimum(row_bound / np.maximum(lengths, row_bound), 1.0)
    real = records.labels.dtype.kind == "f"
    return FloatRows(rows, np.clip(records.labels, -1.0, 1.0) if real else records.labels)


def gradient_sum(model: Model, theta: Floats, rows: Floats, labels: NDArray[Any]) -> Floats:
    slopes = model.loss.near_slope(model.scores(theta, rows), labels)
    return np.asarray(slopes @ rows if slopes.ndim == 1 else (slopes.T @ rows).ravel())


def weight(n: int, size: float, cap: float, adjacency: str) -> float:
    """w with w n <= cap * size, from the secret number of records.

    Replaced records leave n as it is: min(1, cap size / n). Else 1 - n / (4 cap size) up to 2 cap size records and
    cap size / n beyond, for which w(n+1) + n (w(n) - w(n+1)) <= 1: it is 1 - 1/(4 cap size) and 2 cap size / (n+1) on
    the two branches, and between them the first bounds it, being the tangent of the second.
    """
    most = cap * size
    if adjacency == "replace_one":
        return min(1.0, most / max(n, 1))
    return 1 - n / (4 * most) if n <= 2 * most else most / n


def descent(walk: Any, model: Model, batch: FloatRows, cap: float, size: float, adjacency: str) -> Floats:
    """The last iterate of descent on (w/size) (sum of losses) + l2/2 ||theta - start||^2, kept in a ball around start."""
    start = walk.start.astype(np.float64)
    theta, scale = start.copy(), weight(len(batch.rows), size, cap, adjacency) / size
    for _ in range(walk.steps):
        gradient = gradient_sum(model, theta, *batch) * scale + walk.l2 * (theta - start)
        theta = _project(theta - walk.step_size * gradient, start, walk.radius)
    return theta


def one_by_one(walk: Any, model: Model, batches: Sequence[FloatRows], noises: Iterator[Floats]) -> Floats:
    """The last iterate when each step sees one record, batch after batch, and has its own noise."""
    start = walk.start.astype(np.float64)
    theta = start.copy()
    for rows, labels in batches:
        for i in range(len(rows)):
            gradient = gradient_sum(model, theta, rows[i : i + 1], labels[i : i + 1]) + walk.l2 * (theta - start)
            theta = _project(theta - walk.step_size * gradient + next(noises), start, walk.radius)
    return theta


def _project(theta: Floats, centre: Floats, radius: float) -> Floats:
    if radius == math.inf:
        return theta
    distance = float(np.linalg.norm(theta - centre))
    return theta if distance <= radius else centre + (theta - centre) * (radius / distance)


class Perturbed:
    """sum of losses + lam/2 ||theta - start||^2 + b.theta, with its gradient and Hessian."""

    def __init__(self, model: Model, batch: FloatRows, b: Floats, lam: float, start: Floats) -> None:
        self.model, self.b, self.lam = model, b, lam
        (self.rows, self.labels), self.start = batch, start.astype(np.float64)

    def value(self, theta: Floats) -> float:
        losses = self.model.loss.row_value(self.model.scores(theta, self.rows), self.labels).sum()
        return float(losses + self.lam / 2 * np.square(theta - self.start).sum() + self.b @ theta)

    def gradient(self, theta: Floats) -> Floats:
        return gradient_sum(self.model, theta, self.rows, self.labels) + self.lam * (theta - self.start) + self.b

    def hessian(self, theta: Floats, h: float = 1e-5) -> Floats:
        scores, slope = self.model.scores(theta, self.rows), self.model.loss.near_slope
        change = slope(scores + h, self.labels) - slope(scores - h, self.labels)
        curvature = np.maximum(change, 0.0) / (2 * h)
        return np.asarray(self.rows.T @ (self.rows * curvature[:, None]) + self.lam * np.eye(len(theta)))

    def minimiser(self, gamma: float, smoothness: float) -> Floats:
        """theta with ||gradient|| <= gamma, by Newton's method with backtracking, however many rounds it takes.

        There is no other way out: an answer that showed whether the solver had finished would depend on the records.
        ``smoothness``: a bound on the Hessian of one record's loss.
        """
        theta, smooth = self.start.copy(), len(self.rows) * smoothness + self.lam
        at = self.gradient(theta)
        while float(np.linalg.norm(at)) > gamma:
            theta, at = self._stepped(theta, at, smooth)
        return theta

    def _stepped(self, theta: Floats, at: Floats, smooth: float) -> tuple[Floats, Floats]:
        """The next point and its gradient: a Newton step, halved until it lowers the objective by enough (Armijo), or the
        gradient where values differ by rounding only. The objective is strongly convex and smooth, so that happens and
        the method converges from anywhere."""
        direction = np.linalg.solve(self.hessian(theta), at)
        slope, here, norm = float(direction @ at), self.value(theta), float(np.linalg.norm(at))
        for halvings in range(60):
            step = 0.5**halvings
            point = theta - step * direction
            there, reached = self.gradient(point), self.value(point)
            if reached <= here - step / 4 * slope:
                return point, there
            if reached <= here + 2.0**-40 * abs(here) and float(np.linalg.norm(there)) <= (1 - step / 4) * norm:
                return point, there  # so near the end that values differ by rounding only
        point = theta - at / smooth  # differences below rounding: a step of plain descent shrinks the gradient surely
        return point, self.gradient(point)
