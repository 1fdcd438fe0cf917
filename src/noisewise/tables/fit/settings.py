"""What was asked for, as the plain data that a run folder keeps and an estimator is made of again."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...accounts.concerns import EPSILON
from ...methods import Method
from .why_auto import AUTO

UNSAID = ("bounds", "schema", "bounds_epsilon")  # settings that preprocessing and the statement have


def plain_settings(asked: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """An estimator's arguments; the method and loss by name, the columns under preprocessing.

    ``method``: the one that runs, which "auto" may stand for.
    """
    settings = {name: value for name, value in asked.items() if name not in UNSAID}
    settings["method"] = method.name
    if isinstance(asked["method"], str) and asked["method"] == AUTO:
        settings["chosen_by"] = AUTO
    if asked["epsilon"] is None:
        settings |= {"epsilon": EPSILON, "epsilon_by": "default"}
    if not getattr(method, "elsewhere", False):
        settings.pop("isolation", None)
    for name in ("unit", "rows_per_unit"):
        if settings.get(name) is None:
            settings.pop(name, None)
    if not isinstance(settings["loss"], str):
        settings["loss"] = settings["loss"].name
    if isinstance(settings.get("class_weight"), Mapping):  # JSON has no keys but texts
        settings["class_weight"] = [list(pair) for pair in settings["class_weight"].items()]
    if settings.get("classes") is not None:
        settings["classes"] = np.asarray(settings["classes"]).tolist()
    if not isinstance(settings["random_state"], numbers.Integral | None):  # a generator, whose state is not kept
        settings["random_state"] = str(settings["random_state"])
    return settings


def plain_values(value: Any) -> Any:
    """Settings as JSON has them."""
    if isinstance(value, Mapping):
        return {str(name): plain_values(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value
