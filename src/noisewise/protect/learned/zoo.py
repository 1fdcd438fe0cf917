"""Protectors as files: safetensors weights with a JSON header. Reading one never runs code.

The header says what the protector was trained on, for which ranges of size, dimension, epsilon and horizon, how it did on
its held-out public tasks, and the SHA-256 of its weights; a file whose weights do not match it is refused.
Trained protectors come with the package; :func:`pick` chooses one from public facts by a fixed rule.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from ...accounts.atomic import is_there, write_atomically
from ...asking import array
from ...trusted.facts import Facts
from ...trusted.losses import LOSSES
from ..protector import Protector
from ..signal import signal_to_noise
from .fast import protector
from .weights import Design, Weights, weights_fit, weights_from, zero_weights

FORMAT = 2  # 1: steps along the average of gradients, the same for every budget
MAX_FILE_BYTES = 1_000_000  # a protector has some 17,000 weights
MIN_CLARITY = 20.0  # n mu / sqrt(d) below which noise drowns the gradient
WIDE_PARAMETERS = 300
MAX_STEPS = 100_000
A_LITTLE = 1.1  # a factor outside of a range that is no news
RANGES = ("size", "dimension", "epsilon", "horizon")


class OutsideRange(UserWarning):
    """A protector is used where it was not trained."""


@dataclass(frozen=True, eq=False)
class Learned:
    """A protector with its papers."""

    weights: Weights
    design: Design
    header: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.header["name"])

    @property
    def digest(self) -> str:
        """SHA-256 of the weights."""
        return str(self.header["sha256"])

    @property
    def horizon(self) -> int:
        """The number of steps it does best with, by its held-out public tasks."""
        return int(self.header["horizon"])

    def protector(self) -> Protector:
        """For one run on arrays; on tensors it is ``parts.protector`` of the weights and the design."""
        return protector(self.weights, self.design)

    def untrained(self) -> Protector:
        """The same design with all weights zero."""
        return protector(zero_weights(self.design), self.design)

    def outside(self, **facts: float) -> list[str]:
        """What lies outside the ranges of its training, in words."""
        reasons = []
        for name, value in facts.items():
            low, high = self.header["ranges"][name]
            if not low / A_LITTLE <= value <= high * A_LITTLE:
                reasons.append(f"{name} {value:.6g} is outside {low:.6g} to {high:.6g}")
        return reasons


def digest(tensors: Mapping[str, Any]) -> str:
    """SHA-256 over names, shapes and values."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        weight = np.asarray(tensors[name])
        total.update(f"{name}{weight.shape}".encode())
        total.update(weight.astype("<f4").tobytes())
    return total.hexdigest()


def in_memory(weights: Weights, design: Design, header: dict[str, Any]) -> Learned:
    """A protector with its papers completed; weights may be tensors, with a graph or without."""
    tensors = {name: np.array(array(weight), np.float32, order="C") for name, weight in weights.tensors().items()}
    complete = {**header, "format": FORMAT, "design": design.to_dict(), "sha256": digest(tensors)}
    return Learned(weights_from(tensors), design, complete)


def as_bytes(learned: Learned) -> bytes:
    """The content of a protector's file."""
    tensors = {name: np.asarray(weight) for name, weight in learned.weights.tensors().items()}
    return to_bytes(tensors, {"noisewise": json.dumps(learned.header)})


def save_protector(path: Path, weights: Weights, design: Design, header: dict[str, Any]) -> Learned:
    """Write a protector; the file appears whole or not at all."""
    learned = in_memory(weights, design, header)
    write_atomically(path, as_bytes(learned))
    return learned


def load_protector(path: Path) -> Learned:
    """Read a protector; anything that is not one, or was changed, is refused."""
    if not is_there(path):
        raise ValueError(f"{path}: no such file; pass a protector written by noisewise, or one of {', '.join(names())}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path}: larger than any protector")
    try:
        return from_content(path.read_bytes())
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path}: not a protector ({error})") from None


def from_content(written: bytes) -> Learned:
    """The protector in a file's content, checked."""
    try:
        tensors = from_bytes(written)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    length = int.from_bytes(written[:8], "little")
    header = json.loads(json.loads(written[8 : 8 + length])["__metadata__"]["noisewise"])
    if isinstance(header, dict) and header.get("format") == 1:
        raise ValueError("it was made by an earlier noisewise, whose steps had another meaning; train it again")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"its header is not of format {FORMAT}")
    if any(weight.dtype != np.float32 for weight in tensors.values()) or digest(tensors) != header["sha256"]:
        raise ValueError("the weights do not match their hash")
    for name in RANGES:
        low, high = header["ranges"][name]
        if any(type(end) not in (int, float) for end in (low, high)) or not 0 < float(low) <= float(high) < math.inf:
            raise ValueError(f"its range of {name} is not one")
    horizon = header["horizon"]
    if not isinstance(header["name"], str) or type(horizon) is not int or not 1 <= horizon <= MAX_STEPS:
        raise ValueError("its name or horizon is missing")
    _check_papers(header)
    weights, design = weights_from(tensors), Design(**header["design"])
    if not weights_fit(weights, design):
        raise ValueError("its weights do not fit its design")
    return Learned(weights, design, header)


def _check_papers(header: dict[str, Any]) -> None:
    """The rest of a header is for people, and comes from strangers: plain text of the expected shape."""
    sources = header.get("trained_on", [])
    shaped = isinstance(sources, list) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("data", "licence"))
        for entry in sources
    )
    recipe, command = header.get("recipe", {}), header.get("command", "")
    if not shaped or not isinstance(recipe, dict) or not isinstance(command, str):
        raise ValueError("its header does not say what it was trained on in the usual form")
    for text in (header["name"], command, *(entry[key] for entry in sources for key in ("data", "licence"))):
        if not text.isprintable():
            raise ValueError("its header has characters that cannot be printed")


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The protectors that come with the package."""
    folder = files("noisewise.protect.learned").joinpath("protectors")
    return tuple(
        sorted(p.name.removesuffix(".safetensors") for p in folder.iterdir() if p.name.endswith(".safetensors"))
    )


@lru_cache(maxsize=16)
def shipped(name: str) -> Learned:
    """A protector that comes with the package."""
    return from_content(files("noisewise.protect.learned").joinpath(f"protectors/{name}.safetensors").read_bytes())


def named(name: str) -> Learned:
    """A protector by its name in the package, or by the path of its file."""
    return shipped(name) if name in names() else load_protector(Path(name))


def pick(loss: str, ratio: float, *, dimension: int = 1, layers: int = 1) -> str:
    """The rule, from public or released facts; ``ratio`` is n mu / sqrt(d): size, budget and dimension in one.

    ``perceptron`` for models with layers, the one that the loss names (``squared`` or ``hinge``), else ``clear`` from a
    ratio of 20 on, and below it ``noisy``, or ``wide`` from 300 parameters on.
    """
    if layers > 1:
        return "perceptron"
    if loss in LOSSES and (own := LOSSES[loss].protector) is not None:
        return own
    if ratio >= MIN_CLARITY:
        return "clear"
    return "wide" if dimension >= WIDE_PARAMETERS else "noisy"


def pick_for(facts: Facts) -> str:
    """The rule for a run."""
    return pick(facts.loss, signal_to_noise(facts), dimension=facts.dimension, layers=len(facts.groups))


def warn_outside(learned: Learned, **facts: float) -> None:
    """One warning when public or released facts lie outside the ranges of training."""
    if reasons := learned.outside(**facts):
        message = f"protector {learned.name!r} was not trained for this: {'; '.join(reasons)}. It stays private, but may learn less"
        warnings.warn(message, OutsideRange, stacklevel=3)
