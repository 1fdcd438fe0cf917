"""``noisewise methods``: every training method of the library, one line each."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from .main import print_json, table_of


def method_rows() -> list[dict[str, Any]]:
    """One row for each registered method."""
    from ..methods import registry

    return [
        {
            "name": name,
            "summary": kind.summary,
            "needs_public": kind.needs_public,
            "adaptive": kind.adaptive,
            "private": kind.private,
            "losses": list(kind.losses),
            "paper": kind.paper,
        }
        for name, kind in registry().items()
    ]


def run_methods(*, json_output: bool) -> None:
    """All rows as JSON, or a table for people."""
    rows = method_rows()
    if json_output:
        print_json({"rows": rows})
        return
    every = {loss for row in rows for loss in row["losses"]}
    shown = [
        {
            "name": row["name"],
            "what it does": row["summary"],
            "public rows": "needed" if row["needs_public"] else "-",
            "noise": "none" if not row["private"] else "adaptive" if row["adaptive"] else "plan",
            "losses": "all" if set(row["losses"]) == every else ", ".join(row["losses"]),
            "paper": row["paper"] or "-",
        }
        for row in rows
    ]
    Console().print(table_of(shown, "Training methods"))
