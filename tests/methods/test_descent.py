"""The recommended method: what it buys, that the basis changes nothing but the noise, and that it earns its share."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

import noisewise as nw
from noisewise.accounts import AdditiveMeter
from noisewise.curator import Curator
from noisewise.methods.descent import DeflatedDescent, bought_basis, default_step_size
from noisewise.methods.preparation.basis import MIN_SPREAD, deflating, flattening
from noisewise.tables.generated import measurements
from noisewise.train import Records, train
from noisewise.trusted.facts import facts_of
from noisewise.trusted.losses import Hinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear


def shifted(n: int, d: int, seed: int, pull: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows whose mean is large and says nothing about the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + pull * np.ones(d)
    y = np.sign((X - pull) @ rng.normal(size=d))
    X = np.column_stack([X, np.ones(n)])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), y.astype(np.float32)


def curator_of(X, y, model, adjacency="add_remove", epsilon=1.0):
    meter = AdditiveMeter(nw.Budget(epsilon, 1e-6, adjacency), "gdp")
    return Curator(X, y, model=model, meter=meter, size=len(X), row_bound=1.0, seed=1)


@pytest.mark.parametrize("model", [Linear(6, Hinge()), Linear(6, Softmax(), 3), MLP((6, 4, 1), Logistic())], ids=repr)
def test_a_change_of_basis_is_a_change_of_coordinates(model):
    """Scores in the new basis are those of the mapped theta in the old one, and gradients are those of the new rows."""
    rng = np.random.default_rng(0)
    X, matrix = rng.normal(size=(50, 6)), rng.normal(size=(6, 6))
    y = rng.integers(0, 3, 50) if model.loss.task == "classes" else np.ones(50)
    theta = rng.normal(size=model.dimension)
    curator = curator_of(X, y, model, epsilon=100.0)
    curator.change_basis(matrix)
    scores = model.scores(theta, X @ matrix)
    assert np.allclose(model.scores(curator.in_first_basis(theta), X), scores, atol=1e-4, rtol=1e-4)
    fresh = curator_of(X @ matrix, y, model, epsilon=100.0)
    asked = {"clip": 0.5, "noise_multiplier": 1.0}
    step = 0.01 / 16  # answers stand on a grid of at most a 32nd of the noise, 0.01; rounding may go the other way
    assert np.allclose(curator.gradient(theta, **asked).value, fresh.gradient(theta, **asked).value, atol=step)
    assert curator.facts.row_bound == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-5)


def test_a_masked_row_stays_masked_in_another_basis():
    X, y = shifted(40, 3, 0)
    X[3, 1] = math.nan
    model = Linear(4, Logistic())
    one = curator_of(X, y, model, epsilon=100.0)
    other = curator_of(np.concatenate([X[:3], X[4:]]), np.concatenate([y[:3], y[4:]]), model, epsilon=100.0)
    for curator in (one, other):
        curator.change_basis(2 * np.eye(4))
    theta = np.ones(4)
    values = [c.gradient(theta, clip=1.0, noise_multiplier=1.0).value for c in (one, other)]
    assert np.allclose(values[0] * 40, values[1] * 39, atol=2e-5)


def test_bases_of_both_precisions_follow_each_other():
    """It once failed half-way: rows were longer and their bound was not."""
    X, y = shifted(10, 3, 0)
    curator = curator_of(X, y, Linear(4, Logistic()))
    curator.change_basis(np.eye(4, dtype=np.float32))
    curator.change_basis(1e6 * np.eye(4))
    assert curator.facts.row_bound >= 1e6
    assert np.array_equal(curator.in_first_basis(np.ones(4)), np.full(4, 1e6))


@pytest.mark.parametrize("matrix", [np.eye(3), np.full((4, 4), math.nan), np.ones(4)])
def test_a_wrong_basis_is_refused(matrix):
    X, y = shifted(10, 3, 0)
    with pytest.raises(ValueError, match="4 x 4"):
        curator_of(X, y, Linear(4, Logistic())).change_basis(matrix)


def test_the_bought_basis_shrinks_the_mean_and_makes_rows_as_long_as_one():
    X, y = shifted(20_000, 10, 0)
    curator = curator_of(X, y, Linear(11, Logistic()))
    basis = bought_basis(curator)
    rows = X @ basis.matrix
    assert (rows**2).sum(1).mean() == pytest.approx(1.0, rel=0.05)
    before, after = (np.linalg.norm(r.mean(0)) / np.linalg.norm(r.std(0)) for r in (X, rows))
    assert after == pytest.approx(0.4, abs=0.1) and before > 1.5
    assert [line.question for line in curator.trace] == ["FirstMoment", "SquaredLength"]
    assert 0.05 < curator.meter.spent_fraction < 0.06


def test_noise_instead_of_a_mean_does_not_blow_the_basis_up():
    """Whatever noise makes of the mean, rows grow by a bounded factor."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        values = np.linalg.svd(deflating(rng.normal(size=11), 1.0, mean_noise=11.0), compute_uv=False)
        assert 0 < values.min() <= values.max() <= 1 / math.sqrt(MIN_SPREAD)


@pytest.mark.parametrize("loss", [Hinge(), Logistic(), Squared(signs=True)], ids=str)
def test_the_basis_earns_its_share(loss):
    """Rows with a large mean: better than the same descent without the basis, on average over seeds."""
    gains = []
    for seed in range(4):
        X, y = shifted(12_000, 20, seed, pull=3.0)
        held_out = slice(10_000, None)
        records, model = Records(X[:10_000], y[:10_000], 10_000.0, row_bound=1.0), Linear(21, loss)
        accuracy = []
        for deflate in (True, False):
            run = train(DeflatedDescent(deflate=deflate), records, model=model, budget=nw.Budget(0.1, 1e-6), seed=seed)
            accuracy.append(((X[held_out] @ run.theta > 0) == (y[held_out] > 0)).mean())
        gains.append(accuracy[0] - accuracy[1])
    assert np.mean(gains) > 0.01, gains


def test_the_whole_budget_is_spent_and_no_more():
    X, y = shifted(3_000, 5, 0)
    for size in (3_000.0, None):
        run = train(
            DeflatedDescent(),
            Records(X, y, size, row_bound=1.0),
            model=Linear(6, Logistic()),
            budget=nw.Budget(0.5, 1e-6),
            seed=0,
        )
        assert run.meter is not None and 0.999999 < run.meter.spent_fraction <= 1.0
        assert run.trace[0].question == ("Count" if size is None else "FirstMoment")


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_no_basis_is_bought_where_the_mean_would_be_noise(adjacency):
    """n mu < 2 sqrt(columns), with mu halved under replace_one: nothing is asked, and the whole budget trains."""
    X, y = shifted(400, 9, 0)
    model = Linear(10, Logistic())
    clear = {"add_remove": 0.07, "replace_one": 0.14}[adjacency]  # replace_one needs twice the budget
    for epsilon, bought in ((0.05 * clear / 0.07, False), (clear, True)):
        curator = curator_of(X, y, model, adjacency, epsilon)
        assert (bought_basis(curator) is not None) == bought
        assert (len(curator.trace) == 2) == bought and (curator.meter.spent_fraction > 0) == bought
        run = train(
            DeflatedDescent(steps=5),
            Records(X, y, 400.0, 1.0),
            model=model,
            budget=nw.Budget(epsilon, 1e-6, adjacency),
            seed=0,
        )
        asked = [released.question for released in run.trace]
        assert asked == ["FirstMoment", "SquaredLength"] * bought + ["gradient"] * 5
        assert run.meter is not None and run.meter.spent_fraction == pytest.approx(1.0, abs=1e-6)


def test_the_clarity_of_a_mean_is_a_matter_of_columns_not_of_parameters():
    """A perceptron has many more parameters than columns; its mean row is as clear as a linear model's."""
    X, y = shifted(1000, 9, 0)
    assert bought_basis(curator_of(X, y, MLP((10, 50, 1), Logistic()), epsilon=0.1)) is not None
    assert bought_basis(curator_of(X, y, Linear(10, Logistic()), epsilon=0.1)) is not None


def test_beyond_128_parameters_steps_grow_with_the_root_of_their_number():
    """Noise then moves the score of a row by as much: eta r / sqrt(d) stays, with r = n mu / sqrt(d)."""
    rates = {}
    for d in (32, 128, 512):
        facts = facts_of(Linear(d, Hinge()), nw.Budget(0.05, 1e-6), size=1000.0, row_bound=1.0)
        rates[d] = default_step_size(facts, ratio=1.0, steps=100, clip=1.0)
    assert rates[32] == rates[128] and rates[512] == pytest.approx(2 * rates[128])


def test_a_wide_perceptron_learns():
    """It stayed at its start (half of the rows right) when steps took no account of the dimension."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 400))
    X[:, :2] *= 6
    y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
    rows = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    model = MLP((400, 20, 2), Softmax(), activation="sigmoid")
    run = train(DeflatedDescent(), Records(rows, y, 6000.0, 1.0), model=model, budget=nw.Budget(0.5, 1e-6), seed=0)
    right = (model.scores(run.theta, rows).argmax(1) == y).mean()
    assert right > 0.85


def stretched(slack: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of heavy-tailed columns within loose bounds: unit rows that are nearly alike."""
    table = measurements(18_000, seed=1, slack=slack)
    low, high = np.array(list(table.schema.values())).T
    X = np.column_stack([2 * (table.X.to_numpy() - low) / (high - low) - 1, np.ones(len(table.y))])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), np.where(table.y > 0, 1.0, -1.0)


def test_it_gets_better_with_budget():
    """A step size of at most 4 once left AUC where it was from epsilon 1 on."""
    X, y = stretched()
    areas, asked = [], []
    for epsilon in (0.5, 1.0, 4.0, 16.0):
        run = train(
            DeflatedDescent(), Records(X[:14_000], y[:14_000], 14_000.0, row_bound=1.0), model=Linear(11, Logistic()),
            budget=nw.Budget(epsilon, 1e-6), seed=0,
        )  # fmt: skip
        areas.append(roc_auc_score(y[14_000:], X[14_000:] @ run.theta))
        asked.append([line.question for line in run.trace[:3]])
        assert run.meter is not None and 0.999999 < run.meter.spent_fraction <= 1.0
    assert np.all(np.diff(areas) > -0.002) and areas[-1] > areas[0] + 0.02, areas
    assert asked[0][2] == "gradient" and asked[-1] == ["FirstMoment", "SquaredLength", "SecondMoment"]


@pytest.mark.parametrize("loss, asks", [(Logistic(), True), (Squared(), False), (Hinge(), False)], ids=str)
def test_a_second_moment_is_bought_where_it_pays(loss, asks):
    """Only where slopes are bounded and smooth, and never when the step size is given."""
    X, y = shifted(3_000, 5, 0)
    for method in (DeflatedDescent(), DeflatedDescent(learning_rate=0.1, steps=20)):
        run = train(
            method, Records(X, y, 3_000.0, row_bound=1.0), model=Linear(6, loss), budget=nw.Budget(50.0, 1e-6), seed=0
        )
        bought = "SecondMoment" in [line.question for line in run.trace]
        assert bought == (asks and method.learning_rate is None)


def test_rows_that_all_point_one_way_do_not_run_away():
    """Their largest eigenvalue is 1 and cannot be flattened: steps stay short, however large the budget."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice([-1.0, 1.0], 20_000), 1e-3 * rng.normal(size=20_000)])
    y = np.where(X[:, 0] + rng.logistic(size=20_000) > 0, 1.0, -1.0)
    X = X.astype(np.float32) / 1.01
    run = train(
        DeflatedDescent(),
        Records(X, y, 20_000.0, row_bound=1.0),
        model=Linear(2, Logistic()),
        budget=nw.Budget(50.0, 1e-6),
        seed=0,
    )
    assert float(run.theta[0]) == pytest.approx(1.0, abs=0.15)


def test_flattened_directions_are_equally_long_down_to_the_noise():
    moment = np.diag([0.6, 0.3, 0.1 - 1e-6, 1e-6])
    matrix, largest = flattening(moment, 5e-4)
    after = np.linalg.eigvalsh(matrix.T @ moment @ matrix)
    assert after.sum() == pytest.approx(1.0, rel=5e-3) and largest == pytest.approx(after[-1], rel=5e-3)
    assert largest == pytest.approx(1 / 3, abs=0.01) and after[0] < 0.01
    assert np.linalg.norm(matrix, 2) < 1 / math.sqrt(1e-3)


@pytest.mark.parametrize("noise_std", [1e-4, 1e-3])
def test_wide_rows_are_as_long_as_one_after_a_noisy_moment(noise_std):
    """Eigenvectors follow the noise: without its part taken out, rows came out half as long, or shorter."""
    rng = np.random.default_rng(0)
    values = np.arange(1, 301.0) ** -1.5
    moment = np.diag(values / values.sum())
    noise = np.triu(rng.normal(size=moment.shape)) * noise_std
    matrix, largest = flattening(moment + noise + np.triu(noise, 1).T, noise_std)
    after = matrix.T @ moment @ matrix
    assert np.trace(after) == pytest.approx(1.0, abs=0.1)
    assert np.linalg.eigvalsh(after)[-1] == pytest.approx(largest, rel=0.15)


@pytest.mark.parametrize("size, buys", [(12_000, True), (1_200, False)])
def test_wide_rows_are_flattened_where_their_moment_is_clear(size, buys):
    """At epsilon 2 and 144 columns noise moves eigenvalues by 1 % of a squared length, or by 11 %, and nothing is bought."""
    X, y = shifted(1_200, 143, 0)
    rows = Records(X, y, float(size), row_bound=1.0)
    run = train(DeflatedDescent(steps=3), rows, model=Linear(144, Logistic()), budget=nw.Budget(2.0, 1e-6), seed=0)
    assert ("SecondMoment" in [line.question for line in run.trace]) == buys
    assert run.meter is not None and run.meter.spent_fraction <= 1.0


@pytest.mark.slow
def test_probabilities_of_a_perceptron_are_calibrated():
    """The clip once drove scores of a perceptron apart; where the budget is too small for it, nothing is spent on that."""
    X, y = stretched(1.0)
    model, method = MLP((11, 8, 1), Logistic()), DeflatedDescent(steps=100)
    steps = {}
    for epsilon in (0.1, 1.0):
        run = train(
            method,
            Records(X[:14_000], y[:14_000], 14_000.0, row_bound=1.0),
            model=model,
            budget=nw.Budget(epsilon, 1e-6),
            seed=0,
        )
        steps[epsilon] = run.steps
        assert run.meter is not None and 0.999999 < run.meter.spent_fraction <= 1.0
    assert steps == {0.1: 100, 1.0: 108}
    likely = expit(model.scores(run.theta, X[14_000:]))
    order, found = np.argsort(likely), y[14_000:] > 0
    bins = np.array_split(order, 15)
    assert np.mean([abs(likely[part].mean() - found[part].mean()) for part in bins]) < 0.08
