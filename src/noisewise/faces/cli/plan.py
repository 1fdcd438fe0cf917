"""``noisewise plan``: what a budget buys, with no data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .main import JsonFlag, app, errors, narrow_table, print_json
from .paying import DatasetName, LedgerUrl, named_account

if TYPE_CHECKING:
    from ...trusted.accountants.plan import Need, PlanRow
    from ...trusted.events import Adjacency
    from ..plan import Plan


@app.command()
def plan(
    context: typer.Context,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget: epsilon.", show_default="with --dataset, the largest that fits")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Budget: delta.", show_default="with --dataset, the account's")
    ] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add_remove or replace_one.", show_default="add_remove, or the account's")
    ] = None,
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
    classes: Annotated[
        int, typer.Option(min=0, help="Classes of the target, 0 for a number; a schema with a target says it instead.")
    ] = 2,
    candidates: Annotated[
        str, typer.Option(help="Numbers of settings to price tuning for, with commas.")
    ] = "1,4,8,16,64",
    plot: Annotated[Path | None, typer.Option(help="Write a picture, e.g. FILE.png.", show_default=False)] = None,
    ledger: LedgerUrl = None,
    dataset: DatasetName = None,
    json_output: JsonFlag = False,
) -> None:
    """Say what a budget buys, with no data: noise, what auto would do, the accuracy to expect, the price of tuning.

    Accuracy is expected from recorded simulations, with its range; at the end stands a recommendation. With --ledger and
    --dataset it plans from what that account has left, and refuses more with exit code 3.

    Example: [bold]noisewise plan --epsilon 1 --delta 1e-6 --size 20000 --features 30 --plot plan.png[/bold]
    """
    from ...trusted.accountants.plan import FEATURES, SIZE
    from ..plan import plan as make

    if not named_account(ledger, dataset) and (epsilon is None or delta is None):
        context.fail(f"Missing option '{'--epsilon' if epsilon is None else '--delta'}'.")
    if schema is not None and features is not None:
        raise ValueError("--schema says what the columns are already; leave --features out")
    made = make(
        epsilon,
        delta,
        size=size or SIZE,
        columns=None if schema is not None else features or FEATURES,
        schema=schema,
        classes=classes or None,
        adjacency=cast("Adjacency | None", adjacency),
        rows_per_unit=rows_per_unit,
        candidates=_numbers(candidates, "candidates", int),
        steps=_numbers(steps, "steps", int),
        rates=_numbers(rates, "rates", float),
        clip=clip,
        ledger=ledger,
        dataset=dataset,
    )
    given = (("size", size), ("features", features if schema is None else schema))
    examples = [f"--{name}" for name, value in given if value is None]
    if plot is not None:
        made.plot(plot)
    if json_output:
        print_json({**made.to_dict(), "examples": examples})
    else:
        _show(made, examples)
    if plot is not None:
        errors.print(f"Written: {plot}", highlight=False, soft_wrap=True)


def _show(made: Plan, examples: list[str]) -> None:
    console = Console()
    console.print(f"[bold]What a budget buys[/bold]: {made.title}", highlight=False)
    console.print(_noise_table(made.rows))
    console.print()
    console.print(made.words, highlight=False)
    console.print()
    console.print(_needs_table(made.records_needed))
    console.print(f"\n[bold]What auto would do[/bold]: {escape(made.why)}\n", highlight=False)
    console.print(_tuning_table(made))
    console.print(f"\n[bold]Recommendation[/bold]: {escape(made.recommendation)}", highlight=False)
    if examples:
        console.print(
            f"{' and '.join(examples)} not given: an example stands in. Noise falls as 1 / records and grows with the "
            "square root of the parameters.",
            highlight=False,
        )


def _noise_table(rows: Sequence[PlanRow]) -> Table:
    from ...trusted.accountants.base import names
    from ...trusted.accountants.plan import sampling_name

    table = narrow_table(
        caption="passes: over the data. by: the accountant that asks for the least noise; "
        f"{' and '.join(names(lambda known: known.slow))} only for noise fixed beforehand, rounded up by up to 1 %. std: of a coordinate of a released mean gradient. noise / clip: "
        "norm of the noise over the clip norm, of one step and of the average of all; sampling adds its own noise.",
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


def _needs_table(needs: Sequence[Need]) -> Table:
    from ...trusted.accountants.plan import sampling_name

    ratios = list(dict.fromkeys(need.ratio for need in needs))
    table = narrow_table(title="Records needed for an average noise/clip of", title_style="bold")
    table.add_column("batch", no_wrap=True)
    table.add_column("at steps", justify="right", no_wrap=True)
    for ratio in ratios:
        table.add_column(f"{ratio:g}", justify="right", no_wrap=True)
    for sampling, steps in dict.fromkeys((need.sampling, need.steps) for need in needs):
        mine = [need for need in needs if need.sampling == sampling]
        shown = "any" if sampling == ("full",) else f"{steps:,}"
        table.add_row(sampling_name(sampling), shown, *(f"{need.records:,}" for need in mine))
    return table


def _tuning_table(made: Plan) -> Table:
    """What to expect of a setting with the whole budget, and when several are tuned."""
    from ..plan.plans import PUBLIC, WORDS

    title = "What to expect, and what tuning would cost"
    table = narrow_table(title=title, title_style="bold", caption=_tuning_caption(made))
    table.add_column("settings", justify="right", no_wrap=True)
    table.add_column("tuned by", no_wrap=True)
    for name in ("mu of each", "noise", "kept", "8 of 10"):
        table.add_column(name, justify="right", no_wrap=True)
    public = [way for way in made.tuning if way.how == PUBLIC]
    shown = [*(way for way in made.tuning if way.how != PUBLIC), *public[:1]]  # the same for any number of settings
    for before, way, after in zip([None, *shown[:-1]], shown, [*shown[1:], None], strict=True):
        count = "any" if way.how == PUBLIC else f"{way.candidates:,}"
        table.add_row(
            "" if before is not None and before.candidates == way.candidates and way.how != PUBLIC else count,
            WORDS[way.how],
            f"{way.mu:.3g}",
            f"x {way.factor:.2f}",
            "unknown" if way.kept is None else f"{way.kept.mid:.2f}",
            "" if way.kept is None else f"{way.kept.low:.2f} to {way.kept.high:.2f}",
            end_section=after is not None and (after.candidates != way.candidates or after.how == PUBLIC),
        )
    return table


def _tuning_caption(made: Plan) -> str:
    noise = "noise: of the training of one setting, beside that of a single run with the whole budget."
    if made.expected is None:
        return noise
    outside = "" if made.expected.within else " (no simulation is so far out: the nearest stand in)"
    measure = "R^2" if made.classes is None else "ROC AUC"
    return (
        f"{noise} kept: share of the gain over one answer for all that a model without privacy has (of {measure}); the middle "
        f"of recorded simulations and where 8 of 10 lie, at {made.expected.by} = {made.expected.at:,.3g}{outside}."
    )


def _numbers(text: str, option: str, kind: type[Any]) -> list[Any]:
    """Numbers with commas between them."""
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        example = "10,100,1000" if kind is int else "0.01,0.1"
        raise ValueError(f"--{option} is {text!r}; pass numbers with commas between them, e.g. {example}") from None
