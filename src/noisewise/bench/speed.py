"""Private training against the same training in plain PyTorch: one thread, interleaved rounds, median of ratios.

Both sides include drawing the batch; the private side includes clipping, cryptographic noise and the meter.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from ..budget import Budget, PlanMeter
from ..curator import Curator
from ..events import FULL, Gaussian, Repeated, Sampling, sampled
from ..gradients import MLP, Linear, Model
from ..losses import Logistic, Softmax
from ..protect.projectors import Sgd

Step = Callable[[], object]
LEARNING_RATE = 0.1


@dataclass(frozen=True)
class Workload:
    name: str
    rows: int
    batch: int | None
    model: Model
    module: Callable[[], nn.Module]
    steps: int  # per round

    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        X = torch.randn(self.rows, self.model.features, generator=generator)
        return X, torch.randint(max(self.model.outputs, 2), (self.rows,), generator=generator)


def workloads() -> list[Workload]:
    """The four shapes: logistic regression by batch and in full, a small and a large perceptron."""
    logistic = Linear(123, Logistic())

    def perceptron(*sizes: int) -> Callable[[], nn.Module]:
        def build() -> nn.Module:
            layers: list[nn.Module] = []
            for into, out in pairwise(sizes):
                layers += [nn.Linear(into, out), nn.Tanh()]
            return nn.Sequential(*layers[:-1])

        return build

    def line() -> nn.Module:
        return nn.Sequential(nn.Linear(123, 1, bias=False), nn.Flatten(0))

    small, large = (784, 20, 2), (784, 256, 256, 10)
    return [
        Workload("logistic-batch", 32561, 256, logistic, line, 200),
        Workload("logistic-full", 32561, None, logistic, line, 10),
        Workload("mlp-small", 20000, 256, MLP(small, Softmax()), perceptron(*small), 100),
        Workload("mlp-large", 20000, 256, MLP(large, Softmax()), perceptron(*large), 30),
    ]


def plain_step(work: Workload) -> Step:
    """One step as anyone would write it in PyTorch, without privacy."""
    X, y = work.data()
    module = work.module()
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    binary = work.model.outputs == 1
    criterion: nn.Module = nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss()
    labels = y.float() if binary else y

    def step() -> None:
        rows, targets = X, labels
        if work.batch is not None:
            chosen = torch.randint(work.rows, (work.batch,))
            rows, targets = X[chosen], labels[chosen]
        optimizer.zero_grad()
        criterion(module(rows), targets).backward()
        optimizer.step()

    return step


def private_step(work: Workload) -> Step:
    """One step of DP-SGD through the curator: real meter, real noise, Poisson batches or the full batch."""
    X, y = work.data()
    sampling: Sampling = FULL if work.batch is None else ("poisson", work.batch / work.rows)
    plan = Repeated(sampled(sampling, Gaussian(5.0)), 1_000_000)
    meter = PlanMeter(Budget(1e6, 1e-5), [plan], accountant="gdp")
    labels = 2.0 * y - 1 if work.model.outputs == 1 else y
    curator = Curator(X, labels, model=work.model, meter=meter, size=work.rows)
    projector, theta = Sgd(LEARNING_RATE), work.model.start()

    def step() -> None:
        nonlocal theta
        answer = curator.gradient(theta, clip=1.0, noise_multiplier=5.0, sampling=sampling)
        theta, _ = projector(answer, theta, None)

    return step


def timed(step: Step, times: int) -> float:
    """Seconds per step."""
    start = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - start) / times


def speed_rows(*, rounds: int = 15, progress: bool = False) -> list[dict[str, Any]]:
    """A row per workload and engine: seconds per step (median) and the median of the ratios to plain PyTorch."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        works = workloads()
        shown: Iterator[Workload] | list[Workload] = (
            iter(track(works, "timing", console=Console(stderr=True))) if progress else works
        )
        return [row for work in shown for row in _compare(work, rounds)]
    finally:
        torch.set_num_threads(threads)


def _compare(work: Workload, rounds: int) -> list[dict[str, Any]]:
    plain, private = plain_step(work), private_step(work)
    timed(plain, work.steps), timed(private, work.steps)  # warm up
    pairs = [(timed(plain, work.steps), timed(private, work.steps)) for _ in range(rounds)]
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    seconds = {"plain": statistics.median(p for p, _ in pairs), "noisewise": statistics.median(o for _, o in pairs)}
    return [
        {
            "workload": work.name,
            "engine": engine,
            "seconds": seconds[engine],
            "ratio": 1.0 if engine == "plain" else ratio,
        }
        for engine in seconds
    ]
