"""``noisewise bench large``: memory and speed of training on a table that is kept in a mapped file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from noisewise.faces.cli.main import JsonFlag, errors, print_json
from noisewise.faces.progress import bar

from .app import bench


@bench.command()
def large(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the generated table.")] = 3_000_000,
    columns: Annotated[int, typer.Option(min=1, help="Columns besides the label.")] = 50,
    folder: Annotated[
        Path | None, typer.Option(help="Folder on a disk for some GB; nothing stays there.", show_default="temporary")
    ] = None,
    format: Annotated[str, typer.Option(help="parquet or csv.")] = "parquet",
    passes: Annotated[int, typer.Option(min=0, help="Full passes of training; 0: as many as the method takes.")] = 40,
    json_output: JsonFlag = False,
) -> None:
    """Train on a generated table from a mapped file and from memory: memory, rows per second, and their ratio.

    Example: [bold]noisewise bench large --rows 300000 --folder /var/tmp[/bold]
    """
    from ..large import large_rows

    steps = None if passes == 0 else max(passes, 2)
    with bar("measuring", share=True, transient=False) as show:
        said = ""

        def report(what: str, share: float) -> None:
            nonlocal said
            show(share, news=what)
            phase = what.rstrip("0123456789 ")
            if phase != said and not errors.is_terminal:
                errors.print(f"{phase} ...", highlight=False)
            said = phase

        document = large_rows(rows, columns, folder=folder, kind=format, steps=steps, report=report)
    if json_output:
        print_json(document)
    else:
        _show(document)


def _show(document: dict[str, Any]) -> None:
    title = f"{document['rows']:,} rows x {document['columns']} columns, {document['format']} of {document['file_mb']:,} MB, one thread"
    table = Table(title=title, title_justify="left")
    table.add_column("what", no_wrap=True)
    for name in ("seconds", "rows per second", "anonymous MB", "mapped MB"):
        table.add_column(name, justify="right")
    for row in document["results"]:
        figures = (f"{row[key]:,}" for key in ("rows_per_second", "anonymous_mb", "mapped_mb"))
        table.add_row(row["what"], f"{row['seconds']:.3g}", *figures)
    console, poisson, goals = Console(), document["poisson"], document["goals"]
    console.print(table)
    memory, ratio = goals["anonymous_mb"], goals["ratio"]
    lines = [
        f"Seconds of a training: one full pass, the median from the second of {document['passes']} on.",
        f"Rows per second, mapped / in memory, median of passes in turns: {document['ratio']:.2f} "
        f"(goal: at least {ratio['least']}; {_met(ratio)})",
        f"Peak of anonymous memory, decoding and training: {memory['measured']:,} MB "
        f"(goal: below {memory['below']:,}; {_met(memory)})",
        f"A step on a Poisson batch of {document['rows'] * poisson['rate']:,.0f} rows: mapped "
        f"{1000 * poisson['mapped_seconds']:.2f} ms, in memory {1000 * poisson['memory_seconds']:.2f} ms",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _met(goal: dict[str, Any]) -> str:
    return "met" if goal["met"] else "missed"
