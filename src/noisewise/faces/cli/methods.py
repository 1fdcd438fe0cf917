"""``noisewise methods``: every training method of the library, one line each."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from .main import JsonFlag, app, print_json, say


def method_rows() -> list[dict[str, Any]]:
    """One row for each registered method; a method of another package is described by its own process."""
    from ...guest import method_named
    from ...methods import registered_elsewhere, registry

    rows = [_row(name, kind) for name, kind in registry().items()]
    for name in registered_elsewhere():
        try:
            rows.append(_row(name, method_named(name)))
        except ValueError as error:
            say(f"the method {name!r} of another package is left out: {error}")
    return sorted(rows, key=lambda row: str(row["name"]))


def _row(name: str, method: Any) -> dict[str, Any]:
    facts = {key: getattr(method, key) for key in ("summary", "needs_public", "adaptive", "private")}
    return {"name": name, **facts, "losses": list(method.losses), "paper": method.paper}


@app.command()
def methods(json_output: JsonFlag = False) -> None:
    """List the training methods: what each does, what it needs, and its paper.

    Example: [bold]noisewise methods --json[/bold]
    """
    from ...methods import RECOMMENDED
    from ...tables.fit.build import AUTO, MAX_TABLE_COLUMNS, TABLES

    rows = method_rows()
    if json_output:
        print_json({"default": AUTO, "rows": rows})
        return
    every = {loss for row in rows for loss in row["losses"]}
    chosen = (
        f"The default, {AUTO}, takes {TABLES} for a table of up to {MAX_TABLE_COLUMNS} columns when the model is left open, else "
        f"{RECOMMENDED}; `noisewise plan` says why."
    )
    left: Any = {"title_justify": "left", "caption_justify": "left"}
    table = Table(title="Training methods", show_header=False, show_lines=True, caption=chosen, **left)
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what")
    for row in rows:
        noise = "adaptive noise" if row["adaptive"] else "a plan fixed beforehand"
        noise = noise if row["private"] else "no privacy"
        losses = "all losses" if set(row["losses"]) == every else ", ".join(row["losses"])
        facts = [noise, "needs public rows" if row["needs_public"] else "", losses, row["paper"]]
        table.add_row(row["name"], f"{row['summary']}\n[dim]{' · '.join(fact for fact in facts if fact)}[/dim]")
    Console().print(table)
