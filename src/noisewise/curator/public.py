"""The same questions on public records: free, unmetered, and exact unless noise is asked for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..events import FULL, Sampling
from ..gradients import Model, clipped_sum_and_count, leading_subspace, per_record
from ..gradients.batches import Source, in_new_basis
from ..gradients.differentiable import clipped_means, mean_losses
from .curator import Answer
from .noise import Stream
from .options import checked_options
from .sampling import draw, expected_size


class PublicCurator:
    """Public rows behind the curator's questions, so that a method treats both alike. Never hand it private rows."""

    def __init__(self, X: Tensor | Source, y: Tensor, *, model: Model, seed: int | None = None) -> None:
        self.model = model
        self.batch = model.lay_out(X, y)
        self.stream = Stream(seed)

    @property
    def size(self) -> int:
        return len(self.batch)

    def gradient(
        self,
        theta: Tensor,
        *,
        clip: float = math.inf,
        noise_multiplier: float = 0.0,
        sampling: Sampling = FULL,
        scale: Tensor | None = None,
        basis: Tensor | None = None,
        quantile_at: float | None = None,
        count_noise_multiplier: float | None = None,
    ) -> Answer:
        """The mean gradient at theta; without clip and noise it is the plain one."""
        rows = draw(sampling, self.size, self.stream)
        batch = self.batch if rows is None else self.batch.take(rows)
        size, std = expected_size(sampling, self.size), noise_multiplier * clip if noise_multiplier else 0.0
        if scale is None and basis is None and quantile_at is None:
            total = self.model.clipped_sum(theta, batch, clip)
            if not noise_multiplier:
                return Answer((total / size).float(), 0.0)
            return Answer(self.stream.noised(total, std, scale=1 / size, dtype=torch.float32), std / size)
        exact = quantile_at is not None and not count_noise_multiplier
        tau = 1.0 if exact else count_noise_multiplier
        options = checked_options(self.model, scale, basis, quantile_at, tau)
        total, count = clipped_sum_and_count(
            self.model, theta, batch, clip, threshold=options.quantile_at, **options.before_the_clip(self.model)
        )
        value = options.back(self.stream.noised(total, std, scale=1 / size), self.model)
        if count is None:
            return Answer(value, std / size)
        noise = 0.0 if exact or tau is None else tau / 2
        return Answer(value, std / size, 0.5 + float(self.stream.noised(count, noise, scale=1 / size)[0]))

    def gradient_subspace(self, theta: Tensor, rank: int) -> Tensor:
        """Orthonormal columns that span the ``rank`` leading directions of the records' gradients at theta."""
        return leading_subspace(per_record(self.model, theta, self.batch), rank)

    def in_basis(self, matrix: Tensor) -> PublicCurator:
        """The same public records with every row x replaced by x @ matrix."""
        return PublicCurator(in_new_basis(self.model.rows, self.batch, matrix), self.batch.y, model=self.model)

    def loss(self, theta: Tensor) -> float:
        """Mean loss at theta."""
        return float(self.model.losses(theta, self.batch).double().mean())

    def clipped_means(self, thetas: Tensor, clip: Tensor) -> Tensor:
        """The clipped mean gradient at each row of ``thetas``, with a graph from thetas and clip to the answer."""
        return clipped_means(self.model, thetas, self.batch, clip)

    def mean_losses(self, thetas: Tensor) -> Tensor:
        """The mean loss at each row of ``thetas``, with a graph."""
        return mean_losses(self.model, thetas, self.batch)

    def norms(self, theta: Tensor) -> Tensor:
        """Gradient norm of each record at theta."""
        return self.model.norms(theta, self.batch)
