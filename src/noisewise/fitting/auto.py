"""What ``method="auto"`` stands for: one rule for all tables, from declared facts alone."""

from __future__ import annotations

from typing import Any

from ..methods import RECOMMENDED, Method, method_named

AUTO = "auto"
TABLES = "additive"
MOST_COLUMNS = 128  # of a table; more are taken for pixels or the like, whose values mean nothing one by one


def method_for(method: str | Method, model: Any, columns: int | None) -> Method:
    """The method asked for; "auto" takes effects of columns and pairs where the model is left open, else descent."""
    if not (isinstance(method, str) and method == AUTO):
        return method_named(method)
    open_model = isinstance(model, str) and model == AUTO
    return method_named(TABLES if open_model and columns is not None and columns <= MOST_COLUMNS else RECOMMENDED)


def why(method: Method, columns: int, asked: Any) -> str:
    """Why "auto" took this method, in a sentence for a report."""
    if asked != AUTO:
        return f"the model was asked for as {asked!r}, so {method.name} trains it"
    if method.name == TABLES:
        return (
            f"a table of {columns} columns: effects of columns and, where the budget bears it, of pairs of them, on scales "
            "that are bought, with as many hats as records, budget and columns allow"
        )
    return f"{columns} columns are more than {MOST_COLUMNS}, so a linear model is trained by {method.name}"
