"""The mean of clipped gradients, in coordinates of choice, with a count of the short ones; and how long that mean is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ..accountants.common import joint_noise
from ..events import MIN_NOISE, Gaussian, Mechanism
from ..facts import Answer, Facts
from ..noise import Stream
from ..question import (
    CLIP_RANGE,
    MAX_NOISE,
    NORM_RANGE,
    AnswerLine,
    HowAsked,
    Question,
    between,
    flat,
    plain,
    question,
    released,
)
from ..stores.protocol import HeldRecords
from ..stores.totals import Drawn, Floats, IntegerTotal

MIN_SCALE, MAX_SCALE = 1e-6, 1e6


@question
@dataclass(frozen=True, eq=False)
class Gradient(Question):
    """The mean gradient at theta, each record's clipped to norm ``clip``.

    Releases (sum over the batch of g_i min(1, clip/||g_i||) + noise) / (expected batch size), noise of standard
    deviation noise_multiplier * clip on each coordinate.
    *Sensitivity* of the sum: each term has norm <= clip, in integers, so adding or removing a record moves it by at most
    clip, replacing one by at most 2 clip: the event Gaussian(noise_multiplier). Dividing by a released or public
    number is post-processing.

    ``scale``, positive numbers, one per parameter (Pichapati et al. 2019): g_i / scale is what is clipped, summed
    and noised, and the answer is multiplied by scale. *Sensitivity*: the terms of the sum are clipped in the new
    coordinates, so it is as above there; going back is post-processing. Linear models only. (The paper also
    subtracts a running mean before the clip; single records are spread far more widely than their mean, so that
    earns little, and it is left out.)

    ``basis``, orthonormal columns, one row per parameter (Zhou, Wu & Banerjee 2020): B^T g_i is what is clipped,
    summed and noised, and the answer is B times it. The same argument in the subspace, where the noise has as many
    coordinates as B has columns, and nothing is clipped for what lies outside. A perceptron's gradients are
    clipped and noised whole and the answer is projected, B B^T times it: post-processing.

    ``quantile_at``, a norm, with ``count_noise_multiplier`` (Andrew et al. 2021): from the same batch, also
    releases how many gradients are shorter, as the sum of h_i + noise of standard deviation
    count_noise_multiplier / 2, where h_i goes from 1/2 (norm at most 0.9 quantile_at) to -1/2 (at least 1.1) along
    a ramp. ``below`` is that sum / (expected batch size) + 1/2. *Sensitivity*: |h_i| <= 1/2, so adding or removing
    a record moves the count by at most 1/2, replacing one by at most 1. Divide the two sums by their own noise:
    what is released is their concatenation with independent unit noise. A record's own part of it has norm
    at most ((clip / (sigma clip))^2 + ((1/2) / (tau/2))^2)^(1/2) = (sigma^-2 + tau^-2)^(1/2) with the two noise
    multipliers sigma and tau; replacing it moves the concatenation by at most twice that. So both together are
    one event, Gaussian((sigma^-2 + tau^-2)^(-1/2)), under both relations and on any batch.
    What these options hold is public or released, and fixed before the batch is drawn.
    """

    theta: Floats
    clip: float
    scale: Floats | None = None
    basis: Floats | None = None
    quantile_at: float | None = None
    count_noise_multiplier: float | None = None
    name: ClassVar[str] = "gradient"
    words: ClassVar[str] = "the mean gradient"
    of_tensors: ClassVar[bool] = True
    mean: ClassVar[bool] = True

    @classmethod
    def of(cls, theta: object, clip: object, **options: object) -> Gradient:
        """The question made of plain copies of what is given."""
        if not options:
            return cls(plain(theta), plain(clip))
        return cls(plain(theta), plain(clip), **{name: plain(part) for name, part in options.items()})

    def __post_init__(self) -> None:
        flat("theta", self.theta)
        between("clip", self.clip, *CLIP_RANGE)
        if self.scale is not None and self.basis is not None:
            raise ValueError("scale and basis are both given; pass one of them")
        if (self.quantile_at is None) != (self.count_noise_multiplier is None):
            raise ValueError("pass quantile_at and count_noise_multiplier together: the count has noise of its own")
        if self.quantile_at is not None:
            between("quantile_at", self.quantile_at, *NORM_RANGE)
            between("count_noise_multiplier", self.count_noise_multiplier, MIN_NOISE, MAX_NOISE)

    def check(self, facts: Facts) -> None:
        super().check(facts)
        self.check_options(facts.dimension, coordinates=facts.coordinates)

    def check_options(self, dimension: int, *, coordinates: bool) -> None:
        """Refuse coordinates that do not fit the model."""
        if self.scale is not None:
            check_scale(self.scale, dimension, coordinates=coordinates)
        if self.basis is not None:
            check_basis(self.basis, dimension)

    def event(self, noise: float) -> Mechanism:
        if self.count_noise_multiplier is None:
            return Gaussian(noise)
        return Gaussian(joint_noise(noise, self.count_noise_multiplier))

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return how.row(self.clip), 2 * how.row(self.clip)

    def noise_std(self, how: HowAsked) -> float:
        return how.noise * self.clip / how.size

    @classmethod
    def like(cls, line: AnswerLine) -> list[Gradient]:
        return [] if line.clip is None else [cls(np.zeros(1), line.clip)]

    @classmethod
    def ranges(cls, how: HowAsked, line: AnswerLine) -> list[tuple[float, float]]:
        """A count from the same batch is part of the event, and takes a share of its price, half if nobody says more."""
        share = line.settings.get("count_share")
        most = max(0.5, share) if isinstance(share, float) and share < 1 else 0.5
        return [(low, low / math.sqrt(1 - most)) for low, _ in super().ranges(how, line)]

    def totals(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> Sequence[IntegerTotal]:
        basis, clip = self.basis if records.coordinates else None, how.row(self.clip)
        if self.scale is None and basis is None:
            totals = [records.gradients(drawn, self.theta, clip)]
        else:
            totals = [records.vectors(drawn, self.theta, clip, scale=self.scale, basis=basis)]
        if self.quantile_at is not None:
            totals.append(records.short(drawn, self.theta, how.row(self.quantile_at), scale=self.scale, basis=basis))
        return totals

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return self.totals(records, drawn, how)[0]

    def noised(self, totals: Sequence[IntegerTotal], how: HowAsked, stream: Stream) -> Sequence[Floats]:
        kind = np.float32 if self.scale is None and self.basis is None else np.float64
        noisy = [released(totals[0], how.noise, self.unit(how), stream, over=how.size, dtype=kind)]
        if self.count_noise_multiplier is not None:
            noisy.append(released(totals[1], self.count_noise_multiplier, how.rows / 2, stream, over=how.size))
        return noisy

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        below = 0.5 + float(noisy[1][0]) if len(noisy) > 1 else None
        return Answer(self.back(noisy[0], coordinates=facts.coordinates), self.noise_std(how), below)

    def back(self, mean: Floats, *, coordinates: bool) -> Floats:
        """A released vector in the parameters' own coordinates: post-processing."""
        if self.scale is not None:
            mean = mean * self.scale
        elif self.basis is not None:
            mean = self.basis @ (mean if coordinates else self.basis.T @ mean)
        return mean.astype(np.float32, copy=False)

    def flat(self, answer: Answer, facts: Facts, how: HowAsked) -> Floats:
        value = np.asarray(answer.value, np.float64) * how.size
        if self.scale is not None:
            value = value / self.scale
        elif self.basis is not None:
            value = self.basis.T @ value
        if answer.below is None or self.count_noise_multiplier is None:
            return value
        return np.append(value, (answer.below - 0.5) * how.size * self._count_weight(how))

    def exact(self, totals: Sequence[IntegerTotal], how: HowAsked) -> Floats:
        value = totals[0].values.astype(np.float64) * totals[0].worth
        if len(totals) == 1:
            return value
        return np.append(value, totals[1].values * totals[1].worth * self._count_weight(how))

    def _count_weight(self, how: HowAsked) -> float:
        """The noise of the sum over that of the count: times this, one vector has the same noise everywhere."""
        return how.noise * self.clip / ((self.count_noise_multiplier or 1.0) * how.rows / 2)

    @classmethod
    def cases(cls, dimension: int) -> list[Gradient]:
        near, far = np.full(dimension, 0.1), np.full(dimension, -1e20)
        scale, tilted = np.geomspace(0.1, 10.0, dimension), np.arange(1.0, dimension + 1)
        basis = (np.eye(dimension) - 2 * np.outer(tilted, tilted) / (tilted @ tilted))[:, : dimension // 2 + 1]
        plainly = [cls(near, 0.5), cls(far, 0.01), cls(near, 0.5, None, None, 0.3, 7.0)]
        elsewhere = [cls(near, 0.5, scale), cls(near, 0.5, None, basis), cls(near, 0.5, scale, None, 0.3, 7.0)]
        return plainly + elsewhere


def check_scale(scale: Floats, dimension: int, *, coordinates: bool) -> None:
    """Refuse a scale that is not a vector of usual positive numbers, or a model that has no closed form for it."""
    if not coordinates:
        raise ValueError("scale needs a linear model, which has a closed form for its norms; pass scale=None")
    if not isinstance(scale, np.ndarray) or scale.shape != (dimension,):
        raise ValueError(f"scale has shape {np.shape(scale)}; pass an array of {dimension}")
    if not bool(((scale >= MIN_SCALE) & (scale <= MAX_SCALE)).all()):
        raise ValueError(f"scale has entries outside [{MIN_SCALE}, {MAX_SCALE}]; pass scales within")


def check_basis(basis: Floats, dimension: int) -> None:
    """Refuse a basis whose columns are not orthonormal."""
    shape = basis.shape if isinstance(basis, np.ndarray) else ()
    if len(shape) != 2 or shape[0] != dimension or not 1 <= shape[1] <= dimension:
        raise ValueError(f"basis has shape {shape}; pass orthonormal columns of {dimension} entries")
    if not bool((np.abs(basis.T @ basis - np.eye(basis.shape[1])) < 1e-3).all()):
        raise ValueError("basis has columns that are not orthonormal; pass e.g. numpy.linalg.qr(basis)[0]")


@question
@dataclass(frozen=True, eq=False)
class GradientNorm(Question):
    """The norm of the mean clipped gradient at theta, or its square.

    *Sensitivity* of the norm of the sum: by the triangle inequality at most that of the sum, clip for add_remove
    and 2 clip for replace_one; the sum is in integers and its norm rounded down, so it moves by at most the whole number
    that stands for clip. It draws its own batch: choosing the noise of a gradient from a norm measured on
    the same batch has no known price.

    ``squared``: min(s, m C)^2 / m^2 is released, with s the norm of the sum and m the expected batch size.
    *Sensitivity*: t -> min(t, m C)^2 has slope at most 2 m C, so its value moves by at most 2 m C times what s
    moves, however many records there really are. (Hong et al. 2021 take (2 m - 1) C^2, which needs m to be the
    realised number of records; that is not public here, so the cap does the work.)
    """

    theta: Floats
    clip: float
    squared: bool = False
    name: ClassVar[str] = "gradient_norm"
    words: ClassVar[str] = "the norm of the mean gradient"
    of_tensors: ClassVar[bool] = True
    mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        flat("theta", self.theta)
        between("clip", self.clip, *CLIP_RANGE)
        if type(self.squared) is not bool:
            raise ValueError("squared is neither True nor False; pass one of them")

    def moves(self, how: HowAsked) -> tuple[float, float]:
        clip = how.row(self.clip)
        unit = 2 * how.size * clip * clip if self.squared else clip
        return unit, 2 * unit

    def noise_std(self, how: HowAsked) -> float:
        return how.noise * self.unit(how) / (how.size**2 if self.squared else how.size)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        total = records.gradients(drawn, self.theta, how.row(self.clip))
        norm = math.isqrt(sum(int(value) ** 2 for value in total.values))
        if not self.squared:
            return IntegerTotal(np.array([norm]), total.ones, total.one)
        cap = math.ceil(Fraction(how.size) * total.ones)
        # so that squares fit into 64 bits, and what stands for the unit into 31; rounding down keeps whole bounds
        coarse = max(1, cap * cap >> 56, 2 * cap * total.ones >> 30)
        square, ones = min(norm, cap) ** 2 // coarse, -(-2 * cap * total.ones // coarse)
        return IntegerTotal(np.array([square]), ones, self.moves(how)[0], coarse * total.worth**2)

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        value = float(noisy[0][0]) / (how.size**2 if self.squared else how.size)
        return Answer(np.asarray(value, np.float32), self.noise_std(how))

    def flat(self, answer: Answer, facts: Facts, how: HowAsked) -> Floats:
        return np.array([float(answer.value) * (how.size**2 if self.squared else how.size)])

    @classmethod
    def like(cls, line: AnswerLine) -> list[GradientNorm]:
        return [] if line.clip is None else [cls(np.zeros(1), line.clip, squared) for squared in (False, True)]

    @classmethod
    def cases(cls, dimension: int) -> list[GradientNorm]:
        near, far = np.full(dimension, 0.1), np.full(dimension, -1e20)
        return [cls(near, 0.5), cls(far, 0.5, True), cls(near, 2.0, True)]
