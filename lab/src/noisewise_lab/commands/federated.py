"""``noisewise bench federated``: accuracy on a thousand clients against one place."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, print_json, table_of

from .app import bench, listed, watched


@bench.command()
def federated(
    data: Annotated[Path, typer.Option(help="A folder with mnist.npz and adult_uci.parquet.", exists=True)],
    sets: Annotated[str, typer.Option(help="digits, adult, or both.")] = "digits,adult",
    clients: Annotated[int, typer.Option(min=2, help="How many, of about as many rows each.")] = 1000,
    column: Annotated[str, typer.Option(help="Of adult: clients are consecutive in it.")] = "age",
    ways: Annotated[str, typer.Option(help="Some of central, record, client.")] = "central,record,client",
    epsilon: Annotated[str, typer.Option(help="Comma-separated budgets.")] = "1,4,8",
    delta: Annotated[float, typer.Option(help="Of each budget.")] = 1e-5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each; each seed makes a simulation.")] = 3,
    method: Annotated[str, typer.Option(help="See noisewise methods.")] = "auto",
    clip: Annotated[float | None, typer.Option(help="Of a client's vector.", show_default="by the method")] = None,
    local_steps: Annotated[int, typer.Option(min=1, help="Of a client between questions.")] = 1,
    local_rate: Annotated[float, typer.Option(help="Their step size.")] = 1.0,
    flower: Annotated[bool, typer.Option("--flower", help="Flower's simulation instead of one process.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Test accuracy of training on clients, a record or a client protected, against the same rows in one place.

    Example: [bold]noisewise bench federated --data FOLDER --sets adult --epsilon 1,4,8 --seeds 3[/bold]
    """
    from ..federated import DATA, WAYS, Crowded, adult, federated_rows

    names, chosen = listed(sets), listed(ways)
    if not names or not set(names) <= set(DATA):
        raise ValueError(f"--sets is {sets!r}; pass some of {', '.join(DATA)}")
    if not chosen or not set(chosen) <= set(WAYS):
        raise ValueError(f"--ways is {ways!r}; pass some of {', '.join(WAYS)}")
    try:
        budgets = [float(number) for number in listed(epsilon)]
    except ValueError:
        raise ValueError(f"--epsilon is {epsilon!r}; pass numbers, e.g. 1,4,8") from None
    makers: dict[str, Callable[..., Crowded]] = {**DATA, "adult": partial(adult, column=column)}
    with tempfile.TemporaryDirectory(prefix="noisewise-") as folder, watched("runs", transient=True) as report:
        made = [makers[name](data, Path(folder), clients) for name in names]
        found = list(
            federated_rows(
                made, ways=chosen, epsilons=budgets, delta=delta, seeds=seeds, method=method, clip=clip,
                local_steps=local_steps, local_rate=local_rate, flower=flower, report=report,
            )
        )  # fmt: skip
    if json_output:
        print_json({"rows": found})
        return
    shown = [
        {
            **row,
            "accuracy": f"{100 * row['accuracy']:.2f}",
            "standard_error": "" if row["standard_error"] is None else f"{100 * row['standard_error']:.2f}",
            "seconds": f"{row['seconds']:.0f}",
        }
        for row in found
    ]
    Console().print(table_of(shown, "Test accuracy in percent, mean over seeds"))
