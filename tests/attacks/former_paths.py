"""Modules under the names that they have today, on commits where they stood elsewhere: ``make attacks-old`` loads this there.

A path of today that a commit does not have is the module that it has under the former path.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

TOP, PACKAGE = "noisewise", "noisewise."
FORMER = {  # today's path: where it stood before, the last place first; submodules included
    "accounts.journal.journalled": "journal.asking",
    "accounts.journal": "journal",
    "accounts.ledger.sql_tables": "ledger.tables",
    "accounts.ledger": "ledger",
    "evidence.audit.finished_run": "audit.of_run",
    "evidence.bought_quality": "bought_quality",
    "faces.cli.processes": "cli.ranks",
    "faces.cli": "cli",
    "faces.pytorch.loop_meter": "pytorch.ledger",
    "remote.clients.agreement": "federated.agreed",
    "remote.clients.server": "federated.crowd",
    "remote.clients": "federated",
    "remote.federation": "federation",
    "remote.processes": "records.ranks",
    "remote.transport": "records.line",
    "remote": "records",
    "statements.reading_list": "reading",
    "statements.seal": "runs.seal",
    "statements.statement": "statement",
    "statements.verify": "runs.agreement",
    "statements.wording": "statement_words",
    "tables.fit.across_processes": "fitting.of_ranks",
    "tables.fit": "fitting",
    "trusted.accountants": "accounting",
    "trusted.arithmetic": "arithmetic",
    "trusted.choose_best": "curator.panel",
    "trusted.column_curator": "curator.columns",
    "trusted.counts": "budget.counts",
    "trusted.curator": "curator.curator",
    "trusted.engine": "engine",
    "trusted.events": "events",
    "trusted.facts": "curator.facts",
    "trusted.features.table_columns": "prepare.columns",
    "trusted.features": "prepare",
    "trusted.gate": "curator.desk",
    "trusted.losses": "losses",
    "trusted.meter": "budget.meters",
    "trusted.models": "models",
    "trusted.noise": "noise",
    "trusted.opening": "budget.opening",
    "trusted.own_settings": "records.own_settings",
    "trusted.process": "process",
    "trusted.question": "curator.question",
    "trusted.questions": "curator.questions",
    "trusted.stores.threads": "records.crew",
    "trusted.stores": "records",
    "trusted.trace": "trace",
    "trusted.units": "units",
    "trusted.walks.objective": "curator.objective",
    "trusted.walks.oneshot": "curator.oneshot",
}

MERGED = {"remote.clients.server": ("federated.direct", "federated.fit")}  # what else stands there today


FOLDERS = {
    path.rpartition(".")[0] for path in FORMER if "." in path
}  # of today, as packages: their modules are found one by one


def former(name: str) -> str | None:
    """Where a module stood that is not there now; None where nothing is known of it."""
    parts = name.removeprefix(PACKAGE).split(".") if name.startswith(PACKAGE) else []
    for length in range(len(parts), 0, -1):
        if found := FORMER.get(".".join(parts[:length])):
            return PACKAGE + ".".join([found, *parts[length:]])
    return TOP if ".".join(parts) in FOLDERS else None


class FormerPaths:
    """Finds a module of today's name under its former one."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        before = former(name)
        if before is None or find_spec(before) is None or (before == TOP and PathFinder.find_spec(name, path)):
            return None
        return ModuleSpec(name, FormerPaths, is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        before = str(former(spec.name))
        if before == TOP:
            return ModuleType(spec.name)
        module = import_module(before)
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        spec = module.__spec__
        if spec is None or spec.loader_state is None:
            return
        module.__spec__ = spec.loader_state  # the module's own again: it was made once, under its former name
        for other in MERGED.get(spec.name.removeprefix(PACKAGE), ()):
            vars(module).update(
                {key: value for key, value in vars(import_module(PACKAGE + other)).items() if key[0] != "_"}
            )


def pytest_configure() -> None:
    """Called where pytest is started with ``-p former_paths``, before any test is imported."""
    with suppress(ModuleNotFoundError):  # a module once, and a folder today
        import_module("noisewise.accounts").__path__ = []  # type: ignore[attr-defined]
    sys.meta_path.insert(0, FormerPaths)  # before Python looks into the folder of a package that has two names
