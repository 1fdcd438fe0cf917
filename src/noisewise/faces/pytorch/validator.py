"""Which modules can be trained privately, by their layers; the rehearsal of ``make_private`` decides about the rest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from ...trusted.engine import Refused

MAX_GROUPS = 32  # of channels, that stand in for a batch


class UnsupportedModuleError(Refused):
    """A layer, or the state of a module, that cannot be trained privately."""


class ModuleValidator:
    """Finds layers that mix records or keep statistics of them, and puts others in their place."""

    @classmethod
    def is_valid(cls, module: nn.Module) -> bool:
        """Whether :meth:`validate` finds nothing."""
        return not cls.validate(module, strict=False)

    @classmethod
    def validate(cls, module: nn.Module, *, strict: bool = False) -> list[UnsupportedModuleError]:
        """What is wrong with the module; with ``strict`` it is raised."""
        errors = [UnsupportedModuleError(text) for text in _wrong(module)]
        if strict and errors:
            raise UnsupportedModuleError("\n".join(map(str, errors)))
        return errors

    @classmethod
    def fix(cls, module: nn.Module, **kwargs: Any) -> nn.Module:
        """A copy in which layers that cannot be trained privately are replaced by ones like them."""
        fixed = _fixed(copy.deepcopy(module))
        for name, child in [*fixed.named_modules()]:
            if name and (better := _fixed(child)) is not child:
                parent, _, own = name.rpartition(".")
                setattr(fixed.get_submodule(parent), own, better)
        return fixed

    @classmethod
    def fix_and_validate(cls, module: nn.Module, **kwargs: Any) -> nn.Module:
        """:meth:`fix`, then :meth:`validate` strictly."""
        fixed = cls.fix(module, **kwargs)
        cls.validate(fixed, strict=True)
        return fixed


def _wrong(module: nn.Module) -> list[str]:
    texts = [] if module.training else ["the module is in eval mode; call module.train() first"]
    if not any(parameter.requires_grad for parameter in module.parameters()):
        texts.append("no parameter of the module trains; set requires_grad of some")
    for name, layer in module.named_modules():
        where = f"{name or 'the module'} ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm):
            texts.append(f"{where} mixes the records of a batch; use GroupNorm, as ModuleValidator.fix(module) does")
        elif isinstance(layer, _InstanceNorm) and layer.track_running_stats:
            texts.append(
                f"{where} keeps means of private records; pass track_running_stats=False, as ModuleValidator.fix(module) does"
            )
    return texts


def _fixed(layer: nn.Module) -> nn.Module:
    """The layer itself, or one in its place."""
    for kinds, make in _FIXERS:
        if isinstance(layer, kinds):
            return make(layer)
    return layer


def _group_norm(layer: Any) -> nn.Module:
    weight = next(layer.parameters(), None)
    groups = math.gcd(MAX_GROUPS, layer.num_features)
    norm = nn.GroupNorm(groups, layer.num_features, eps=layer.eps, affine=layer.affine)
    return (norm if weight is None else norm.to(weight.device, weight.dtype)).train(layer.training)


def _no_statistics(layer: Any) -> nn.Module:
    layer.track_running_stats = False
    layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    return layer


_FIXERS: tuple[tuple[type[Any], Callable[[Any], nn.Module]], ...] = (
    (_BatchNorm, _group_norm),
    (_InstanceNorm, _no_statistics),
)


# Recurrent layers under the names that private training knows them by. torch's own do as well: the engine takes both.


class DPLSTM(nn.LSTM):
    """torch's ``nn.LSTM``, with its arguments and the names in its ``state_dict``."""


class DPGRU(nn.GRU):
    """torch's ``nn.GRU``, with its arguments and the names in its ``state_dict``."""


class DPRNN(nn.RNN):
    """torch's ``nn.RNN``, with its arguments and the names in its ``state_dict``."""
