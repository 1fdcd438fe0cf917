"""Train run folders with an earlier version and keep them, with what that version said of them, to prove they still load.

    python tests/golden/old_folders.py COMMIT VERSION

Folders are made once for each released version; private ones cannot be made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from golden_cases import OLD, PROMISE, laid_out
from golden_text import put

HOUSE = Path(__file__).parents[2]
CALL = "import sys; sys.argv[0] = 'noisewise'; from noisewise.faces.cli import main; main()"
KINDS = {
    "seeded": ("group.toml", "--method", "output_perturbation", "--seed", "1"),
    "private": ("income.toml", "--method", "sufficient_statistics"),
    "private-bought": ("bought.toml", "--bounds-epsilon", "0.5"),
    "private-mlp": ("rich.toml", "--method", "only_public", "--public", "public.csv", "--model", "4"),
}


def main(commit: str, version: str) -> None:
    then = {}
    with tempfile.TemporaryDirectory() as place:
        tree, folder = Path(place) / "tree", Path(place) / "work"
        folder.mkdir()
        laid_out(folder)
        subprocess.run(["git", "worktree", "add", "--detach", tree, commit], cwd=HOUSE, check=True)
        try:
            for kind, (schema, *rest) in KINDS.items():
                name = f"{version}-{kind}"
                _old(tree, folder, "train", "private.csv", "--schema", schema, *PROMISE, *rest, "--out", name)
                commands = {"verify": ("verify", name, "--json"), "predict": ("predict", name, "new.csv")}
                then[name] = {said: _old(tree, folder, *arguments) for said, arguments in commands.items()}
                shutil.copytree(folder / name, OLD / name)
                if kind != "seeded":  # one page is enough: it is not sealed, and can be made anew
                    (OLD / name / "report.html").unlink()
            shutil.copy(folder / "new.csv", OLD / "rows.csv")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=HOUSE, check=True)
    put("folders/then.json", then)


def _old(tree: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "100"}
    command = [sys.executable, "-c", CALL, *arguments]
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    print(*arguments, told.returncode, told.stderr, sep="  ")
    return {"code": told.returncode, "out": told.stdout.splitlines(), "err": told.stderr.splitlines()}


if __name__ == "__main__":
    main(*sys.argv[1:])
