"""``noisewise bench transfer``, ``ablation`` and ``protector``: what learned protectors are worth, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of
from noisewise.faces.progress import bars

from .app import bench

Folder = Annotated[
    Path, typer.Option(help="Folder with the data sets, e.g. a9a.parquet.", exists=True, file_okay=False)
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes.")]
Out = Annotated[Path, typer.Option(help="Folder for protectors and results (resumed from there), CSV and plots.")]


@contextmanager
def _progress() -> Iterator[Any]:
    """A bar on standard error; a text starts a new one."""
    with bars(transient=False) as show:
        named: list[str] = []

        def report(news: Any) -> None:
            if isinstance(news, str):
                named.append(news)
            else:
                show(named[-1], *news)

        yield report


@bench.command()
def transfer(
    data: Folder,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of every cell, each with its own split and basis.")] = 10,
    jobs: Jobs = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Short training, one epsilon, at most two repeats.")] = False,
    out: Out = Path("noisewise-transfer"),
    json_output: JsonFlag = False,
) -> None:
    """Apply protectors trained on tables, digits, generated tasks, quadratics and SVMs to each other's kind of task.

    Also to fewer columns, other numbers of steps and other budgets; beside the zero-weight protector and momentum.

    Example: [bold]noisewise bench transfer --data data --quick[/bold]
    """
    import pandas as pd

    from ..studies_plots import plot_lines, plot_matrix
    from ..transfer import run_transfer

    with _progress() as report:
        rows, trained = run_transfer(
            data, out=out, repeats=min(repeats, 2) if quick else repeats, jobs=jobs, report=report, quick=quick
        )
    pd.DataFrame(rows).to_csv(out / "transfer.csv", index=False)
    plot_matrix(rows, out / "transfer.png")
    plot_lines(rows, "horizon", out / "horizons.png")
    plot_lines(rows, "budget", out / "budgets.png")
    if json_output:
        print_json({"rows": rows, "training": trained})
        return
    for study, title in (
        ("matrix", "Test accuracy in % (quadratic: % of the starting loss removed)"),
        ("dimension", "A quarter of the columns"),
        ("horizon", "Other numbers of steps, epsilon 0.1"),
        ("budget", "Other budgets; narrow was trained at epsilon 0.03 to 0.3"),
    ):
        Console().print(_scores([row for row in rows if row["study"] == study], study, title))
    names = "transfer.csv, transfer.png, horizons.png, budgets.png, results.jsonl, protectors/"
    errors.print(f"written to {out}: {names}", highlight=False, soft_wrap=True)


def _scores(rows: list[dict[str, Any]], study: str, title: str) -> Table:
    """Tasks down, protectors across; bold is above the zero-weight protector by more than a standard error."""
    names = list(dict.fromkeys(row["protector"] for row in rows))
    over = "horizon" if study == "horizon" else "epsilon"
    table = Table(title=f"{title}\nbold: above zero weights by more than a standard error", title_justify="left",
                  box=SIMPLE_HEAD, padding=0)  # fmt: skip
    table.add_column(f"task, {'T' if study == 'horizon' else over}", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    places: dict[tuple[Any, Any], dict[str, dict[str, Any]]] = {}
    for row in rows:
        places.setdefault((row["target"], row[over]), {})[row["protector"]] = row
    for (target, value), here in places.items():
        cells = []
        for name in names:
            row = here[name]
            above = row["over_zero"] > row["over_zero_error"] and name != "zero"
            cells.append(f"[bold]{row['score']:.1f}[/bold]" if above else f"{row['score']:.1f}")
        table.add_row(f"{target} {value:g}", *cells)
    return table


@bench.command()
def ablation(
    data: Folder,
    repeats: Annotated[int, typer.Option(min=1, help="Held-out tasks at each epsilon.")] = 24,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each variant.")] = 2,
    jobs: Jobs = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Short training, one seed, at most four tasks.")] = False,
    out: Out = Path("noisewise-ablation"),
    json_output: JsonFlag = False,
) -> None:
    """Train protectors with one part changed, and compare them on held-out public tasks.

    Also: how far the projector's steps are from noise-free ones, which noise matters in the end, and memory.

    Example: [bold]noisewise bench ablation --data data --quick[/bold]
    """
    import pandas as pd

    from .. import studies_plots
    from ..ablation import run_ablation

    with _progress() as report:
        tables = run_ablation(
            data,
            out=out,
            repeats=min(repeats, 4) if quick else repeats,
            seeds=1 if quick else seeds,
            jobs=jobs,
            report=report,
            quick=quick,
        )
    for name in ("variants", "steps", "memory"):
        pd.DataFrame(tables[name]).drop(columns="key", errors="ignore").to_csv(out / f"{name}.csv", index=False)
    studies_plots.plot_variants(tables["variants"], out / "variants.png")
    studies_plots.plot_denoising(tables["steps"], out / "denoising.png")
    studies_plots.plot_influence(tables["steps"], out / "influence.png")
    studies_plots.plot_memory(tables["memory"], out / "memory.png")
    if json_output:
        print_json(tables)
        return
    Console().print(_variants(tables["variants"]))
    Console().print(_steps(tables["steps"]))
    Console().print(_memory(tables["memory"]))
    names = "variants, steps and memory as .csv; variants, denoising, influence and memory as .png; protectors/"
    errors.print(f"written to {out}: {names}", highlight=False, soft_wrap=True)


def _variants(rows: list[dict[str, Any]]) -> Table:
    """Variants down, budgets across: accuracy and its paired change from the full protector."""
    epsilons = sorted({row["epsilon"] for row in rows})
    table = Table(
        title="Held-out public tasks: accuracy in % by epsilon, change from full ± standard error;\n"
        "asked: the share of the budget that the schedule asks for",
        title_justify="left", box=SIMPLE_HEAD, padding=0,
    )  # fmt: skip
    table.add_column("variant", no_wrap=True)
    for name in (*(name for epsilon in epsilons for name in (f"{epsilon:g}", "change")), "asked"):
        table.add_column(name, justify="right", no_wrap=True)
    for variant in dict.fromkeys(row["variant"] for row in rows):
        shown, here = [], [row for row in rows if row["variant"] == variant]
        for row in sorted(here, key=lambda row: float(row["epsilon"])):
            change = f"{row['accuracy_change']:+.2f}±{row['accuracy_change_error']:.2f}" if variant != "full" else ""
            shown += [f"{row['accuracy']:.1f}", change]
        table.add_row(variant, *shown, f"{sum(row['asked'] for row in here) / len(here):.2f}")
    return table


def _steps(rows: list[dict[str, Any]]) -> Table:
    """Means over the steps of a run."""
    shown = []
    for name, epsilon in dict.fromkeys((row["protector"], row["epsilon"]) for row in rows):
        here = [row for row in rows if (row["protector"], row["epsilon"]) == (name, epsilon)]
        mean = {what: sum(row[what] for row in here) / len(here) for what in here[0] if what != "protector"}
        late = {what: 100 * _late(here, what) for what in ("spend", "influence")}
        shown.append(
            {
                "weights": name, "epsilon": epsilon, "cosine raw": mean["released_cosine"],
                "cosine step": mean["step_cosine"], "error raw": mean["released_error"],
                "error step": mean["step_error"], "spent late": late["spend"], "impact late": late["influence"],
            }
        )  # fmt: skip
    title = "Nearness of released gradients (raw) and steps to noise-free ones;\n% of spending and of influence (impact) in the second half"
    return table_of(shown, title)


def _late(rows: list[dict[str, Any]], what: str) -> float:
    """The share of the second half of the steps."""
    return sum(row[what] for row in rows[len(rows) // 2 :]) / (sum(row[what] for row in rows) or 1.0)


def _memory(rows: list[dict[str, Any]]) -> Table:
    by = {(row["form"], row["steps"]): row["megabytes"] for row in rows}
    shown = [
        {
            "steps": steps,
            "full unroll": by["lagrangian", steps],
            "batches": by["batch_lagrangian", steps],
            "ratio": by["batch_lagrangian", steps] / max(by["lagrangian", steps], 1e-9),
        }
        for steps in sorted({row["steps"] for row in rows})
    ]
    return table_of(shown, "Memory that one meta-update adds, MB")


@bench.command("protector")
def protector_speed(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the data of the default recipe; else generated tasks.", exists=True, file_okay=False
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median counts.")] = 25,
    quick: Annotated[bool, typer.Option("--quick", help="Five rounds and five epochs.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the CSV; none when left out.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Time meta-training, a step of the learned projector, and a private step with a protector against one without.

    Example: [bold]noisewise bench protector --quick[/bold]
    """
    from ..protector_speed import speed_rows

    with errors.status("") as status:
        rows = speed_rows(
            data, rounds=min(repeats, 5) if quick else repeats, epochs=5 if quick else 30, report=status.update
        )
    if out is not None:
        import pandas as pd

        out.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(out / "protector.csv", index=False)
    if json_output:
        print_json({"rows": rows})
        return
    shown = [
        {**row, "goal": "" if row["goal"] is None else f"{row['goal']:g}", "met": {True: "yes", False: "no"}.get(row["met"], "")}
        for row in rows
    ]  # fmt: skip
    Console().print(table_of(shown, "What learned protectors cost"))
