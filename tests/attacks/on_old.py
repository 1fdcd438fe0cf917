"""``make attacks-old``: the attacks of this folder, run on the commit where they worked. Each must fail there.

Attacks that never worked are marked ``@pytest.mark.guard(reason)`` and left out. Arguments go to pytest, e.g. ``-k verify``.
A file that cannot even be imported there, or a fixture that breaks, shows nothing: that is an error and not a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

OLD = {
    "e835328": (),
    "2a81b67": ("test_modules.py",),
    "df147b2": ("test_federated.py", "test_workers_attacks.py"),
    "4785ec3": (
        "test_records_apart.py",
        "test_engine_attacked.py",
        "test_forks.py",
        "test_watching.py",
        "test_rules.py",
        "test_unpaid_claims.py",
        "test_hostile_server.py",
    ),
    "e5c5ab7": ("test_odd_runs.py", "test_requests_of_guests.py"),
}  # where attacks worked: these files there, all others on the first
ROOT = Path(__file__).resolve().parents[2]
HELPERS = ("conftest.py", "desk.py", "ranks.py", "sandbox.py", "workers.py")  # of tests/, which attacks may use
MARKERS = "markers=guard(reason): an attack that never worked\nsample(n, *ids): some cases\nslow: takes long"


def main() -> int:
    outcomes: dict[str, str] = {}
    for commit, files in OLD.items():
        outcomes |= on(commit, files)
    for test, found in sorted(outcomes.items()):
        print(f"{found:8} {test}")
    repelled = [test for test, found in outcomes.items() if found != "failed"]
    print(f"{len(outcomes) - len(repelled)} of {len(outcomes)} attacks fail on {' or '.join(OLD)}, as they should")
    return 0 if outcomes and not repelled else 1


def on(commit: str, files: tuple[str, ...]) -> dict[str, str]:
    """What became of each attack of these files on this commit; without files of those that no other commit has."""
    with tempfile.TemporaryDirectory(prefix="noisewise-old-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "-C", str(clone), "checkout", "--quiet", "--detach", commit], check=True)
        shutil.rmtree(clone / "tests" / "attacks", ignore_errors=True)
        shutil.copytree(ROOT / "tests" / "attacks", clone / "tests" / "attacks")
        for name in HELPERS:
            shutil.copy(ROOT / "tests" / name, clone / "tests" / name)
        others = {name for own in OLD.values() for name in own} - {*files}
        asked = [f"tests/attacks/{name}" for name in files] or ["tests/attacks"]
        return attacked(
            clone, Path(folder) / "outcomes.xml", [*asked, *(f"--ignore=tests/attacks/{n}" for n in others)]
        )


def attacked(clone: Path, report: Path, asked: list[str]) -> dict[str, str]:
    """What became of each attack with the sources of the clone."""
    paths = os.pathsep.join(map(str, (clone / "src", clone / "tests" / "attacks")))  # the latter has the plugin
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    where = "import noisewise; print(noisewise.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], env=environment, cwd=clone, capture_output=True, text=True, check=True
    )
    if not found.stdout.startswith(str(clone)):
        raise SystemExit(
            f"noisewise comes from {found.stdout.strip()}, not from the clone; run this with .venv/bin/python"
        )
    # one worker, which is replaced where an attack crashes it: some read beside the rows there
    quiet = [
        "-m",
        "pytest",
        "-p",
        "former_paths",
        *asked,
        "-q",
        "--tb=no",
        "--continue-on-collection-errors",
        "-n",
        "1",
    ]
    command = [sys.executable, *quiet, "-m", "not guard", "-o", MARKERS, f"--junitxml={report}", *sys.argv[1:]]
    done = subprocess.run(command, env=environment, cwd=clone, stdout=sys.stderr)
    if not report.exists():
        raise SystemExit(f"pytest stopped with {done.returncode}")
    return {
        f"{case.get('classname')}::{case.get('name')}": outcome(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def outcome(case: ElementTree.Element) -> str:
    kinds = {"failure": "failed", "error": "error", "skipped": "skipped"}
    if any("crashed while running" in f"{part.get('message')}{part.text}" for part in case):
        return "failed"  # no test could say more clearly that the attack works
    return next((kinds[part.tag] for part in case if part.tag in kinds), "passed")


if __name__ == "__main__":
    raise SystemExit(main())
