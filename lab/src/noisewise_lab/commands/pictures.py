"""``noisewise bench pictures``: accuracy on pictures under a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, print_json, table_of

from .app import bench, listed, watched


@bench.command()
def pictures(
    data: Annotated[Path, typer.Option(help="An .npz with X_train, y_train, X_test, y_test.", exists=True)],
    epsilon: Annotated[str, typer.Option(help="Comma-separated budgets.")] = "1.2,3",
    delta: Annotated[float, typer.Option(help="Of each budget.")] = 1e-5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each; each seed makes a simulation.")] = 3,
    models: Annotated[str, typer.Option(help="gradients, cnn, or both.")] = "gradients,cnn",
    epochs: Annotated[int, typer.Option(min=1, help="Of the network.")] = 15,
    rows: Annotated[int | None, typer.Option(min=100, help="Only the first so many pictures.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Test accuracy of a linear model on stacked oriented gradients, and of a small network trained from scratch.

    Example: [bold]noisewise bench pictures --data mnist.npz --epsilon 1.2,3 --seeds 3[/bold]
    """
    from ..pictures import WAYS, picture_rows, read

    ways = listed(models)
    if not ways or not set(ways) <= set(WAYS):
        raise ValueError(f"--models is {models!r}; pass some of {', '.join(WAYS)}")
    try:
        budgets = [float(number) for number in listed(epsilon)]
    except ValueError:
        raise ValueError(f"--epsilon is {epsilon!r}; pass numbers, e.g. 1.2,3") from None
    held = read(data, rows=rows)
    with watched("pictures", transient=True) as report:
        found = list(
            picture_rows(held, ways=ways, epsilons=budgets, delta=delta, seeds=seeds, epochs=epochs, report=report)
        )
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
