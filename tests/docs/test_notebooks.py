"""The notebooks run from their first cell to the last, and print the words that they show."""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
import pytest
from notebooks import executed, notebooks, outputs
from running import compare


@pytest.mark.slow
@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for shown, made in zip(notebook["cells"], executed(notebook)["cells"], strict=True):
        assert [one["output_type"] for one in shown.get("outputs", ())] == [
            one["output_type"] for one in made.get("outputs", ())
        ]
        for one, other in zip(shown.get("outputs", ()), made.get("outputs", ()), strict=True):
            if "text" in one:
                compare("".join(other["text"]), "".join(one["text"]), varies=True)


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_is_one(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and notebook["cells"][0]["cell_type"] == "markdown"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert all(cell["id"] for cell in notebook["cells"]) and any(cell["outputs"] for cell in code)


def test_a_cell_prints_shows_and_gives():
    names: dict[str, object] = {}
    plt.close("all")  # a figure that another test left open would be shown
    (said, given) = outputs(["print('a')\n", "x = 1\n", "x + 1"], names, 3)
    assert said["text"] == ["a\n"] and given["data"] == {"text/plain": ["2"]} and given["execution_count"] == 3
    assert list(outputs("x + 1;", names, 4)) == []
    (echoed,) = outputs("!echo b", names, 5)
    assert echoed["text"] == ["b\n"]
    with pytest.raises(NameError):
        list(outputs("unknown", names, 6))
