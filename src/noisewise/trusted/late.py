"""torch when it is first used: what is decided before training (``Fit.check``, prices, terms) never waits for it.

``from .late import Tensor, torch`` stands where ``import torch`` and ``from torch import Tensor`` would. Their first use
imports torch and puts the real ones in place of these everywhere in the package: whatever touches rows holds what it would
have imported, and a training step is no slower.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any


def _arrived() -> Any:
    real = importlib.import_module("torch")
    for name, module in [*sys.modules.items()]:
        held = getattr(module, "__dict__", {}) if name.startswith("noisewise") else {}
        if isinstance(held.get("torch"), _Late):
            held["torch"] = real
        if isinstance(held.get("Tensor"), _LateKind):
            held["Tensor"] = real.Tensor
    return real


class _Late:
    def __getattr__(self, name: str) -> Any:
        return getattr(_arrived(), name)


class _LateKind(type):
    def __getattr__(cls, name: str) -> Any:
        return getattr(_arrived().Tensor, name)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _arrived().Tensor)


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
elif "torch" in sys.modules:
    import torch
    from torch import Tensor
else:
    torch, Tensor = _Late(), _LateKind("Tensor", (), {})
