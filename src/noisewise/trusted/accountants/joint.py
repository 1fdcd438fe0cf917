"""Several noised sums of the same batch as one event."""

from __future__ import annotations

import math

from .. import validate


def joint_noise(*noise_multipliers: float) -> float:
    """The noise multiplier of one event that releases several noised sums of the same batch, rounded down.

    sigma^-2 = sum of sigma_i^-2. Divide each sum by its own noise: what is released is their concatenation with unit
    noise, which one record moves by at most sqrt(sum of sigma_i^-2), or twice that when it is replaced.

    >>> round(joint_noise(3.0, 4.0), 6)
    2.4
    """
    validate.positive(**{f"noise_multiplier {i}": float(sigma) for i, sigma in enumerate(noise_multipliers)})
    precision = math.fsum(float(sigma) ** -2 for sigma in noise_multipliers)
    return (1 - 2.0**-50) / math.sqrt(precision)


def split_noise(noise_multiplier: float, share: float) -> tuple[float, float]:
    """Noise multipliers of two sums whose joint release costs at most ``noise_multiplier``, the second ``share`` of it.

    >>> gradient, count = split_noise(10.0, 0.01)
    >>> round(gradient, 3), round(count, 3), joint_noise(gradient, count) >= 10.0
    (10.05, 100.0, True)
    """
    validate.open_unit(share=share)
    sigma = noise_multiplier * (1 + 2.0**-40)
    return sigma / (1 - share) ** 0.5, sigma / share**0.5
