"""The same questions on public records: free, unmetered, and exact unless noise is asked for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..events import FULL, Sampling
from ..gradients import Model
from .curator import Answer
from .noise import Stream
from .sampling import draw, expected_size


class PublicCurator:
    """Public rows behind the curator's questions, so that a method treats both alike. Never hand it private rows."""

    def __init__(self, X: Tensor, y: Tensor, *, model: Model, seed: int | None = None) -> None:
        self.model = model
        self.batch = model.lay_out(X, y)
        self.stream = Stream(seed)

    @property
    def size(self) -> int:
        return len(self.batch)

    def gradient(
        self, theta: Tensor, *, clip: float = math.inf, noise_multiplier: float = 0.0, sampling: Sampling = FULL
    ) -> Answer:
        """The mean gradient at theta; without clip and noise it is the plain one."""
        rows = draw(sampling, self.size, self.stream)
        batch = self.batch if rows is None else self.batch.take(rows)
        total = self.model.clipped_sum(theta, batch, clip)
        size = expected_size(sampling, self.size)
        if not noise_multiplier:
            return Answer((total / size).float(), 0.0)
        std = noise_multiplier * clip
        return Answer(self.stream.noised(total, std, scale=1 / size, dtype=torch.float32), std / size)

    def loss(self, theta: Tensor) -> float:
        """Mean loss at theta."""
        return float(self.model.losses(theta, self.batch).double().mean())

    def norms(self, theta: Tensor) -> Tensor:
        """Gradient norm of each record at theta."""
        return self.model.norms(theta, self.batch)
