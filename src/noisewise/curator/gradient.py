"""Questions about gradients: the clipped mean, its norm, and which of several candidates has a small loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..events import LEAST_NOISE, BoundedRange, Gaussian, Mechanism
from ..records.totals import Drawn, Floats, IntegerTotal
from .facts import Answer, Facts
from .noise import Stream
from .options import check_basis, check_scale, joint_noise
from .questions import (
    LEAST_NORM,
    MOST_NOISE,
    MOST_NORM,
    HowAsked,
    Records,
    Sum,
    fits,
    flat,
    plain,
    positive,
    question,
    released,
    shaped,
)

LEAST_CLIP, MOST_CLIP = 1e-4, 1e12


@question
@dataclass(frozen=True, eq=False)
class Gradient(Sum):
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
    words: ClassVar[str] = "clipped gradient"
    mean: ClassVar[bool] = True

    @classmethod
    def of(cls, theta: object, clip: object, *options: object) -> Gradient:
        """The question made of plain copies of what is given."""
        return cls(plain(theta), plain(clip), *(None if part is None else plain(part) for part in options))

    def __post_init__(self) -> None:
        flat("theta", self.theta)
        positive("clip", self.clip, LEAST_CLIP, MOST_CLIP)
        if self.scale is not None and self.basis is not None:
            raise ValueError("scale and basis are both given; pass one of them")
        if (self.quantile_at is None) != (self.count_noise_multiplier is None):
            raise ValueError(
                "pass quantile_at and count_noise_multiplier together: the count is paid for by its own noise"
            )
        if self.quantile_at is not None:
            positive("quantile_at", self.quantile_at, LEAST_NORM, MOST_NORM)
            positive("count_noise_multiplier", self.count_noise_multiplier, LEAST_NOISE, MOST_NOISE)

    def check(self, facts: Facts) -> None:
        shaped("theta", self.theta, facts)
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

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return self.clip, 2 * self.clip

    def noise_std(self, terms: HowAsked) -> float:
        return terms.noise * self.clip / terms.size

    def totals(self, records: Records, drawn: Drawn, terms: HowAsked) -> Sequence[IntegerTotal]:
        seen = {"scale": self.scale, "basis": self.basis if records.coordinates else None}
        plainly = all(option is None for option in seen.values())
        totals = [
            records.gradients(drawn, self.theta, self.clip)
            if plainly
            else records.vectors(drawn, self.theta, self.clip, **seen)
        ]
        if self.quantile_at is not None:
            totals.append(records.short(drawn, self.theta, self.quantile_at, **seen))
        return totals

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        return self.totals(records, drawn, terms)[0]

    def noised(self, totals: Sequence[IntegerTotal], terms: HowAsked, stream: Stream) -> Sequence[Floats]:
        kind = np.float32 if self.scale is None and self.basis is None else np.float64
        noisy = [released(totals[0], terms.noise, self.unit(terms), stream, over=terms.size, dtype=kind)]
        if self.count_noise_multiplier is not None:
            noisy.append(released(totals[1], self.count_noise_multiplier, 0.5, stream, over=terms.size))
        return noisy

    def answer(self, noisy: Sequence[Floats], facts: Facts, terms: HowAsked) -> Answer:
        below = 0.5 + float(noisy[1][0]) if len(noisy) > 1 else None
        return Answer(self.back(noisy[0], coordinates=facts.coordinates), self.noise_std(terms), below)

    def back(self, mean: Floats, *, coordinates: bool) -> Tensor:
        """A released vector in the parameters' own coordinates: post-processing."""
        if self.scale is not None:
            mean = mean * self.scale
        elif self.basis is not None:
            mean = self.basis @ (mean if coordinates else self.basis.T @ mean)
        return torch.from_numpy(mean.astype(np.float32, copy=False))

    def flat(self, answer: Answer, facts: Facts, terms: HowAsked) -> Floats:
        value = np.asarray(answer.value.double().numpy()) * terms.size
        if self.scale is not None:
            value = value / self.scale
        elif self.basis is not None:
            value = self.basis.T @ value
        if answer.below is None or self.count_noise_multiplier is None:
            return value
        return np.append(value, (answer.below - 0.5) * terms.size * self._count_weight(terms))

    def exact(self, totals: Sequence[IntegerTotal], terms: HowAsked) -> Floats:
        value = totals[0].values.astype(np.float64) * totals[0].worth
        if len(totals) == 1:
            return value
        return np.append(value, totals[1].values * totals[1].worth * self._count_weight(terms))

    def _count_weight(self, terms: HowAsked) -> float:
        """The noise of the sum over that of the count: times this, one vector has the same noise everywhere."""
        return terms.noise * self.clip / ((self.count_noise_multiplier or 1.0) / 2)

    @classmethod
    def cases(cls, dimension: int) -> list[Gradient]:
        near, far = np.full(dimension, 0.1), np.full(dimension, -1e20)
        scale, tilted = np.geomspace(0.1, 10.0, dimension), np.arange(1.0, dimension + 1)
        basis = (np.eye(dimension) - 2 * np.outer(tilted, tilted) / (tilted @ tilted))[:, : dimension // 2 + 1]
        plainly = [cls(near, 0.5), cls(far, 0.01), cls(near, 0.5, None, None, 0.3, 7.0)]
        elsewhere = [cls(near, 0.5, scale), cls(near, 0.5, None, basis), cls(near, 0.5, scale, None, 0.3, 7.0)]
        return plainly + elsewhere


@question
@dataclass(frozen=True, eq=False)
class GradientNorm(Sum):
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
    words: ClassVar[str] = "norm of the gradient"
    mean: ClassVar[bool] = True

    def __post_init__(self) -> None:
        flat("theta", self.theta)
        positive("clip", self.clip, LEAST_CLIP, MOST_CLIP)
        if type(self.squared) is not bool:
            raise ValueError("squared is neither True nor False; pass one of them")

    def check(self, facts: Facts) -> None:
        shaped("theta", self.theta, facts)

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        unit = 2 * terms.size * self.clip * self.clip if self.squared else self.clip
        return unit, 2 * unit

    def noise_std(self, terms: HowAsked) -> float:
        return terms.noise * self.moves(terms)[0] / (terms.size**2 if self.squared else terms.size)

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        total = records.gradients(drawn, self.theta, self.clip)
        norm = math.isqrt(sum(int(value) ** 2 for value in total.values))
        if not self.squared:
            return IntegerTotal(np.array([norm]), total.ones, self.clip)
        cap = math.ceil(Fraction(terms.size) * total.ones)
        # so that squares fit into 64 bits, and what stands for the unit into 31; rounding down keeps whole bounds
        coarse = max(1, cap * cap >> 56, 2 * cap * total.ones >> 30)
        ones = -(-2 * cap * total.ones // coarse)
        return IntegerTotal(
            np.array([min(norm, cap) ** 2 // coarse]), ones, self.moves(terms)[0], coarse * total.worth**2
        )

    def answer(self, noisy: Sequence[Floats], facts: Facts, terms: HowAsked) -> Answer:
        value = float(noisy[0][0]) / (terms.size**2 if self.squared else terms.size)
        return Answer(torch.tensor(value, dtype=torch.float32), self.noise_std(terms))

    def flat(self, answer: Answer, facts: Facts, terms: HowAsked) -> Floats:
        return np.array([float(answer.value) * (terms.size**2 if self.squared else terms.size)])

    @classmethod
    def cases(cls, dimension: int) -> list[GradientNorm]:
        near, far = np.full(dimension, 0.1), np.full(dimension, -1e20)
        return [cls(near, 0.5), cls(far, 0.5, True), cls(near, 2.0, True)]


@question
@dataclass(frozen=True, eq=False)
class Choice(Sum):
    """The index of a candidate with a small loss: the exponential mechanism on sums of clipped losses, drawn exactly.

    Candidate i is chosen with probability proportional to exp(-S_i epsilon / B) under add_remove and
    exp(-S_i epsilon / (2B)) under replace_one, S_i the sum over the batch of min(loss, B) in integers; a loss that is not
    finite counts as B.
    *Sensitivity*: losses lie in [0, B]. Adding a record raises every candidate's sum by 0 to B, all in one
    direction, so the log-odds of two candidates move within an interval of length epsilon at scale B/epsilon.
    Replacing one moves them by up to B in either direction, which needs twice the scale. Both are BoundedRange.
    """

    thetas: tuple[Floats, ...]
    clip: float
    name: ClassVar[str] = "choose"
    words: ClassVar[str] = "choice among candidates"

    def __post_init__(self) -> None:
        if type(self.thetas) is not tuple or not self.thetas:
            raise ValueError("thetas is no tuple or empty; pass at least one candidate")
        for theta in self.thetas:
            flat("theta", theta)
        positive("loss_bound", self.clip, LEAST_CLIP, MOST_CLIP)

    def check(self, facts: Facts) -> None:
        for theta in self.thetas:
            fits(self.name, theta, facts)

    def event(self, noise: float) -> Mechanism:
        return BoundedRange(noise)

    def moves(self, terms: HowAsked) -> tuple[float, float]:
        return self.clip, 2 * self.clip

    def noise_std(self, terms: HowAsked) -> float:
        """The scale of the Gumbel noise that would choose alike."""
        return self.clip / terms.noise * (2 if terms.adjacency == "replace_one" else 1)

    def total(self, records: Records, drawn: Drawn, terms: HowAsked) -> IntegerTotal:
        return records.losses(drawn, self.thetas, self.clip)

    def noised(self, totals: Sequence[IntegerTotal], terms: HowAsked, stream: Stream) -> Sequence[Floats]:
        scale = Fraction(terms.noise) / (totals[0].ones * (2 if terms.adjacency == "replace_one" else 1))
        return [np.array([float(stream.choose(totals[0].values, scale))])]

    def answer(self, noisy: Sequence[Floats], facts: Facts, terms: HowAsked) -> Answer:
        return Answer(torch.tensor(int(noisy[0][0])), self.noise_std(terms))

    @classmethod
    def cases(cls, dimension: int) -> list[Choice]:
        return [cls((np.zeros(dimension), np.full(dimension, 0.2)), 1.0)]
