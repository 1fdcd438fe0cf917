"""Norms and clipped sums of whole networks against a loop over single records in double precision."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from architectures import by_loop, errors, half_clipped, largest_moves, run
from module_networks import NETWORKS, built, rows
from torch import Tensor, nn

from noisewise.trusted.engine import Layout, Refused, Spec, Tape, clip_factors, rehearsed, values

COUNT = 7
LOSS = nn.CrossEntropyLoss()
CLASSES = (Spec((), torch.int64, 3),)


def labels(count: int) -> Tensor:
    return torch.arange(count) % 3


@cache
def layout_of(name: str) -> Layout:
    """A layout is frozen, and the same for all weights."""
    return rehearsed(built(name), NETWORKS[name].inputs, CLASSES, LOSS)


def passed(module: nn.Module, layout: Layout, inputs: list[Tensor], targets: Tensor) -> Tape:
    """A tape after one forward and backward pass, without dropout."""
    return run(module, LOSS, inputs, [targets], layout)


def in_double(name: str, count: int = COUNT) -> tuple[nn.Module, list[Tensor], Tensor]:
    inputs = [value.double() if value.is_floating_point() else value for value in rows(name, count)]
    return built(name).double(), inputs, labels(count)


def gradients_of(name: str) -> list[Tensor]:
    module, inputs, targets = in_double(name)
    return by_loop(module, LOSS, inputs, [targets])


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", NETWORKS)
def test_norms_and_clipped_sums_are_those_of_a_loop_over_records(name):
    module, inputs, targets = in_double(name)
    gradients, layout = gradients_of(name), layout_of(name)
    clip = half_clipped(gradients)
    tape = passed(module, layout, inputs, targets)
    assert 0 < int((clip_factors(tape.squared_norms(), clip) < 1).sum()) < COUNT  # some are clipped, some are not
    assert max(errors(tape, gradients, clip)) < 1e-12
    assert max(largest_moves(module, LOSS, inputs, [targets], layout, clip)) <= 1 + 1e-9


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_is_as_near_as_it_can_be(name):
    right, layout = gradients_of(name), layout_of(name)
    tape = passed(built(name), layout, rows(name, COUNT), labels(COUNT))
    squared, clip = torch.stack([value.square().sum(1) for value in right]), half_clipped(right)
    assert torch.allclose(tape.squared_norms().sum(0).double(), squared.sum(0), rtol=1e-4)
    factors = clip_factors(squared, clip)
    for found, gradients in zip(tape.sums(clip_factors(tape.squared_norms(), clip)), right, strict=True):
        terms = gradients * factors[:, None]
        near = (found.double().flatten() - terms.sum(0)).abs() <= 1e-5 * terms.abs().sum(0) + 1e-7 * clip
        assert bool(near.all())


@pytest.mark.parametrize("name", NETWORKS)
def test_clips_of_their_own_for_every_parameter(name):
    module, inputs, targets = in_double(name)
    layout, right = layout_of(name), gradients_of(name)
    tape = passed(module, layout, inputs, targets)
    clips = [0.01 * (1 + number) for number in range(len(layout.names))]
    sums = tape.sums(clip_factors(tape.squared_norms(), clips))
    for found, gradients, clip in zip(sums, right, clips, strict=True):
        terms = gradients * (clip / gradients.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1)
        assert torch.allclose(found.flatten(), terms.sum(0), rtol=1e-6, atol=1e-9 * clip + 1e-15)


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


@pytest.mark.parametrize("name", ["encoder", "tied", "bag", "learned places"])
def test_a_word_that_is_none_or_a_label_that_is_no_class_leaves_its_record_out(name):
    module, inputs, targets = in_double(name)
    inputs[0][1, 0], inputs[0][4, 2], targets[3] = 9, -1, 3
    tape = passed(module, layout_of(name), inputs, targets)
    out = clip_factors(tape.squared_norms(), 0.1) == 0
    assert out.tolist() == [False, True, False, True, True, False, False]
    losses, bad = values(module.eval(), LOSS, inputs, [targets], layout_of(name))
    assert torch.equal(bad, out) and torch.equal(losses.isnan(), out)


def test_the_module_is_left_as_it_is():
    module = built("encoder")
    before, names = copy.deepcopy(module.state_dict()), [*module.state_dict()]
    passed(module, layout_of("encoder"), rows("encoder", 4), labels(4))
    assert [*module.state_dict()] == names and all(value.grad is None for value in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_the_same_sums_from_chunks():
    module, inputs, targets = in_double("cnn of mnist", 11)
    layout = layout_of("cnn of mnist")

    def summed(rows: slice) -> list[Tensor]:
        tape = passed(module, layout, [value[rows] for value in inputs], targets[rows])
        return tape.sums(clip_factors(tape.squared_norms(), 0.05))

    for whole, *parts in zip(
        summed(slice(11)), summed(slice(4)), summed(slice(4, 5)), summed(slice(5, 11)), strict=True
    ):
        assert torch.allclose(whole, sum(parts), atol=1e-14)


def test_values_are_the_losses_of_single_records():
    for name in NETWORKS:
        module, inputs, targets = in_double(name)
        losses, bad = values(module.eval(), LOSS, inputs, [targets], layout_of(name))
        with torch.no_grad():
            expected = nn.functional.cross_entropy(module(*inputs), targets, reduction="none")
        assert torch.allclose(losses, expected, rtol=1e-12) and not bool(bad.any())


def test_what_does_not_train_is_named_and_costs_nothing():
    layout = layout_of("low-rank adapters")
    assert layout.frozen == ("base.weight", "base.bias")
    assert layout.names == ("down.weight", "up.weight", "head.weight", "head.bias")
    with pytest.raises(Refused, match="nothing trains"):
        rehearsed(built("perceptron").requires_grad_(False), NETWORKS["perceptron"].inputs, CLASSES, LOSS)


def test_only_dense_layers_without_sequence_are_plain():
    plain = [name for name in NETWORKS if layout_of(name).plain_linear]
    assert plain == [
        "perceptron", "functional", "einsum and bilinear", "weight norm, rms norm", "last layer only", "low-rank adapters"
    ]  # fmt: skip


def test_only_parameters_without_a_rule_are_repeated_for_every_record():
    spread = {name: layout_of(name).spread for name in NETWORKS if layout_of(name).spread}
    own = {"vision transformer": 60, "functional": 8, "einsum and bilinear": 48, "weight norm, rms norm": 36}
    assert spread == own | {"grouped, dilated": 12, "residual": 8, "transposed convolution": 6}  # scales of norms
