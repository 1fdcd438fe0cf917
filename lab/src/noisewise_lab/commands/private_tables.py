"""``noisewise bench tables`` and ``tables-prepare``: private models of tables beside other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench, watched


@bench.command()
def tables(
    data: Annotated[
        Path, typer.Option(help="Folder with NAME.parquet and NAME.toml, a schema.", exists=True, file_okay=False)
    ],
    against: Annotated[
        str, typer.Option(help="Others to compare with: ebm,ebm-fast,diffprivlib,logistic,boosting, or some of them.")
    ] = "logistic,boosting",
    methods: Annotated[
        str, typer.Option(help="Methods of noisewise; noisewise stands for its defaults. Empty for none.")
    ] = "noisewise,descent",
    epsilons: Annotated[str, typer.Option(help="Comma-separated budgets.")] = "0.1,0.5,1,4,16",
    seeds: Annotated[int, typer.Option(min=1, help="Noise seeds of every cell.")] = 5,
    delta: Annotated[float, typer.Option(help="Delta of every private fit.")] = 1e-6,
    names: Annotated[
        str | None, typer.Option("--tables", help="Names of tables; all of the folder if left out.")
    ] = None,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the split into rows to train on and to test on.")] = 0,
    widen: Annotated[float, typer.Option(help="Declare bounds of number columns this many times too wide.")] = 1.0,
    peer_python: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH: the interpreter in which a peer is installed; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for finished fits; a run goes on from there.")] = Path(
        "noisewise-tables"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Private models of tables beside other libraries, and how far they come towards boosting without privacy.

    Example: [bold]noisewise bench tables --data tables --against ebm,logistic,boosting --epsilons 1[/bold]
    """
    import pandas as pd

    from ..tables_bench import Asked, mean_ways, run, summary
    from ..tables_split import listed
    from ..tables_workers import pythons

    asked = Asked(
        listed(data, None if names is None else words(names)),
        words(methods),
        words(against),
        numbers(epsilons),
        seeds,
        delta,
        split_seed,
        widen,
    )
    interpreters = pythons(peer_python or [])
    with watched("tables") as report:
        results = run(asked, out, interpreters=interpreters, report=report)
    rows = summary(results, asked)
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(out / "tables.csv", index=False)
    if json_output:
        print_json({"rows": rows})
        return
    for table in asked.tables:
        Console().print(_shown([row for row in rows if row["table"] == table.name], table.name, table.regression))
    if ways := mean_ways(rows):
        Console().print(table_of(ways, "Share of the way from logistic regression to boosting, over tables"))
    for refusal in sorted({f"{row['table']}, {row['method']}: {row['refused']}" for row in rows if row["refused"]}):
        errors.print(f"refused: {refusal}", highlight=False, markup=False, soft_wrap=True)


def words(text: str) -> list[str]:
    """A list as people write it, with commas."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def numbers(text: str) -> list[float]:
    """Budgets as people write them, with commas."""
    return [_number(word) for word in words(text)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--epsilons has {text!r}; pass numbers such as 0.5,1") from None


def _shown(rows: list[dict[str, Any]], name: str, regression: bool) -> Table:
    """One table for people."""
    first, second = ("rmse", "r2") if regression else ("accuracy", "roc_auc")
    table = Table(title=f"{name}: means over seeds, standard errors, median CPU seconds per fit", title_justify="left")
    table.add_column("epsilon", justify="right")
    table.add_column("method", no_wrap=True)
    for title in ("RMSE", "R^2") if regression else ("accuracy", "ROC AUC"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("CPU s", "way"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            "none" if row["epsilon"] is None else f"{row['epsilon']:g}",
            row["method"],
            _with_error(row[first], row[f"{first}_se"]),
            _with_error(row[second], row["se"]),
            "" if row["cpu_s"] is None else f"{row['cpu_s']:.3g}",
            "" if row["way"] is None else f"{row['way']:.2f}",
        )
    return table


def _with_error(value: float | None, error: float | None) -> str:
    if value is None or error is None:
        return ""
    if abs(value) >= 100:
        return f"{value:.0f} ± {error:.0f}"
    return f"{value:.4f} ± {error:.4f}"


@bench.command("tables-prepare")
def tables_prepare(
    source: Annotated[
        Path, typer.Option("--from", help="Folder with adult_uci.parquet and others.", exists=True, file_okay=False)
    ],
    to: Annotated[Path, typer.Option(help="Folder for NAME.parquet and NAME.toml.")],
) -> None:
    """Write public data sets as tables with schemas: adult, ipums-br, bank, cadata, electrical.

    Example: [bold]noisewise bench tables-prepare --from data --to tables[/bold]
    """
    from ..tables_prepare import prepare

    for line in prepare(source, to):
        typer.echo(line)
