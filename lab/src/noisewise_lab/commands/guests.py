"""``noisewise bench guests``: what a question costs when it comes from a guest's process."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, print_json, table_of

from .app import bench


@bench.command()
def guests(
    columns: Annotated[int, typer.Option(min=1, help="Coordinates of a gradient.")] = 1000,
    questions: Annotated[int, typer.Option(min=10, help="Questions of a run.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each kind, in turns.")] = 5,
    json_output: JsonFlag = False,
) -> None:
    """What a question costs over the pipe of a guest, besides the tick, beside the same method as an object.

    Example: [bold]noisewise bench guests --columns 1000[/bold]
    """
    from ..guests import guest_rows

    rows = guest_rows(columns, questions=questions, rounds=rounds)
    if json_output:
        print_json({"columns": columns, "rows": rows})
        return
    shown = [
        {"method": row["method"], **{name: f"{row[name]:.2f}" for name in ("milliseconds", "more")}} for row in rows
    ]
    Console().print(table_of(shown, f"A question about {columns:,} coordinates"))
