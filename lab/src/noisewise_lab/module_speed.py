"""Any PyTorch module trained privately: a step through ``make_private``, and an epoch of a loop with a data loader.

The step draws its batch from the private loader, clips, adds exact noise and hands the sum to the optimiser. Plain
training and other libraries draw their batch by indexing; in the rows that end in ``-loader`` everybody uses a loader.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import noisewise as nw

from .peers import CLIP, NOISE, Peer
from .works import ModuleWorkload, Step, Trained, module_workloads

ENDS = ("cnn-mnist", "cnn", "transformer")  # workloads that are timed end to end as well
EPOCH = 8  # steps of an epoch in the rows with a loader


def made_private(work: Trained) -> tuple[Any, Any, Any, Any]:
    """The module, optimiser, criterion and loader of a private training."""
    module, optimizer, criterion = work.plainly()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a budget it counts, and says so
        module, optimizer, loader = nw.PrivacyEngine().make_private(
            module=module,
            optimizer=optimizer,
            data_loader=work.loader(),
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
        )
    return module, optimizer, criterion, loader


def private_module_step(work: Trained) -> Step:
    """One private step: the batch of the private loader, forward, backward, clipping, noise, update."""
    module, optimizer, criterion, loader = made_private(work)
    batches = endless(loader)

    def step() -> None:
        rows, targets = next(batches)
        optimizer.zero_grad()
        criterion(module(rows), targets).backward()
        optimizer.step()

    return step


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def epoch(module: Any, optimizer: Any, criterion: Any, loader: Any) -> Step:
    """The usual loop over a loader, once."""

    def step() -> None:
        for rows, targets in loader:
            optimizer.zero_grad()
            criterion(module(rows), targets).backward()
            optimizer.step()

    return step


def module_engines(work: Trained, against: Sequence[Peer]) -> dict[str, Step]:
    """What is timed for a module, by the names of the rows."""
    steps = {"plain": work.training(*work.plainly()), "noisewise": private_module_step(work)}
    return steps | {peer.engine: peer.step(work) for peer in against}


def loader_engines(work: Trained, against: Sequence[Peer]) -> dict[str, Step]:
    """The same training as a loop over a loader; a peer may have several modes."""
    steps = {"plain": epoch(*work.plainly(), work.loader()), "noisewise": epoch(*made_private(work))}
    return steps | {name: epoch(*made(work)) for peer in against for name, made in peer.loops.items()}


def loops() -> list[ModuleWorkload]:
    """The workloads that are timed end to end, on as many rows as one epoch reads; a step is an epoch."""
    chosen = [work for work in module_workloads() if work.name in ENDS]
    return [replace(work, name=f"{work.name}-loader", rows=EPOCH * work.batch, steps=1) for work in chosen]
