"""``noisewise effects``: the shape of each column's effect, from a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .apply import vacant_file, without_formulas, write_table
from .main import JsonFlag, app, errors, print_json


@app.command()
def effects(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write, .csv or .parquet.", show_default="standard output, as CSV")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """How the score, or a regression's target, changes with each column: one line for each of its values.

    feature, value, effect, and noise_low to noise_high, 95 % of the privacy noise; of several classes also output. Values are
    knots of a number, categories, and "missing". --json has the strengths of pairs too. Costs nothing: the model is released
    already. In CSV a text that a spreadsheet would run as a formula gets a ' in front, as in predict.

    Example: [bold]noisewise effects run --out effects.csv[/bold]
    """
    import pandas as pd

    from ...evidence import runs

    vacant_file(out, force=force)
    fitted = runs.load(run)
    try:
        found = fitted.effects()
    except AttributeError:
        method = fitted.settings["method"]
        raise ValueError(
            f"{run} was trained by {method}, whose model has no effects of columns; additive's has, and a linear one has "
            "its coefficients in the report"
        ) from None
    rows = list(found.rows())
    if out is not None:
        told = pd.DataFrame(rows)
        # a file has one kind of values in a column
        write_table(told.assign(value=told["value"].map(str)) if out.suffix == ".parquet" else told, out)
        words = f"Written to {out}: {len(rows):,} values of {len(found.columns):,} columns"
        errors.print(words, highlight=False, markup=False, soft_wrap=True)
    if json_output:
        written = None if out is None else str(out)
        shown = None if out is not None else rows
        print_json({"rows": len(rows), "written": written, "effects": shown, "pairs": found.pair_rows()})
    elif out is None:
        without_formulas(pd.DataFrame(rows)).to_csv(sys.stdout, index=False)
