"""``make all-checks``: every target that ``make test`` leaves out, and a table of what became of them.

Each target is a ``make`` of its own; its output is shown and kept in ``.checks/TARGET.log``. The table is written after each
target, so what is done stays done when this is stopped. Started again it skips a target that passed on this very commit
without other changes; ``--again`` runs it nevertheless. Other arguments choose targets. Exit code 1 if one of them failed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/results/checks.md"
LOGS = ROOT / ".checks"
TARGETS = (
    *("docs", "release", "test-slow", "test-flower", "test-browser", "attacks-old", "mutants", "fuzz N=100000"),
    "notebooks",  # last, because it may change the tree
)
NOT_HANDED_ON = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS", "ONLY", "AGAIN")  # ONLY chooses in make fuzz, too
MAX_REASON, SECONDS_TO_STOP = 120, 20  # characters; seconds until Ctrl-C becomes a kill
ROW = re.compile(r"^\| `make (.+?)` \| (\w+\+?) \| ([\d-]+) \| (.+) \| (\d+) \|$", re.MULTILINE)


def main(words: list[str]) -> int:
    names, again, failed = {*words} - {"--again"}, "--again" in words, False
    chosen = [target for target in TARGETS if not names or target.split()[0] in names]
    if len(chosen) < len(names):
        raise SystemExit(f"{' '.join(names)}: choose from {', '.join(target.split()[0] for target in TARGETS)}")
    for target in chosen:
        at, _, result, _ = rows().get(target, 4 * [""])
        if at == commit() and result == "passed" and not again:
            print(f"make {target}: passed on {at} before", flush=True)
            continue
        write(target, row := checked(target))
        print(f"make {target}: {row[2]} on {row[0]} in {row[3]} s", flush=True)
        failed |= row[2] != "passed"
    return int(failed)


def commit() -> str:
    """The last commit, with "+" behind it if the tree has other changes than those of the table."""
    last = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    status = ["git", "status", "--porcelain", "--", ".", f":(exclude){PAGE}"]
    return last + "+" if subprocess.check_output(status, cwd=ROOT) else last


def checked(target: str) -> list[str]:
    """Run it: commit (with a "+" too if the tree changed meanwhile), date, result, seconds."""
    LOGS.mkdir(exist_ok=True)
    log, before, began = LOGS / f"{target.split()[0]}.log", commit(), time.monotonic()
    code, seconds = run(["make", *target.split()], log), time.monotonic() - began
    result = "passed" if code == 0 else f"failed: `{reason(log.read_text(encoding='utf-8', errors='replace'))}`"
    at = before if commit() == before else before.rstrip("+") + "+"
    return [at, date.today().isoformat(), result, f"{seconds:.0f}"]


def run(command: list[str], log: Path) -> int:
    """The exit code; output goes to the log and from there to the terminal. What it started stops when this is stopped."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_HANDED_ON}
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with log.open("wb") as out, log.open("rb") as written:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, stdout=out, **streams)
        try:
            ended = None
            while ended is None:
                time.sleep(0.1)
                ended = child.poll()  # asked before the last reading
                sys.stdout.buffer.write(written.read())
                sys.stdout.flush()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(SECONDS_TO_STOP)
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return ended


def reason(output: str) -> str:
    """The summary of pytest, or else the last line that is not make's; without folders and addresses of this machine."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", output).splitlines() if line.strip()]
    summaries = [line for line in lines if re.fullmatch(r"=+ .*\d+ (failed|error).* =+", line)]
    others = [line for line in lines if not re.match(r"make(\[\d+\])?: ", line)]
    said = (summaries or others or lines or ["no output"])[-1].strip("= ").replace(f"{ROOT}/", "")
    said = re.sub(r"(?<![\w.])/(?:[^\s/]+/)+", "", re.sub(r"\w+://[^\s'\"]+", "(address)", said))
    return said.replace("|", "/").replace("`", "'")[:MAX_REASON].strip()


def rows() -> dict[str, list[str]]:
    return {target: cells for target, *cells in ROW.findall((ROOT / PAGE).read_text(encoding="utf-8"))}


def write(target: str, row: list[str]) -> None:
    """The page as a whole: its text and other rows as they are, rows in the order of the targets."""
    found = {**rows(), target: row}
    lines = [f"| `make {target}` | {' | '.join(found[target])} |\n" for target in TARGETS if target in found]
    part, text = LOGS / "checks.md", (ROOT / PAGE).read_text(encoding="utf-8")
    part.write_text(text.partition("| `make ")[0] + "".join(lines), encoding="utf-8")
    part.replace(ROOT / PAGE)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # what nohup ignores stays ignored
            signal.signal(number, signal.default_int_handler)
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(f"stopped; {PAGE} has the rows of what was done") from None
