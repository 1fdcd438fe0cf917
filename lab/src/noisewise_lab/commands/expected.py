"""``noisewise bench expected``: how much of what is learnt without privacy a private model keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench, watched


@bench.command()
def expected(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with NAME.parquet and NAME.toml, to be simulated as well.", exists=True, file_okay=False
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations of each cell.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Few columns and budgets.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for finished simulations (resumed from there) and a plot.")] = Path(
        "noisewise-expected"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Simulate what auto keeps of the gain of models without privacy: the table that [bold]noisewise plan[/bold] reads.

    Example: [bold]noisewise bench expected --data tables[/bold]
    """
    from ..expected import measure
    from ..expected_table import chosen_power, left_out, plot_kept, quantile_rows, spreads, tables_of

    with watched("simulations") as report:
        rows, _ = measure(data, seeds=seeds, jobs=jobs, quick=quick, out=out, report=report)
    if not rows:
        raise ValueError("no simulation learnt anything without privacy; run more of them")
    power = chosen_power(rows)
    found: dict[str, Any] = {name: quantile_rows(mine, power) for name, mine in tables_of(rows).items()}
    apart = [{"target": name, **row} for name, mine in tables_of(rows).items() for row in left_out(mine, power)]
    plot_kept(rows, power, out / "expected.png")
    if json_output:
        print_json({"power": power, "spreads": spreads(rows), "kept": found, "left_out": apart, "rows": rows})
        return
    console = Console()
    console.print(table_of(spreads(rows), "Mean distance of kept from the middle, by n mu / columns ** power"))
    for name, table in found.items():
        shown = [dict(zip(("n mu / columns ** power", "10 %", "50 %", "90 %"), row, strict=True)) for row in table]
        title = f"kept, target: {name}, power {power:g}, {len(tables_of(rows)[name])} simulations"
        console.print(table_of(shown, title) if shown else f"{title}: too few for a table")
    if apart:
        console.print(table_of(apart, "Each task against the table of all others"))
    errors.print(f"written to {out}: expected.jsonl, expected.png", highlight=False)
