"""Schedules of noise and clip: pure functions of an epoch's number, so that a resumed run continues where it was.

A schedule of noise makes the run adaptive: when it advances is the loop's business, so a filter counts, up to a cap that was
fixed beforehand. Make it before the first batch is drawn. A schedule of the clip changes no price: noise follows the clip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...trusted import validate
from .optimizer import DPOptimizer
from .run import ClipNorm


class _Schedule:
    """Sets what it schedules to its first value times a factor of the epoch."""

    def __init__(self, optimizer: DPOptimizer, *, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, DPOptimizer):
            raise TypeError("optimizer is not private; pass the one that make_private returned")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        self.base: ClipNorm = self._get()
        self.step()

    def factor(self, epoch: int) -> float:
        raise NotImplementedError

    def _get(self) -> ClipNorm:
        raise NotImplementedError

    def _set(self, value: ClipNorm) -> None:
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to this one."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._apply()

    def _apply(self) -> None:
        factor = float(self.factor(self.last_epoch))
        base = self.base
        self._set(tuple(one * factor for one in base) if isinstance(base, tuple) else base * factor)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions, which are code."""
        return {name: value for name, value in vars(self).items() if name != "optimizer" and not callable(value)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue as saved: what is scheduled has its value of that epoch at once."""
        vars(self).update(state_dict)
        self._apply()


class _Noise(_Schedule):
    def __init__(self, optimizer: DPOptimizer, *, last_epoch: int = -1) -> None:
        if isinstance(optimizer, DPOptimizer):
            optimizer.run.ledger.may_change(optimizer.noise_multiplier)
        super().__init__(optimizer, last_epoch=last_epoch)

    def _get(self) -> ClipNorm:
        return self.optimizer.noise_multiplier

    def _set(self, value: ClipNorm) -> None:
        assert not isinstance(value, tuple)
        self.optimizer.noise_multiplier = value


class _GradClip(_Schedule):
    def _get(self) -> ClipNorm:
        return self.optimizer.max_grad_norm

    def _set(self, value: ClipNorm) -> None:
        self.optimizer.max_grad_norm = value


class _Exponential(_Schedule):
    def __init__(self, optimizer: DPOptimizer, *, gamma: float, last_epoch: int = -1) -> None:
        validate.positive(gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return float(self.gamma**epoch)


class _Step(_Schedule):
    def __init__(self, optimizer: DPOptimizer, *, step_size: int, gamma: float, last_epoch: int = -1) -> None:
        validate.positive(gamma=gamma)
        validate.whole(step_size=step_size)
        self.gamma, self.step_size = gamma, step_size
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return float(self.gamma ** (epoch // self.step_size))


class ExponentialNoise(_Exponential, _Noise):
    """noise_multiplier = its first value * gamma^epoch."""


class StepNoise(_Step, _Noise):
    """noise_multiplier = its first value * gamma^(epoch // step_size)."""


class LambdaNoise(_Noise):
    """noise_multiplier = its first value * noise_lambda(epoch)."""

    def __init__(self, optimizer: DPOptimizer, *, noise_lambda: Callable[[int], float], last_epoch: int = -1) -> None:
        self.noise_lambda = noise_lambda
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return self.noise_lambda(epoch)


class ExponentialGradClip(_Exponential, _GradClip):
    """max_grad_norm = its first value * gamma^epoch."""


class StepGradClip(_Step, _GradClip):
    """max_grad_norm = its first value * gamma^(epoch // step_size)."""


class LambdaGradClip(_GradClip):
    """max_grad_norm = its first value * scheduler_function(epoch)."""

    def __init__(
        self, optimizer: DPOptimizer, *, scheduler_function: Callable[[int], float], last_epoch: int = -1
    ) -> None:
        self.scheduler_function = scheduler_function
        super().__init__(optimizer, last_epoch=last_epoch)

    def factor(self, epoch: int) -> float:
        return self.scheduler_function(epoch)
