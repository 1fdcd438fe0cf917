"""Far thetas and company: what one record more moves a clipped sum by, measured through the public face (issue 12, A.3).

With almost no noise an answer times the size is the sum itself. One record more may move it by its own clipped gradient and
by nothing else, however far theta is, whatever the number of rows, and in whatever basis they are.

Public names only, so that the same file runs on older versions.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import noisewise as nw
from noisewise.budget import AdditiveMeter, Budget
from noisewise.curator import NormAtMost
from noisewise.trusted.losses import Logistic, Softmax

from .house import MLP, Linear

SIGMA = 1e-3  # of the clip, and as small as a budget of 1e6 pays for
CANDIDATES = 25


def curator(rows, labels, model, size=1.0):
    meter = AdditiveMeter(Budget(1e6, 1e-5), "gdp")
    return nw.Curator(rows, labels, model=model, meter=meter, size=size, row_bound=float("inf"), seed=1)


def near_the_border(theta, count, outputs, seed):
    """Rows x with x . theta_k = 0 for all k up to rounding: their slopes are whatever rounding makes of them."""
    rng = np.random.default_rng(seed)
    matrix = theta.double().numpy().reshape(outputs, -1)
    rows = rng.normal(size=(count, matrix.shape[1]))
    rows -= rows @ np.linalg.pinv(matrix) @ matrix
    return torch.tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=torch.float32)


def moved(model, theta, row, label, n, basis, ask):
    """How far the answer about n + 1 copies of a row is from that about n: copies round alike, so that errors add up."""
    answers = []
    for count in (n, n + 1):
        private = curator(row.repeat(count, 1), label.repeat(count), model)
        try:
            if basis is not None:
                private.change_basis(basis)
            value = ask(private, theta)
        except ValueError:  # refused from public facts: nothing is moved
            return 0.0
        answers.append(np.atleast_1d(np.asarray(value, dtype=np.float64)))
    return float(np.linalg.norm(answers[1] - answers[0]))


KINDS = (lambda part: part, lambda part: part.numpy(), lambda part: part.double().numpy())  # that products are made of


@cache
def seams(columns, outputs):
    """Numbers n of equal rows whose products with a matrix are rounded otherwise than those of n + 1, the largest first."""
    rng = torch.Generator().manual_seed(0)
    made = [(torch.randn(1, columns, generator=rng), torch.randn(columns, outputs, generator=rng)) for _ in range(5)]
    most = set()
    for kind in KINDS:
        found = set()
        for row, matrix in made:
            products = [np.asarray((kind(row.repeat(n, 1)) @ kind(matrix))[0]) for n in range(1, 66)]
            found |= {n for n in range(1, 65) if not np.array_equal(products[n - 1], products[n])}
        most |= {*sorted(found, reverse=True)[:2]}
    return tuple(sorted(most, reverse=True)) or (15,)


def gradient(private, theta):
    return private.gradient(theta, clip=1.0, noise_multiplier=SIGMA).value


def farthest(model, thetas, rows_at, basis=None, ask=gradient):
    """The most that one record more moves an answer, over some thetas, rows and numbers of rows."""
    worst = 0.0
    for number, theta in enumerate(thetas):
        rows, labels = rows_at(theta, number)
        for row, label in zip(rows, labels, strict=True):
            counts = seams(model.features, getattr(model, "sizes", (0, model.outputs))[1])
            worst = max([worst, *(moved(model, theta, row, label, n, basis, ask) for n in counts)])
    return worst


def thetas_of(dimension, lengths, count=3):
    rng = np.random.default_rng(5)
    for length in lengths:
        for _ in range(count):
            theta = rng.normal(size=dimension)
            yield torch.tensor(length * theta / np.linalg.norm(theta), dtype=torch.float32)


ALLOWED = 1.2  # the clip, and noise on some hundred coordinates


def test_softmax_at_far_thetas():
    model = Linear(100, Softmax(), 2)

    def rows_at(theta, seed):
        rows = near_the_border(theta, CANDIDATES, 2, seed)
        return rows, torch.arange(CANDIDATES) % 2

    assert farthest(model, thetas_of(200, (1e4, 1e6, 1e8, 1e12)), rows_at) <= ALLOWED


def without_biases(thetas):
    """At a far theta without biases a hidden unit is open or shut as rounding wants it."""
    for theta in thetas:
        theta[200:202] = theta[206:] = 0.0
        yield theta


@pytest.mark.parametrize(
    "activation", ["tanh", pytest.param("softplus", marks=pytest.mark.guard("no cancelling at 0"))]
)
def test_perceptrons_at_far_thetas(activation):
    model = MLP((100, 2, 2), Softmax(), activation)

    def rows_at(theta, seed):
        return near_the_border(theta[:200], CANDIDATES, 2, seed), torch.arange(CANDIDATES) % 2

    thetas = without_biases(thetas_of(model.dimension, (1e3, 1e5, 1e6, 1e8)))
    assert farthest(model, thetas, rows_at) <= ALLOWED


def test_binary_logistic_after_a_change_of_basis():
    model = Linear(40, Logistic())
    bases = [
        1e6 * torch.eye(40),
        1e9 * torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(0)))[0],
    ]

    for basis in bases:

        def rows_at(theta, seed, basis=basis):
            return near_the_border(basis.double() @ theta.double(), CANDIDATES, 1, seed), torch.ones(CANDIDATES)

        assert farthest(model, thetas_of(40, (1.0, 10.0)), rows_at, basis) <= ALLOWED


@pytest.mark.parametrize("what", ["norms", "quantile"])
def test_counts_of_short_gradients_at_far_thetas(what):
    """A record more moves the sum of h by at most 1/2."""
    model = Linear(100, Softmax(), 2)

    def rows_at(theta, seed):
        return near_the_border(theta, CANDIDATES, 2, seed), torch.arange(CANDIDATES) % 2

    def ask(private, theta):
        if what == "norms":
            question = NormAtMost(0.8, tuple(theta.double().tolist()))
            return private.statistic(question, noise_multiplier=SIGMA).value
        answer = private.gradient(
            theta, clip=1.0, noise_multiplier=SIGMA * 2, quantile_at=0.8, count_noise_multiplier=SIGMA * 2
        )
        return answer.below

    assert farthest(model, thetas_of(200, (1e6, 1e8, 1e10)), rows_at, ask=ask) <= 0.5 + 0.01


def odds(row, label, model, thetas, count):
    """The log-odds of the second of two candidates, from 20 choices."""
    chosen = 0
    for seed in range(20):
        meter = AdditiveMeter(Budget(1e6, 1e-5), "gdp")
        rows, labels = row.repeat(count, 1), label.repeat(count)
        private = nw.Curator(rows, labels, model=model, meter=meter, size=1.0, seed=seed)
        chosen += private.choose(thetas, loss_bound=1.0, epsilon=1.0)
    return np.log((chosen + 0.5) / (20.5 - chosen))


def test_a_choice_at_far_thetas():
    """One record more moves the log-odds by at most epsilon = 1; 20 draws leave 3 open. From one end to the other it is 7."""
    model = Linear(100, Softmax(), 2)
    worst = 0.0
    for number, theta in enumerate(thetas_of(200, (1e8,), 1)):
        for row in near_the_border(theta, CANDIDATES, 2, number):
            label, thetas, n = torch.zeros(1, dtype=torch.int64), [torch.zeros(200), theta], seams(100, 2)[0]
            worst = max(worst, abs(odds(row, label, model, thetas, n + 1) - odds(row, label, model, thetas, n)))
    assert worst <= 1 + 3
