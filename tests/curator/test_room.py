"""Noise knows nothing of what it hides."""

from __future__ import annotations

import ast
from pathlib import Path

import noisewise

PACKAGE = Path(noisewise.__file__).parent / "trusted"


def test_noise_imports_nothing_of_ours_but_events_and_kernels():
    ours = set()
    for path in (PACKAGE / "noise").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level > 1:
                ours |= {node.module} if node.module else {alias.name for alias in node.names}
            assert not (
                isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("noisewise")
            )
    # words for events, loops and forks: nothing of records
    assert ours == {"events", "fast", "fast.kernels", "process"}
