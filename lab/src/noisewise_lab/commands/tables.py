"""``noisewise bench table2`` and ``ppsgd-figures``: published tables and figures, run anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench, watched

Names = Annotated[str | None, typer.Option(help="Comma-separated names; all when left out.")]


@bench.command()
def table2(
    data: Annotated[
        Path, typer.Option(help="Folder with the data sets, e.g. a9a.parquet.", exists=True, file_okay=False)
    ],
    datasets: Names = None,
    methods: Names = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of every cell, each with its own split.")] = 20,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Two repeats, and methods that take under a second.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for results (resumed from there), CSV and plot.")] = Path(
        "noisewise-table2"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Run the published comparison of private learners with small public data, beside its published numbers.

    Example: [bold]noisewise bench table2 --data data --datasets adult,cadata --repeats 5[/bold]
    """
    import pandas as pd

    from ..datasets import SOURCES
    from ..plots import plot_table2
    from ..table2 import PAPER_SETTINGS, all_methods, run_table, summary

    chosen = _chosen(methods, all_methods(), "methods")
    if quick:
        repeats, chosen = min(repeats, 2), [name for name in chosen if name not in ("pnsgd", "growing_batch")]
    with watched("table 2") as report:
        results = run_table(
            data,
            datasets=_chosen(datasets, list(SOURCES), "datasets"),
            methods=chosen,
            repeats=repeats,
            jobs=jobs,
            out=out,
            report=report,
        )
    rows = summary(results)
    pd.DataFrame(rows).to_csv(out / "table2.csv", index=False)
    plot_table2(rows, out / "table2.png")
    if json_output:
        print_json({"rows": rows})
        return
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        Console().print(_pivot(rows, dataset))
    if "ppsgd_paper" in chosen:
        errors.print(f"ppsgd_paper: settings in hindsight {PAPER_SETTINGS}", highlight=False, soft_wrap=True)
    for refusal in sorted({f"{row['method']}: {row['refused']}" for row in results if row["refused"]}):
        errors.print(f"refused: {refusal}", highlight=False, soft_wrap=True)
    errors.print(f"written to {out}: table2.csv, table2.png, results.jsonl", highlight=False)


def _pivot(rows: list[dict[str, Any]], dataset: str) -> Table:
    """One data set: methods down, losses and budgets across; bold beats the best published private number of the cell."""
    here = [row for row in rows if row["dataset"] == dataset]
    places = list(dict.fromkeys((row["loss"], row["epsilon"]) for row in here))
    table = Table(
        title=f"{dataset}, mean over repeats; bold: beats the best published private number", title_justify="left"
    )
    table.add_column("method", no_wrap=True)
    for loss, epsilon in places:
        table.add_column(f"{loss} {epsilon:g}", justify="right", no_wrap=True)
    by_place = {(row["method"], row["loss"], row["epsilon"]): row for row in here}
    best = {(row["loss"], row["epsilon"]): row["published_best"] for row in here}
    table.add_row("published best", *(f"{best[place]:.4f}" if best[place] else "" for place in places), style="dim")
    for method in dict.fromkeys(row["method"] for row in here):
        shown = []
        for place in places:
            row = by_place.get((method, *place))
            text = "" if row is None else f"{row['mean']:.4f}"
            shown.append(f"[bold]{text}[/bold]" if row and row["beats_best"] else text)
        table.add_row(method, *shown)
    return table


def _chosen(names: str | None, known: list[str], option: str) -> list[str]:
    chosen = known if names is None else [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in chosen if name not in known]:
        raise ValueError(f"--{option} has {unknown[0]!r}; pass some of {', '.join(known)}")
    return chosen


@bench.command("ppsgd-figures")
def ppsgd_figures(
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of every point, each with its own problem.")] = 10,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Two repeats.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the CSV and the two plots.")] = Path("noisewise-ppsgd"),
    json_output: JsonFlag = False,
) -> None:
    """Sweep PPSGD's settings, and compare it with the baselines over epsilon, on generated data.

    Example: [bold]noisewise bench ppsgd-figures --quick[/bold]
    """
    import pandas as pd
    from joblib import Parallel, delayed

    from ..plots import plot_baselines, plot_settings
    from ..ppsgd_figures import figure2, figure3, means, run_point

    points = [*figure2(2 if quick else repeats), *figure3(2 if quick else repeats)]
    out.mkdir(parents=True, exist_ok=True)
    results = []
    with watched("figures 2 and 3") as report:
        for row in Parallel(n_jobs=jobs, return_as="generator")(delayed(run_point)(point) for point in points):
            results.append(row)
            report((len(results), len(points)))
    rows = means(results)
    pd.DataFrame(rows).to_csv(out / "figures.csv", index=False)
    plot_settings(rows, out / "figure2.png")
    plot_baselines(rows, out / "figure3.png")
    if json_output:
        print_json({"rows": rows})
    else:
        names = ("loss", "epsilon", "method", "mean", "std")
        shown = [{name: row[name] for name in names} for row in rows if row["figure"] == 3]
        Console().print(table_of(shown, "Figure 3: accuracy over epsilon"))
        errors.print(f"written to {out}: figures.csv, figure2.png, figure3.png", highlight=False)
