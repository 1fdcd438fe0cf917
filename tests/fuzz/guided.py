"""Fuzzing guided by coverage: ``python -m tests.fuzz.guided SECONDS=60 ONLY=schema`` (needs atheris, the extra "fuzz").

Each target that takes bytes gets so many seconds in a process of its own, begins with mutated seeds, and keeps the inputs that
reach new lines of noisewise. A finding stops it and is written to fuzz-findings.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from random import Random
from typing import Any

SEEDS, FOLDER = 200, Path("fuzz-findings")


def guide(name: str, seconds: int, corpus: str) -> None:
    """Never returns: the fuzzer ends its process."""
    import atheris

    with atheris.instrument_imports(include=["noisewise"]):
        from . import targets as targets
    from .core import TARGETS, made, tried

    one = TARGETS[name]
    Path(corpus).mkdir(parents=True)
    for number in range(SEEDS):
        (Path(corpus) / str(number)).write_bytes(made(one, number))

    def test(content: bytes) -> None:
        verdict, why = tried(one, content)
        if verdict == "finding":
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"guided-{abs(hash(content))}.txt").write_text(f"{name}\n{why}\n\n{content!r}\n")
            raise RuntimeError(why)

    words = [sys.argv[0], f"-max_total_time={seconds}", "-verbosity=0", "-print_final_stats=1", corpus]
    atheris.Setup(words, test)
    atheris.Fuzz()


def takes_bytes(one: Any) -> bool:
    return one.group == "parsers" and isinstance(one.make(Random(1)), bytes)


def main(words: list[str]) -> int:
    import tempfile

    from . import targets as targets
    from .core import TARGETS

    given = dict(word.split("=", 1) for word in words)
    seconds, only = int(given.get("SECONDS", "60")), given.get("ONLY", "")
    names = [one.name for one in TARGETS.values() if only in one.name and takes_bytes(one)]
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(names):
            print(f"--- {name}", flush=True)
            process = multiprocessing.get_context("spawn").Process(
                target=guide, args=(name, seconds, f"{place}/{number}")
            )
            process.start()
            process.join()
            bad += process.exitcode != 0
    print(f"{len(names)} targets, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
