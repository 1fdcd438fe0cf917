"""The user's optimizer, which gets noisy gradients: each step asks the private run for one, and never sees another."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...trusted.torch_extra import Tensor, torch
from .run import ClipNorm, EngineRun

OWN = "noisewise"  # the field of a state_dict that holds noise and clip
_TRAINED: dict[int, tuple[Any, Any]] = {}  # by id, a parameter and the private run that trains it, as long as both live


def _trained_by(parameter: Any) -> EngineRun | None:
    own, run = _TRAINED.get(id(parameter), (None, None))
    return run() if own is not None and own() is parameter else None


def _claim(parameters: Sequence[Tensor], run: EngineRun) -> None:
    for parameter in parameters:
        gone = partial(_TRAINED.pop, id(parameter), None)
        _TRAINED[id(parameter)] = weakref.ref(parameter, lambda _, gone=gone: gone()), weakref.ref(run)  # type: ignore[misc]


def refuse_other_steps(optimizer: Optimizer, *_: object) -> None:
    """A hook on every step of every optimizer: parameters of a private run move by its noisy gradients alone."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            run = _trained_by(parameter)
            if run is not None and run.stepping is not optimizer:
                raise RuntimeError(
                    "this optimizer would move parameters of a private run without its noise; step with the optimizer that "
                    "make_private returned, or train a copy of the module (copy.deepcopy)"
                )


register_optimizer_step_pre_hook(refuse_other_steps)


class DPOptimizer(Optimizer):
    """Stands in for the optimizer that it is given, with whose groups, state and defaults learning-rate schedulers work.

    ``step()`` adds the noise of a batch, once, divides by the expected batch size if losses are means, writes the result into
    ``.grad`` of every parameter that trains and calls the optimizer's own ``step``. When further pieces of the batch are to
    come (``BatchMemoryManager``) it only notes the piece.
    """

    def __init__(
        self, optimizer: Optimizer, run: EngineRun
    ) -> None:  # no super().__init__: everything is the given one's
        self.original_optimizer, self.run = optimizer, run
        _claim(run.parameters, run)
        self.step_hook: Callable[[DPOptimizer], None] | None = None

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a private optimizer is not copied or pickled: the copy would draw noise that nobody pays for; save its state_dict"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name in ("original_optimizer", "run"):
            raise AttributeError(name)
        return getattr(self.original_optimizer, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.original_optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.original_optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.original_optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.original_optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        return self.original_optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.original_optimizer.defaults = defaults

    @property
    def params(self) -> list[Tensor]:
        """The parameters that train."""
        return list(self.run.parameters)

    @property
    def noise_multiplier(self) -> float:
        """Noise over clip of the next batch. Changing it needs a cap that was fixed beforehand (see the page)."""
        return self.run.noise

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self.run.noise = value

    @property
    def max_grad_norm(self) -> ClipNorm:
        """The clip of the next batch: one number, or one for each parameter."""
        return self.run.clip

    @max_grad_norm.setter
    def max_grad_norm(self, value: ClipNorm) -> None:
        self.run.clip = value

    @property
    def expected_batch_size(self) -> float:
        """What sums are divided by; public, never the size of a batch."""
        return self.run.expected

    @property
    def loss_reduction(self) -> str:
        return "mean" if self.run.mean else "sum"

    def attach_step_hook(self, fn: Callable[[DPOptimizer], None]) -> None:
        """Call this before each step of the optimizer that was given, when gradients are noisy."""
        self.step_hook = fn

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise RuntimeError("what trains was fixed by make_private; add parameters to the optimizer before")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients, and the pass over the piece of a batch that is at hand; gradients are set to None always."""
        self.run.forget()
        self.original_optimizer.zero_grad(set_to_none=True)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the step of a batch with a noisy gradient; one batch, one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradient = self.run.step()
        if gradient is None:
            self.original_optimizer.zero_grad()
            return loss
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # whatever a loop put there is not private
        for parameter, part in zip(self.run.parameters, gradient, strict=True):
            parameter.grad = part
        if self.step_hook is not None:
            self.step_hook(self)
        self.run.stepping = self.original_optimizer
        try:
            self.original_optimizer.step()
        finally:
            self.run.stepping = None
        return loss

    def state_dict(self) -> dict[str, Any]:
        """That of the given optimizer, with noise and clip; the stream of noise is never saved."""
        own = {"noise_multiplier": self.run.noise, "max_grad_norm": self.run.clip}
        return {**self.original_optimizer.state_dict(), OWN: own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What :meth:`state_dict` gave; or what the given optimizer's gave, which has no noise and no clip."""
        rest = {name: part for name, part in state_dict.items() if name != OWN}
        if (own := state_dict.get(OWN)) is not None:
            self.run.noise, self.run.clip = own["noise_multiplier"], own["max_grad_norm"]
        self.original_optimizer.load_state_dict(rest)

    def __repr__(self) -> str:
        return f"DPOptimizer({self.original_optimizer!r}, noise_multiplier={self.run.noise:g})"


def check_optimizer(module: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer that trains other parameters than the module has."""
    if isinstance(optimizer, DPOptimizer):
        raise ValueError("optimizer is private already; pass the one that it was made from")
    given = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    own = {id(parameter): parameter.requires_grad for parameter in module.parameters()}
    trained = {one for one, trains in own.items() if trains}
    if not (trained <= given <= {*own}):
        raise ValueError(
            "the parameters of optimizer and module differ; make the optimizer of module.parameters(), after freezing and "
            "fixing the module"
        )
