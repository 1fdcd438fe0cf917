"""Accuracy on pictures under a budget: a linear model on features that need no data, and a small network from scratch.

``gradients``: ``PrivateClassifier(method="descent")`` on stacked ``OrientedGradients``. ``cnn``: the network of Opacus's
MNIST example with tanh (Papernot et al. 2021), trained by ``nw.fit(method="dpsgd")`` in Poisson batches with momentum; the
mean of the last tenth of the iterates is what is scored. Classes and sizes of the files count as public.

Seeds make simulations: the same mechanisms, not private. Nothing was chosen on the test pictures of another file.

Papernot, Thakurta, Song, Chien & Erlingsson 2021, Tempered sigmoid activations for deep learning with differential
privacy; Tramer & Boneh 2021, Differentially private learning needs better features (or much more data).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import noisewise as nw

CELL = 4
BATCH_SIZE, EPOCHS, CLIP, TAIL = 1024, 15, 0.1, 0.1
LEARNING_RATE = 0.2 / CLIP  # a step of plain descent is at most 0.2 long, with momentum ten times that
AT_ONCE = 2000  # pictures to score
WAYS = ("gradients", "cnn")
Scored = Callable[[float, float, int], float]  # epsilon, delta and seed to test accuracy


@dataclass(frozen=True)
class Pictures:
    """Pictures as (number, height, width, channels) from 0 to 1, and class numbers."""

    train: NDArray[np.float32]
    labels: NDArray[np.int64]
    test: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int, int]:
        _, height, width, channels = self.train.shape
        return height, width, channels

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


def read(file: Path, *, rows: int | None = None) -> Pictures:
    """``X_train``, ``y_train``, ``X_test`` and ``y_test`` of a file; whole numbers are from 0 to 255."""
    try:
        with np.load(file) as arrays:
            given = [arrays[name] for name in ("X_train", "y_train", "X_test", "y_test")]
    except (OSError, KeyError, ValueError):
        raise ValueError(f"{file} is no .npz with X_train, y_train, X_test and y_test; pass one") from None
    train, test = (_pixels(X[:rows]) for X in (given[0], given[2]))
    labels, test_labels = (y[:rows].reshape(-1).astype(np.int64) for y in (given[1], given[3]))
    return Pictures(train, labels, test, test_labels)


def _pixels(X: NDArray[Any]) -> NDArray[np.float32]:
    if X.ndim not in (3, 4):
        raise ValueError(
            f"pictures have shape {X.shape}; pass (number, height, width) or (number, height, width, channels)"
        )
    top = 255 if np.issubdtype(X.dtype, np.integer) else 1
    pixels = X.astype(np.float32) / np.float32(top)
    return pixels if X.ndim == 4 else pixels[..., None]


def of_gradients(pictures: Pictures) -> Scored:
    """Test accuracy of a linear model on stacked oriented gradients, which are computed once."""
    turn = nw.OrientedGradients(pictures.shape, cell=CELL, stacked=True)
    train, test = (turn.transform(X.reshape(len(X), -1)) for X in (pictures.train, pictures.test))

    def scored(epsilon: float, delta: float, seed: int) -> float:
        model = nw.PrivateClassifier(epsilon, delta, bounds=(0, CELL), method="descent", random_state=seed)
        return float(np.mean(model.fit(train, pictures.labels).predict(test) == pictures.test_labels))

    return scored


def network(shape: tuple[int, int, int], classes: int) -> nn.Sequential:
    """Two convolutions and two linear layers, as in Opacus's MNIST example, with tanh."""
    height, width, channels = shape
    seeing = [
        nn.Conv2d(channels, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten(),
    ]  # fmt: skip
    with torch.no_grad():
        seen = nn.Sequential(*seeing)(torch.zeros(1, channels, height, width)).shape[1]
    return nn.Sequential(*seeing, nn.Linear(seen, 32), nn.Tanh(), nn.Linear(32, classes))


def of_network(pictures: Pictures, epochs: int) -> Scored:
    """Test accuracy of the small network on pixels from -1 to 1."""
    X, test = (torch.from_numpy(2 * P - 1).permute(0, 3, 1, 2).contiguous() for P in (pictures.train, pictures.test))
    y = torch.from_numpy(pictures.labels)

    def scored(epsilon: float, delta: float, seed: int) -> float:
        torch.manual_seed(seed)  # of the first weights, which are public
        module = trained(
            network(pictures.shape, pictures.classes), X, y, nw.Budget(epsilon, delta), seed, epochs=epochs
        )
        with torch.no_grad():
            guesses = torch.cat([module(part).argmax(1) for part in test.split(AT_ONCE)])
        return float((guesses.numpy() == pictures.test_labels).mean())

    return scored


def trained(module: nn.Module, X: Tensor, y: Tensor, budget: nw.Budget, seed: int, *, epochs: int) -> nn.Module:
    """The module after noisy momentum in Poisson batches."""
    fitted = nw.fit(
        module, nn.CrossEntropyLoss(), (X, y), budget=budget, method="dpsgd", epochs=epochs,
        batch_size=min(BATCH_SIZE, len(X) // 2), size_is_public=True, max_grad_norm=CLIP, optimizer="momentum",
        learning_rate=LEARNING_RATE, settings={"tail": TAIL}, arithmetic="assumed", random_state=seed, progress=False,
    )  # fmt: skip
    return fitted.module


def picture_rows(
    pictures: Pictures,
    *,
    ways: Sequence[str] = WAYS,
    epsilons: Sequence[float],
    delta: float,
    seeds: int,
    epochs: int = EPOCHS,
    report: Callable[[Any], None] = lambda news: None,
) -> Iterator[dict[str, Any]]:
    """A row for each way and budget: mean accuracy over seeds, its standard error, seconds of the processor per run."""
    done, runs = 0, len(ways) * len(epsilons) * seeds
    for way in ways:
        scored = of_network(pictures, epochs) if way == "cnn" else of_gradients(pictures)
        for epsilon in epsilons:
            scores, begun = [], time.process_time()
            for seed in range(seeds):
                report((done, runs))
                scores.append(scored(epsilon, delta, seed))
                done += 1
            error = float(np.std(scores, ddof=1) / np.sqrt(seeds)) if seeds > 1 else None
            yield {
                "model": way, "epsilon": epsilon, "delta": delta, "accuracy": float(np.mean(scores)),
                "standard_error": error, "seeds": seeds, "seconds": (time.process_time() - begun) / seeds,
            }  # fmt: skip
