"""Faces for PyTorch: train any module privately, by handing a data set over or in a loop of one's own.

The loop of one's own has the names that Opacus has: ``PrivacyEngine`` and what goes with it. Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...trusted import torch_extra as _torch_extra  # noqa: F401  first: it says what to install where torch is missing

if TYPE_CHECKING:
    from .fitted import FittedModule, load_module
    from .loader import BatchMemoryManager, DPDataLoader, wrap_data_loader
    from .optimizer import DPOptimizer
    from .privacy_engine import PrivacyEngine
    from .schedulers import ExponentialGradClip, ExponentialNoise, LambdaGradClip, LambdaNoise, StepGradClip, StepNoise
    from .validator import DPGRU, DPLSTM, DPRNN, ModuleValidator, UnsupportedModuleError

__all__ = [
    "DPGRU",
    "DPLSTM",
    "DPRNN",
    "BatchMemoryManager",
    "DPDataLoader",
    "DPOptimizer",
    "ExponentialGradClip",
    "ExponentialNoise",
    "FittedModule",
    "LambdaGradClip",
    "LambdaNoise",
    "ModuleValidator",
    "PrivacyEngine",
    "StepGradClip",
    "StepNoise",
    "UnsupportedModuleError",
    "load_module",
    "wrap_data_loader",
]
_HOMES = {
    "fitted": ("FittedModule", "load_module"),
    "loader": ("BatchMemoryManager", "DPDataLoader", "wrap_data_loader"),
    "optimizer": ("DPOptimizer",),
    "privacy_engine": ("PrivacyEngine",),
    "schedulers": (
        "ExponentialGradClip",
        "ExponentialNoise",
        "LambdaGradClip",
        "LambdaNoise",
        "StepGradClip",
        "StepNoise",
    ),
    "validator": ("DPGRU", "DPLSTM", "DPRNN", "ModuleValidator", "UnsupportedModuleError"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module 'noisewise.faces.pytorch' has no attribute {name!r}")
