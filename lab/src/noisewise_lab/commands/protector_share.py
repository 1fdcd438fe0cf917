"""``noisewise bench protector-share``: what a protector that is trained on the private rows costs and earns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench, watched
from .figures import Data, Jobs, Quick, Repeats


@bench.command("protector-share")
def protector_share(
    data: Data,
    places: Annotated[str | None, typer.Option(help="Comma-separated places; all when left out.")] = None,
    epsilons: Annotated[str | None, typer.Option(help="Comma-separated budgets, e.g. 0.1,0.8.")] = None,
    starts: Annotated[
        str, typer.Option(help="What the protector's training starts from: zero, auto or both.")
    ] = "zero,auto",
    repeats: Repeats = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    out: Annotated[Path, typer.Option(help="Folder for results (resumed from there), CSV and plot.")] = Path(
        "noisewise-protector-share"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Accuracy over the share of the budget that trains the protector on the private rows, from zero weights and from the package's.

    Places: ipums-br, mnist35, mnist35-features, census-large. 10 repeats unless said otherwise; --quick means 2, one
    budget and two shares.

    Example: [bold]noisewise bench protector-share --data data --places ipums-br --quick[/bold]
    """
    import pandas as pd

    from ..protector_share import EPSILONS, PLACES, SHARES, STARTS, plot_shares, run_shares, summary

    chosen = list(PLACES) if places is None else [name.strip() for name in places.split(",") if name.strip()]
    if unknown := [name for name in chosen if name not in PLACES]:
        raise ValueError(f"--places has {unknown[0]!r}; pass some of {', '.join(PLACES)}")
    begun = [name.strip() for name in starts.split(",") if name.strip()]
    if unknown := [name for name in begun if name not in STARTS]:
        raise ValueError(f"--starts has {unknown[0]!r}; pass some of {', '.join(STARTS)}")
    try:
        budgets = tuple(float(e) for e in epsilons.split(",")) if epsilons else EPSILONS[-1:] if quick else EPSILONS
    except ValueError:
        raise ValueError(f"--epsilons is {epsilons!r}; pass numbers, e.g. 0.1,0.8") from None
    with watched("shares for the protector") as report:
        results = run_shares(
            data, places=chosen, epsilons=budgets, shares=(0.0, 0.2) if quick else SHARES,
            starts=begun[:1] if quick else begun, repeats=repeats or (2 if quick else 10), jobs=jobs, out=out,
            report=report,
        )  # fmt: skip
    if not results:
        raise ValueError(f"no place has its files in {data}; pass the folder with mnist.npz or ipums_br.parquet")
    rows = summary(results)
    pd.DataFrame(rows).to_csv(out / "protector_share.csv", index=False)
    plot_shares(rows, out / "protector_share.png")
    if json_output:
        print_json({"rows": rows})
        return
    shown = [
        {key: f"{v:.4f}" if isinstance(v, float) and key not in ("epsilon", "share") else v for key, v in row.items()}
        for row in rows
    ]
    Console().print(table_of(shown, "Accuracy over the share that trains the protector, with standard errors"))
    errors.print(f"written to {out}: protector_share.csv, protector_share.png, results.jsonl", highlight=False)
