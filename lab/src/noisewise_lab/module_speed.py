"""Any PyTorch module trained privately: a step through ``make_private``, and an epoch of a loop with a data loader.

The step draws its batch from the private loader, clips, adds exact noise and hands the sum to the optimiser. Plain
training and other libraries draw their batch by indexing; in the rows that end in ``-loader`` everybody uses a loader.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import noisewise as nw
from noisewise.trusted.engine import Spec, clip_factors, passed, rehearsed

from .peers import CLIP, NOISE, Peer
from .works import ModuleWorkload, Step, Trained, module_workloads

ENDS = ("cnn-mnist", "cnn", "transformer")  # workloads that are timed end to end as well
EPOCH = 8  # steps of an epoch in the rows with a loader


def made_private(work: Trained, *, own_loss: bool = False) -> tuple[Any, Any, Any, Any]:
    """The module, optimiser, criterion and loader of a private training; with a loss of the loop's own, or the engine's."""
    module, optimizer, criterion = work.plainly()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without a budget it counts, and says so
        made: Any = nw.PrivacyEngine().make_private(
            module=module,
            optimizer=optimizer,
            criterion=None if own_loss else criterion,
            data_loader=work.loader(),
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
        )
    return (*made[:2], criterion, made[2]) if own_loss else made


def private_module_step(work: Trained, **how: bool) -> Step:
    """One private step: the batch of the private loader, forward, backward, clipping, noise, update."""
    module, optimizer, criterion, loader = made_private(work, **how)
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
    steps = {
        "plain": work.training(*work.plainly()),
        "noisewise": private_module_step(work),
        "noisewise-own-loss": private_module_step(work, own_loss=True),
    }
    if any(isinstance(part, nn.Conv2d) for part in work.module().modules()):
        steps["plain-channels-last"] = work.training(*work.plainly(by_pixel))
    if getattr(work, "labels", ()):  # a loss for every word: the others' quick modes stop at it
        return steps
    return steps | {peer.engine: peer.step(work) for peer in against}


def by_pixel(module: nn.Module) -> nn.Module:
    """A network whose pictures lie by pixel, as whoever knows of it would lay them out."""
    module.register_forward_pre_hook(lambda _, rows: rows[0].contiguous(memory_format=torch.channels_last))
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def persons_engines(work: Trained, each: int = 4) -> dict[str, Step]:
    """Norms and clipped sums of a batch: of its records, and of persons with so many of them."""
    module, _, criterion = work.plainly()
    rows, targets = (part[: work.batch] for part in work.tensors())
    spec = [[Spec(tuple(part.shape[1:]), part.dtype)] for part in (rows, targets)]
    layout, groups = rehearsed(module, spec[0], spec[1], criterion), torch.arange(len(rows)) // each

    def step(of_persons: bool) -> None:
        tape, _ = passed(module, criterion, [rows], [targets], layout)
        if of_persons:
            tape.group(groups)
        tape.sums(clip_factors(tape.squared_norms(), CLIP))
        tape.free()

    return {"records": lambda: step(False), "persons": lambda: step(True)}


def loader_engines(work: Trained, against: Sequence[Peer]) -> dict[str, Step]:
    """The same training as a loop over a loader; a peer may have several modes."""
    steps = {"plain": epoch(*work.plainly(), work.loader()), "noisewise": epoch(*made_private(work))}
    return steps | {name: epoch(*made(work)) for peer in against for name, made in peer.loops.items()}


def loops() -> list[ModuleWorkload]:
    """The workloads that are timed end to end, on as many rows as one epoch reads; a step is an epoch."""
    chosen = [work for work in module_workloads() if work.name in ENDS]
    return [replace(work, name=f"{work.name}-loader", rows=EPOCH * work.batch, steps=1) for work in chosen]
