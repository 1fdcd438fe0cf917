"""What a gradient question may ask for beyond a clipped mean: checked, plain data, fixed before the batch is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import _validate
from ..gradients import Linear, Model

LEAST_SCALE, MOST_SCALE = 1e-6, 1e6


@dataclass(frozen=True, slots=True)
class Options:
    """Coordinates in which gradients are clipped, and a norm below which they are counted; each may be None."""

    scale: Tensor | None
    basis: Tensor | None
    quantile_at: float | None
    count_noise_multiplier: float | None

    def before_the_clip(self, model: Model) -> dict[str, Tensor | None]:
        """The change of coordinates that records are clipped in; a perceptron's answer is projected afterwards."""
        return {"scale": self.scale, "basis": self.basis if isinstance(model, Linear) else None}

    def event_noise(self, noise_multiplier: float) -> float:
        """The noise multiplier of everything that is released from the one batch."""
        if self.count_noise_multiplier is None:
            return noise_multiplier
        return joint_noise(noise_multiplier, self.count_noise_multiplier)

    def back(self, noised: Tensor, model: Model) -> Tensor:
        """A released vector in the parameters' own coordinates: post-processing."""
        if self.scale is not None:
            return (noised * self.scale).float()
        if self.basis is not None:
            return (self.basis @ (noised if isinstance(model, Linear) else self.basis.T @ noised)).float()
        return noised.float()


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


def checked_options(
    model: Model,
    scale: Tensor | None,
    basis: Tensor | None,
    quantile_at: float | None,
    count_noise_multiplier: float | None,
) -> Options:
    """The options as plain tensors and floats; what does not fit the model is refused."""
    if scale is not None and basis is not None:
        raise ValueError("scale and basis are both given; pass one of them")
    if (quantile_at is None) != (count_noise_multiplier is None):
        raise ValueError("pass quantile_at and count_noise_multiplier together: the count is paid for by its own noise")
    if quantile_at is not None and count_noise_multiplier is not None:
        quantile_at, count_noise_multiplier = float(quantile_at), float(count_noise_multiplier)
        _validate.positive(quantile_at=quantile_at, count_noise_multiplier=count_noise_multiplier)
    if scale is not None:
        scale = _checked_scale(scale, model)
    if basis is not None:
        basis = _checked_basis(basis, model)
    return Options(scale, basis, quantile_at, count_noise_multiplier)


def _checked_scale(scale: Tensor, model: Model) -> Tensor:
    if not isinstance(model, Linear):
        raise ValueError(
            "scale needs a linear model: a perceptron's gradient norms factor by layer only while all coordinates of a "
            "layer count alike; pass scale=None"
        )
    plain = _plain(scale)
    if plain.shape != (model.dimension,):
        raise ValueError(f"scale has shape {tuple(plain.shape)}; pass a vector of {model.dimension}")
    if not bool(((plain >= LEAST_SCALE) & (plain <= MOST_SCALE)).all()):
        raise ValueError(f"scale has entries outside [{LEAST_SCALE}, {MOST_SCALE}]; pass scales within")
    return plain


def _checked_basis(basis: Tensor, model: Model) -> Tensor:
    plain = _plain(basis)
    if plain.ndim != 2 or plain.shape[0] != model.dimension or not 1 <= plain.shape[1] <= model.dimension:
        raise ValueError(f"basis has shape {tuple(plain.shape)}; pass orthonormal columns of {model.dimension} entries")
    if not bool(((plain.T @ plain - torch.eye(plain.shape[1], dtype=plain.dtype)).abs() < 1e-3).all()):
        raise ValueError("basis has columns that are not orthonormal; pass e.g. torch.linalg.qr(basis)[0]")
    return plain


def _plain(value: Tensor) -> Tensor:
    """A plain tensor in double precision: a subclass could see the records it meets."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{type(value).__name__} is not a tensor; pass a torch.Tensor")
    plain = value.detach().as_subclass(Tensor).double().clone()
    if type(plain) is not Tensor:
        raise TypeError("pass a plain torch.Tensor, not a subclass")
    return plain
