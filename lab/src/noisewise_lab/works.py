"""What is timed and weighed: a module, its rows and targets, and one step of training as anyone writes it in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[], object]
LEARNING_RATE = 0.1
WORDS, WIDTH, LENGTH = 10_000, 64, 32  # of the transformer; width and length of the LSTM as well
GPT_WORDS, GPT_LENGTH = 1000, 64  # of the small GPT-2


class Trained:
    """A module with rows to train it on: the parts of every step, private or not."""

    rows: int
    batch: int | None
    module: Callable[[], nn.Module]

    @property
    def binary(self) -> bool:
        return False

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Rows and targets as torch's criteria want them."""
        raise NotImplementedError

    def plainly(
        self, prepare: Callable[[nn.Module], nn.Module] | None = None
    ) -> tuple[nn.Module, torch.optim.Optimizer, nn.Module]:
        """The module, optimiser and criterion of a training without privacy; a library may prepare the module first."""
        module = self.module() if prepare is None else prepare(self.module())
        optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        return module, optimizer, nn.BCEWithLogitsLoss() if self.binary else nn.CrossEntropyLoss()

    def training(self, module: nn.Module, optimizer: Any, criterion: Any) -> Step:
        """One step as anyone would write it in PyTorch."""
        X, labels = self.tensors()

        def step() -> None:
            rows, targets = X, labels
            if self.batch is not None:
                chosen = torch.randint(self.rows, (self.batch,))
                rows, targets = X[chosen], labels[chosen]
            optimizer.zero_grad()
            criterion(module(rows), targets).backward()
            optimizer.step()

        return step

    def loader(self) -> torch.utils.data.DataLoader[Any]:
        """The rows behind torch's own loader, in random order."""
        records = torch.utils.data.TensorDataset(*self.tensors())
        return torch.utils.data.DataLoader(records, batch_size=self.batch or self.rows, shuffle=self.batch is not None)


@dataclass(frozen=True)
class ModuleWorkload(Trained):
    """A network that only PyTorch knows, on made-up rows."""

    name: str
    rows: int
    batch: int
    module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    outputs: int
    steps: int  # per round
    words: int | None = None  # rows of whole numbers below this
    labels: tuple[int, ...] = ()  # of one row: none for a class, the length of a text for the word after each

    def tensors(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        shape = (self.rows, *self.shape)
        if self.words is None:
            X = torch.randn(shape, generator=generator)
        else:
            X = torch.randint(self.words, shape, generator=generator)
        return X, torch.randint(self.outputs, (self.rows, *self.labels), generator=generator)


def perceptron(*sizes: int) -> Callable[[], nn.Module]:
    """Linear layers with tanh between them."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for into, out in pairwise(sizes):
            layers += [nn.Linear(into, out), nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    return build


def mnist_network() -> nn.Module:
    """The network of Opacus's MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def small_windows() -> nn.Module:
    """Two convolutions with windows of 3 x 3, 16 and 32 channels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


class Reader(nn.Module):
    """Words, one encoder layer, the mean over positions, two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 4, 256, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, rows: Tensor) -> Tensor:
        read: Tensor = self.head(self.encoder(self.words(rows)).mean(1))
        return read


class Recurrent(nn.Module):
    """An LSTM whose last state is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, rows: Tensor) -> Tensor:
        read: Tensor = self.head(self.cells(rows)[0][:, -1])
        return read


class Block(nn.Module):
    """Attention that looks back, and a perceptron, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.into(self.norms[0](x)).split(width, 2)
        query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norms[1](x)), approximate="tanh"))


class Writer(nn.Module):
    """A small GPT-2: which word comes next, with the table of words used at both ends."""

    def __init__(self, words: int = GPT_WORDS, width: int = 128, blocks: int = 4, length: int = GPT_LENGTH) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, rows: Tensor) -> Tensor:
        read = self.words(rows) + self.places(torch.arange(rows.shape[1], device=rows.device))
        return nn.functional.linear(self.norm(self.blocks(read)), self.words.weight).transpose(1, 2)


def module_workloads() -> list[ModuleWorkload]:
    """The six networks of the table in docs/results/speed.md."""
    picture, sizes, text = (1, 28, 28), (784, 256, 256, 10), (GPT_LENGTH,)
    return [
        ModuleWorkload("cnn-mnist", 4096, 256, mnist_network, picture, 10, 5),
        ModuleWorkload("cnn", 4096, 256, small_windows, picture, 10, 3),
        ModuleWorkload("transformer", 4096, 64, Reader, (LENGTH,), 2, 15, WORDS),
        ModuleWorkload("mlp-large-module", 20000, 256, perceptron(*sizes), sizes[:1], sizes[-1], 30),
        ModuleWorkload("lstm", 4096, 64, Recurrent, (LENGTH, WIDTH), 10, 20),
        ModuleWorkload("gpt2-tiny", 512, 8, Writer, text, GPT_WORDS, 5, GPT_WORDS, text),
    ]
