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
    from .accounts import Budget, BudgetExhausted
    from .accounts.account import BudgetWarning
    from .accounts.ledger import Ledger
    from .accounts.paying import spending
    from .asking import Curator, PublicCurator
    from .faces.plan import Plan, plan
    from .faces.pytorch import DPLSTM, BatchMemoryManager, ModuleValidator, PrivacyEngine, load_module
    from .faces.pytorch.fit import fit
    from .faces.sklearn import PrivateClassifier, PrivateRegressor, load, save
    from .faces.sklearn.checks import PrivacyWarning
    from .faces.sklearn.search import PrivateSearchCV
    from .statements.verify import verify
    from .tables.pictures import OrientedGradients
    from .tables.schema import Column, Schema, read_schema
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
    "trusted.accountants.calibrate": ("calibrate", "epsilon"),
    "trusted.accountants.choose": ("explain",),
    "accounts": ("Budget", "BudgetExhausted"),
    "accounts.paying": ("spending",),
    "accounts.account": ("BudgetWarning",),
    "asking": ("Curator", "PublicCurator"),
    "tables.pictures": ("OrientedGradients",),
    "tables.schema": ("Column", "Schema", "read_schema"),
    "faces.sklearn": ("PrivateClassifier", "PrivateRegressor", "load", "save"),
    "faces.sklearn.checks": ("PrivacyWarning",),
    "faces.sklearn.search": ("PrivateSearchCV",),
    "accounts.ledger": ("Ledger",),
    "faces.plan": ("Plan", "plan"),
    "faces.pytorch": ("BatchMemoryManager", "DPLSTM", "ModuleValidator", "PrivacyEngine", "load_module"),
    "faces.pytorch.fit": ("fit",),
    "statements.verify": ("verify",),
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
