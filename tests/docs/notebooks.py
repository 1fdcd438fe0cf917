"""Running notebooks without Jupyter: cells in one namespace, `!command` in a shell, outputs as a notebook keeps them.

python tests/docs/notebooks.py          # runs docs/notebooks/*.ipynb and writes their outputs anew
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running import shell

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def notebooks() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells made anew; an error in a cell is one here."""
    names: dict[str, Any] = {"__name__": "__main__"}
    list(pictures())  # closes what this process has drawn before, which is not the notebook's
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = {**cell, "execution_count": count, "outputs": list(outputs(cell["source"], names, count))}
        cells.append(cell)
    return {**notebook, "cells": cells}


def outputs(source: str | list[str], names: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """What a cell prints, shows and gives."""
    told, source = io.StringIO(), "".join(source)
    value = None
    with contextlib.redirect_stdout(told), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if source.startswith("!"):
            for line in source.splitlines():
                told.write(shell(line.removeprefix("!")))
        else:
            value = last_value(source, names, f"cell {count}")
    if told.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": lines(told.getvalue())}
    yield from pictures()
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(value._repr_html_())
        yield {"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}}


def last_value(source: str, names: dict[str, Any], name: str) -> Any:
    body = ast.parse(source, name).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else None
    exec(compile(ast.Module(body, []), name, "exec", dont_inherit=True), names)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), names)


def pictures() -> Iterator[dict[str, Any]]:
    """Figures that a cell has drawn, as pictures; they are then closed."""
    if "matplotlib.pyplot" not in sys.modules:
        return
    import matplotlib.pyplot as plt

    for number in plt.get_fignums():
        content = io.BytesIO()
        plt.figure(number).savefig(content, format="png", dpi=80, bbox_inches="tight")
        picture = base64.b64encode(content.getvalue()).decode()
        yield {"output_type": "display_data", "data": {"image/png": picture}, "metadata": {}}
    plt.close("all")


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    os.environ |= {"COLUMNS": "100", "MPLBACKEND": "agg"}
    for path in notebooks():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            made = executed(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
