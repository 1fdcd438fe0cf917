"""Gradient leakage: rebuild a record from the gradient that the curator would release for it alone.

The attacker knows the model, its parameters, the clip norm and everything about every other record, so one record's
clipped and noised gradient is what is left between them and that record. Two attacks:

- ``closed``: a dense layer's gradient for one record is (output gradient) (input)^T, a matrix of rank one. Its leading
  singular vector is the record, up to a factor that the intercept fixes: exact without noise, whatever the clip.
- ``deep`` (Zhu, Liu & Han 2019): gradient descent on a dummy record until its own clipped gradient matches the
  released one. The label is read off the gradient first (Zhao et al. 2020), or found together with the record.

References: Zhu, Liu & Han 2019, Deep Leakage from Gradients; Zhao, Mopuri & Bilen 2020, iDLG; Phong et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...asking import PublicCurator, array
from ...trusted import validate
from ...trusted.models import Model

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]

NOISE_MULTIPLIERS = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0)
ATTACKS = ("deep", "closed")
MAX_PSNR = 100.0  # decibels; an error below this is rounding


@dataclass(frozen=True)
class Recovered:
    """One record and what the attack made of its gradient at one noise level; values between 0 and 1."""

    record: int
    noise_multiplier: float
    truth: tuple[float, ...]
    guess: tuple[float, ...]
    label: float
    label_guess: float

    @property
    def error(self) -> float:
        """Mean squared error."""
        return float(np.mean(np.square(np.subtract(self.guess, self.truth))))

    @property
    def psnr(self) -> float:
        """Peak signal-to-noise ratio in decibels, at most 100: 10 log10(1 / error)."""
        return min(-10 * math.log10(max(self.error, 1e-30)), MAX_PSNR)

    @property
    def similarity(self) -> float:
        """Correlation with the true record; 0 when the guess is flat."""
        return correlation(self.guess, self.truth)


@dataclass(frozen=True)
class Leakage:
    """Every record at every noise level, and how a guess that ignores the gradient would do (``blind``)."""

    attack: str
    clip: float
    recovered: tuple[Recovered, ...]
    blind: Floats

    def at(self, noise_multiplier: float) -> tuple[Recovered, ...]:
        """The records at one noise level."""
        return tuple(one for one in self.recovered if one.noise_multiplier == noise_multiplier)

    def rows(self) -> list[dict[str, Any]]:
        """Medians over the records, one row for each noise level, and a last one for the blind guess."""
        levels = list(dict.fromkeys(one.noise_multiplier for one in self.recovered))
        rows = [_row(level, self.at(level)) for level in levels]
        ignored = [
            Recovered(one.record, math.inf, one.truth, tuple(self.blind), one.label, math.nan)
            for one in self.at(levels[0])
        ]
        return [*rows, {**_row(None, ignored), "labels": None}]

    def to_dict(self) -> dict[str, Any]:
        return {"attack": self.attack, "clip": self.clip, "rows": self.rows()}


def _row(level: float | None, recovered: Sequence[Recovered]) -> dict[str, Any]:
    return {
        "noise_multiplier": level,
        "records": len(recovered),
        "error": float(np.median([one.error for one in recovered])),
        "psnr": float(np.median([one.psnr for one in recovered])),
        "similarity": float(np.median([one.similarity for one in recovered])),
        "labels": float(np.mean([one.label == one.label_guess for one in recovered])),
    }


def correlation(first: Any, second: Any) -> float:
    """Pearson's correlation; 0 when one of the two is flat.

    >>> round(correlation([0, 1, 2], [1, 2, 3]), 9), correlation([1, 1, 1], [0, 1, 2])
    (1.0, 0.0)
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(a @ b / scale, -1, 1)) if scale > 1e-12 else 0.0


def leakage(
    model: Model,
    theta: Any,
    X: Any,
    y: Any,
    *,
    attack: str = "deep",
    noise_multipliers: Sequence[float] = NOISE_MULTIPLIERS,
    clip: float = 1.0,
    intercept: bool = True,
    label: str = "infer",
    blind: Any = None,
    steps: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Leakage:
    """Attack each row of X (as the model sees it: scaled, the intercept last) through its released gradient.

    ``intercept``: the last column is a positive constant of the record, by which the attacker divides; what is
    compared are the other columns over it, clamped to [0, 1]. Without, rows are compared as they are.
    ``label``: "infer" reads it off the gradient, "optimise" finds it with the record (softmax only).
    ``blind``: the guess of somebody who has not seen the gradient, e.g. an average of public rows; default 0.5 all over.
    """
    validate.one_of(ATTACKS, attack=attack)
    validate.one_of(("infer", "optimise"), label=label)
    validate.positive(clip=clip)
    validate.not_negative(noise_multiplier=min(noise_multipliers))
    if label == "optimise" and not (model.loss.task == "classes" and model.loss.has_probabilities):
        raise ValueError("label is 'optimise', which needs the softmax loss; pass 'infer'")
    theta, rows = array(theta), np.asarray(array(X), np.float64)
    labels = np.asarray(array(y), np.int64 if model.loss.task == "classes" else np.float32)
    recovered: list[Recovered] = []
    for number in range(len(rows)):
        truth = _shown(rows[number], intercept)
        for level in noise_multipliers:
            record, now = (rows[number], labels[number]), seed + len(recovered)
            released = released_gradient(model, theta, *record, clip=clip, noise_multiplier=level, seed=now)
            guess, label_guess = invert_gradient(
                model, theta, released, attack=attack, clip=clip, label=label, steps=steps, seed=now
            )
            shown = _shown(guess, intercept)
            recovered.append(Recovered(number, float(level), truth, shown, float(labels[number]), label_guess))
            if progress is not None:
                progress(len(recovered), len(rows) * len(noise_multipliers))
    nothing = np.full(len(recovered[0].truth), 0.5) if blind is None else np.asarray(blind, dtype=float)
    return Leakage(attack, clip, tuple(recovered), nothing)


def released_gradient(
    model: Model, theta: Any, row: Any, label: Any, *, clip: float, noise_multiplier: float, seed: int
) -> Floats:
    """What the curator would answer for a batch that holds this record alone: its own clip, sum and noise.

    On a public curator, because no meter sells an answer with so little noise; the sum and the noise are the same code.
    """
    curator = PublicCurator(row[None], label[None], model=model, seed=seed)
    answer = curator.gradient(array(theta), clip=clip, noise_multiplier=noise_multiplier)
    return answer.value.astype(np.float64)


def invert_gradient(
    model: Model,
    theta: Any,
    released: Floats,
    *,
    attack: str = "deep",
    clip: float = 1.0,
    label: str = "infer",
    steps: int = 200,
    seed: int = 0,
) -> tuple[Floats, float]:
    """The row and the label behind a released gradient, as far as the attack can tell."""
    label_guess = inferred_label(model, released)
    if attack == "closed":
        return closed_form(model, released), label_guess
    from .deep_leakage import matched

    return matched(
        model, array(theta), released, clip=clip, label=label, label_guess=label_guess, steps=steps, seed=seed
    )


def inferred_label(model: Model, released: Floats) -> float:
    """The label from the signs of the last layer's gradient: negative for the true class alone (Zhao et al. 2020).

    With one output: the sign opposite to the slope's. A regression's target has no such sign and is left at 0.
    """
    if model.loss.task == "regression":
        return 0.0
    # the gradient of the biases: something proportional to the slope of the loss in each score
    last = released.reshape(model.outputs, model.features)[:, -1] if model.linear else released[-model.outputs :]
    return float(last.argmin()) if model.outputs > 1 else -float(np.sign(last[0]))


def closed_form(model: Model, released: Floats) -> Floats:
    """The input of the first layer from the rank-one shape of its gradient, of unknown length if there is no bias.

    A perceptron's bias has the gradient b, its weights b x^T: the leading right singular vector of [b x^T, b] is
    (x, 1) up to a factor. A linear model's is x up to a factor; it is returned with its last entry positive.
    """
    if not model.linear:
        into, out = model.shape[:2]
        weights, bias = released[: into * out].reshape(out, into), released[into * out : into * out + out]
        leading = _leading(np.concatenate([weights, bias[:, None]], 1))
        return leading[:-1] / (1.0 if abs(leading[-1]) < 1e-12 else leading[-1])
    leading = _leading(released.reshape(model.outputs, model.features))
    return leading * (1.0 if leading[-1] >= 0 else -1.0)


def _leading(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.svd(matrix, full_matrices=False)[2][0])


def _shown(row: Floats, intercept: bool) -> tuple[float, ...]:
    """The features between 0 and 1: over the intercept, if there is one.

    Features of at most 1 beside an intercept of 1 have norm sqrt(features) at most, so the intercept's share of the norm
    is at least 1/sqrt(features): an attacker knows that, and does not divide by a smaller, noisy one.
    """
    values = np.nan_to_num(row)
    if intercept:
        least = float(np.linalg.norm(values)) / math.sqrt(len(values))
        values = values[:-1] / max(values[-1], least, 1e-30)
    return tuple(np.clip(values, 0.0, 1.0).tolist())
