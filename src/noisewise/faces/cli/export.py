"""``noisewise export``: a model that predicts elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .main import JsonFlag, app, print_json


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

    Its preparation and its statement are in it. Costs nothing: the model is released already.

    json: plain arithmetic, for which about thirty lines of any language do (docs/export.md). onnx: for onnxruntime; pip install
    'noisewise\\[export]' has what writes it. sklearn: one Python file with numpy alone, a scikit-learn estimator where that is
    installed.

    Example: [bold]noisewise export run --to json --out model.json[/bold]
    """
    from ...evidence.export.formats import NAMES, check_format

    check_format(to)
    place = Path(NAMES[to]) if out is None else out
    if place.is_dir():
        raise ValueError(f"{place} is a folder; pass a file as --out")
    if place.exists() and not force:
        raise ValueError(f"{place} exists already; pass another file, or --force to overwrite it")
    content = _content(run, to)
    _write(place, content)
    if json_output:
        print_json({"written": str(place), "format": to, "bytes": len(content)})
    else:
        typer.echo(f"Written: {place}, {len(content):,} bytes")


def _content(run: Path, to: str) -> bytes:
    from ...evidence import runs
    from ...evidence.export.formats import exported

    return exported(runs.load(run), to)


def _write(place: Path, content: bytes) -> None:
    """All of the file or nothing."""
    from ...accounts.atomic import write_atomically

    try:
        write_atomically(place, content)
    except OSError as error:
        raise ValueError(f"{place}: cannot be written ({error.strerror}); pass another file") from None
