"""``make mutants``: one constant, sign or comparison of the trust base changed at a time; a test must notice each.

A mutant is a piece of text that occurs exactly once in ``src/`` (in the files that ``where`` names), what takes its place,
and the tests that should notice. It is put into a temporary copy of the tree; if those tests pass, the wider list is tried,
and if that passes too the mutant has survived and this fails. Before any mutant the tests must pass on the copy as it is.
Arguments choose mutants by a part of their name, or of the file that they change. Kernels run in the reference arithmetic, but
where a mutant says otherwise: one whose source has changed is compiled anew, which takes longer than any test here. The mutants
stand in ``of_*.py``; ``test_mutants.py`` says that every file that a run's promise rests on has one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from every_mutant import MUTANTS
from mutant import ROOT, Mutant, home

PARTS = ("src", "tests", "conftest.py", "pyproject.toml")
WORDS = "tests/records/test_shared_words.py"  # which there are in compiled arithmetic alone
WIDER = (
    *("tests/laws/test_curator_laws.py", "tests/curator", "tests/noise", "tests/test_budget.py"),
    *("tests/laws/test_meter_laws.py", "tests/records", f"--ignore={WORDS}"),
)


def main(chosen: list[str]) -> int:
    mutants = [
        mutant
        for mutant in MUTANTS
        if not chosen or any(part in mutant.name or part in str(home(ROOT, mutant)) for part in chosen)
    ]
    if unseen := not_in_make_test(mutants):
        raise SystemExit(f"make test does not run what should notice: {', '.join(unseen)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="noisewise-mutants-") as folder:
        tree = Path(folder)
        copied(tree)
        for kernels in dict.fromkeys(mutant.kernels for mutant in mutants):
            tests = [test for mutant in mutants if mutant.kernels == kernels for test in mutant.tests]
            if noticed := failed(tree, tuple(dict.fromkeys(tests)), kernels):
                raise SystemExit(f"{noticed} fails without any mutant; nothing would be shown")
        print("| mutant | noticed by | seconds |\n|---|---|---|")
        survivors = [mutant for mutant in mutants if not noticed_by_a_test(tree, mutant)]
    caught = len(mutants) - len(survivors)
    print(f"\n{caught} of {len(mutants)} mutants caught in {time.monotonic() - began:.0f} s.")
    return 1 if survivors or not mutants else 0


def not_in_make_test(mutants: list[Mutant]) -> list[str]:
    """Mutants of which ``make test`` runs no test."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests"]
    cases = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    there = {*cases, *(case.partition("[")[0] for case in cases)}
    there |= {
        part for case in cases for part in ("/".join(case.partition("::")[0].split("/")[:n]) for n in range(1, 9))
    }
    return [mutant.name for mutant in mutants if not there.intersection(mutant.tests)]


def copied(tree: Path) -> None:
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / part, tree / part)


def noticed_by_a_test(tree: Path, mutant: Mutant) -> bool:
    began, path = time.monotonic(), home(tree, mutant)
    source = path.read_text()
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        test = failed(tree, mutant.tests, mutant.kernels) or failed(tree, WIDER)
    finally:
        path.write_text(source)
    print(f"| {mutant.name} | {test or '**nothing**'} | {time.monotonic() - began:.0f} |", flush=True)
    return bool(test)


def failed(tree: Path, tests: tuple[str, ...], kernels: str = "reference") -> str:
    """The first test that fails in the copy; empty if all pass."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # what was compiled a second ago would hide a change
        "NOISEWISE_KERNELS": kernels,
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not found:
        raise SystemExit(f"pytest stopped with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1].removeprefix("tests/")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
