"""``noisewise compare``: every method, simulated on public data at a budget and a private size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ...evidence.figures import BLUE, GREY, ORANGE, panels, picture_file, save_figure
from ..progress import bar
from .common import note
from .main import Decimal, JsonFlag, app, dialect, narrow_table, print_json
from .options import Separator
from .request import places

if TYPE_CHECKING:
    from ..compare import Row


@dataclass(frozen=True)
class PublicTable:
    """Public rows as numbers, with what their schema declares."""

    X: Any
    y: Any
    target: str
    task: str
    bounds: Any
    classes: list[int] | None
    target_bounds: tuple[float, float] | None
    columns: int  # features in the schema


@app.command()
def compare(
    data: Annotated[list[str], typer.Argument(metavar="PUBLIC_DATA...", help="Public CSV or Parquet files.")],
    epsilon: Annotated[float, typer.Option(help="Budget: epsilon.")],
    delta: Annotated[float, typer.Option(help="Budget: delta.")],
    size: Annotated[int, typer.Option(min=1, help="Number of private records.")],
    target: Annotated[str | None, typer.Option(help="The column to predict, if no schema says.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema; what it leaves open comes from the public rows.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names with commas.", show_default="all of them")] = None,
    loss: Annotated[str | None, typer.Option(help="Loss.", show_default="by the target")] = None,
    model: Annotated[str, typer.Option(help="auto (left to the method), linear or mlp.")] = "auto",
    adjacency: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    repeats: Annotated[int, typer.Option(min=1, help="Trainings of each method, each on its own split.")] = 5,
    public_share: Annotated[
        float, typer.Option(help="Share of the training rows for methods that need public rows.")
    ] = 0.1,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits and simulations.")] = 0,
    separator: Separator = None,
    decimal: Decimal = None,
    out: Annotated[Path, typer.Option(help="Folder for comparison.json and comparison.png.")] = Path(
        "noisewise-comparison"
    ),
    plot: Annotated[
        Path | None, typer.Option(help="Where the picture goes instead: FILE.png, .svg or .pdf.", show_default=False)
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder that gets comparison.json, for its report.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Simulate every method on public data at your budget and private size: an estimate, before any record is touched.

    Example: [bold]noisewise compare public.csv --target income --epsilon 1 --delta 1e-6 --size 20000 --plot all.svg[/bold]
    """
    from ...accounts.atomic import write_atomically
    from ...tables.fit.build import AUTO, method_for
    from ..compare import METRICS, constant_score, document, sizes
    from ..compare import compare as simulate

    picture = picture_file(plot or out / "comparison.png")
    if run is not None:
        from ...evidence import runs
        from ...evidence.report.page import refresh

        runs.check_seal(run)
    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    if names == []:
        raise ValueError("--methods is empty; pass names from `noisewise methods`, with commas between them")
    table = read_public(data, target=target, schema=schema, separator=dialect(separator, decimal))
    known: dict[str, Any] = {"bounds": table.bounds, "classes": table.classes, "target_bounds": table.target_bounds}
    same: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "size": size}
    same |= {"task": table.task, "model": model, "loss": loss, "repeats": repeats, "seed": seed}
    with bar("simulating") as report:
        how: dict[str, Any] = {
            "methods": names and ["nonprivate", *names],
            "public_share": public_share,
            "jobs": jobs,
            "report": report,
        }
        rows = simulate(table.X, table.y, **same, **known, **how)
    parts = zip(("drawn_from", "public_rows", "test_rows"), sizes(len(table.X), public_share), strict=True)
    same |= dict(parts)
    constant = constant_score(table.y, task=table.task)
    files = [path.name for path in places(data)]
    chosen = method_for(AUTO, model, table.columns).name
    summary = document(rows, **same, recommended=chosen, target=table.target, constant=constant, files=files)
    text = (json.dumps(summary, indent=2) + "\n").encode()
    title = f"{size:,} records, epsilon {epsilon:g}, delta {delta:g}, {adjacency}"
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "comparison.json", text)
    plot_comparison(rows, picture, metric=METRICS[table.task], title=title, constant=constant, chosen=chosen)
    written = [f"{out}: comparison.json, comparison.png"] if plot is None else [f"{out}: comparison.json", str(plot)]
    if run is not None:
        runs.check_seal(run)  # again: a new seal must not cover what was changed in the meantime
        write_atomically(run / "comparison.json", text)
        runs.reseal(run)
        refresh(run)
        written.append(f"{run}: comparison.json")
    if json_output:
        print_json(summary)
    else:
        _show(rows, summary, title)
    note(f"Written to {'; '.join(written)}")


def read_public(paths: list[str], *, target: str | None, schema: Path | None, separator: Any = None) -> PublicTable:
    """Public files as numbers; what the schema leaves open is taken from the public rows."""
    import numpy as np

    from ...tables.encode import Encoder
    from ...tables.fill import fill_from_public
    from ...tables.rows import read_matrix
    from ...tables.schema import gaps, read_schema

    declared = None if schema is None else read_schema(schema)
    if target is None and (declared is None or declared.target is None):
        raise ValueError("--target is missing; name the column to predict")
    filled = fill_from_public(declared, paths, target, separator=separator)
    if left := gaps(filled):
        note = filled[left[0].column].note if left[0].column else ""
        why = f"column {left[0].column!r} {note}" if note else str(left[0])
        raise ValueError(f"{why} (in a schema: `noisewise schema init` writes one, then pass --schema)")
    assert filled.target is not None
    encoder, label = Encoder(filled), filled[filled.target]
    X, y = read_matrix(paths, encoder, separator=separator, clamp=False)
    assert y is not None
    bounds, columns = np.column_stack([encoder.low, encoder.high]), len(filled.features)
    if encoder.classes is not None:
        classes = list(range(len(encoder.classes)))
        return PublicTable(X, y, filled.target, "classification", bounds, classes, None, columns)
    if not np.isfinite(y).all():
        raise ValueError(f"target {filled.target!r} has labels that are not finite; leave their rows out")
    assert label.low is not None and label.high is not None
    return PublicTable(X, y, filled.target, "regression", bounds, None, (label.low, label.high), columns)


def _show(rows: list[Row], summary: dict[str, Any], title: str) -> None:
    from ..compare import no_better, unit_of

    console = Console(highlight=False)
    console.print(f"[bold]Every method at your budget, simulated[/bold]: {title}")
    console.print(_table(rows, summary["metric"], summary["recommended"], summary["repeats"]))
    if any(row.metrics for row in rows):
        console.print(_others(rows, summary["metric"]))
    for row in rows:
        if row.refused is not None:
            console.print(f"{row.method} refused: {row.refused}", markup=False)
        elif no_better(row):
            console.print(f"{row.method} is no better than one answer for all", markup=False)
        for warning in row.warnings:
            console.print(f"{row.method}: {warning}", markup=False)
    unit, _ = unit_of(rows, summary["metric"])
    console.print(
        f"\n{summary['note']} Each repeat (of {summary['repeats']}) draws {summary['size']:,} rows from "
        f"{summary['drawn_from']:,}, gives {summary['public_rows']:,} to methods that need public rows, and scores "
        f"{summary['test_rows']:,} others. One answer for all would score {summary['constant'] / unit:.4g}."
    )


def _table(rows: list[Row], metric: str, chosen: str, repeats: int) -> Table:
    from ..compare import against, in_unit, scatter, unit_of

    unit, name = unit_of(rows, metric)
    table = narrow_table(
        caption=f"{scatter(repeats).capitalize()}.\nAgainst no privacy: on the same rows.\n"
        "recommended: what auto chooses for such a table.",
    )
    table.add_column("method", no_wrap=True)
    table.add_column(name.replace(" error", "\nerror"), justify="right", no_wrap=True)
    table.add_column("against\nno privacy", justify="right")
    table.add_column("public\nrows", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        best = row.method == chosen
        table.add_row(
            f"{row.method} (recommended)" if best else row.method if row.private else f"{row.method} (no privacy)",
            "refused" if row.mean is None else in_unit(row.mean, row.standard_error, unit),
            "" if row.worse is None else against(row.worse, row.worse_error, unit),
            "needed" if row.public else "",
            f"{row.seconds:.1f}",
            style="bold" if best else "dim" if row.mean is None else None,
            end_section=not row.private,
        )
    return table


def _others(rows: list[Row], metric: str) -> Table:
    """The other figures, without the errors, which are in the JSON."""
    from ...evidence.metrics import NAMES, SHARES, WORDS

    shown_above = (metric, "baseline_accuracy")
    names = [name for name in NAMES if name not in shown_above and any(name in row.metrics for row in rows)]
    table = narrow_table()
    table.add_column("other figures", no_wrap=True)
    for name in names:
        table.add_column(WORDS[name].replace(" ", "\n", 1) + (", %" if name in SHARES else ""), justify="right")
    for row in rows:
        if row.metrics:
            values = [(name, row.metrics[name]["value"] if name in row.metrics else None) for name in names]
            shown = ["" if v is None else f"{100 * v:.1f}" if name in SHARES else f"{v:.4g}" for name, v in values]
            table.add_row(row.method, *shown, end_section=not row.private)
    return table


def plot_comparison(
    rows: Sequence[Row], path: Path, *, metric: str, title: str, constant: float | None = None, chosen: str = ""
) -> None:
    """A dot with its standard error for each method, best on top; the ``chosen`` one, which auto takes, is marked.

    Where repeats are too few for a standard error, each is drawn.
    """
    from ..compare import unit_of

    shown = [row for row in rows if row.mean is not None]
    refused = [row.method for row in rows if row.mean is None]
    figure, axes = panels(7.6, 1.9 + 0.28 * max(len(shown), 1))
    unit, measure = unit_of(rows, metric)
    for place, row in enumerate(reversed(shown)):
        assert row.mean is not None
        best = row.method == chosen
        colour = GREY if not row.private else ORANGE if best else BLUE
        mark = "s" if not row.private else "D" if best else "o"
        error = None if row.standard_error is None else row.standard_error / unit
        look = {"color": colour, "markersize": 7.5 if best else 6, "markerfacecolor": "white" if row.public else colour}
        axes.errorbar(row.mean / unit, place, xerr=error, fmt=mark, capsize=2.5, linewidth=1.3, **look)
        if error is None and len(row.scores) > 1:
            alone = [score / unit for score in row.scores]
            axes.plot(alone, [place] * len(alone), "|", color=colour, markersize=9, zorder=1)
    axes.set_yticks(range(len(shown)), [row.method for row in reversed(shown)], fontsize=9)
    for label, row in zip(axes.get_yticklabels(), reversed(shown), strict=True):
        if row.method == chosen:
            label.set(color=ORANGE, fontweight="bold")
    for row in shown:
        if not row.private and row.mean is not None:
            axes.axvline(row.mean / unit, color=GREY, linewidth=0.9, linestyle="--", zorder=0)
    means = [row.mean for row in shown if row.mean is not None]
    reach = max(means, default=0.0) - min(means, default=0.0)
    far = constant is not None and not (means and min(means) - reach <= constant <= max(means) + reach)
    if constant is not None and not far:  # else it would squeeze the methods into a corner
        axes.axvline(constant / unit, color=GREY, linewidth=1.1, linestyle=":", zorder=0)
    entries: list[tuple[bool, tuple[str, str, str | None, str]]] = [
        (any(not row.private for row in shown), ("without privacy", GREY, "s", "--")),
        (any(row.method == chosen for row in shown), ("recommended", ORANGE, "D", "none")),
        (any(row.public for row in shown), ("needs public rows", BLUE, "o", "none")),
        (constant is not None and not far, ("one answer for all", GREY, None, ":")),
    ]
    marks = [_mark(*entry) for used, entry in entries if used]
    figure.legend(handles=marks, loc="outside lower center", ncols=max(len(marks), 1), frameon=False, fontsize=8.5)
    bars, repeats = "one training each, spread unknown", max((len(row.scores) for row in shown), default=0)
    if repeats >= 2:
        known = any(row.standard_error is not None for row in shown)
        bars = f"mean of {repeats} repeats, {'bars: one standard error' if known else 'strokes: each of them'}"
    better = "more" if metric == "accuracy" else "less"
    below = f"; one answer for all: {constant / unit:.4g}" if constant is not None and far else ""
    below += f"\nrefused: {fill(', '.join(refused), 90)}" if refused else ""
    axes.set_xlabel(f"{measure} ({better} is better), on held-out public rows\nsimulated: {bars}{below}", fontsize=9)
    axes.set_title(title, loc="left", fontsize=10, x=0.0)
    axes.margins(y=0.03 + 0.3 / max(len(shown), 1))
    save_figure(figure, path)


def _mark(label: str, colour: str, mark: str | None, line: Any) -> Any:
    """An entry of the legend."""
    from matplotlib.lines import Line2D

    filled = "white" if mark == "o" else colour
    return Line2D([], [], color=colour, marker=mark, linestyle=line, linewidth=0.9, markerfacecolor=filled, label=label)
