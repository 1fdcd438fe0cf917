"""What learned protectors cost: meta-training, a projector's step, a step of a private run, and memory.

Everything runs in one thread, and ratios come from interleaved rounds. Memory is that of a fresh process, its highest during one meta-update
less what it had before.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noisewise.accounts import Budget
from noisewise.accounts.choosing import choose_meter
from noisewise.asking import Curator
from noisewise.learned.meta_training import Recipe, Training
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.learned.trained import find_tasks, recipes
from noisewise.methods.l2p import L2P
from noisewise.protect.learned.weights import Design
from noisewise.protect.learned.zoo import OutsideRange, shipped
from noisewise.protect.optimizers import Momentum
from noisewise.protect.signal import first_signal, with_answer
from noisewise.trusted.losses import loss_named
from noisewise.trusted.models import Linear

from .speed import Step, timed
from .store import Row
from .threads import threads, use_threads

EPOCHS = 300
GOALS = {"meta-training, minutes": 3.0, "projector step at d = 784, ms": 2.0, "l2p step over plain step": 1.25}


@dataclass(frozen=True)
class Peak:
    """One meta-update of a constraint method on runs of that many steps."""

    form: str
    steps: int


def default_tasks(folder: Path | None) -> Tasks:
    """The tasks of the protector for linear models; without their data, the generated ones."""
    return find_tasks("generated" if folder is None or "clear" not in recipes() else "clear", folder)


def meta_step_seconds(folder: Path | None, epochs: int = 30) -> float:
    """Mean processor seconds per epoch of the default recipe in this thread; the first one, which reads the data, is left out."""
    training = Training(default_tasks(folder), Design(), Recipe(epochs=epochs + 1))
    training.epoch()
    started = time.process_time()
    for _ in training:
        pass
    return (time.process_time() - started) / epochs


def projector_step(dimension: int = 784) -> Step:
    """One step of the learned projector alone."""
    part, rng = shipped("clear").protector().projector, np.random.default_rng(0)
    one, gradient = np.ones(1, np.float32), rng.standard_normal((1, dimension), dtype=np.float32)
    signal = first_signal(1, dimension, horizon=50, ratio=10 * one, typical_clip=0.5)
    signal = with_answer(signal, gradient, one, signal.clip, 0.98 * one)
    thetas, memory = rng.standard_normal((1, dimension), dtype=np.float32), part.init(1, dimension)

    def step() -> None:
        part(signal, thetas, memory)

    return step


def full_batch_steps(rows: int = 30_000, dimension: int = 100, protector: str = "auto") -> tuple[Step, Step]:
    """A plain private step (gradient, then momentum) and one of l2p, each with a meter and a curator of its own."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, dimension), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(rows) > 0.5, 1.0, -1.0).astype(np.float32)
    model, budget, horizon = Linear(dimension, loss_named("logistic")), Budget(1.0, 1e-8), 5000

    def curator() -> Curator:
        return Curator(X, y, model=model, meter=choose_meter(budget, adaptive=True), size=rows, row_bound=1.0)

    plain, sigma, rule = curator(), 0.0, Momentum(0.1)
    theta, velocity = model.start(), rule.init(dimension)
    sigma = plain.meter.noise_for(1 / horizon)

    def plain_step() -> None:
        nonlocal theta, velocity
        answer = plain.gradient(theta, clip=0.5, noise_multiplier=sigma)
        theta, velocity = rule(answer, theta, velocity)

    method, private = L2P(protector=protector, steps=horizon, deflate=False), curator()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideRange)  # a long horizon, so that the budget outlasts the rounds
        state = method.init(model.start(), private.facts, None)

    def l2p_step() -> None:
        nonlocal state
        state = method.step(state, private, None)

    return plain_step, l2p_step


def speed_rows(
    folder: Path | None, *, rounds: int = 25, epochs: int = 30, report: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """A row per measurement, with its goal."""
    with threads(1):
        report("projector step")
        step = projector_step()
        timed(step, 10)
        projector_ms = 1e3 * statistics.median(timed(step, 10) for _ in range(rounds))
        report("full-batch step")
        plain, learned = full_batch_steps()
        timed(plain, 10), timed(learned, 10)
        pairs = [(timed(plain, 10), timed(learned, 10)) for _ in range(rounds)]
        report("meta-training")
        seconds = meta_step_seconds(folder, epochs)
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    values = {
        "seconds per meta-step": seconds,
        "meta-training, minutes": EPOCHS * seconds / 60,
        "projector step at d = 784, ms": projector_ms,
        "plain step at n = 30,000, d = 100, ms": 1e3 * statistics.median(theirs for theirs, _ in pairs),
        "l2p step, ms": 1e3 * statistics.median(ours for _, ours in pairs),
        "l2p step over plain step": ratio,
    }
    return [
        {"what": what, "value": value, "goal": GOALS.get(what), "met": value <= GOALS[what] if what in GOALS else None}
        for what, value in values.items()
    ]


def memory_peak(peak: Peak) -> Row:
    """Megabytes that one meta-update adds to a fresh process."""
    call = f"from noisewise_lab.protector_speed import print_peak; print_peak({peak.form!r}, {peak.steps!r})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, "-c", call], env=environment, capture_output=True, text=True, check=True)
    row: Row = json.loads(result.stdout)
    return row


def print_peak(form: str, steps: int) -> None:
    """One meta-update in this process, and how far its memory rose."""
    use_threads(1)
    source = TaskSource("gaussian", columns=(50, 50))
    tasks = Tasks("memory", (source,), rows=500, copies=4, horizon=(steps, steps))
    training = Training(tasks, Design(), Recipe(constraint=form, calibrated=False, epochs=1))
    small = Training(Tasks("memory", (source,), rows=500, copies=4, horizon=(2, 2)), Design(), Recipe(epochs=1))
    small.epoch()  # what the first use of the libraries takes is not the update's
    before, started = _highest_kilobytes(), time.perf_counter()
    training.epoch()
    seconds = time.perf_counter() - started
    print(json.dumps({"megabytes": (_highest_kilobytes() - before) / 1024, "seconds": seconds}))


def _highest_kilobytes() -> int:
    """The most memory this process has had. Linux hands ``ru_maxrss`` on from the parent, so its own count comes first."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest // 1024 if sys.platform == "darwin" else highest
