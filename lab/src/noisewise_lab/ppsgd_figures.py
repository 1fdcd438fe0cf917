"""PPSGD's Figures 2 and 3 on generated data: how its settings act, and accuracy over epsilon against the baselines.

Rows are 100-dimensional Gaussians scaled to unit norm with an intercept, labels the sign of a noisy linear score: 9,950
private rows, 50 public ones, 5,000 for testing; delta 1e-8, replace_one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.accounts import Budget
from noisewise.asking import PublicCurator
from noisewise.methods import Method, registry
from noisewise.train import Records, train
from noisewise.trusted.losses import HuberHinge, Loss, Squared, loss_named
from noisewise.trusted.models import Linear

from .threads import use_threads

PRIVATE, PUBLIC, TEST, FEATURES = 9950, 50, 5000, 100
SWEEPS: dict[str, tuple[float, ...]] = {
    "phi": (0.1, 1.0, 10.0, 100.0, 1000.0),
    "varphi": (1.0, 5.0, 20.0, 100.0, 500.0),
    "reuse": (0.001, 0.01, 0.1, 1.0, 10.0),
    "alpha": (0.05, 0.1, 0.3, 0.5, 0.8),
    "beta": (0.05, 0.1, 0.3, 0.5, 0.8),
}
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
BASELINES = (
    "ppsgd",
    "descent",
    "sgd_adv",
    "agd",
    "output_perturbation",
    "objective_perturbation",
    "agd_avg",
    "only_public",
)


@dataclass(frozen=True)
class Point:
    """One run of a figure: ``setting`` is None in Figure 3."""

    loss: str
    epsilon: float
    method: str
    setting: str | None
    value: float | None
    repeat: int


def figure2(repeats: int) -> Iterator[Point]:
    for setting, values in SWEEPS.items():
        for loss in ("hinge", "squared"):
            for epsilon in (0.1, 0.5):
                for value in values:
                    for repeat in range(repeats):
                        yield Point(loss, epsilon, "ppsgd", setting, value, repeat)


def figure3(repeats: int) -> Iterator[Point]:
    for loss in ("hinge", "squared"):
        for epsilon in EPSILONS:
            for method in BASELINES:
                losses = registry()[method].losses
                if loss in losses or (loss == "hinge" and "huber_hinge" in losses):
                    yield from (Point(loss, epsilon, method, None, None, repeat) for repeat in range(repeats))


def generated(repeat: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Unit rows with an intercept and labels -1/+1, another problem for every repeat."""
    rng = np.random.default_rng([repeat, 3])
    rows = PRIVATE + PUBLIC + TEST
    X = rng.normal(size=(rows, FEATURES))
    weights = rng.normal(size=FEATURES)
    score = X @ weights / np.linalg.norm(weights) + 0.3 * rng.normal(size=rows) + 0.2
    unit = np.column_stack([X, np.ones(rows)])
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit.astype(np.float32), np.where(score > 0, 1.0, -1.0).astype(np.float32)


def run_point(point: Point) -> dict[str, Any]:
    """Accuracy on the test rows of one run."""
    use_threads(1)
    changes = {} if point.setting is None else {point.setting: point.value}
    method: Method = registry()[point.method](**changes)
    X, y = generated(point.repeat)
    model = Linear(X.shape[1], _loss(point.loss, method))
    private, public = slice(0, PRIVATE), slice(PRIVATE, PRIVATE + PUBLIC)
    records = Records(X[private], y[private], float(PRIVATE), row_bound=1.0)
    curator = PublicCurator(X[public], y[public], model=model, seed=point.repeat)
    budget = Budget(point.epsilon, 1e-8, adjacency="replace_one")
    run = train(method, records, model=model, budget=budget, public=curator, seed=point.repeat)
    hits = ((X[PRIVATE + PUBLIC :] @ run.theta) > 0) == (y[PRIVATE + PUBLIC :] > 0)
    return {**vars(point), "accuracy": float(hits.mean())}


def _loss(name: str, method: Method) -> Loss:
    if name == "squared":
        return Squared(signs=True)
    return loss_named("hinge") if "hinge" in method.losses else HuberHinge(0.5)


def means(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the repeats of each point."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in results:
        key = tuple(row[name] for name in ("setting", "value", "loss", "epsilon", "method"))
        groups.setdefault(key, []).append(row["accuracy"])
    return [
        {
            "figure": 3 if key[0] is None else 2, "setting": key[0], "value": key[1], "loss": key[2], "epsilon": key[3],
            "method": key[4], "mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
            "repeats": len(values),
        }
        for key, values in groups.items()
    ]  # fmt: skip
