"""The audit of a finished run: its method with its settings at its promise, on worst-case records instead of its own.

Only the statement is read, which is public, and nothing is spent: every training of an audit is a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...guest import method_named
from ...methods import Method
from ...trusted.events import Adjacency
from ...trusted.units import RECORD, Unit


@dataclass(frozen=True)
class Claim:
    """The method and the promise of a training, as a statement has them."""

    method: Method
    epsilon: float
    delta: float
    adjacency: Adjacency
    loss: str | None
    size_is_public: bool
    unit: Unit = RECORD


def claim_of(statement: Mapping[str, Any], isolation: str = "sandbox") -> Claim:
    """The claim about training; what was bought before it is priced apart and is not part of it.

    ``isolation``: where a method of another package runs, which the statement of an untrusted folder does not decide.
    """
    if statement["promise"] is None:
        raise ValueError("the run promises nothing, so there is nothing to audit; pass a private run")
    name, stated = statement["method"]["name"], statement["method"]["settings"]
    try:
        method = method_named(name, isolation)
    except ValueError as error:
        raise ValueError(f"the run's method is {name!r}, which cannot be had here: {error}") from None
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in stated.items()}
    promise, before = statement["promise"], statement.get("preparation") or {"epsilon": 0.0, "delta": 0.0}
    loss = statement["model"]["loss"].split()[0]
    return Claim(
        method=method.with_settings(**{key: value for key, value in settings.items() if key in method.settings()}),
        epsilon=promise["epsilon"] - before["epsilon"],
        delta=promise["delta"] - before["delta"],
        adjacency=promise["adjacency"],
        loss=loss if loss in method.losses else None,
        size_is_public=statement["size"] == "public",
        unit=Unit.of_words(promise["unit"]),
    )
