"""The room stays small enough to be read in an hour, and noise knows nothing of what it hides."""

from __future__ import annotations

import ast
from pathlib import Path

import noisewise

PACKAGE = Path(noisewise.__file__).parent
LINES, FUNCTION = 2680, 40


def test_the_curator_is_short_and_so_is_each_of_its_functions():
    total = 0
    for path in sorted((PACKAGE / "curator").rglob("*.py")):
        source = path.read_text()
        total += len(source.splitlines())
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < FUNCTION, (path.name, node.name)
    assert 1000 < total <= LINES


def test_noise_imports_nothing_of_ours_but_events_and_kernels():
    ours = set()
    for path in (PACKAGE / "noise").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level > 1:
                ours |= {node.module} if node.module else {alias.name for alias in node.names}
            assert not (
                isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("noisewise")
            )
    assert ours == {
        "events",
        "kernels",
        "plain_compiled",
        "late",
        "process",
    }  # words for events, loops, torch and forks: nothing of records
