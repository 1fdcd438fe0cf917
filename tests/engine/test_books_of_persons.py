"""Persons with one to four records each, in any order: norms and clips are those of a person's summed gradient."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from architectures import MODELS, by_loop, errors, flat, half_clipped, labelled, run
from architectures import built as model
from architectures import rows as made_up
from module_networks import NETWORKS, built, rows
from torch import Tensor, nn

from noisewise.trusted.engine import Layout, Spec, Tape, clip_factors, rehearsed
from noisewise.trusted.engine.entries import Persons

LOSS = nn.CrossEntropyLoss()
CLASSES = (Spec((), torch.int64, 3),)
GROUPS = torch.tensor([2, 0, 2, 1, 3, 0, 2, 4, 1, 2, 4])  # four, three, two, one; nobody's records lie side by side
IN_TURN = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4])
EQUAL = torch.arange(10) // 2
SOME = [
    "perceptron", "cnn of mnist", "grouped, dilated", "many channels", "one dimension", "three dimensions", "encoder",
    "vision transformer", "lstm, two ways, two layers", "gru", "tied", "reused", "functional", "einsum and bilinear",
    "weight norm, rms norm", "transposed convolution", "learned places", "cells", "bag", "low-rank adapters",
]  # fmt: skip
OF_NUMBERS = [name for name in SOME if NETWORKS[name].inputs[0].dtype.is_floating_point]


@cache
def layout_of(name: str) -> Layout:
    return rehearsed(built(name), NETWORKS[name].inputs, CLASSES, LOSS)


def data(name: str, count: int) -> tuple[list[Tensor], list[Tensor]]:
    inputs = [value.double() if value.is_floating_point() else value for value in rows(name, count)]
    return inputs, [torch.arange(count) % 3]


def of_persons(module: nn.Module, inputs: list[Tensor], targets: list[Tensor], layout: Layout, groups: Tensor) -> Tape:
    tape = run(module, LOSS, inputs, targets, layout)
    tape.group(groups)
    return tape


def added(gradients: list[Tensor], groups: Tensor) -> list[Tensor]:
    """The loop's gradients, summed person by person."""
    most = int(groups.max()) + 1
    return [value.new_zeros(most, value.shape[1]).index_add(0, groups, value) for value in gradients]


@pytest.mark.sample(30)
@pytest.mark.parametrize("groups", [GROUPS, IN_TURN, EQUAL], ids=["any order", "in turn", "two each"])
@pytest.mark.parametrize("name", SOME)
def test_norms_and_sums_are_those_of_summed_gradients(name, groups):
    module, (inputs, targets) = built(name).double(), data(name, len(groups))
    tape = of_persons(module, inputs, targets, layout_of(name), groups)
    gradients = added(by_loop(module, LOSS, inputs, targets), groups)
    assert tape.batch == 5
    assert max(errors(tape, gradients, half_clipped(gradients))) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name):
    case = MODELS[name]
    module, inputs, targets = model(case), made_up(case.inputs, len(GROUPS)), labelled(case, len(GROUPS))
    tape = run(module, case.loss, inputs, targets, rehearsed(module, case.inputs, case.targets, case.loss))
    tape.group(GROUPS)
    gradients = added(by_loop(module, case.loss, inputs, targets), GROUPS)
    assert max(errors(tape, gradients, half_clipped(gradients))) < 1e-12


def moved(
    module: nn.Module, inputs: list[Tensor], targets: list[Tensor], layout: Layout, person: int
) -> tuple[Tensor, Tensor]:
    """A person's own part of the clipped sum, and how far the sum moves without this person's records; clips are 1."""
    tape = of_persons(module, inputs, targets, layout, GROUPS)
    factors = clip_factors(tape.squared_norms(), 1.0)
    one = (torch.arange(5) == person).to(factors.dtype)
    left = torch.nonzero(person != GROUPS).flatten()
    others = GROUPS[left] - (GROUPS[left] > person).long()
    rest = of_persons(module, [value[left] for value in inputs], [value[left] for value in targets], layout, others)
    without = flat(rest.sums(clip_factors(rest.squared_norms(), 1.0)))
    return flat(tape.sums(factors * one)), flat(tape.sums(factors)) - without


@pytest.mark.sample(40)
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf"), 1e30, 1e300])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_no_person_moves_a_sum_beyond_the_clip_whatever_the_records(name, odd):
    module, (inputs, targets) = built(name).double(), data(name, len(GROUPS))
    inputs[0][2] = odd  # one of four records of person 2
    inputs[0][7].view(-1)[0] = odd  # one number of person 4
    for person in range(5):
        own, change = moved(module, inputs, targets, layout_of(name), person)
        assert bool(torch.isfinite(own).all() and torch.isfinite(change).all())
        assert float(own.norm()) <= 1 + 1e-9 and float(change.norm()) <= 1 + 1e-9


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_nor_in_single_precision(name):
    module, inputs, targets = built(name), rows(name, len(GROUPS)), [torch.arange(len(GROUPS)) % 3]
    for row, odd in enumerate((torch.nan, torch.inf, 1e30, 1e38, 1e4, -1e4)):
        inputs[0][row] = odd
    for person in range(5):
        own, change = moved(module, inputs, targets, layout_of(name), person)
        assert float(own.norm()) <= 1 + 1e-4 and float(change.norm()) <= 1 + 1e-4


def test_records_of_one_person_that_cancel():
    """What is left of two opposite records is not taken to be longer than the person's clip."""
    module = nn.Linear(50, 40, bias=False)
    layout = rehearsed(module, [Spec((50,), torch.float32)], [Spec((40,), torch.float32)], nn.MSELoss())
    torch.manual_seed(0)
    x = 1e3 * torch.randn(8, 50)
    with torch.no_grad():
        y = module(x)
    inputs, targets = torch.cat([x, -x]), torch.cat([y - 1e3, -y - 1e3])  # the same slopes for x and for -x
    tape = run(module, nn.MSELoss(), [inputs], [targets], layout)
    tape.group(torch.arange(16) % 8)
    factors = clip_factors(tape.squared_norms(), 1e-3)
    for person in torch.eye(8):
        assert float(flat(tape.sums(factors * person)).double().norm()) <= 1e-3 * (1 + 1e-5)


def test_a_bad_label_leaves_its_person_out():
    module, (inputs, targets) = built("perceptron").double(), data("perceptron", len(GROUPS))
    targets[0][2] = 77
    tape = of_persons(module, inputs, targets, layout_of("perceptron"), GROUPS)
    assert clip_factors(tape.squared_norms(), 1.0).eq(0).tolist() == [False, False, True, False, False]


def test_where_records_of_persons_lie():
    one_each = Persons.of(torch.arange(3))
    assert one_each.most == 1 and one_each.places is None
    found = Persons.of(torch.tensor([1, 0, 1]))
    assert found.there.tolist() == [True, False, True, True]
    assert found.joined(torch.tensor([[1.0], [2.0], [3.0]])).tolist() == [[2.0, 0.0], [1.0, 3.0]]
