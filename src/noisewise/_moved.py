"""Modules of earlier versions that moved: for one more version their old names are found, and say where to import from."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "accounting.advanced": "accounting.classic",
    "audit.bounds": "audit.error_bounds",
    "audit.finished": "estimators.finished",
    "audit.pictures": "audit.plots",
    "audit.score_plot": "audit.plots",
    "choice": "accounting.choose budget.choosing",
    "curator.statistics": "curator.questions.moments curator.questions.at_theta",
    "data.basis": "prepare.basis",
    "data.bounds": "prepare.bounds data.bought",
    "gradients": "models",
    "gradients.batches": "models.batches records.grid",
    "gradients.layers": "models.perceptron",
    "gradients.linear": "models.linear",
    "learned.cells": "protect.learned.cells",
    "learned.fast": "protect.learned.fast",
    "learned.protector": "protect.learned.parts",
    "learned.zoo": "protect.learned.zoo",
    "plan": "accounting.plan",
    "protect.basis": "prepare.basis",
    "replay": "tape standard_errors fitting.spread",
    "report.plots": "cli.plots planning.plots",
    "report.statement": "statement shapes runs.agreement",
    "theory.descent": "theory.risk",
}
PACKAGE, BENCH, LAB = "noisewise.", "noisewise.bench", "noisewise_lab"


def homes(module: str) -> list[str]:
    """Where the names of an old module are now; empty for a module that did not move."""
    package, _, name = module.rpartition(".")
    if package == BENCH or module == BENCH:
        return [f"{LAB}.{name}" if package == BENCH else LAB]
    return [PACKAGE + home for home in MOVED.get(module.removeprefix(PACKAGE), "").split()]


def moved(module: str, *places: str) -> Any:
    """A module's ``__getattr__`` for classes and functions that are defined in other places now."""

    def lookup(name: str) -> Any:
        for home in places if not name.startswith("_") else ():
            value = getattr(import_module(home), name, None)
            if str(getattr(value, "__module__", "")).startswith(home):
                warnings.warn(f"{module} is deprecated; import {name} from {home}", DeprecationWarning, stacklevel=2)
                return value
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return lookup


class OldModule(ModuleType):
    """Once imported, an old module hides a public function of its name, as ``noisewise.plan``: it can be called as that."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        package, _, name = self.__name__.rpartition(".")
        return import_module(package).__getattr__(name)(*args, **options)


class OldNames:
    """Finds and makes the modules of ``MOVED``; every other name is left to Python."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = name.startswith(PACKAGE) and homes(name)
        return ModuleSpec(name, OldNames, is_package=True) if known else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return OldModule(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        vars(module)["__getattr__"] = moved(module.__name__, *homes(module.__name__))


sys.meta_path.insert(0, OldNames)  # first: a folder that an old version left behind would count as a package
