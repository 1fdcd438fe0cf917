"""``noisewise export``: a model that predicts elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import answer, refuse_existing, write
from .main import JsonFlag, app


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="json|onnx|sklearn", help="The format.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="File to write.", show_default="model.json, model.onnx or model.py")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Write a model as one file that predicts without noisewise.

    The file holds its preparation and its statement, too. Costs nothing: the model is released already.

    json: plain arithmetic, which about thirty lines in any language can do (docs/export.md). onnx: for onnxruntime; needs pip
    install 'noisewise\\[export]'. sklearn: one Python file that needs numpy alone, and is a scikit-learn estimator where that
    is installed.

    Example: [bold]noisewise export run --to json --out model.json[/bold]
    """
    from ...evidence import runs
    from ...evidence.export.formats import NAMES, check_format, exported

    check_format(to)
    place = Path(NAMES[to]) if out is None else out
    if place.is_dir():
        raise ValueError(f"{place} is a folder; pass a file as --out")
    refuse_existing(place, force=force)
    content = exported(runs.load(run), to)
    write(place, content)
    document = {"written": str(place), "format": to, "bytes": len(content)}
    answer(document, f"Written: {place}, {len(content):,} bytes", json_output)
