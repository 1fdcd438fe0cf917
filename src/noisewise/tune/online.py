"""Tuning during the one run: the ``online`` method in place of a candidate's own, at no price beyond the run's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..methods.online import OnlineDescent
from ..tables.fit.fit import Fit
from ..trusted.events import FULL

KEPT = ("learning_rate", "max_grad_norm", "l2")
WORDS = (
    "Hyper-parameters were found during the one private run, from what it had released and paid for: the clip norm "
    "follows a released quantile of gradient norms, and the step size grows while released gradients agree and shrinks "
    "where they contradict each other, both beyond their known noise. Nothing was spent beyond the budget of the run."
)


def online(fit: Fit) -> tuple[Fit, str]:
    """The same fit, with the same model, loss and budget, by the online method, and in words what that does.

    Step size, clip norm and l2 of the method that was there are where it starts; the number of steps is kept if that
    method asked the full batch at each.
    """
    method = fit.method
    if fit.scaling.cells:
        raise ValueError(
            f"{method.name} makes features of a table's columns, which online does not; pass method='descent' or another "
            "for a linear model or a perceptron"
        )
    if not method.private:
        raise ValueError(f"{method.name} makes no promise, so there is nothing to spend online; pass a private method")
    settings = method.settings()
    start: dict[str, Any] = {name: settings[name] for name in KEPT if settings.get(name) is not None}
    if settings.get("steps") is not None and tuple(settings.get("sampling", FULL)) == FULL:
        start["steps"] = settings["steps"]
    found = method if isinstance(method, OnlineDescent) else OnlineDescent(**start)
    asked = {name: value for name, value in fit.settings.items() if name != "chosen_by"} | {"method": found.name}
    return replace(fit, method=found, settings=asked), WORDS
