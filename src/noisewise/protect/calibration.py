"""Calibrated probabilities of a model with layers: scale and shift of its scores, from a few released gradients.

A clip norm that serves training well cuts most records of a perceptron, and the more the more wrong they are: the loss
becomes one that asks for the right side and not for the right probability, and scores grow without end. With theta as
it is, and scores a z + b, a few gradients at a large clip norm tell whether a and b are too large:

    df/d(log a) = <G, theta> over the last layer,   df/db = G over its bias,   G the gradient at the changed theta

Noise counts in these few directions only, so little budget is enough. Each answer moves log a and b by a Newton step with
the curvature of a typical model, kept short, and the mean of the last steps is what is released.

*Guarantee*: ordinary gradients, paid for by the curator; the rest is post-processing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .optimizers import Array

SHARE, STEPS, SETTLED = 0.02, 8, 4  # of the budget; gradients; of which the last thetas are averaged
CLIP_FACTOR = 8.0  # times the typical clip norm of training
MIN_CLARITY = 2000.0  # n mu below which noise would move log a by more than about a quarter
CURVATURES, MAX_CHANGES = (0.3, 0.12), (0.7, 0.5)  # of the loss in log a and in b; the longest steps


class Calibration(NamedTuple):
    """Logarithm of the factor on scores, what is added to them (outputs,), and the sums over the settled steps."""

    log_scale: float
    shift: Array
    step: int = 0
    log_scale_sum: float = 0.0
    shift_sum: Array = 0.0

    def settled(self) -> tuple[float, Array]:
        """The mean over the last steps, or where it stands."""
        count = self.step - (STEPS - SETTLED)
        return (self.log_scale_sum / count, self.shift_sum / count) if count > 0 else (self.log_scale, self.shift)


def start(outputs: int) -> Calibration:
    return Calibration(0.0, np.zeros(outputs, np.float32))


def changed(theta: Array, last: int, log_scale: float, shift: Array) -> Array:
    """The theta whose scores are e^log_scale z + shift; ``last`` is the size of the last layer, bias at its end."""
    new = theta.copy()
    new[-last:] *= math.exp(log_scale)
    new[-len(shift) :] += shift
    return new


def moved(now: Calibration, theta: Array, last: int, gradient: Array) -> Calibration:
    """One step on, with the gradient that was released at the changed ``theta``."""
    layer = changed(theta, last, now.log_scale, 0 * now.shift)[-last:]  # what log a moves, without the shift
    slope, bias = float(gradient[-last:] @ layer), gradient[-len(now.shift) :]
    log_scale = now.log_scale - min(max(slope / CURVATURES[0], -MAX_CHANGES[0]), MAX_CHANGES[0])
    shift = now.shift - (bias / CURVATURES[1]).clip(-MAX_CHANGES[1], MAX_CHANGES[1])
    step = now.step + 1
    if step <= STEPS - SETTLED:
        return Calibration(log_scale, shift, step)
    return Calibration(log_scale, shift, step, now.log_scale_sum + log_scale, now.shift_sum + shift)
