"""Peak memory of private training over that of plain training, each in a process of its own.

A process first trains something tiny in the same way, so that what a library loads at its first step is not counted. Then it
builds the workload, reads how much memory it has, takes some steps, and reads the most it had meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .module_speed import private_module_step
from .peers import PEERS, Peer
from .threads import use_threads
from .works import Step, Trained, module_workloads, perceptron

STEPS = 5
MB = 2**20
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory_rows(
    *,
    against: Sequence[Peer] = (),
    only: Sequence[str] = (),
    weigh: Callable[[str, str], float] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """A row per workload and engine: megabytes that training adds at its peak, and their ratio to plain training."""
    names = [work.name for work in module_workloads() if not only or work.name in only]
    if not names:
        raise ValueError(f"no workload of this name; pass some of {', '.join(w.name for w in module_workloads())}")
    engines = ["plain", "noisewise", *(peer.engine for peer in against)]
    rows: list[dict[str, Any]] = []
    for name in names:
        grown = []
        for engine in engines:
            grown.append((weigh or in_own_process)(name, engine))
            progress(len(rows) + len(grown), len(names) * len(engines))
        rows += [
            {"workload": name, "engine": engine, "megabytes": more, "ratio": more / grown[0]}
            for engine, more in zip(engines, grown, strict=True)
        ]
    return rows


def in_own_process(name: str, engine: str) -> float:
    """Megabytes that a fresh process adds."""
    told = subprocess.run(
        [sys.executable, "-m", "noisewise_lab.module_memory", name, engine], capture_output=True, text=True, check=False
    )
    if told.returncode:
        raise RuntimeError(f"{engine} could not train {name}: {told.stderr.strip().splitlines()[-1:]}")
    return float(json.loads(told.stdout))


def step_of(work: Trained, engine: str) -> Step:
    """A step of the engine by its name in the rows."""
    if engine == "plain":
        return work.training(*work.plainly())
    if engine == "noisewise":
        return private_module_step(work)
    return next(peer for peer in PEERS.values() if peer.engine == engine).step(work)


def growth(name: str, engine: str) -> float:
    """Megabytes that steps of the workload add to this process at their peak."""
    use_threads(1)
    work = next(work for work in module_workloads() if work.name == name)
    tiny = replace(work, rows=20, batch=4, module=perceptron(3, 2), shape=(3,), outputs=2, words=None, labels=())
    step_of(tiny, engine)()
    step = step_of(work, engine)
    before = settled()
    for _ in range(STEPS):
        step()
    return (peak() - before) / MB


def settled() -> int:
    """Bytes in use now that what was freed is given back; the peak starts again from here where the system allows it."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library keeps what it has
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with contextlib.suppress(OSError):
        RESET.write_text("5")
    return status("VmRSS") or peak()


def peak() -> int:
    """The most bytes that were in use."""
    return status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def status(field: str) -> int | None:
    """A size in bytes as Linux tells it; None elsewhere."""
    with contextlib.suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


if __name__ == "__main__":
    print(json.dumps(growth(sys.argv[1], sys.argv[2])))
