"""``noisewise plan``: what a budget buys, with no data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .main import JsonFlag, app, errors, print_json

if TYPE_CHECKING:
    from ..accounting.plan import Need, PlanRow
    from ..budget import Budget
    from ..prepare.columns import TableColumn


@app.command()
def plan(
    epsilon: Annotated[float, typer.Option(help="Budget: epsilon.")],
    delta: Annotated[float, typer.Option(help="Budget: delta.")],
    adjacency: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    size: Annotated[
        int | None, typer.Option("--size", "--rows", min=1, help="Number of records.", show_default="an example")
    ] = None,
    features: Annotated[
        int | None,
        typer.Option(
            "--features",
            "--columns",
            min=1,
            help="Columns of a table of numbers, as features.",
            show_default="an example",
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="What the columns are, instead of --features.", show_default=False)
    ] = None,
    steps: Annotated[str, typer.Option(help="Numbers of steps, with commas.")] = "10,50,100,500,1000",
    rates: Annotated[str, typer.Option(help="Shares of the records in a batch, with commas.")] = "0.01,0.1",
    clip: Annotated[float, typer.Option(help="Clip norm of a record's gradient.")] = 1.0,
    rows_per_unit: Annotated[
        int | None, typer.Option(min=1, help="Rows of a person that count, where a person is protected.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture, e.g. FILE.png.", show_default=False)] = None,
    json_output: JsonFlag = False,
) -> None:
    """Say what a budget buys, with no data: what auto would do, and noise for each way of sampling and number of steps.

    Example: [bold]noisewise plan --epsilon 1 --delta 1e-6 --size 20000 --features 30 --plot plan.png[/bold]
    """
    from ..accounting.plan import FEATURES, SIZE, in_words, persons_in_words, plan_rows, records_needed
    from ..budget import Budget
    from ..events import Adjacency
    from ..units import unit_of

    budget = Budget(epsilon, delta, adjacency=cast(Adjacency, adjacency))
    if schema is not None and features is not None:
        raise ValueError("--schema says what the columns are already; leave --features out")
    records = size or SIZE
    table, columns, declared = _table_of(schema, features or FEATURES)
    rows_per_unit = declared if rows_per_unit is None else rows_per_unit
    chosen = _chosen(table, budget, records, with_schema=schema is not None, rows_per_unit=rows_per_unit)
    counts, shares = _numbers(steps, "steps", int), _numbers(rates, "rates", float)
    rows = plan_rows(
        budget, size=records, features=columns, steps=counts, clip=clip, rates=shares, rows_per_unit=rows_per_unit
    )
    words = in_words(rows) if rows_per_unit is None else f"{in_words(rows)}\n{persons_in_words(rows, rows_per_unit)}"
    persons = {"unit": unit_of(rows_per_unit), "rows_per_unit": rows_per_unit, "row_clip": clip / (rows_per_unit or 1)}
    needs = records_needed(rows, size=records)
    given = (("size", size), ("features", features if schema is None else schema))
    examples = [f"--{name}" for name, value in given if value is None]
    title = f"epsilon {epsilon:g}, delta {delta:g}, {adjacency}; {records:,} records, {columns + 1} parameters"
    title += "" if rows_per_unit is None else f"; the unit is {unit_of(rows_per_unit)}"
    if plot is not None:
        from .plots import plot_plan

        plot_plan(rows, plot, title=title)
    if json_output:
        print_json(
            {
                "epsilon": epsilon, "delta": delta, "adjacency": adjacency, "size": records, "columns": len(table),
                "parameters": columns + 1, "clip": clip, "examples": examples, "rows": [_plain(row) for row in rows],
                "records_needed": [_plain(need) for need in needs], "words": words, **chosen,
            } | ({} if rows_per_unit is None else persons)
        )  # fmt: skip
    else:
        _show(rows, needs, title, words, examples, chosen["why"])
    if plot is not None:
        errors.print(f"Written: {plot}", highlight=False, soft_wrap=True)


def _table_of(path: Path | None, features: int) -> tuple[tuple[TableColumn, ...], int, int | None]:
    """The columns of a table (without a schema, all numbers), how many features a linear model of it has, and rows of a
    person that count, where a schema says so."""
    from ..data.encode import Encoder
    from ..data.resolve import with_imagined_bounds
    from ..data.schema import gaps, read_schema
    from ..data.tables import columns_of
    from ..prepare.columns import TableColumn

    if path is None:
        return tuple(TableColumn(f"x{i}", (0.0, 1.0), (0.0, 1.0)) for i in range(features)), features, None
    schema = read_schema(path)
    if left := [gap for gap in gaps(schema) if gap.what != "bounds"]:
        raise ValueError(f"{path}: {left[0]}")
    declared = with_imagined_bounds(schema)
    return columns_of(declared), len(Encoder(declared).low), declared.rows_per_unit


def _chosen(
    table: tuple[TableColumn, ...], budget: Budget, size: int, *, with_schema: bool, rows_per_unit: int | None
) -> dict[str, Any]:
    """What "auto" would do with such a table, by the rules that it follows."""
    from ..fitting.auto import choice_for, outline_for
    from ..fitting.why import why

    choice = choice_for(table, budget, size, rows_per_unit=rows_per_unit)
    made = outline_for(table, budget, size, rows_per_unit)
    told = {"knots": choice.knots, "pairs": choice.pairs or 0, "ranks": choice.ranks or 0.0}
    if with_schema and made is not None:
        told |= {"coordinates": made.coordinates, "pair_coordinates": made.pair_coordinates}
    return {"method": choice.method, "features": told, "why": why(choice)}


def _show(rows: list[PlanRow], needs: list[Need], title: str, words: str, examples: list[str], why: str) -> None:
    console = Console()
    console.print(f"[bold]What a budget buys[/bold]: {title}", highlight=False)
    console.print(_noise_table(rows))
    console.print()
    console.print(words, highlight=False)
    console.print()
    console.print(_needs_table(needs))
    console.print(f"\n[bold]What auto would do[/bold]: {escape(why)}", highlight=False)
    if examples:
        console.print(
            f"{' and '.join(examples)} not given: an example stands in. Noise falls as 1 / records and grows with the "
            "square root of the parameters.",
            highlight=False,
        )


def _table(**options: Any) -> Table:
    """A table without a frame, so that its columns fit on 80 characters."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, **options)


def _noise_table(rows: list[PlanRow]) -> Table:
    from ..accounting.base import names
    from ..accounting.plan import sampling_name

    table = _table(
        caption="passes: over the data. by: the accountant that asks for the least noise; "
        f"{' and '.join(names(lambda known: known.slow))} only for noise fixed beforehand, rounded up by up to 1 %. std: of a coordinate of a released mean gradient. noise / clip: "
        "norm of the noise over the clip norm, of one step and of the average of all; sampling adds its own noise.",
        caption_justify="left",
    )
    table.add_column("batch", no_wrap=True)
    noise = ("noise\nmultiplier", "by", "noise\nstd", "noise/clip\none step", "noise/clip\naverage")
    for name in ("steps", "passes", *noise):
        table.add_column(name, justify="left" if name == "by" else "right", no_wrap=True)
    least = min(row.run_ratio for row in rows)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        first = row.steps == min(other.steps for other in rows)
        average = f"{row.run_ratio:.3g}"
        table.add_row(
            sampling_name(row.sampling) if first else "",
            f"{row.steps:,}",
            f"{row.passes:,.4g}" if row.passes < 10_000 else f"{row.passes:,.0f}",
            f"{row.noise_multiplier:.4g}",
            row.accountant,
            f"{row.noise_std:.3g}",
            f"{row.step_ratio:.3g}",
            f"[bold green]{average}[/bold green]" if row.run_ratio <= 1.01 * least else average,
            end_section=after is not None and after.sampling != row.sampling,
        )
    return table


def _needs_table(needs: list[Need]) -> Table:
    from ..accounting.plan import sampling_name

    ratios = list(dict.fromkeys(need.ratio for need in needs))
    table = _table(title="Records needed for an average noise/clip of", title_justify="left", title_style="bold")
    table.add_column("batch", no_wrap=True)
    table.add_column("at steps", justify="right", no_wrap=True)
    for ratio in ratios:
        table.add_column(f"{ratio:g}", justify="right", no_wrap=True)
    for sampling, steps in dict.fromkeys((need.sampling, need.steps) for need in needs):
        mine = [need for need in needs if need.sampling == sampling]
        shown = "any" if sampling == ("full",) else f"{steps:,}"
        table.add_row(sampling_name(sampling), shown, *(f"{need.records:,}" for need in mine))
    return table


def _plain(row: PlanRow | Need) -> dict[str, Any]:
    data = asdict(row)
    sampling = data.pop("sampling")
    if "alternatives" in data:
        data["alternatives"] = dict(data["alternatives"])
    return {"sampling": sampling[0], "rate": sampling[1] if len(sampling) > 1 else 1.0, **data}


def _numbers(text: str, option: str, kind: type[Any]) -> list[Any]:
    """Numbers with commas between them."""
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        example = "10,100,1000" if kind is int else "0.01,0.1"
        raise ValueError(f"--{option} is {text!r}; pass numbers with commas between them, e.g. {example}") from None
