"""The mean of gradients of which every layer is clipped by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ..facts import Answer, Facts
from ..noise import Stream
from ..question import CLIP_RANGE, AnswerLine, HowAsked, Question, between, flat, plain, question, released
from ..stores.protocol import HeldRecords
from ..stores.totals import Drawn, Floats, IntegerTotal

MAX_LAYERS, MIN_SHARE = 100_000, 1e-9


@question
@dataclass(frozen=True, eq=False)
class LayeredGradient(Question):
    """The mean gradient at theta, the part of each layer k clipped to a norm C_k of its own (``clips``).

    Releases (sum over the batch of the clipped parts + noise) / (expected batch size), with noise of standard deviation
    s_k on each coordinate of layer k. ``shares`` w_k, at most 1 in all, say how: s_k = sigma C_k / sqrt(w_k), sigma the
    noise multiplier; without them w_k = C_k^2 / |C|^2, so that all coordinates have the same noise sigma |C|.
    *Sensitivity*: divide every layer's sum by its own noise: what is released is their concatenation with independent unit
    noise. A record's part of layer k has norm at most C_k, in integers, so its part of the concatenation has norm at most
    (sum of (C_k/s_k)^2)^(1/2) = (sum of w_k)^(1/2) / sigma <= 1 / sigma; replacing it moves the concatenation by at most
    twice that. So all layers together are one event, Gaussian(sigma), under both relations and on any batch.
    Clips and shares are public or released, and fixed before the batch is drawn.
    """

    theta: Floats
    clips: tuple[float, ...]
    shares: tuple[float, ...] | None = None
    name: ClassVar[str] = "layered_gradient"
    words: ClassVar[str] = "the mean gradient, clipped layer by layer"
    mean: ClassVar[bool] = True
    of_tensors: ClassVar[bool] = True

    @classmethod
    def of(cls, theta: object, clips: Sequence[float], shares: Sequence[float] | None) -> LayeredGradient:
        """The question made of plain copies of what is given."""
        return cls(plain(theta), plain(tuple(clips)), None if shares is None else plain(tuple(shares)))

    def __post_init__(self) -> None:
        flat("theta", self.theta)
        if type(self.clips) is not tuple or not 1 <= len(self.clips) <= MAX_LAYERS:
            raise ValueError("clips is no tuple or empty; pass a clip norm for each layer")
        for clip in self.clips:
            between("a clip of clips", clip, *CLIP_RANGE)
        if self.shares is None:
            return
        if type(self.shares) is not tuple or len(self.shares) != len(self.clips):
            raise ValueError("shares is no tuple as long as clips; pass a share of the price for each layer, or None")
        for share in self.shares:
            between("a share of shares", share, MIN_SHARE, 1)
        if sum(map(Fraction, self.shares)) > 1:
            raise ValueError("shares add up to more than 1; pass shares of the whole price")

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        if len(facts.groups) > 1 and not facts.tensors:
            raise ValueError(
                "clips has several norms, which needs a torch module; ask for a gradient with one clip norm"
            )

    def check(self, facts: Facts) -> None:
        if len(self.clips) != len(facts.groups):
            raise ValueError(f"clips has {len(self.clips)} norms; pass one for each of {len(facts.groups)} layers")
        super().check(facts)

    @property
    def clip(self) -> float:
        """|C|: no record's whole part is longer."""
        return math.hypot(*self.clips)

    def moves(self, how: HowAsked) -> tuple[float, float]:
        return how.row(self.clip), 2 * how.row(self.clip)

    def _stretches(self) -> list[float]:
        """What the noise of each layer is multiplied by, relative to its clip norm: 1 / sqrt(w_k), rounded up."""
        if self.shares is None:
            return [self.clip / clip * (1 + 2.0**-45) for clip in self.clips]
        return [(1 + 2.0**-45) / math.sqrt(share) for share in self.shares]

    def stds(self, how: HowAsked) -> list[float]:
        """s_k on each coordinate of the sum, layer by layer."""
        whole = how.noise * self.unit(how) / self.clip
        return [whole * clip * stretch for clip, stretch in zip(self.clips, self._stretches(), strict=True)]

    def noise_std(self, how: HowAsked) -> float:
        """That of every coordinate without ``shares``; with them, that of a layer with the middle noise of all."""
        stds = self.stds(how)
        return (stds[0] if self.shares is None else float(np.median(stds))) / how.size

    def totals(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> Sequence[IntegerTotal]:
        clips = [how.row(clip) for clip in self.clips]
        if len(clips) == 1:
            return [records.gradients(drawn, self.theta, clips[0])]
        return records.layered(drawn, self.theta, clips)

    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        return self.totals(records, drawn, how)[0]

    def noised(self, totals: Sequence[IntegerTotal], how: HowAsked, stream: Stream) -> Sequence[Floats]:
        each = zip(totals, self.stds(how), strict=True)
        return [released(total, std, 1.0, stream, over=how.size, dtype=np.float32) for total, std in each]

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        return Answer(np.concatenate(noisy), self.noise_std(how))

    def flat(self, answer: Answer, facts: Facts, how: HowAsked) -> Floats:
        value = np.asarray(answer.value, np.float64) * how.size
        return np.concatenate(self._evened(np.split(value, np.cumsum(facts.groups)[:-1]), how))

    def exact(self, totals: Sequence[IntegerTotal], how: HowAsked) -> Floats:
        return np.concatenate(self._evened([total.values.astype(np.float64) * total.worth for total in totals], how))

    def _evened(self, parts: Sequence[Floats], how: HowAsked) -> list[Floats]:
        """Layers in units in which all of them have the noise sigma |C|."""
        even = how.noise * self.unit(how)
        return [part * (even / std) for part, std in zip(parts, self.stds(how), strict=True)]

    @classmethod
    def ranges(cls, how: HowAsked, line: AnswerLine) -> list[tuple[float, float]]:
        """That of all layers; where they have shares, the noise of one of them, which may be any that a layer can have."""
        if line.clip is None:
            return []
        same = cls(np.zeros(1), (min(line.clip, CLIP_RANGE[1]),)).noise_std(how)
        return [(same, same), (same * CLIP_RANGE[0] / line.clip, same / math.sqrt(MIN_SHARE))]

    @classmethod
    def cases(cls, dimension: int) -> list[LayeredGradient]:
        near, far = np.full(dimension, 0.1), np.full(dimension, -1e20)
        several = [cls(near, (0.5, 0.02, 0.3, 0.01)[:layers]) for layers in (1, 2, 4)]
        priced = [cls(near, (0.5, 0.02), (0.25, 0.75)), cls(near, (0.5, 0.02, 0.3, 0.01), (0.5, 0.125, 0.25, 0.125))]
        return [*several, *priced, cls(far, (0.01,)), cls(far, (0.01, 0.3))]
