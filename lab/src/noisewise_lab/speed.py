"""Private training against the same training in plain PyTorch: one thread, interleaved rounds, median of ratios.

Both sides include drawing the batch; the private side includes clipping, cryptographic noise and the meter. What is
measured is the processor time of this process, because other processes share the cores; only the gain of a second
thread is measured by the clock on the wall.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from noisewise.accounts import Budget, PlanMeter
from noisewise.asking import Curator
from noisewise.protect.optimizers import Sgd
from noisewise.trusted.events import FULL, Gaussian, Repeated, Sampling, sampled
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP, Linear, Model
from noisewise.trusted.noise import Stream

from .module_speed import loader_engines, loops, module_engines, persons_engines
from .peers import CLIP, NOISE, Peer
from .threads import threads
from .works import LEARNING_RATE, Step, Trained, module_workloads, perceptron

DRAWS = 269_322  # the parameters of the large perceptron
NOISE_STD = 2.0**30  # of the noise row, in units of the total
PERSONS = ("cnn-mnist", "transformer", "mlp-large-module")  # workloads that are also timed with persons of four records


@dataclass(frozen=True)
class Workload(Trained):
    name: str
    rows: int
    batch: int | None
    model: Model
    module: Callable[[], nn.Module]
    steps: int  # per round

    @property
    def binary(self) -> bool:
        return self.model.outputs == 1

    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        X = torch.randn(self.rows, self.model.features, generator=generator)
        return X, torch.randint(max(self.model.outputs, 2), (self.rows,), generator=generator)

    def tensors(self) -> tuple[Tensor, Tensor]:
        X, y = self.data()
        return X, y.float() if self.binary else y


def line(columns: int = 123) -> nn.Module:
    """One score for each row."""
    return nn.Sequential(nn.Linear(columns, 1, bias=False), nn.Flatten(0))


def workloads() -> list[Workload]:
    """The six shapes: logistic and softmax regression by batch and in full, a small and a large perceptron."""
    logistic, softmax = Linear(123, Logistic()), Linear(784, Softmax(), 10)

    def lines() -> nn.Module:
        return nn.Linear(784, 10, bias=False)

    small, large = (784, 20, 2), (784, 256, 256, 10)
    return [
        Workload("logistic-batch", 32561, 256, logistic, line, 200),
        Workload("logistic-full", 32561, None, logistic, line, 10),
        Workload("softmax-batch", 20000, 256, softmax, lines, 100),
        Workload("softmax-full", 20000, None, softmax, lines, 3),
        Workload("mlp-small", 20000, 256, MLP(small, Softmax()), perceptron(*small), 100),
        Workload("mlp-large", 20000, 256, MLP(large, Softmax()), perceptron(*large), 30),
    ]


def plain_step(work: Workload) -> Step:
    """One step as anyone would write it in PyTorch, without privacy."""
    return work.training(*work.plainly())


def private_step(work: Workload) -> Step:
    """One step of DP-SGD through the curator: real meter, real noise, Poisson batches or the full batch."""
    X, y = work.data()
    sampling: Sampling = FULL if work.batch is None else ("poisson", work.batch / work.rows)
    plan = Repeated(sampled(sampling, Gaussian(NOISE)), 1_000_000)
    meter = PlanMeter(Budget(1e6, 1e-5), [plan], accountant="gdp")
    labels = 2.0 * y - 1 if work.binary else y
    curator = Curator(X, labels, model=work.model, meter=meter, size=work.rows)
    projector, theta = Sgd(LEARNING_RATE), work.model.start()

    def step() -> None:
        nonlocal theta
        answer = curator.gradient(theta, clip=CLIP, noise_multiplier=NOISE, sampling=sampling)
        theta, _ = projector(answer, theta, None)

    return step


def noise_steps() -> dict[str, Step]:
    """As many draws as the large perceptron has parameters: torch's own, and exact noise on the grid, AES included."""
    stream, total = Stream(), np.zeros(DRAWS, np.int64)
    return {"plain": lambda: torch.randn(DRAWS), "noisewise": lambda: stream.on_grid(total, NOISE_STD)}


def timed(step: Step, times: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds per step, of the processor unless another clock is given."""
    start = clock()
    for _ in range(times):
        step()
    return (clock() - start) / times


def speed_rows(
    *, rounds: int = 15, against: Sequence[Peer] = (), only: Sequence[str] = (), progress: bool = False
) -> list[dict[str, Any]]:
    """A row per workload and engine: seconds per step (median) and the median of the ratios to plain PyTorch.

    ``only``: names of workloads to time, instead of all.
    """
    jobs = [job for job in all_jobs(against) if not only or job.name in only]
    if not jobs:
        raise ValueError(f"no workload of this name; pass some of {', '.join(job.name for job in all_jobs(against))}")
    with threads(1):
        shown = iter(track(jobs, "timing", console=Console(stderr=True))) if progress else iter(jobs)
        return [row for job in shown for row in compare(job.name, job.engines(), job.steps, rounds)]


@dataclass(frozen=True)
class Job:
    """A workload's name, what is timed, made when its turn comes, and how many steps make a round."""

    name: str
    engines: Callable[[], dict[str, Step]]
    steps: int


def all_jobs(against: Sequence[Peer]) -> list[Job]:
    """Models of the library, modules of PyTorch step by step and end to end, and the noise by itself."""
    models = [Job(work.name, partial(engines, work, against), work.steps) for work in workloads()]
    modules = [Job(work.name, partial(module_engines, work, against), work.steps) for work in module_workloads()]
    persons = [
        Job(f"persons-{work.name}", partial(persons_engines, work), work.steps)
        for work in module_workloads()
        if work.name in PERSONS
    ]
    ends = [Job(work.name, partial(loader_engines, work, against), work.steps) for work in loops()]
    return [*models, *modules, *persons, *ends, Job(f"noise-{DRAWS}", noise_steps, 5)]


def engines(work: Workload, against: Sequence[Peer]) -> dict[str, Step]:
    """What is timed for a workload, by the names of the rows."""
    peers = {peer.engine: peer.step(work) for peer in against}
    return {"plain": plain_step(work), "noisewise": private_step(work), **peers}


def compare(name: str, steps: dict[str, Step], times: int, rounds: int) -> list[dict[str, Any]]:
    """Rows for several ways of doing the same, in turns after a round to warm up; the first is the unit."""
    for step in steps.values():
        timed(step, times)
    taken = [[timed(step, times) for step in steps.values()] for _ in range(rounds)]
    return [
        {
            "workload": name,
            "engine": engine,
            "seconds": statistics.median(each[i] for each in taken),
            "ratio": statistics.median(each[i] / each[0] for each in taken),
        }
        for i, engine in enumerate(steps)
    ]
