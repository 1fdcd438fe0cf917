"""The same questions on public records: free, unmetered, and exact unless noise is asked for."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Unpack

import numpy as np

from .trusted.asking import GradientOptions
from .trusted.events import FULL, Sampling
from .trusted.facts import Answer
from .trusted.features.features import Features
from .trusted.gate import draw
from .trusted.late import Tensor, torch
from .trusted.models import Linear, Model, RowSource, leading_subspace
from .trusted.models.batches import in_new_basis
from .trusted.noise import Stream
from .trusted.question import CLIPS
from .trusted.questions.gradient import Gradient
from .trusted.stores.totals import expected_size


class PublicCurator:
    """Public rows behind the curator's questions, so that a method treats both alike. Never hand it private rows."""

    def __init__(self, X: Tensor | RowSource, y: Tensor, *, model: Model, seed: int | None = None) -> None:
        self.model = deepcopy(model)  # methods hold it, and nothing that they do to it may reach another run
        self.cells = X if self.model.table else None
        self.given = X, y
        self.batch = self.model.lay_out(torch.ones(len(y), 1) if self.model.table else X, y)
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
        **options: Unpack[GradientOptions],
    ) -> Answer:
        """The mean gradient at theta; without clip and noise it is the plain one."""
        rows = draw(sampling, self.batch, self.stream)
        batch = self.batch if rows is None else self.batch.take(torch.from_numpy(rows))
        size, std = expected_size(sampling, self.size), noise_multiplier * clip if noise_multiplier else 0.0
        if all(option is None for option in options.values()):
            total = self.model.clipped_sum(theta, batch, clip)
            if not noise_multiplier:
                return Answer((total / size).float(), 0.0)
            return Answer(self.stream.noised(total, std, scale=1 / size, dtype=torch.float32), std / size)
        threshold, tau = options.get("quantile_at"), options.get("count_noise_multiplier")
        if threshold is not None and not tau:
            options["count_noise_multiplier"] = 1.0  # free here, but a question without it is refused
        asked = Gradient.of(theta, clip if math.isfinite(clip) else CLIPS[1], **options)
        coordinates = self.model.coordinates
        asked.check_options(self.model.dimension, coordinates=coordinates)
        scale, basis = options.get("scale"), options.get("basis") if coordinates else None
        total, count = self.model.clipped_sum_and_count(
            theta, batch, clip, threshold=threshold, scale=scale, basis=basis
        )
        value = asked.back(self.stream.noised(total, std, scale=1 / size).numpy(), coordinates=coordinates)
        if count is None:
            return Answer(value, std / size)
        noisy = self.stream.noised(count, (tau or 0.0) / 2, scale=1 / size)
        return Answer(value, std / size, 0.5 + float(noisy[0]))

    def gradient_subspace(self, theta: Tensor, rank: int) -> Tensor:
        """Orthonormal columns that span the ``rank`` leading directions of the records' gradients at theta."""
        return leading_subspace(self.model.per_record(theta, self.batch), rank)

    def in_basis(self, matrix: Tensor) -> PublicCurator:
        """The same public records with every row x replaced by x @ matrix."""
        return PublicCurator(in_new_basis(self.model.rows, self.batch, matrix), self.batch.y, model=self.model)

    def prepared(self, features: Features, centre: Tensor, scale: float) -> PublicCurator:
        """Public rows of a table as rows of features, less a centre, times a scale."""
        cells, model = np.asarray(self.cells, np.float64), self.model
        places, values = features(cells)
        rows = np.zeros((len(cells), features.width))
        rows[np.arange(len(cells))[:, None], places] = values
        X = torch.from_numpy(scale * (rows - centre.double().numpy())).float()
        y = self.batch.y if model.classes else self.batch.y.float()
        return PublicCurator(X, y, model=Linear(features.width, model.loss, model.outputs))

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
