"""``noisewise report``: one page for people, made from a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import answer
from .main import JsonFlag, app


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder, as written by noisewise train.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; report.html in the run folder when left out.", show_default=False),
    ] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Write the report of a run as one HTML page: how good it is, what it found, what is promised, how it was done.

    The page is complete in itself: it needs no network and no script.

    Example: [bold]noisewise report my-run --out report.html[/bold]
    """
    from ...evidence.report.page import write_report

    written = write_report(run, out)
    answer({"report": str(written), "bytes": written.stat().st_size}, f"Written: {written}", json_output)
    if show:
        typer.launch(written.resolve().as_uri())
