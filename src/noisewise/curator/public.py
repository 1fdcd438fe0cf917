"""The same questions on public records: free, unmetered, and exact unless noise is asked for."""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from torch import Tensor

from ..events import FULL, Sampling
from ..models import Model, RowSource, leading_subspace
from ..models.batches import in_new_basis
from .facts import Answer
from .gradient import MOST_CLIP, Gradient
from .noise import Stream
from .questions import plain
from .sampling import draw, expected_size


class PublicCurator:
    """Public rows behind the curator's questions, so that a method treats both alike. Never hand it private rows."""

    def __init__(self, X: Tensor | RowSource, y: Tensor, *, model: Model, seed: int | None = None) -> None:
        self.model = deepcopy(model)  # methods hold it, and nothing that they do to it may reach another run
        self.batch = self.model.lay_out(X, y)
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
        rows = draw(sampling, self.batch, self.stream)
        batch = self.batch if rows is None else self.batch.take(torch.from_numpy(rows))
        size, std = expected_size(sampling, self.size), noise_multiplier * clip if noise_multiplier else 0.0
        if scale is None and basis is None and quantile_at is None:
            total = self.model.clipped_sum(theta, batch, clip)
            if not noise_multiplier:
                return Answer((total / size).float(), 0.0)
            return Answer(self.stream.noised(total, std, scale=1 / size, dtype=torch.float32), std / size)
        tau = 1.0 if quantile_at is not None and not count_noise_multiplier else count_noise_multiplier
        bound = clip if math.isfinite(clip) else MOST_CLIP
        asked = Gradient(*(plain(part) for part in (theta, bound, scale, basis, quantile_at, tau)))
        coordinates = self.model.coordinates
        asked.check_options(self.model.dimension, coordinates=coordinates)
        total, count = self.model.clipped_sum_and_count(
            theta, batch, clip, threshold=quantile_at, scale=scale, basis=basis if coordinates else None
        )
        value = asked.back(self.stream.noised(total, std, scale=1 / size).numpy(), coordinates=coordinates)
        if count is None:
            return Answer(value, std / size)
        noise = (count_noise_multiplier or 0.0) / 2
        return Answer(value, std / size, 0.5 + float(self.stream.noised(count, noise, scale=1 / size)[0]))

    def gradient_subspace(self, theta: Tensor, rank: int) -> Tensor:
        """Orthonormal columns that span the ``rank`` leading directions of the records' gradients at theta."""
        return leading_subspace(self.model.per_record(theta, self.batch), rank)

    def in_basis(self, matrix: Tensor) -> PublicCurator:
        """The same public records with every row x replaced by x @ matrix."""
        return PublicCurator(in_new_basis(self.model.rows, self.batch, matrix), self.batch.y, model=self.model)

    def loss(self, theta: Tensor) -> float:
        """Mean loss at theta."""
        return float(self.model.losses(theta, self.batch).double().mean())

    def clipped_means(self, thetas: Tensor, clip: Tensor) -> Tensor:
        """The clipped mean gradient at each row of ``thetas``, with a graph from thetas and clip to the answer."""
        return self.model.clipped_means(thetas, self.batch, clip)

    def mean_losses(self, thetas: Tensor) -> Tensor:
        """The mean loss at each row of ``thetas``, with a graph."""
        return self.model.mean_losses(thetas, self.batch)

    def norms(self, theta: Tensor) -> Tensor:
        """Gradient norm of each record at theta."""
        return self.model.norms(theta, self.batch)
