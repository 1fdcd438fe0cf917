"""noisewise: train models on private records under a fixed (epsilon, delta) budget.

Names are imported when first used, so that pricing a budget needs neither torch nor scikit-learn.

>>> import noisewise as nw
>>> budget = nw.Budget(epsilon=0.5, delta=1e-8)
>>> round(nw.calibrate(budget, steps=100), 2)
98.64
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _public as _public
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .accounts import spending
    from .budget import Budget, BudgetExhausted
    from .budget.account import BudgetWarning
    from .curator import Curator, PublicCurator
    from .data.pictures import OrientedGradients
    from .data.schema import Column, Schema, read_schema
    from .estimators import PrivateClassifier, PrivateRegressor, load, save
    from .estimators.pipelines import PrivacyWarning
    from .estimators.search import PrivateSearchCV
    from .ledger import Ledger
    from .planning import Plan, plan
    from .pytorch import DPLSTM, BatchMemoryManager, ModuleValidator, PrivacyEngine, load_module
    from .pytorch.fit import fit
    from .runs.agreement import verify
    from .trusted.accountants.calibrate import calibrate, epsilon
    from .trusted.accountants.choose import explain

__all__ = [
    "DPLSTM",
    "BatchMemoryManager",
    "Budget",
    "BudgetExhausted",
    "BudgetWarning",
    "Column",
    "Curator",
    "Ledger",
    "ModuleValidator",
    "OrientedGradients",
    "Plan",
    "PrivacyEngine",
    "PrivacyWarning",
    "PrivateClassifier",
    "PrivateRegressor",
    "PrivateSearchCV",
    "PublicCurator",
    "Schema",
    "calibrate",
    "epsilon",
    "explain",
    "fit",
    "load",
    "load_module",
    "plan",
    "read_schema",
    "save",
    "spending",
    "verify",
]
_HOMES = {
    "accounting.calibrate": ("calibrate", "epsilon"),
    "accounting.choose": ("explain",),
    "budget": ("Budget", "BudgetExhausted"),
    "accounts": ("spending",),
    "budget.account": ("BudgetWarning",),
    "curator": ("Curator", "PublicCurator"),
    "data.pictures": ("OrientedGradients",),
    "data.schema": ("Column", "Schema", "read_schema"),
    "estimators": ("PrivateClassifier", "PrivateRegressor", "load", "save"),
    "estimators.pipelines": ("PrivacyWarning",),
    "estimators.search": ("PrivateSearchCV",),
    "ledger": ("Ledger",),
    "planning": ("Plan", "plan"),
    "pytorch": ("BatchMemoryManager", "DPLSTM", "ModuleValidator", "PrivacyEngine", "load_module"),
    "pytorch.fit": ("fit",),
    "runs.agreement": ("verify",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    if name in _public.PUBLIC:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'noisewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
