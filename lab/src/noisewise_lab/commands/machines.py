"""``noisewise bench machines``: what a question costs with two workers, engine by engine, and a large table on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from noisewise.faces.cli.main import JsonFlag, print_json
from noisewise.faces.progress import bar

from .app import bench


@bench.command()
def machines(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the question about many.")] = 1_000_000,
    columns: Annotated[int, typer.Option(min=1, help="Coordinates.")] = 100,
    questions: Annotated[int, typer.Option(min=10, help="Questions of each engine.")] = 200,
    only: Annotated[
        str | None, typer.Option(help="Engines, with commas: one process, gloo, Ray, Dask, Spark.", show_default="all")
    ] = None,
    large: Annotated[
        int, typer.Option(min=0, help="Also train on so many rows of 50 columns, in one process and on Ray.")
    ] = 0,
    passes: Annotated[int, typer.Option(min=2, help="Full passes of that training.")] = 40,
    folder: Annotated[
        Path | None, typer.Option(help="Folder on a disk for some GB; nothing stays there.", show_default="temporary")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """What a question costs when two workers hold the records: gloo, Ray, Dask and Spark, as far as they are installed.

    Example: [bold]noisewise bench machines --large 20000000[/bold]
    """
    from ..machines import ENGINES, engine_rows, large_on_ray

    named = tuple(name.strip() for name in only.split(",")) if only else ()
    if unknown := [name for name in named if name not in ENGINES]:
        raise ValueError(f"--only names {unknown[0]!r}; the engines are {', '.join(ENGINES)}")
    with bar("measuring", share=True) as show:
        found = engine_rows(
            rows, columns, questions=questions, only=named, report=lambda what, share: show(share, news=what)
        )
        trained = None
        if large:
            trained = large_on_ray(
                large, 50, passes=passes, folder=folder, report=lambda what, share: show(share, news=what)
            )
    if json_output:
        print_json({"rows": rows, "columns": columns, "engines": found, "large": trained})
        return
    _show_engines(found, rows, columns)
    if trained is not None:
        _show_large(trained)


def _show_engines(found: list[dict[str, Any]], rows: int, columns: int) -> None:
    table = Table(title=f"{columns} coordinates, two workers, ms by the clock", title_justify="left")
    table.add_column("engine", no_wrap=True)
    table.add_column("64 rows (overhead)", justify="right")
    table.add_column(f"{rows:,} rows", justify="right")
    for row in found:
        shown = (row["why"], "") if row["ms"] is None else (f"{row['overhead_ms']:.2f}", f"{row['ms']:.1f}")
        table.add_row(row["engine"], *shown)
    Console().print(table)


def _show_large(trained: dict[str, Any]) -> None:
    title = f"{trained['rows']:,} rows x {trained['columns']} columns, {trained['passes']} passes"
    table = Table(title=title, title_justify="left")
    table.add_column("training", no_wrap=True)
    for name in ("processor seconds", "seconds", "memory of the driver, MB"):
        table.add_column(name, justify="right")
    for name, row in trained["figures"].items():
        table.add_row(name, f"{row['cpu_seconds']:.0f}", f"{row['seconds']:.0f}", f"{row['anonymous_mb']:,}")
    console = Console()
    console.print(table)
    met = "met" if trained["met"] else "missed"
    bits = "the same bits" if trained["same_bits"] else "OTHER BITS"
    console.print(
        f"Processor time on {trained['workers']} workers against one process with the mapped file: {trained['ratio']:.2f} "
        f"(goal: at most {trained['goal']}; {met}); {bits}.",
        highlight=False,
        soft_wrap=True,
    )
