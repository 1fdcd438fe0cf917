"""``noisewise bench tuning``: what ways of tuning cost and bring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench, watched


@bench.command()
def tuning(
    data: Annotated[
        Path, typer.Option(help="Folder with NAME.parquet and NAME.toml, a schema.", exists=True, file_okay=False)
    ],
    names: Annotated[str, typer.Option("--tables", help="Names of tables.")] = "adult,ipums-br,bank,cadata",
    epsilons: Annotated[
        str, typer.Option(help="Comma-separated budgets; the largest is that of the rescue.")
    ] = "0.5,1,3",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds, each with a split of its own.")] = 10,
    rows: Annotated[int | None, typer.Option(min=1000, help="The most private rows; all of them if left out.")] = None,
    ways: Annotated[
        str | None, typer.Option(help="Some of auto,public,selection,exponential,online,none,bad-start,rescue; or all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for what is finished; a run goes on from there.")] = Path(
        "noisewise-tuning"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Eight candidates tuned in every way, beside no tuning: the score on rows that nobody trained on.

    Example: [bold]noisewise bench tuning --data tables --rows 12000 --json[/bold]
    """
    import pandas as pd

    from ..tables_split import listed
    from ..tuning_bench import WAYS, Asked, over_all, run, sign_tests, summary
    from .private_tables import numbers, words

    only = WAYS if ways is None else words(ways)
    asked = Asked(listed(data, words(names)), numbers(epsilons), seeds, rows, only=only)
    with watched("tuning") as report:
        results = run(asked, out, report=report)
    found, signs = summary(results, asked), sign_tests(results)
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(found).to_csv(out / "tuning.csv", index=False)
    if json_output:
        print_json({"rows": found, "over_all": over_all(found), "signs": signs})
        return
    for table in asked.tables:
        title = f"{table.name}: {'R^2' if table.regression else 'ROC AUC'}, and what is above auto"
        Console().print(table_of([_shown(row) for row in found if row["table"] == table.name], title))
    Console().print(table_of(over_all(found), "Above auto, over tables"))
    Console().print(table_of(signs, "Sign tests over tables, budgets and seeds"))
    for refusal in sorted({f"{row['table']}, {row['way']}: {row['refused']}" for row in results if "refused" in row}):
        errors.print(f"refused: {refusal}", highlight=False, markup=False, soft_wrap=True)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """What people are shown of a row."""
    told = {name: row[name] for name in ("epsilon", "way", "score", "se", "over_auto", "over_auto_se", "cpu_s")}
    return told | {"chosen": " ".join(f"{place}:{often}" for place, often in row["chosen"].items())}
