"""Other libraries for private training, where they are installed: one step of each, for the timings.

Neither is a dependency. Both train the same module as the plain step and draw their batch the same way, which is less
work than their own loaders do; their noise is torch's, in single precision, not cryptographic.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .works import Step, Trained

NOISE, CLIP = 5.0, 1.0
Loop = Callable[["Trained"], tuple[Any, Any, Any, Any]]


@dataclass(frozen=True)
class Peer:
    """A library to compare with: what is imported, what it is called in the rows, and how to get it."""

    module: str
    engine: str
    install: str
    step: Callable[[Trained], Step]
    loops: Mapping[str, Loop] = field(default_factory=dict)  # module, optimiser, criterion, loader by the names of rows


def opacus_made(work: Trained, mode: str) -> tuple[Any, Any, Any, Any]:
    """The module, optimiser, criterion and loader of Opacus; layers that it refuses are replaced by its own."""
    opacus = importlib.import_module("opacus")
    module, optimizer, criterion = work.plainly(opacus.validators.ModuleValidator.fix)
    warnings.filterwarnings("ignore", "Full backward hook is firing")  # at the first step; nothing is wrong
    how = {"criterion": criterion} if mode == "ghost" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its noise is not cryptographic, and it says so
        module, optimizer, *rest = opacus.PrivacyEngine(accountant="gdp").make_private(
            module=module,
            optimizer=optimizer,
            data_loader=work.loader(),
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            grad_sample_mode=mode,
            **how,
        )
    return module, optimizer, *(rest if mode == "ghost" else (criterion, *rest))


def opacus_step(work: Trained) -> Step:
    """A step of Opacus with ghost clipping: two backward passes, no gradient of a single record in memory."""
    return work.training(*opacus_made(work, "ghost")[:3])


def fastdp_step(work: Trained) -> Step:
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


OPACUS_LOOPS = {
    "opacus": partial(opacus_made, mode="hooks"),
    "opacus-ghost": partial(opacus_made, mode="ghost"),
}
PEERS = {
    "opacus": Peer("opacus", "opacus-ghost", "pip install opacus", opacus_step, OPACUS_LOOPS),
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
