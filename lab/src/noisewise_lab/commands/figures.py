"""``noisewise bench figure2``, ``figure3`` and ``figure4``: the studies of Learning to Protect, run anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench, watched

Data = Annotated[Path, typer.Option(help="Folder with the data sets, e.g. mnist.npz.", exists=True, file_okay=False)]
Repeats = Annotated[int | None, typer.Option(min=1, help="Repeats of every run, each with its own noise.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes.")]
Quick = Annotated[bool, typer.Option("--quick", help="A small part of it, to see that all works.")]


@bench.command()
def figure2(
    data: Data,
    repeats: Repeats = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    out: Annotated[Path, typer.Option(help="Folder for results (resumed from there), CSV and plot.")] = Path(
        "noisewise-figure2"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Loss and spent budget per iteration of a support vector machine at (0.05, 1e-8), by l2p and by agd.

    100 repeats unless said otherwise, 5 with --quick.

    Example: [bold]noisewise bench figure2 --data data --quick[/bold]
    """
    import pandas as pd

    from ..datasets import Missing
    from ..figure2 import DELTA, EPSILON, curves, run_figure2, summary
    from ..l2p_plots import plot_figure2

    with watched("figure 2") as report:
        try:
            results = run_figure2(data, repeats=repeats or (5 if quick else 100), jobs=jobs, out=out, report=report)
        except Missing as missing:
            raise ValueError(f"{missing}; pass the folder of one of them with --data") from None
    rows, ends = curves(results), summary(results)
    pd.DataFrame(rows).to_csv(out / "figure2.csv", index=False)
    title = f"SVM on {ends[0]['task']} at ({EPSILON:g}, {DELTA:g}), {ends[0]['repeats']} repeats, bands: one std"
    plot_figure2(rows, out / "figure2.png", title=title)
    if json_output:
        print_json({"summary": ends, "rows": rows})
        return
    shown = [
        {
            "method": end["method"], "repeats": end["repeats"], "iterations": f"{end['iterations']:.1f}",
            "spent": f"{end['spent']:.4f}", "training loss": _with_error(end, "loss", 1, 4),
            "test accuracy, %": _with_error(end, "accuracy", 100, 2),
        }
        for end in ends
    ]  # fmt: skip
    Console().print(table_of(shown, "Figure 2: where the runs ended, ± standard error"))
    errors.print("training losses of private records are no released facts: these are simulations", highlight=False)
    errors.print(f"written to {out}: figure2.csv, figure2.png, results.jsonl", highlight=False)


@bench.command()
def figure3(
    data: Data,
    tasks: Annotated[str | None, typer.Option(help="Comma-separated tasks; all when left out.")] = None,
    baselines: Annotated[
        str | None, typer.Option(help="Comma-separated baselines, e.g. agd,dynamic; all when left out.")
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Comma-separated budgets, e.g. 0.05,0.1; the paper's when left out.")
    ] = None,
    repeats: Repeats = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    out: Annotated[Path, typer.Option(help="Folder for results (resumed from there), CSV and plot.")] = Path(
        "noisewise-figure3"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Accuracy and training loss over epsilon: l2p, zero weights, hand-tuned descent and the baselines.

    Tasks: ipums-br, mnist35, mnist35-features, mnist35-gradients, ipums-br-mlp, mnist35-mlp. 10 repeats unless said
    otherwise; --quick means 2 repeats, two budgets, no perceptrons, and a coarser grid that makes hand-tuned descent a
    weaker rival.

    Example: [bold]noisewise bench figure3 --data data --tasks ipums-br,mnist35 --quick[/bold]
    """
    import pandas as pd

    from ..figure3 import EPSILONS, OTHERS, PLACES, QUICK_EPSILONS, differences, run_figure3, summary, tuned_rows
    from ..l2p_plots import plot_figure3

    known = [place for place in PLACES if not (quick and place.endswith("-mlp"))]
    chosen = known if tasks is None else [name.strip() for name in tasks.split(",") if name.strip()]
    if unknown := [name for name in chosen if name not in PLACES]:
        raise ValueError(f"--tasks has {unknown[0]!r}; pass some of {', '.join(PLACES)}")
    others = list(OTHERS) if baselines is None else [name.strip() for name in baselines.split(",") if name.strip()]
    if unknown := [name for name in others if name not in OTHERS]:
        raise ValueError(f"--baselines has {unknown[0]!r}; pass some of {', '.join(OTHERS)}")
    try:
        budgets = tuple(float(e) for e in epsilons.split(",")) if epsilons else QUICK_EPSILONS if quick else EPSILONS
    except ValueError:
        raise ValueError(f"--epsilons is {epsilons!r}; pass numbers, e.g. 0.05,0.1") from None
    with watched("figure 3") as report:
        results, tuned = run_figure3(
            data,
            places=chosen,
            epsilons=budgets,
            repeats=repeats or (2 if quick else 10),
            jobs=jobs,
            out=out,
            report=report,
            quick=quick,
            baselines=others,
        )
    if not results:
        raise ValueError(f"no task has its files in {data}; pass the folder with mnist.npz or ipums_br.parquet")
    rows, gaps = summary(results), differences(results)
    pd.DataFrame(rows).to_csv(out / "figure3.csv", index=False)
    pd.DataFrame(gaps).to_csv(out / "differences.csv", index=False)
    pd.DataFrame(tuned_rows(tuned)).to_csv(out / "tuned.csv", index=False)
    plot_figure3(rows, out / "figure3.png")
    if json_output:
        print_json({"rows": rows, "differences": gaps, "tuned": tuned_rows(tuned)})
        return
    for place in dict.fromkeys(row["place"] for row in rows):
        Console().print(_over_epsilon(rows, place))
    Console().print(_gaps(gaps))
    for line in _remarks(results):
        errors.print(line, highlight=False, soft_wrap=True)
    files = "figure3.csv, differences.csv, tuned.csv, figure3.png, results.jsonl, tuning.jsonl"
    errors.print(f"written to {out}: {files}", highlight=False)


def _over_epsilon(rows: list[dict[str, Any]], place: str) -> Table:
    """One task: methods down, budgets across; accuracy in percent with its standard error, and the training loss."""
    here = [row for row in rows if row["place"] == place]
    epsilons = sorted({row["epsilon"] for row in here if row["epsilon"] is not None})
    table = Table(title=f"{place}: accuracy % ± standard error, training loss", title_justify="left")
    table.add_column("method", no_wrap=True)
    for epsilon in epsilons:
        table.add_column(f"{epsilon:g}", justify="right", no_wrap=True)
    for method, start in dict.fromkeys((row["method"], row["start"]) for row in here):
        own = {row["epsilon"]: row for row in here if (row["method"], row["start"]) == (method, start)}
        shown = [_shown(own[None if None in own else epsilon]) for epsilon in epsilons]
        table.add_row(method + (" (public start)" if start == "public" else ""), *shown)
    return table


def _shown(row: dict[str, Any]) -> str:
    return f"{_with_error(row, 'accuracy', 100, 1)} {row['loss']:.3f}" if row["repeats"] else "refused"


def _gaps(gaps: list[dict[str, Any]]) -> Table:
    table = Table(title="What was learned: l2p minus its rivals, paired by repeat", title_justify="left")
    for name in ("task", "l2p minus"):
        table.add_column(name, no_wrap=True)
    for name in ("epsilon", "accuracy, points", "training loss"):
        table.add_column(name, justify="right", no_wrap=True)
    for gap in gaps:
        both = (_with_error(gap, "accuracy", 100, 2, "+"), _with_error(gap, "loss", 1, 4, "+"))
        mean = isinstance(gap["epsilon"], str)
        table.add_row(gap["place"], gap["rival"], str(gap["epsilon"]), *both, style="bold" if mean else None)
    return table


def _with_error(row: dict[str, Any], name: str, factor: float, digits: int, sign: str = "") -> str:
    """A mean and, if there is one, its standard error."""
    error = row[f"{name}_se"]
    mean = f"{factor * row[name]:{sign}.{digits}f}"
    return mean if error is None else f"{mean}±{factor * error:.{digits}f}"


def _remarks(results: list[dict[str, Any]]) -> list[str]:
    """Refusals, warnings and what was left out, each once."""
    refused = sorted({f"refused: {row['method']}: {row['refused']}" for row in results if row["refused"]})
    outside = sorted({f"warning: {row['outside']}" for row in results if row["outside"]})
    tables = sorted({row["place"] for row in results if row["place"].startswith("ipums")})
    starts = [f"{place}: no public start, the public tables have other columns" for place in tables]
    return [*starts, *refused, *outside]


@bench.command()
def figure4(
    data: Data,
    repeats: Repeats = None,
    jobs: Jobs = 2,
    quick: Quick = False,
    out: Annotated[Path, typer.Option(help="Folder for protectors, results (resumed), CSV and plot.")] = Path(
        "noisewise-figure4"
    ),
    json_output: JsonFlag = False,
) -> None:
    """Accuracy on MNIST 3 against 5 at (0.05, 1e-8) with protectors trained on each other pair of digits alone.

    28 pairs, 80 epochs and 5 repeats unless said otherwise; 3 pairs and 10 epochs with --quick.

    Example: [bold]noisewise bench figure4 --data data --quick[/bold]
    """
    import pandas as pd

    from ..datasets import Missing
    from ..figure4 import DELTA, EPSILON, QUICK_PAIRS, run_figure4, summary
    from ..l2p_data import PAIRS
    from ..l2p_plots import plot_figure4

    with watched("figure 4") as report:
        try:
            results = run_figure4(
                data,
                pairs=QUICK_PAIRS if quick else PAIRS,
                epochs=10 if quick else 80,
                repeats=repeats or 5,
                jobs=jobs,
                out=out,
                report=report,
            )
        except Missing as missing:
            raise ValueError(f"{missing}; pass its folder with --data") from None
    rows = summary(results)
    pd.DataFrame(rows).to_csv(out / "figure4.csv", index=False)
    title = f"Accuracy on 3 vs 5 at ({EPSILON:g}, {DELTA:g}) over the pair a protector learned from"
    plot_figure4(rows, out / "figure4.png", title=title)
    if json_output:
        print_json({"rows": rows})
        return
    Console().print(table_of(rows, title))
    errors.print(f"written to {out}: figure4.csv, figure4.png, results.jsonl, protectors", highlight=False)
