"""Gradients of convolutions, kept or made when they are needed, and pictures that lie by pixel."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from noisewise.trusted.engine import Spec, passed, rehearsed
from noisewise.trusted.engine.entries import Direct, Outer, Persons
from noisewise.trusted.engine.rules import convolution
from noisewise.trusted.engine.rules.convolution import Geometry, Windowed, per_record_weights, term_norms, windows

SHAPES = [
    ((2, 3, 9), (4, 3, 3), Geometry((1,), (1,), (1,), 1)),
    ((5, 1, 9, 8), (4, 1, 3, 2), Geometry((1, 1), (1, 0), (1, 1), 1)),
    ((3, 4, 9, 9), (6, 4, 3, 3), Geometry((2, 1), (1, 2), (1, 2), 1)),
    ((3, 4, 7, 6), (6, 2, 2, 3), Geometry((1, 2), (0, 1), (2, 1), 2)),
    ((2, 2, 5, 4, 6), (4, 2, 2, 2, 3), Geometry((1, 1, 2), (1, 0, 1), (1, 1, 1), 1)),
]


def made(pictures, weight, how):
    torch.manual_seed(0)
    x, weight = torch.randn(pictures, dtype=torch.float64), torch.randn(weight, dtype=torch.float64)
    run = convolution.CONVOLUTIONS[x.dim() - 2]

    def forward(x, weight):
        return run(x, weight, None, how.stride, how.padding, how.dilation, how.groups)

    b = torch.randn_like(forward(x, weight))
    each = [torch.func.vjp(lambda w, i=i: forward(x[i : i + 1], w), weight)[1](b[i : i + 1])[0] for i in range(len(x))]
    return x, b, weight.shape, torch.stack(each)


@pytest.mark.parametrize(("pictures", "weight", "how"), SHAPES)
@pytest.mark.parametrize("laid", [1, 2**19])
def test_gradients_are_those_of_single_records(monkeypatch, pictures, weight, how, laid):
    monkeypatch.setattr(convolution, "WINDOW_NUMBERS_AT_ONCE", laid)  # one record at a time, or all at once
    x, b, shape, each = made(pictures, weight, how)
    assert torch.allclose(per_record_weights(x, b, shape, how), each, rtol=1e-10)


@pytest.mark.parametrize(("pictures", "weight", "how"), SHAPES)
@pytest.mark.parametrize("room", [1, 2**24])
def test_what_is_not_kept_is_made_again(monkeypatch, pictures, weight, how, room):
    monkeypatch.setattr(convolution, "MAX_GRADIENT_NUMBERS", room)
    x, b, shape, each = made(pictures, weight, how)
    entry, kept = Windowed(x, b, shape, how), Direct(each, shape)
    assert (entry.batch, entry.terms) == (len(x), b[0, 0].numel())
    assert torch.allclose(entry.squared_norms(), kept.squared_norms(), rtol=1e-10)
    factors, dead = torch.linspace(0, 1, len(x), dtype=torch.float64), torch.arange(len(x)) == 0
    assert torch.allclose(entry.weighted(factors, None), kept.weighted(factors, None), rtol=1e-10)
    x[0], b[0] = torch.nan, torch.inf
    assert torch.allclose(entry.weighted(factors, dead), kept.weighted(factors, None), rtol=1e-10)


@pytest.mark.parametrize(("pictures", "weight", "how"), SHAPES)
@pytest.mark.parametrize("room", [1, 2**24])
def test_several_pictures_of_a_record(monkeypatch, pictures, weight, how, room):
    monkeypatch.setattr(convolution, "MAX_GRADIENT_NUMBERS", room)
    x, b, shape, each = made((6, *pictures[1:]), weight, how)
    entry, kept = Windowed(x, b, shape, how, each=2), Direct(each.unflatten(0, (3, 2)).sum(1), shape)
    assert (entry.batch, entry.terms) == (3, 2 * b[0, 0].numel())
    assert torch.allclose(entry.squared_norms(), kept.squared_norms(), rtol=1e-10)
    assert torch.allclose(entry.per_record(slice(1, 3)), kept.per_record(slice(1, 3)), rtol=1e-10)
    factors, dead = torch.linspace(0, 1, 3, dtype=torch.float64), torch.arange(3) == 0
    x[:2], b[:2] = torch.nan, torch.inf
    assert torch.allclose(entry.weighted(factors, dead), kept.weighted(factors, None), rtol=1e-10)


@pytest.mark.parametrize(("pictures", "weight", "how"), SHAPES)
@pytest.mark.parametrize("own", [1, 2])
def test_pictures_of_persons(pictures, weight, how, own):
    """Four records of one or two pictures each, of three persons."""
    x, b, shape, each = made((4 * own, *pictures[1:]), weight, how)
    persons = Persons.of(torch.tensor([1, 0, 1, 2]))
    entry = Windowed(x, b, shape, how, each=own).of_persons(persons)
    each = each.unflatten(0, (4, own)).sum(1)
    kept = Direct(torch.stack([each[1], each[0] + each[2], each[3]]), shape)
    assert (entry.batch, entry.each) == (3, 2 * own)
    assert torch.allclose(entry.squared_norms(), kept.squared_norms(), rtol=1e-10)
    factors = torch.tensor([0.5, 1.0, 0.0], dtype=torch.float64)
    assert torch.allclose(entry.weighted(factors, None), kept.weighted(factors, None), rtol=1e-10)


@pytest.mark.parametrize("own", [1, 3])
def test_norms_by_pairs_of_positions(own):
    how = Geometry((1, 1), (0, 0), (1, 1), 1)
    x, b, shape, each = made((3, 16, 4, 4), (24, 16, 3, 3), how)
    assert shape.numel() > own * b[0, 0].numel() * (144 + 24)  # so pairs are less work
    entry = Windowed(x, b, shape, how, each=own)
    assert torch.allclose(entry.squared_norms(), each.view(-1, own, shape.numel()).sum(1).square().sum(1), rtol=1e-10)


def test_terms_that_cancel_leave_a_norm():
    """Two windows alike, output gradients opposite: the gradient is zero, its terms are not."""
    x, b = torch.ones(1, 2, 4), torch.tensor([[[3.0, -3.0]]])
    entry = Windowed(x, b, torch.Size((1, 2, 3)), Geometry((1,), (0,), (1,), 1))
    terms = 2 * 3 * 6**0.5
    assert entry.term_norms() == pytest.approx(terms)
    assert float(entry.squared_norms()) == pytest.approx(terms**2 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize(("pictures", "weight", "how"), [SHAPES[0], SHAPES[2], SHAPES[4]])
def test_norms_of_terms(pictures, weight, how):
    x, b, shape, _ = made(pictures, weight, how)
    seen = windows(x, shape, b.shape[2:], how).reshape(len(x), -1, shape[1:].numel())
    outer = Outer(seen, b.flatten(2).transpose(1, 2), shape)
    assert torch.allclose(term_norms(x, b, shape, how), outer.term_norms(), rtol=1e-10)


def test_groups_have_terms_of_their_own():
    x, b, shape, _ = made(*SHAPES[3])
    how, halves = SHAPES[3][2], torch.zeros(len(x), dtype=torch.float64)
    for x_half, b_half in zip(x.chunk(2, 1), b.chunk(2, 1), strict=True):
        halves += term_norms(x_half, b_half, torch.Size((3, *shape[1:])), replace(how, groups=1))
    assert torch.allclose(term_norms(x, b, shape, how), halves, rtol=1e-10)


class Pooled(nn.Module):
    """The way of the MNIST examples, with a view of what is pooled."""

    def __init__(self, pictures: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 2), nn.Linear(24, 2)
        self.pictures = pictures

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return x if self.pictures else self.head(x.view(-1, 24))


def loss_of_all(outputs):
    return outputs.sum()


def test_pooled_pictures_lie_by_pixel():
    module, x = Pooled(), torch.randn(5, 1, 12, 12)
    layout = rehearsed(module, [Spec((1, 12, 12), torch.float32)])
    assert layout.channels_last
    lying = []
    handle = module.second.register_forward_hook(
        lambda module, args, result: lying.extend((args[0].stride(1), result.stride(1)))
    )
    plainly = module(x)
    _, losses = passed(module, loss_of_all, [x], [], layout)
    handle.remove()
    assert lying == [25, 16, 1, 1] and torch.allclose(losses, plainly.sum(1), atol=1e-5)


def test_pictures_that_are_handed_out_lie_as_always():
    layout = rehearsed(Pooled(pictures=True), [Spec((1, 12, 12), torch.float32)])
    assert not layout.channels_last
    assert not rehearsed(
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), [Spec((1, 5, 5), torch.float32)]
    ).channels_last


class Minding(Pooled):
    def forward(self, x):
        x = self.first(x)
        if x.stride(1) == 1:
            raise RuntimeError("pictures lie in an unusual way")
        return self.head(F.max_pool2d(x, 5, 4).flatten(1)[:, :24].repeat(1, 2)[:, :24])


def test_a_module_that_minds_gets_pictures_as_always():
    assert not rehearsed(Minding(), [Spec((1, 12, 12), torch.float32)]).channels_last
