"""Runs the fuzz suite and prints a table: ``python -m tests.fuzz N=1000000``.

N inputs go to the parsers, by weight, and N / 200 to fits; with SEQUENCES=M, M adversaries spend from purses. SEED repeats a
run, ONLY names targets by a part of their names, JOBS is the number of processes. Inputs that found something are written to
a folder (fuzz-findings) with what was wrong, and the exit code is 1.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
from pathlib import Path

from . import targets as targets
from .core import TARGETS, Tally, Target, limit_memory, made, tally_of

FOLDER = Path("fuzz-findings")
DEFAULTS = {"N": 100_000, "SEQUENCES": 0, "SEED": 1, "JOBS": 1}
FITS = 200  # one fit for so many inputs of parsers
PIECE = 2000  # inputs that a process takes at a time


def shares(total: int, group: str, only: str) -> dict[str, int]:
    """How many inputs each target gets."""
    chosen = [one for one in TARGETS.values() if one.group == group and only in one.name]
    weight = sum(one.weight for one in chosen)
    return {one.name: max(round(total * one.weight / weight), 1) for one in chosen}


def keep(target: Target, seed: int, why: str) -> None:
    """Write an input that found something."""
    FOLDER.mkdir(exist_ok=True)
    name = "".join(letter if letter.isalnum() else "-" for letter in target.name)
    path = FOLDER / f"{name}-{seed}.txt"
    path.write_text(
        f"{target.name}\nseed {seed}\n{why}\n\n{made(target, seed)!r}\n", encoding="utf-8", errors="replace"
    )


def piece_of(work: tuple[str, int, int, int]) -> tuple[str, bytes]:
    name, seed, start, end = work
    return name, pickle.dumps(tally_of(TARGETS[name], seed, range(start, end), keep))


def tallies(work: dict[str, int], seed: int, jobs: int) -> dict[str, Tally]:
    """Try everything, in one process or several."""
    pieces = [(name, seed, at, min(at + PIECE, many)) for name, many in work.items() for at in range(0, many, PIECE)]
    found = {name: Tally() for name in work}

    def add(done: tuple[str, bytes]) -> None:
        name, one = done[0], pickle.loads(done[1])
        total = found[name]
        for field in ("tried", "accepted", "refused", "seconds"):
            setattr(total, field, getattr(total, field) + getattr(one, field))
        total.findings += one.findings

    if jobs == 1:
        for piece in pieces:
            add(piece_of(piece))
    else:
        with multiprocessing.get_context("spawn").Pool(jobs, limit_memory) as pool:
            for done in pool.imap_unordered(piece_of, pieces):
                add(done)
    return found


def table(found: dict[str, Tally]) -> str:
    """A line for each target, and the sum."""
    lines = ["| target | tried | refused | accepted | findings | seconds |", "|---|---:|---:|---:|---:|---:|"]

    def line(name: str, rows: list[Tally]) -> str:
        counts = [sum(getattr(row, field) for row in rows) for field in ("tried", "refused", "accepted")]
        findings, seconds = sum(len(row.findings) for row in rows), sum(row.seconds for row in rows)
        return f"| {name} | {' | '.join(f'{count:,}' for count in counts)} | {findings} | {seconds:.1f} |"

    lines += [line(name, [tally]) for name, tally in found.items()]
    return "\n".join([*lines, line("**all**", list(found.values()))])


def options(words: list[str]) -> tuple[dict[str, int], str]:
    numbers, only = dict(DEFAULTS), ""
    for word in words:
        name, _, value = word.partition("=")
        if name == "ONLY":
            only = value
        elif name in numbers and value.isdigit():
            numbers[name] = int(value)
        else:
            raise SystemExit(f"{word!r} is not known; pass {', '.join(f'{name}=..' for name in (*DEFAULTS, 'ONLY'))}")
    return numbers, only


def main(words: list[str]) -> int:
    numbers, only = options(words)
    limit_memory()
    start, bad = time.perf_counter(), 0
    for title, many, group in (
        ("Parsers and arguments", numbers["N"], "parsers"),
        ("Fits", numbers["N"] // FITS, "fits"),
        ("Adversaries against purses", numbers["SEQUENCES"], "purses"),
    ):
        work = shares(many, group, only) if many else {}
        if not work:
            continue
        found = tallies(work, numbers["SEED"], numbers["JOBS"])
        print(f"\n{title} (seed {numbers['SEED']}):\n\n{table(found)}\n", flush=True)
        for name, tally in found.items():
            bad += len(tally.findings)
            for seed, why in {why.split(": ")[0]: (seed, why) for seed, why in tally.findings}.values():
                print(f"{name}: seed {seed}: {why}")  # one of each kind
    print(f"{time.perf_counter() - start:.0f} s, {bad} findings" + (f", see {FOLDER}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
