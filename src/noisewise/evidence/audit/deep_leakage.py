"""Gradient descent on a dummy record until its own clipped gradient matches a released one.

Zhu, Liu & Han 2019, Deep Leakage from Gradients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...trusted.models import MLP, Model
from ...trusted.torch_extra import Tensor, torch

Floats = NDArray[np.float64]


def matched(
    model: Model, theta: Floats, released: Floats, *, clip: float, label: str, label_guess: float, steps: int, seed: int
) -> tuple[Floats, float]:
    """Match the released gradient with a dummy record's, by L-BFGS from a few random starts; the best match wins."""
    at, seen = (torch.from_numpy(part.astype(np.float64)) for part in (theta, released))
    best: tuple[float, Tensor, float] | None = None
    for start in range(2):
        generator = torch.Generator().manual_seed(1000 * seed + start)
        row = torch.rand(model.features, generator=generator, dtype=torch.float64) / math.sqrt(model.features)
        free = [row.requires_grad_(True)]
        if label == "optimise":
            free.append(torch.zeros(model.outputs, dtype=torch.float64, requires_grad=True))
        score = _descend(model, at, seen, clip, free, label_guess, steps)
        if best is None or score < best[0]:
            guessed = float(free[1].detach().argmax()) if label == "optimise" else label_guess
            best = (score, free[0].detach(), guessed)
        if score < 1e-9:
            break
    assert best is not None
    return best[1].numpy(), best[2]


def _descend(
    model: Model, theta: Tensor, released: Tensor, clip: float, free: list[Tensor], label_guess: float, steps: int
) -> float:
    unit = float(released.square().sum().clamp(min=1e-30))
    tolerances: Any = {"tolerance_grad": 1e-12, "tolerance_change": 1e-16}
    optimizer = torch.optim.LBFGS(free, max_iter=steps, history_size=50, line_search_fn="strong_wolfe", **tolerances)

    def distance() -> Tensor:
        soft = torch.softmax(free[1], dim=0) if len(free) > 1 else None
        return (_clipped_gradient(model, theta, free[0], label_guess, soft, clip) - released).square().sum() / unit

    def closure() -> float:
        optimizer.zero_grad()
        far = distance()
        far.backward()
        return float(far.detach())

    optimizer.step(closure)
    end = float(distance().detach())
    return end if math.isfinite(end) else math.inf


def _clipped_gradient(
    model: Model, theta: Tensor, row: Tensor, label: float, soft: Tensor | None, clip: float
) -> Tensor:
    """The gradient of a dummy record as the curator would clip it, with a graph back to the record."""
    at = theta.detach().requires_grad_(True)
    scores = scores_of(model, at, row[None])
    if soft is not None:
        loss = -(soft * torch.log_softmax(scores[0], dim=0)).sum()
    else:
        kind = torch.int64 if model.loss.task == "classes" else torch.float64
        loss = model.loss.value(scores, torch.tensor([label], dtype=kind)).sum()
    (gradient,) = torch.autograd.grad(loss, at, create_graph=True)
    length = torch.linalg.vector_norm(gradient)
    return gradient * (clip / length.clamp(min=1e-30)).clamp(max=1)


def scores_of(model: Model, theta: Tensor, rows: Tensor) -> Tensor:
    """The model's scores with a graph."""
    if isinstance(model, MLP):
        return model.scored(theta, rows)
    scores = rows @ theta.view(model.outputs, model.features).T
    return scores if model.outputs > 1 else scores[:, 0]
