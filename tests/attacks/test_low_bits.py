"""The low bits of released numbers: whether they tell neighbouring data sets apart with certainty (issue 12, A.2).

Rounded to a public grid, an answer is k h, a whole number times a power of two below its noise: every k is possible on
either side. In double precision the sum of a total and noise shows which total it was.

Public names only, so that the same file runs on older versions.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import noisewise as nw
from noisewise import curator as room
from noisewise.budget import AdditiveMeter, Budget
from noisewise.trusted.curator import ColumnCurator
from noisewise.trusted.losses import Logistic, Softmax, Squared

from .house import MLP, Linear, private_quality

COLUMNS, RECORDS = 51, 1000
BUDGET = Budget(1.0, 1e-6)


def rows_of(count, columns, seed=0, length=0.9):
    rows = np.random.default_rng(seed).normal(size=(count, columns))
    return torch.tensor(length * rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=torch.float32)


def curator(rows, labels=None, model=None, seed=None, size=None, budget=BUDGET):
    model = model or Linear(rows.shape[1], Logistic())
    labels = torch.ones(len(rows)) if labels is None else labels
    meter = AdditiveMeter(budget, "gdp")
    return nw.Curator(rows, labels, model=model, meter=meter, size=size, row_bound=1.0, seed=seed)


def step_of(values):
    """The largest power of two of which all numbers are multiples."""
    exact = [Fraction(float(value)) for value in np.asarray(values).reshape(-1) if value]
    denominator = max(value.denominator for value in exact)
    common = math.gcd(*(value.numerator * (denominator // value.denominator) for value in exact))
    return math.ldexp(1.0, (common & -common).bit_length() - denominator.bit_length())


def test_a_single_question_shows_nothing_finer_than_its_noise_hides():
    """The case of the issue: bits far below the noise are those of one neighbour's total, and exclude the other one."""
    rows, found = rows_of(RECORDS, COLUMNS), 0
    for _ in range(25):
        private = curator(rows, size=float(RECORDS))
        answer = private.statistic(room.FirstMoment(), noise_multiplier=private.meter.noise_for(1.0))
        step = step_of(answer.value)
        # on a public grid near the noise all totals are alike; finer, the bits are those of one total's sum
        found += step < answer.noise_std / 128
    assert found == 0, f"{found} of 25 answers show more than their noise hides"


def on_a_public_grid(answers, std):
    """Whether all answers, of both neighbours, are whole multiples of one number near the noise."""
    values = np.asarray(answers, dtype=np.float64).reshape(-1)
    steps = steps_near(values, std / 70, std / 30)
    return any(np.array_equal(np.rint(values / step) * step, values) for step in steps)


def steps_near(values, low, high):
    """Candidates for the grid: h times what one unit of the total stands for, between the two bounds."""
    smallest = np.abs(values[values != 0]).min()
    for k in range(1, 4096):
        if low <= smallest / k <= high:
            yield smallest / k


QUESTIONS = {
    "count": (lambda: room.Count(), None), "first": (lambda: room.FirstMoment(), None),
    "second": (lambda: room.SecondMoment(), None), "lengths": (lambda: room.SquaredLength(), None),
    "cross": (lambda: room.CrossMoment(1.0), None), "eigenvalue": (lambda: room.MinEigenvalue(), None),
    "norms": (lambda: room.NormAtMost(0.5, (0.1,) * 5), None), "correct": (lambda: room.Correct((0.1,) * 5), None),
    "errors": (lambda: room.SquaredError((0.1,) * 5), lambda: Linear(5, Squared())),
    "scores": (lambda: room.ScoreHistogram((0.1,) * 5, (-0.5, 0.0, 0.5)), None),
    "powers": (lambda: room.ErrorMoments((0.1,) * 5), lambda: Linear(5, Squared())),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_statistics_leave_on_the_same_public_grid_for_neighbours(name, adjacency):
    make, model = QUESTIONS[name]
    rows = rows_of(300, 5)
    answers = []
    for part in (rows, torch.cat([rows[1:], -rows[:1]]) if adjacency == "replace_one" else rows[1:]):
        for seed in range(3):
            private = curator(part, model=model and model(), seed=seed, size=300.0, budget=Budget(1.0, 1e-6, adjacency))
            answers.append(private.statistic(make(), noise_multiplier=private.meter.noise_for(0.9)))
    assert len({answer.noise_std for answer in answers}) == 1
    values = np.concatenate([np.asarray(answer.value).reshape(-1) for answer in answers])
    assert on_a_public_grid(values, answers[0].noise_std), f"{name} shows finer numbers than a grid near its noise"


def test_the_count_of_short_gradients_and_the_size_leave_on_a_grid():
    for seed in range(3):
        rows = rows_of(100 + seed, 5)
        private = curator(rows, seed=seed)
        size = private.release_size(noise_multiplier=private.meter.noise_for(0.3))
        std = private.trace[-1].noise_std
        assert size == 1.0 or step_of([size]) >= std / 64
        tau = 3 * private.meter.noise_for(0.5)
        public = curator(rows, seed=seed, size=128.0)
        answer = public.gradient(
            torch.zeros(5), clip=1.0, noise_multiplier=tau, quantile_at=0.4, count_noise_multiplier=tau
        )
        count = (answer.below - 0.5) * 128.0  # a power of two: dividing by it and back loses nothing
        assert step_of([count]) >= tau / 2 / 64


def test_histograms_leave_on_a_grid():
    columns = np.random.default_rng(0).uniform(size=(500, 3))
    for part in (columns, columns[1:]):
        private = ColumnCurator(lambda part=part: [part], 3, meter=AdditiveMeter(BUDGET, "gdp"), seed=3)
        edges = np.tile(np.linspace(0, 1, 9), (3, 1))
        counts, std = private.histograms(edges, noise_multiplier=private.meter.noise_for(1.0))
        assert std / 64 <= step_of(counts) <= std / 16


def test_a_bought_score_leaves_on_a_grid():
    """The file of ``evaluate --epsilon``: the noised count of right answers over the noised number of records."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (512, 3))
    labels = np.where(rows[:, 0] > 0, 1, -1)
    fitted = nw.PrivateClassifier(5.0, 1e-5, method="descent", bounds=(-1, 1), classes=[-1, 1]).fit(rows, labels)
    X = torch.tensor(rows / 2, dtype=torch.float32)
    X = torch.cat([X, torch.ones(512, 1) * 0.1], 1)
    budget = Budget(0.1, 1e-6)
    fitted, X = (fitted.fitted_, X.numpy()) if hasattr(fitted, "fitted_") else (fitted, X)
    found = [private_quality(fitted, X, labels, budget, size_is_public=True, seed=seed) for seed in range(4)]
    for quality in found:
        if 0 < quality.value < 1:
            sigma = AdditiveMeter(budget, "gdp").noise_for(1.0)
            assert step_of([(quality.value - 0.5) * 512]) >= sigma / 2 / 64


MODELS = {"logistic": lambda: Linear(5, Logistic()), "softmax": lambda: Linear(5, Softmax(), 3),
          "perceptron": lambda: MLP((5, 4, 3), Softmax(), "tanh")}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_gradients_leave_on_the_same_grid_for_neighbours(name):
    """Times the public size and over the clip they are whole multiples of a power of two over 2^28 - 1, in float32."""
    rows, model = rows_of(64, 5), MODELS[name]()
    labels = torch.arange(64) % 3 if model.loss.task == "classes" else torch.ones(64)
    values = []
    for part in (slice(0, 64), slice(1, 64)):
        private = curator(rows[part], labels[part], model=model, seed=4, size=64.0)
        sigma = private.meter.noise_for(1.0)
        answer = private.gradient(torch.zeros(model.dimension), clip=1.0, noise_multiplier=sigma)
        values.append(answer.value.double().numpy())
    std = answer.noise_std
    grids = [s for s in (np.abs(values[0][0]) / k for k in range(1, 4096)) if std / 70 <= s <= std / 30]
    # float32 keeps 24 bits, so a multiple k of the grid is known to k 2^-24
    fits = [
        all(np.allclose(value / s, np.rint(value / s), rtol=2.0**-22, atol=2.0**-22) for value in values) for s in grids
    ]
    assert any(fits)
