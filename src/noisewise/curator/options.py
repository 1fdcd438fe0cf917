"""What a gradient question may ask for beyond a clipped mean: checked, plain data, fixed before the batch is drawn."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .. import _validate

Floats = NDArray[np.float64]

LEAST_SCALE, MOST_SCALE = 1e-6, 1e6


def joint_noise(*noise_multipliers: float) -> float:
    """The noise multiplier of one event that releases several noised sums of the same batch, rounded down.

    sigma^-2 = sum of sigma_i^-2. Divide each sum by its own noise: what is released is their concatenation with unit
    noise, which one record moves by at most sqrt(sum of sigma_i^-2), or twice that when it is replaced.

    >>> round(joint_noise(3.0, 4.0), 6)
    2.4
    """
    _validate.positive(**{f"noise_multiplier {i}": float(sigma) for i, sigma in enumerate(noise_multipliers)})
    precision = math.fsum(float(sigma) ** -2 for sigma in noise_multipliers)
    return (1 - 2.0**-50) / math.sqrt(precision)


def split_noise(noise_multiplier: float, share: float) -> tuple[float, float]:
    """Noise multipliers of two sums whose joint release costs at most ``noise_multiplier``, the second ``share`` of it.

    >>> gradient, count = split_noise(10.0, 0.01)
    >>> round(gradient, 3), round(count, 3), joint_noise(gradient, count) >= 10.0
    (10.05, 100.0, True)
    """
    _validate.open_unit(share=share)
    sigma = noise_multiplier * (1 + 2.0**-40)
    return sigma / (1 - share) ** 0.5, sigma / share**0.5


def check_scale(scale: Floats, dimension: int, *, coordinates: bool) -> None:
    """Refuse a scale that is not a vector of usual positive numbers, or a model that has no closed form for it."""
    if not coordinates:
        raise ValueError(
            "scale needs a linear model: a perceptron's gradient norms factor by layer only while all coordinates of a "
            "layer count alike; pass scale=None"
        )
    if not isinstance(scale, np.ndarray) or scale.shape != (dimension,):
        raise ValueError(f"scale has shape {np.shape(scale)}; pass a tensor of {dimension}")
    if not bool(((scale >= LEAST_SCALE) & (scale <= MOST_SCALE)).all()):
        raise ValueError(f"scale has entries outside [{LEAST_SCALE}, {MOST_SCALE}]; pass scales within")


def check_basis(basis: Floats, dimension: int) -> None:
    """Refuse a basis whose columns are not orthonormal."""
    if (
        not isinstance(basis, np.ndarray)
        or basis.ndim != 2
        or basis.shape[0] != dimension
        or not 1 <= basis.shape[1] <= dimension
    ):
        raise ValueError(f"basis has shape {np.shape(basis)}; pass orthonormal columns of {dimension} entries")
    if not bool((np.abs(basis.T @ basis - np.eye(basis.shape[1])) < 1e-3).all()):
        raise ValueError("basis has columns that are not orthonormal; pass e.g. torch.linalg.qr(basis)[0]")
