"""Norms and clipped sums of whole networks against a loop over single records in double precision."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from module_networks import NETWORKS, built, rows
from torch import Tensor, nn

from noisewise.engine import Refused, Spec, Tape, clip_factors, per_record_losses, probed
from noisewise.engine.probe import Quiet

COUNT = 7
LOSS = nn.CrossEntropyLoss()
CLASSES = (Spec((), torch.int64, 3),)


def labels(count: int) -> Tensor:
    return torch.arange(count) % 3


@cache
def layout_of(name: str):
    """A layout is frozen, and the same for all weights."""
    return probed(built(name), NETWORKS[name].inputs, CLASSES, LOSS)


def passed(module: nn.Module, layout, inputs: list[Tensor], targets: Tensor) -> Tape:
    """A tape after one forward and backward pass."""
    tape = Tape(module, layout, len(targets))
    with Quiet(), tape:
        outputs = module(*inputs)
    total = per_record_losses(LOSS, outputs, [targets], len(targets)).sum()
    tape.backward(total)
    return tape


def by_loop(module: nn.Module, inputs: list[Tensor], targets: Tensor) -> list[list[Tensor]]:
    """Every record's gradients, in double precision."""
    own = copy.deepcopy(module).double()
    parameters = [value for value in own.parameters() if value.requires_grad]
    found = []
    for row in range(len(targets)):
        one = [value[row : row + 1] for value in inputs]
        with Quiet():
            outputs = own(*[value.double() if value.is_floating_point() else value for value in one])
        gradients = torch.autograd.grad(LOSS(outputs, targets[row : row + 1]), parameters, allow_unused=True)
        pairs = zip(gradients, parameters, strict=True)
        found.append([torch.zeros_like(value) if gradient is None else gradient for gradient, value in pairs])
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_norms_and_clipped_sums_are_those_of_a_loop_over_records(name):
    module, inputs, targets = built(name), rows(name, COUNT), labels(COUNT)
    layout = layout_of(name)
    tape, right = passed(module, layout, inputs, targets), by_loop(module, inputs, targets)
    squared = torch.stack([torch.stack([gradient.square().sum() for gradient in one]) for one in right], 1)
    clip = float(squared.sum(0).sqrt().median())
    factors = clip_factors(tape.squared_norms(), clip)
    assert torch.allclose(tape.squared_norms().sum(0).double(), squared.sum(0), rtol=1e-4)
    assert 0 < int((factors < 1).sum()) < COUNT  # some are clipped, some are not
    exact = clip_factors(squared, clip)
    for number, found in enumerate(tape.sums(factors)):
        terms = torch.stack([one[number] * factor for one, factor in zip(right, exact, strict=True)])
        most = terms.abs().sum(0)
        assert bool(((found.double() - terms.sum(0)).abs() <= 1e-5 * most + 1e-7 * clip).all())


@pytest.mark.parametrize("name", NETWORKS)
def test_clips_of_their_own_for_every_parameter(name):
    module, inputs, targets = built(name).double(), rows(name, COUNT), labels(COUNT)
    inputs = [value.double() if value.is_floating_point() else value for value in inputs]
    layout = layout_of(name)
    tape, right = passed(module, layout, inputs, targets), by_loop(module, inputs, targets)
    clips = [0.01 * (1 + number) for number in range(len(layout.names))]
    for number, found in enumerate(tape.sums(clip_factors(tape.squared_norms(), clips))):
        terms = [one[number] * min(1.0, clips[number] / max(float(one[number].norm()), 1e-30)) for one in right]
        assert torch.allclose(found, torch.stack(terms).sum(0), rtol=1e-6, atol=1e-9 * clips[number] + 1e-15)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize(
    "name", [name for name, network in NETWORKS.items() if network.inputs[0].dtype.is_floating_point]
)
def test_a_record_that_is_not_finite_is_left_out_and_changes_no_other(name, odd):
    module, inputs, targets = built(name), rows(name, COUNT), labels(COUNT)
    layout = layout_of(name)
    inputs[0][2] = odd
    tape = passed(module, layout, inputs, targets)
    factors = clip_factors(tape.squared_norms(), 0.1)
    left = [row for row in range(COUNT) if row != 2]
    without = passed(module, layout, [value[left] for value in inputs], targets[left])
    own = clip_factors(without.squared_norms(), 0.1)
    assert torch.allclose(factors[left], own, rtol=1e-4)
    for found, rest in zip(tape.sums(factors), without.sums(own), strict=True):
        assert bool(torch.isfinite(found).all())
        assert float((found - rest).norm()) <= 0.1 * (1 + 1e-4)  # what one record may add


def test_the_module_is_left_as_it_is():
    module = built("encoder")
    before, names = copy.deepcopy(module.state_dict()), [*module.state_dict()]
    layout = layout_of("encoder")
    passed(module, layout, rows("encoder", 4), labels(4))
    assert [*module.state_dict()] == names and all(value.grad is None for value in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_the_same_sums_from_chunks():
    module, inputs, targets = built("cnn of mnist").double(), rows("cnn of mnist", 11), labels(11)
    inputs = [value.double() for value in inputs]
    layout = layout_of("cnn of mnist")

    def summed(rows: slice) -> list[Tensor]:
        tape = passed(module, layout, [value[rows] for value in inputs], targets[rows])
        return tape.sums(clip_factors(tape.squared_norms(), 0.05))

    for whole, *parts in zip(
        summed(slice(11)), summed(slice(4)), summed(slice(4, 5)), summed(slice(5, 11)), strict=True
    ):
        assert torch.allclose(whole, sum(parts), atol=1e-14)


def test_it_runs_on_meta():
    for name in NETWORKS:
        module = built(name)
        layout = layout_of(name)
        inputs = [value.to("meta") for value in rows(name, 4)]
        if name in ("learned places", "einsum and bilinear", "transposed convolution"):
            continue  # makes tensors of its own on the CPU, or is differentiated by vmap, which asks for numbers
        tape = passed(module.to("meta"), layout, inputs, labels(4).to("meta"))
        sums = tape.sums(clip_factors(tape.squared_norms(), 1.0))
        assert [(value.shape, value.device.type) for value in sums] == [(shape, "meta") for shape in layout.shapes]


def test_what_does_not_train_is_named_and_costs_nothing():
    layout = probed(built("low-rank adapters"), NETWORKS["low-rank adapters"].inputs, CLASSES, LOSS)
    assert layout.frozen == ("base.weight", "base.bias")
    assert layout.names == ("down.weight", "up.weight", "head.weight", "head.bias")
    with pytest.raises(Refused, match="nothing trains"):
        probed(built("perceptron").requires_grad_(False), NETWORKS["perceptron"].inputs, CLASSES, LOSS)


def test_only_dense_layers_without_sequence_are_plain():
    plain = [name for name in NETWORKS if layout_of(name).plain_linear]
    assert plain == ["perceptron", "last layer only", "low-rank adapters"]
