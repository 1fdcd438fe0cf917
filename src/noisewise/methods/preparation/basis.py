"""A basis in which the common part of the rows is small: what fills the clip norm should tell records apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...trusted.questions.moments import FirstMoment, SecondMoment, SquaredLength

BASIS_SHARE = 0.05  # of the budget, for the mean row
LENGTH_SHARE = 0.005  # for the mean squared length
MOMENT_SHARE = 0.05  # for the second moment, where one pays
MEAN_LENGTH = 0.4  # what is left of the mean row, relative to the spread of the rows
MIN_CLARITY = 2.0  # n mu / sqrt(columns) below which a bought mean row costs more than it brings
MAX_BLUR = 0.02  # of the squared length of a row: what noise makes of an eigenvalue of a clear second moment
MIN_SPREAD = 0.02  # of the mean squared length, so that noise in the mean cannot blow the basis up


@dataclass(frozen=True, eq=False)
class Basis:
    """A square matrix that every row is multiplied with, and the largest eigenvalue of the second moment then, at most.

    A linear model, or the first layer of another, is changed back when training ends: what predicts has it folded in.
    """

    matrix: NDArray[np.float64]
    largest: float = 1.0

    part: ClassVar[str] = "basis"
    questions: ClassVar[tuple[str, ...]] = (FirstMoment.name, SquaredLength.name, SecondMoment.name)
    words: ClassVar[str] = "a basis in which rows are alike in length, from moments of the rows"

    def __post_init__(self) -> None:
        square = self.matrix.ndim == 2 and self.matrix.shape[0] == self.matrix.shape[1]
        if not square or not bool(np.isfinite(self.matrix).all()):
            raise ValueError("a basis is a square matrix of finite numbers")

    def then(self, matrix: NDArray[np.float64], largest: float) -> Basis:
        """This basis followed by another change."""
        return Basis(self.matrix @ matrix, largest)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"matrix": self.matrix.tolist(), "largest": self.largest}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote."""
        return cls(np.asarray(data["matrix"], dtype=np.float64), float(data["largest"]))


def worth_buying(size: float, mu: float, columns: int) -> bool:
    """Whether a mean row is worth its share, from public or released facts alone.

    At the limit its noise is still longer than itself; what is taken out is then little, and so is the loss. In trials
    on public digits a basis did harm at a clarity of 1, made no difference at 2 and helped from 3 on.
    """
    return size * mu >= MIN_CLARITY * math.sqrt(columns)


def clear_moment(size: float, mu: float, columns: int) -> bool:
    """Whether a second moment of wide rows is clear enough to flatten directions, from public or released facts alone.

    Its entries have noise s = 1 / (n mu sqrt(share)) and its eigenvalues s sqrt(columns), which is compared with the
    squared length of a row.
    """
    return math.sqrt(columns) <= MAX_BLUR * size * mu * math.sqrt(MOMENT_SHARE)


def deflating(mean: NDArray[np.float64], squared_length: float, mean_noise: float = 0.0) -> NDArray[np.float64]:
    """The matrix that scales down the mean row and makes typical rows as long as 1.

        (I - (1 - tau) u u^T) / c,   u = m/||m||,  tau ||m|| = 0.4 s,  s^2 = E||x||^2 - ||m||^2,  c^2 = s^2 + (tau ||m||)^2

    ``mean_noise``: what noise adds to ||mean||^2 on average; ``squared_length``: E||x||^2.
    """
    squared_mean = min(max(float(mean @ mean) - mean_noise, 0.0), (1 - MIN_SPREAD) * squared_length)
    spread = math.sqrt(squared_length - squared_mean)
    tau = min(1.0, MEAN_LENGTH * spread / max(math.sqrt(squared_mean), 1e-12))
    direction = mean / max(float(np.linalg.norm(mean)), 1e-12)
    typical = math.sqrt(spread**2 + tau**2 * squared_mean)
    matrix: NDArray[np.float64] = (np.eye(len(mean)) - (1 - tau) * np.outer(direction, direction)) / typical
    return matrix


def flattening(moment: NDArray[np.float64], noise_std: float) -> tuple[NDArray[np.float64], float]:
    """The matrix that makes directions equally long where they stand out of the noise, and the largest eigenvalue then.

        x <- x V diag((l_i + noise)^(-1/2)) / c,   moment = V diag(l) V^T,   c so that E||x||^2 = 1

    ``noise_std``: of each entry of ``moment``; noise is what it makes of an eigenvalue that is 0, on average: noise_std
    sqrt(columns), as root of the mean square.
    """
    seen, vectors = np.linalg.eigh(moment)
    values = np.maximum(seen, 0.0)
    scales = 1 / np.maximum(values + noise_std * math.sqrt(len(values)), 1e-12)
    squared_length = weighted_length(seen, scales, noise_std)
    matrix = vectors * np.sqrt(scales / squared_length)
    largest = float((values * scales).max()) / squared_length
    return matrix, min(max(largest, 1 / len(values)), 1.0)  # it is at least the average


def weighted_length(values: NDArray[np.float64], weights: NDArray[np.float64], noise_std: float) -> float:
    """E||x||^2 in the basis of a noisy moment M + N, each direction v_i weighted by w_i = w(l_i), without the noise's part.

    It is tr(w(M + N) M) = sum_i w_i l_i - tr(w(M + N) N), and by Stein's lemma the last term is, on average,

        s^2 sum_i sum_(j != i) (w_i - w_j) / (l_i - l_j)     (the diagonal adds less than 2 in ``columns`` terms to it)

    Eigenvectors of much noise follow it: cutting negative eigenvalues off instead made rows of 800 columns half as long.
    """
    apart = values[:, None] - values[None, :]
    steps = weights[:, None] - weights[None, :]
    tied = np.abs(apart) <= 1e-12 * max(float(np.abs(values).max()), 1e-300)
    slopes = np.where(tied, 0.0, steps / np.where(tied, 1.0, apart))
    length = float(weights @ values) - noise_std**2 * float(slopes.sum())
    return max(length, float(weights.min() * max(values.sum(), 0.0)), 1e-12)
