"""``make all-checks`` on a small tree: what passes, what fails, what is stopped, and what is left to do afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import all_checks
import pytest

MAKEFILE = """.PHONY: docs release fuzz
docs:
\t@echo "built; ONLY is [$(ONLY)]"
release:
\t@test -e mended || { echo "=== 1 failed, 2 passed in 0.1s ==="; exit 3; }
fuzz:
\t@echo $(N) $$$$ > .checks/started; exec sleep $$(test -e mended && echo 0 || echo 60)
"""
SCRIPT = "tests/all_checks.py"
# Ctrl-C works in the script and what it starts, also where these tests run in the background.
HEEDING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, ['python', *sys.argv[1:]])"
ENVIRONMENT = os.environ | {"ONLY": "docs", "MAKEFLAGS": "n"}  # neither is for the targets


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / all_checks.PAGE).parent.mkdir(parents=True)
    (tmp_path / all_checks.PAGE).write_text(
        "# Checks\n\n| target |\n|---|\n| `make fuzz N=7` | abc | 2026-01-01 | passed | 9 |\n"
    )
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / ".gitignore").write_text(".checks/\n")
    shutil.copy(all_checks.__file__, tmp_path / SCRIPT)
    git(tmp_path, "init", "--quiet")
    committed(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True, text=True).stdout.strip()


def committed(tree: Path) -> str:
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "What is there")
    return git(tree, "rev-parse", "--short", "HEAD")


def check(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *words]
    return subprocess.run(command, cwd=tree, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)


def table(tree: Path) -> dict[str, tuple[str, str]]:
    """Commit and result of each target."""
    found = all_checks.ROW.findall((tree / all_checks.PAGE).read_text())
    return {target: (commit, result) for target, commit, _, result, _ in found}


def test_it_goes_on_after_a_failure_and_after_being_stopped(tree):
    first = git(tree, "rev-parse", "--short", "HEAD")
    command = [sys.executable, "-c", HEEDING, SCRIPT, "docs", "release", "fuzz"]
    running = subprocess.Popen(command, cwd=tree, env=ENVIRONMENT)
    started = tree / ".checks" / "started"
    until = time.monotonic() + 60
    while not (started.exists() and started.read_text().endswith("\n")):
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) != 0
    count, process = started.read_text().split()
    assert count == "100000"
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
    done = {"docs": (first, "passed"), "release": (first, "failed: `1 failed, 2 passed in 0.1s`")}
    assert table(tree) == done
    assert (tree / ".checks" / "docs.log").read_text() == "built; ONLY is []\n"

    (tree / "mended").touch()
    again = check(tree, "release", "fuzz")  # on a tree with a change
    assert again.returncode == 0
    assert table(tree) == {
        "docs": (first, "passed"),
        "release": (f"{first}+", "passed"),
        "fuzz N=100000": (f"{first}+", "passed"),
    }

    second = committed(tree)
    for words, said in (
        (["docs", "release"], "built"),
        (["docs", "release"], "before"),
        (["docs", "--again"], "built"),
    ):
        assert said in check(tree, *words).stdout
    assert table(tree)["docs"] == table(tree)["release"] == (second, "passed")


def test_a_failure_is_an_exit_code_and_a_row(tree):
    done = check(tree, "release")
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout
    assert check(tree, "relese").stderr.startswith("relese: choose from docs, release, ")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "=== 1 passed ===\n\x1b[31m=== 2 failed, 1 passed in 3s ===\x1b[0m\nlast words\nmake: *** Error 1\n",
            "2 failed, 1 passed in 3s",
        ),
        ("one\nAborted with 1 warnings\nmake[1]: *** [Makefile:3: docs] Error 1\n", "Aborted with 1 warnings"),
        ("make: *** No rule to make target 'docs'.  Stop.\n", "make: *** No rule to make target 'docs'.  Stop."),
        ("no `/home/one/two.py` | https://example.org/a/b\n", "no 'two.py' / (address)"),
        (f"no {all_checks.ROOT}/tests/a.py" + 200 * "x", "no tests/a.py" + 107 * "x"),
        ("", "no output"),
    ],
)
def test_the_reason_is_one_short_line(output, said):
    assert all_checks.reason(output) == said


def test_every_target_is_one_of_the_makefile():
    makefile = (all_checks.ROOT / "Makefile").read_text()
    for target in all_checks.TARGETS:
        assert f"\n{target.split()[0]}:" in makefile or f" {target.split()[0]}:" in makefile
