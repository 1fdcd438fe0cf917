"""Callers with torch tensors: tensors in, tensors out; arrays in, arrays out; and torch is never imported for them."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from spies import SEEN, TensorSpy
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from noisewise.accounts import AdditiveMeter, Budget
from noisewise.asking import Asking, array, entries, in_kind, is_tensor
from noisewise.curator import Answer, Count, Curator, Descent, PublicCurator
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

LINEAR = Linear(3, Logistic())
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((20, 3), np.float32), RNG.choice([-1.0, 1.0], 20)
NUMBERS = [[1.5, -2.0], [0.0, 3.0]]


def room(kind):
    meter = AdditiveMeter(Budget(50.0, 1e-6), "gdp")
    return Curator(kind(X), kind(Y), model=LINEAR, meter=meter, size=20.0, row_bound=1.0, seed=1)


# --- the adapter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_entries_are_those_of_the_tensor_in_its_own_type(dtype):
    given = torch.tensor(NUMBERS).abs().to(dtype)
    found = array(given)
    assert type(found) is np.ndarray and found.dtype == given.numpy().dtype
    assert np.array_equal(found, given.numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_that_numpy_does_not_know_become_single_precision(dtype):
    found = array(torch.tensor(NUMBERS, dtype=dtype))
    assert found.dtype == np.float32 and found.tolist() == NUMBERS


@pytest.mark.parametrize(
    "change", [lambda t: t.T, lambda t: t[1:], lambda t: t[:, ::2], lambda t: t[:0], lambda t: t[0, 0], torch.conj]
)
def test_views_are_read_as_they_look(change):
    given = change(torch.tensor(NUMBERS))
    assert np.array_equal(array(given), given.numpy())


def test_an_array_of_a_tensor_shares_no_memory_with_it():
    given = torch.tensor(NUMBERS)
    found = array(given)
    given.zero_()
    assert found.tolist() == NUMBERS
    found[:] = 7.0
    assert not given.any()


def test_a_graph_is_left_alone():
    weight = torch.nn.Parameter(torch.tensor(NUMBERS))
    for given in (weight, 1.0 * weight):
        assert array(given).tolist() == NUMBERS
    assert weight.requires_grad and weight.grad is None


@pytest.mark.parametrize(
    "given",
    [torch.eye(2).to_sparse(), torch.zeros(2, dtype=torch.complex64)],
    ids=["sparse", "complex"],
)
def test_what_has_no_plain_real_entries_is_refused(given):
    with pytest.raises(TypeError, match=r"pass a plain, real torch\.Tensor"):
        array(given)


def test_no_code_of_a_subclass_or_a_mode_runs():
    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            SEEN.append(())
            return func(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            SEEN.append(())
            return func(*args, **(kwargs or {}))

    spy = torch.tensor(NUMBERS).as_subclass(TensorSpy)
    for mode in (Functions(), Dispatched()):
        with mode:
            SEEN.clear()
            torch.tensor(NUMBERS).sum()
            assert SEEN, "a mode notes what it sees"
            SEEN.clear()
            assert entries(spy).tolist() == NUMBERS
            assert not SEEN


@pytest.mark.parametrize("other", [None, 1, 2.5, "a", [1.0], (1.0,), np.ones(2), np.float32(1.0), {"a": 1}, int])
def test_everything_else_passes_as_it_is(other):
    assert not is_tensor(other)
    assert array(other) is other
    assert in_kind(np.zeros(1), other) is other


def test_an_answer_is_in_the_kind_of_what_was_asked_with():
    for dtype in (np.float32, np.float64, np.int64):
        made = in_kind(torch.zeros(1), np.arange(3, dtype=dtype))
        assert is_tensor(made) and made.numpy().dtype == dtype and made.tolist() == [0, 1, 2]
    assert type(in_kind(np.zeros(1), np.arange(3))) is np.ndarray
    assert in_kind(torch.zeros(1), 2.5) == 2.5
    backwards = np.arange(3.0)[::-1]
    backwards.flags.writeable = False
    assert in_kind(torch.zeros(1), backwards).tolist() == [2, 1, 0]


# --- curators ---------------------------------------------------------------------------------------------------------

ASKED = {
    "gradient": lambda c, t: c.gradient(t, clip=1.0, noise_multiplier=2.0),
    "gradient with a scale": lambda c, t: c.gradient(t, clip=1.0, noise_multiplier=2.0, scale=t + 2),
    "gradient of a batch": lambda c, t: c.gradient(t, clip=1.0, noise_multiplier=2.0, sampling=("poisson", 0.5)),
    "gradient_norm": lambda c, t: c.gradient_norm(t, clip=1.0, noise_multiplier=2.0),
}


def same_in_other_kind(one, other):
    """An answer to arrays and one to tensors: the same bits."""
    assert type(one.value) is np.ndarray and is_tensor(other.value)
    assert one.value.shape == tuple(other.value.shape) and one.value.tobytes() == other.value.numpy().tobytes()
    assert one._replace(value=None) == other._replace(value=None)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_curator_answers_tensors_as_it_answers_arrays(ask):
    theta = np.array([0.5, -0.25, 1.0], np.float32)
    same_in_other_kind(ask(room(np.copy), theta), ask(room(torch.from_numpy), torch.from_numpy(theta)))
    same_in_other_kind(ask(room(torch.from_numpy), theta), ask(room(np.copy), torch.from_numpy(theta)))


class Echo(Asking):
    """Answers each question with its own theta."""

    def ask(self, question, *, noise, sampling=("full",)):
        return Answer(question.theta, noise)


def test_so_does_whoever_is_asked_layer_by_layer():
    theta, how = np.array([0.5, -0.25]), {"clips": [1.0, 0.5], "noise_multiplier": 2.0}
    one, other = Echo().layered_gradient(theta, **how), Echo().layered_gradient(torch.from_numpy(theta), **how)
    same_in_other_kind(one, other)


def test_choices_walks_and_bases_are_taken_in_either_kind():
    one, other = room(np.copy), room(torch.from_numpy)
    candidates = [np.zeros(3), np.array([0.3, -0.4, 0.2])]
    chosen = one.choose(candidates, loss_bound=1.0, epsilon=1.0)
    assert other.choose([torch.from_numpy(each) for each in candidates], loss_bound=1.0, epsilon=1.0) == chosen
    ends = [
        c.last_iterate(Descent(start, 3, 0.5, 3.0)).value for c, start in ((one, np.zeros(3)), (other, torch.zeros(3)))
    ]
    assert np.array_equal(*ends) and {*map(type, ends)} == {np.ndarray}
    assert type(other.statistic(Count(), noise_multiplier=2.0).value) is np.ndarray  # asked with neither

    one, other = room(np.copy), room(torch.from_numpy)
    basis = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    one.change_basis(basis), other.change_basis(torch.from_numpy(basis))
    back, again = one.in_first_basis(np.ones(3)), other.in_first_basis(torch.ones(3, dtype=torch.float64))
    assert type(back) is np.ndarray and is_tensor(again) and np.array_equal(back, again.numpy())
    same_in_other_kind(ASKED["gradient"](one, np.ones(3)), ASKED["gradient"](other, torch.ones(3)))


def test_so_does_a_public_curator():
    one, other = (
        PublicCurator(X, Y, model=LINEAR, seed=1),
        PublicCurator(*map(torch.from_numpy, (X, Y)), model=LINEAR, seed=1),
    )
    theta = np.array([0.5, -0.25, 1.0])
    tensor = torch.from_numpy(theta)
    same_in_other_kind(one.gradient(theta), other.gradient(tensor))
    for ask in ASKED.values():
        if ask is not ASKED["gradient_norm"]:
            same_in_other_kind(ask(one, theta), ask(other, tensor))
    for ask in (lambda c, t: c.norms(t), lambda c, t: c.gradient_subspace(t, 2)):
        found, again = ask(one, theta), ask(other, tensor)
        assert type(found) is np.ndarray and is_tensor(again) and np.array_equal(found, again.numpy())
    assert one.loss(theta) == other.loss(tensor) and math.isfinite(one.loss(theta))
    assert one.in_basis(np.eye(3)).loss(theta) == other.in_basis(torch.eye(3)).loss(tensor)


# --- without torch ----------------------------------------------------------------------------------------------------

WITHOUT = """
import sys
import numpy as np
from noisewise.asking import array, in_kind, is_tensor

class Tensor:  # only by its name
    pass

rows = np.ones((20, 3))
assert not is_tensor(rows) and not is_tensor(Tensor()) and array(rows) is rows and in_kind(rows, rows) is rows

from noisewise.accounts import AdditiveMeter, Budget
from noisewise.curator import Curator, PublicCurator
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

model, meter = Linear(3, Logistic()), AdditiveMeter(Budget(50.0, 1e-6), "gdp")
private = Curator(rows, np.ones(20), model=model, meter=meter, size=20.0, seed=1)
for curator in (private, PublicCurator(rows, np.ones(20), model=model)):
    answer = curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=2.0, scale=np.ones(3))
    assert type(answer.value) is np.ndarray
assert private.choose([np.zeros(3), np.ones(3)], loss_bound=1.0, epsilon=1.0) in (0, 1)
assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]
"""


def test_torch_is_never_imported():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
