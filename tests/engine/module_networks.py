"""Networks of every kind that is supported, with what is public about their inputs: small, and awkward on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from noisewise.trusted.engine import Spec

FLOATS, WHOLE = torch.float32, torch.int64


class Network(NamedTuple):
    build: Callable[[], nn.Module]
    inputs: tuple[Spec, ...]


def pictures(*shape: int) -> tuple[Spec, ...]:
    return (Spec(shape, FLOATS),)


class Applied(nn.Module):
    """A function of named parts."""

    def __init__(self, call: Callable[..., torch.Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(self, *inputs)


def weights(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3, bias=False))


def of_mnist() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(4, 6, 4, 2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3),
    )  # fmt: skip


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, groups=2, dilation=2), nn.GroupNorm(3, 6), nn.ELU(),
        nn.Conv2d(6, 6, 2, stride=(2, 1), groups=6), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3),
    )  # fmt: skip


def of_many_channels() -> nn.Module:
    return nn.Sequential(nn.Conv2d(20, 30, 3), nn.ReLU(), nn.Flatten(), nn.Linear(120, 3))


def encoder(**options: object) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, **options)
    return Applied(
        lambda m, x: m.head(m.layer(m.words(x)).mean(1)), words=nn.Embedding(9, 8), layer=layer, head=nn.Linear(8, 3)
    )


def decoder() -> nn.Module:
    layer = nn.TransformerDecoderLayer(8, 2, 12, batch_first=True, dropout=0.2)
    return Applied(lambda m, x, y: m.layer(x, y)[:, -1, :3], layer=layer)


def residual() -> nn.Module:
    def call(m, x):
        x = m.first(x)
        return m.head((x + m.second(F.relu(m.norm(x)))).flatten(2).mean(2))

    parts = {
        "first": nn.Conv2d(2, 4, 3, padding=1),
        "second": nn.Conv2d(4, 4, 3, padding="same"),
        "norm": nn.GroupNorm(2, 4),
    }
    return Applied(call, **parts, head=nn.Linear(4, 3))


def recurrent(kind: type[nn.RNNBase], **options: object) -> nn.Module:
    layer = kind(3, 4, **options)
    wide = 8 if options.get("bidirectional") else 4
    if options.get("batch_first"):
        return Applied(lambda m, x: m.head(m.layer(x)[0].sum(1)), layer=layer, head=nn.Linear(wide, 3))
    return Applied(lambda m, x: m.head(m.layer(x.transpose(0, 1))[0].sum(0)), layer=layer, head=nn.Linear(wide, 3))


def last_state() -> nn.Module:
    def call(m, x):
        _, (h, c) = m.layer(m.words(x))
        return m.head(h[-1] + c[-1])

    return Applied(
        call, words=nn.Embedding(9, 3, padding_idx=0), layer=nn.LSTM(3, 4, batch_first=True), head=nn.Linear(4, 3)
    )


def tied() -> nn.Module:
    return Applied(
        lambda m, x: F.linear(m.body(m.words(x)), m.words.weight).mean(1)[:, :3],
        words=nn.Embedding(9, 4),
        body=nn.Linear(4, 4),
    )


def reused() -> nn.Module:
    return Applied(
        lambda m, x: m.out(m.same(torch.tanh(m.same(torch.tanh(m.same(x)))))), same=nn.Linear(5, 5), out=nn.Linear(5, 3)
    )


def functional() -> nn.Module:
    return Applied(
        lambda m, x: torch.tanh(x @ m.w * m.scale + m.shift) @ m.v.T,
        w=weights(5, 4),
        scale=weights(4),
        shift=weights(4),
        v=weights(3, 4),
    )


def vision() -> nn.Module:
    def call(m, x):
        cells = m.cut(x).flatten(2).transpose(1, 2)
        cells = torch.cat([m.first.expand(len(x), -1, -1), cells], 1) + m.places[: cells.shape[1] + 1]
        return m.head(m.norm(m.layer(cells)[:, 0]))

    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True, activation="gelu")
    parts = {"cut": nn.Conv2d(1, 6, 4, 4), "first": weights(1, 1, 6), "places": weights(9, 6), "layer": layer}
    return Applied(call, **parts, norm=nn.LayerNorm(6), head=nn.Linear(6, 3))


def of_einsum() -> nn.Module:
    return Applied(
        lambda m, x: torch.einsum("btd,dek->bk", x, m.w) + m.more(x, x).sum(1),
        w=weights(3, 2, 3),
        more=nn.Bilinear(3, 3, 3),
    )


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), nn.PReLU(4), nn.RMSNorm(4), nn.Linear(4, 3)
    )


def upward() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(2, 3, 3, stride=2), nn.InstanceNorm2d(3, affine=True), nn.Flatten(), nn.LazyLinear(3)
    )


def of_positions() -> nn.Module:
    def call(m, x):
        places = torch.arange(x.shape[1])
        return m.head(F.gelu(m.words(x) + m.places(places))).mean(1)

    return Applied(call, words=nn.Embedding(9, 4), places=nn.Embedding(12, 4), head=nn.Linear(4, 3))


def flattened() -> nn.Module:
    return Applied(
        lambda m, x: m.net(x.reshape(-1, 3)).view(len(x), -1, 3).sum(1),
        net=nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)),
    )


def of_addmm() -> nn.Module:
    """Dense layers over a flattened sequence, with weights that lie transposed."""

    def call(m, x):
        flat = torch.tanh(torch.addmm(m.shift, x.reshape(-1, 3), m.w))
        return torch.addmm(m.more, flat, m.v).view(*x.shape[:2], 3).mean(1)

    return Applied(call, w=weights(3, 4), shift=weights(4), v=weights(4, 3), more=weights(3))


def last_layer() -> nn.Module:
    module = perceptron()
    module[0].requires_grad_(False)
    return module


def adapted() -> nn.Module:
    """Low-rank updates of a frozen layer."""
    base = nn.Linear(5, 4).requires_grad_(False)
    return Applied(
        lambda m, x: m.head(torch.tanh(m.base(x) + m.up(m.down(x)) * 2.0)),
        base=base,
        down=nn.Linear(5, 2, bias=False),
        up=nn.Linear(2, 4, bias=False),
        head=nn.Linear(4, 3),
    )


def of_cells() -> nn.Module:
    """A recurrent network step by step, whose cells have two results."""

    def call(m, x):
        h = c = x.new_zeros(len(x), 4)
        for t in range(x.shape[1]):
            h, c = m.cell(x[:, t], (h, c))
        return m.head(h)

    return Applied(call, cell=nn.LSTMCell(3, 4), head=nn.Linear(4, 3))


def bagged() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 3))


WORDS = (Spec((6,), WHOLE, 9),)
SEQUENCE = (Spec((5, 3), FLOATS),)
NETWORKS = {
    "perceptron": Network(perceptron, pictures(5)),
    "cnn of mnist": Network(of_mnist, pictures(1, 17, 17)),
    "grouped, dilated": Network(grouped, pictures(4, 8, 8)),
    "many channels": Network(of_many_channels, pictures(20, 4, 4)),
    "one dimension": Network(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(9, 3)), pictures(2, 8)
    ),
    "three dimensions": Network(
        lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)), pictures(2, 3, 3, 3)
    ),
    "residual": Network(residual, pictures(2, 5, 5)),
    "encoder": Network(lambda: encoder(dropout=0.3), WORDS),
    "encoder, norm first": Network(lambda: encoder(norm_first=True, bias=False), WORDS),
    "decoder": Network(decoder, (Spec((4, 8), FLOATS), Spec((3, 8), FLOATS))),
    "vision transformer": Network(vision, pictures(1, 8, 8)),
    "lstm": Network(lambda: recurrent(nn.LSTM, batch_first=True), SEQUENCE),
    "lstm, two ways, two layers": Network(
        lambda: recurrent(nn.LSTM, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True), SEQUENCE
    ),
    "lstm, time first": Network(lambda: recurrent(nn.LSTM), SEQUENCE),
    "lstm, last state": Network(last_state, WORDS),
    "gru": Network(lambda: recurrent(nn.GRU, batch_first=True, bidirectional=True), SEQUENCE),
    "gru without bias": Network(lambda: recurrent(nn.GRU, num_layers=2, bias=False, batch_first=True), SEQUENCE),
    "rnn": Network(lambda: recurrent(nn.RNN, batch_first=True), SEQUENCE),
    "rnn, relu": Network(lambda: recurrent(nn.RNN, nonlinearity="relu", batch_first=True), SEQUENCE),
    "tied": Network(tied, WORDS),
    "reused": Network(reused, pictures(5)),
    "functional": Network(functional, pictures(5)),
    "einsum and bilinear": Network(of_einsum, SEQUENCE),
    "weight norm, rms norm": Network(normalised, pictures(5)),
    "transposed convolution": Network(upward, pictures(2, 4, 4)),
    "learned places": Network(of_positions, WORDS),
    "flattened sequence": Network(flattened, SEQUENCE),
    "addmm": Network(of_addmm, SEQUENCE),
    "cells": Network(of_cells, SEQUENCE),
    "bag": Network(bagged, WORDS),
    "last layer only": Network(last_layer, pictures(5)),
    "low-rank adapters": Network(adapted, pictures(5)),
}


def built(name: str, seed: int = 0) -> nn.Module:
    """A network with weights from a seed, after a first pass that makes lazy ones."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = NETWORKS[name].build()
        with torch.no_grad():
            module.eval()(*rows(name, 2))
        for value in module.parameters():
            if value.requires_grad and value.dim() == 1:
                value.data += 0.1 * torch.randn_like(value)  # biases and scales that are not all alike
    return module.train()


def rows(name: str, count: int, seed: int = 1) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [
        torch.randn(count, *spec.shape, generator=made)
        if spec.dtype.is_floating_point
        else torch.randint(spec.high or 2, (count, *spec.shape), generator=made)
        for spec in NETWORKS[name].inputs
    ]
