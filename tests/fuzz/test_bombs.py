"""Bombs: a file that claims or unpacks to far more than it is gets one clear line, in little memory and time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .bombs import BOMBS
from .core import SECRETS

HERE = Path(__file__).parents[2]


FIRST = next(iter(BOMBS))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == FIRST else pytest.mark.slow) for name in BOMBS]
)
def test_a_bomb_is_refused_in_little_memory(name: str, tmp_path: Path) -> None:
    file, make = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    command = [sys.executable, "-m", "tests.fuzz.bombs", str(tmp_path / file)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=600)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and done.stdout.startswith("accepted" if name == "compressed" else "refused: "), said
    assert done.stdout.count("\n") == 1 and "Traceback" not in said and not any(secret in said for secret in SECRETS)
