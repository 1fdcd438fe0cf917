"""Other libraries for private training, where they are installed: one step of each, for the timings.

Neither is a dependency. Both train the same module as the plain step and draw their batch the same way, which is less
work than their own loaders do; their noise is torch's, in single precision, not cryptographic.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .speed import Step, Workload

NOISE, CLIP = 5.0, 1.0


@dataclass(frozen=True)
class Peer:
    """A library to compare with: what is imported, what it is called in the rows, and how to get it."""

    module: str
    engine: str
    install: str
    step: Callable[[Workload], Step]


def opacus_step(work: Workload) -> Step:
    """A step of Opacus with ghost clipping: two backward passes, no gradient of a single record in memory."""
    engine_of = importlib.import_module("opacus").PrivacyEngine
    module, optimizer, criterion = work.plainly()
    records = torch.utils.data.TensorDataset(*work.tensors())
    loader = torch.utils.data.DataLoader(records, batch_size=work.batch or work.rows)
    warnings.filterwarnings("ignore", "Full backward hook is firing")  # at the first step; nothing is wrong
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its noise is not cryptographic, and it says so
        module, optimizer, criterion, _ = engine_of(accountant="gdp").make_private(
            module=module,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=loader,
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            grad_sample_mode="ghost",
        )
    return work.training(module, optimizer, criterion)


def fastdp_step(work: Workload) -> Step:
    """A step of fastDP: book-keeping with its default choice per layer, and the usual clipping function."""
    engine_of = importlib.import_module("fastDP").PrivacyEngine
    module, optimizer, criterion = work.plainly()
    with contextlib.redirect_stdout(sys.stderr):  # it prints its settings
        engine_of(
            module,
            batch_size=work.batch or work.rows,
            sample_size=work.rows,
            epochs=1,
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            clipping_fn="Abadi",
        ).attach(optimizer)
    return work.training(module, optimizer, criterion)


PEERS = {
    "opacus": Peer("opacus", "opacus-ghost", "pip install opacus", opacus_step),
    "fastdp": Peer(
        "fastDP", "fastdp", "pip install git+https://github.com/awslabs/fast-differential-privacy", fastdp_step
    ),
}


def installed(names: Sequence[str]) -> tuple[list[Peer], list[str]]:
    """The peers that can be imported, and a line for each that cannot."""
    present, missing = [], []
    for name in names:
        if name not in PEERS:
            raise ValueError(f"{name!r} is not a library to compare with; pass {' or '.join(PEERS)}")
        peer = PEERS[name]
        try:
            importlib.import_module(peer.module)
        except Exception as error:  # whatever a library does when it is imported
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            missing.append(
                f"{name} cannot be imported ({reason}), so its rows are left out; install it: {peer.install}"
            )
        else:
            present.append(peer)
    return present, missing
