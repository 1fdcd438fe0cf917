"""Public import paths whose modules stand elsewhere: ``noisewise.events`` is the module ``noisewise.trusted.events`` itself."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = "noisewise."
PUBLIC = {
    "accounting": "trusted.accountants",
    "audit": "evidence.audit",
    "budget": "accounts",
    "compare": "faces.compare",
    "curator": "asking",
    "data": "tables",
    "estimators": "faces.sklearn",
    "events": "trusted.events",
    "export": "evidence.export",
    "facts": "trusted.facts",
    "ledger": "accounts.ledger",
    "losses": "trusted.losses",
    "messages": "remote.messages",
    "metrics": "evidence.metrics",
    "models": "trusted.models",
    "planning": "faces.plan",
    "pytorch": "faces.pytorch",
    "report": "evidence.report",
    "runs": "evidence.runs",
    "standard_errors": "statements.standard_errors",
    "statement": "statements.statement",
    "theory": "evidence.theory",
}  # submodules included


def home(name: str) -> str | None:
    """Where a public module stands; None for every other name.

    >>> home("noisewise.losses.hinge")
    'noisewise.trusted.losses.hinge'
    """
    parts = name.removeprefix(PACKAGE).split(".") if name.startswith(PACKAGE) else []
    for length in range(len(parts), 0, -1):
        if found := PUBLIC.get(".".join(parts[:length])):
            return PACKAGE + ".".join([found, *parts[length:]])
    return None


class PublicPaths:
    """Finds the modules of ``PUBLIC``; every other name is left to Python."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, PublicPaths) if home(name) else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        module = import_module(str(home(spec.name)))
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state  # the module's own again: it was made once, under its own name


sys.meta_path.insert(0, PublicPaths)
