"""``noisewise bench beginners``: the pictures of docs/privacy-for-beginners.md and docs/which-method.md, and the numbers in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of

from .app import bench


@bench.command()
def beginners(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("noisewise-beginners"),
    json_output: JsonFlag = False,
) -> None:
    """Draw what noise hides, what epsilon means, how budgets add up, clip and noise, what is not protected, and which method when.

    Example: [bold]noisewise bench beginners --out docs/images[/bold]
    """
    from ..beginners import draw, numbers

    rows, paths = numbers(), draw(out)
    if json_output:
        print_json({"rows": rows, "files": [str(path) for path in paths]})
        return
    Console().print(table_of(rows, "What the pictures show"))
    errors.print(f"written to {out}: {', '.join(path.name for path in paths)}", highlight=False)
