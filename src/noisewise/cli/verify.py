"""``noisewise verify``: whether a statement or a run folder keeps its promise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .main import JsonFlag, app, fail, print_json


@app.command()
def verify(
    statement: Annotated[Path, typer.Argument(help="A statement.json written by noisewise, or a run folder.")],
    json_output: JsonFlag = False,
) -> None:
    """Recompute the promise of a statement from the statement alone: yes or no.

    Of a run folder it also checks the seal, and that text, trace, settings and statement say the same. Whoever rewrites
    all of them alike and seals the folder anew cannot be found out from the folder: its word is its sender's word.

    Needs no data. Exit code 0 for yes, 1 for no, 2 when the file cannot be read.

    Example: [bold]noisewise verify noisewise-demo/statement.json[/bold]
    """
    from ..runs.agreement import Unreadable, verify_path

    try:
        verdict = verify_path(statement)
    except Unreadable as error:
        raise SystemExit(fail(str(error))) from None
    if json_output:
        print_json(asdict(verdict))
    else:
        typer.echo(str(verdict))
    raise typer.Exit(0 if verdict.holds else 1)
