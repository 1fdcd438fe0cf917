"""The same questions on public records: free, unmetered, and exact unless noise is asked for."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from .asking import GradientOptions
from .tensors import array, in_kind
from .trusted.events import FULL, Sampling
from .trusted.facts import Answer
from .trusted.features.features import Features
from .trusted.gate import draw
from .trusted.models import Linear, Model, leading_subspace
from .trusted.models.batches import in_new_basis
from .trusted.noise import Stream
from .trusted.question import CLIPS
from .trusted.questions.gradient import Gradient
from .trusted.stores.totals import expected_size


class PublicCurator:
    """Public rows behind the curator's questions, so that a method treats both alike. Never hand it private rows.

    Rows and thetas are arrays, or torch tensors, which are answered in tensors.
    """

    def __init__(self, X: Any, y: Any, *, model: Model, seed: int | None = None) -> None:
        X, y = array(X), array(y)
        self.model = deepcopy(model)  # methods hold it, and nothing that they do to it may reach another run
        self.cells = X if self.model.table else None
        self.given = X, y
        self.batch = self.model.lay_out(np.ones((len(y), 1)) if self.model.table else X, y)
        self.stream = Stream(seed)

    @property
    def size(self) -> int:
        return len(self.batch)

    def gradient(
        self,
        theta: Any,
        *,
        clip: float = math.inf,
        noise_multiplier: float = 0.0,
        sampling: Sampling = FULL,
        **options: Unpack[GradientOptions],
    ) -> Answer:
        """The mean gradient at theta; without clip and noise it is the plain one."""
        answer = self._gradient(
            array(theta), clip, noise_multiplier, sampling, {k: array(v) for k, v in options.items()}
        )
        return answer._replace(value=in_kind(theta, answer.value))

    def _gradient(
        self, theta: NDArray[Any], clip: float, noise_multiplier: float, sampling: Sampling, options: dict[str, Any]
    ) -> Answer:
        rows = draw(sampling, self.batch, self.stream)
        batch = self.batch if rows is None else self.batch.take(rows)
        size, std = expected_size(sampling, self.size), noise_multiplier * clip if noise_multiplier else 0.0
        if all(option is None for option in options.values()):
            total = self.model.clipped_sum(theta, batch, clip)
            if not noise_multiplier:
                return Answer((total / size).astype(np.float32), 0.0)
            return Answer(self.stream.noised(total, std, scale=1 / size, dtype=np.float32), std / size)
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
        value = asked.back(self.stream.noised(total, std, scale=1 / size), coordinates=coordinates)
        if count is None:
            return Answer(value, std / size)
        noisy = self.stream.noised(count, (tau or 0.0) / 2, scale=1 / size)
        return Answer(value, std / size, 0.5 + float(noisy[0]))

    def gradient_subspace(self, theta: Any, rank: int) -> Any:
        """Orthonormal columns that span the ``rank`` leading directions of the records' gradients at theta."""
        return in_kind(theta, leading_subspace(self.model.per_record(array(theta), self.batch), rank))

    def in_basis(self, matrix: Any) -> PublicCurator:
        """The same public records with every row x replaced by x @ matrix."""
        return PublicCurator(in_new_basis(self.model.rows, self.batch, array(matrix)), self.batch.y, model=self.model)

    def prepared(self, features: Features, centre: Any, scale: float) -> PublicCurator:
        """Public rows of a table as rows of features, less a centre, times a scale."""
        cells, model = np.asarray(self.cells, np.float64), self.model
        places, values = features(cells)
        rows = np.zeros((len(cells), features.width))
        rows[np.arange(len(cells))[:, None], places] = values
        X = (scale * (rows - np.asarray(array(centre), np.float64))).astype(np.float32)
        return PublicCurator(X, self.batch.y, model=Linear(features.width, model.loss, model.outputs))

    def loss(self, theta: Any) -> float:
        """Mean loss at theta."""
        return float(self.model.losses(array(theta), self.batch).mean(dtype=np.float64))

    def norms(self, theta: Any) -> Any:
        """Gradient norm of each record at theta."""
        return in_kind(theta, self.model.norms(array(theta), self.batch))
