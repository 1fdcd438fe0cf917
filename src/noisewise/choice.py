"""The old home of ``choose_terms``, ``choose_meter`` and ``explain``, kept for one version."""

from __future__ import annotations

import warnings
from typing import Any

from .accounting import choose
from .budget import choosing


def __getattr__(name: str) -> Any:
    for home in (choose, choosing):
        if name in ("choose_terms", "choose_meter", "explain") and hasattr(home, name):
            warnings.warn(f"noisewise.choice is deprecated; import {name} from {home.__name__}", DeprecationWarning, 2)
            return getattr(home, name)
    raise AttributeError(f"module 'noisewise.choice' has no attribute {name!r}")
