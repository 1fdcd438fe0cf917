"""Figures of a model: those of public rows are scikit-learn's; those of a bought histogram are near them, with intervals
that keep their word, and are made of what was released alone."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn import metrics as known

from noisewise import PrivateClassifier, PrivateRegressor
from noisewise.accounts import Budget
from noisewise.curator import Curator, ErrorMoments, ScoreHistogram
from noisewise.evidence.bought_quality import private_quality
from noisewise.evidence.metrics import NAMES, area, of_numbers, of_predictions, public_quality
from noisewise.evidence.noised_metrics import GRIDS, Noised, edges_for, of_histogram, of_moments
from noisewise.trusted.facts import Answer
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.sums import cells, error_moments, score_counts
from noisewise.trusted.stores.totals import Drawn

RNG = np.random.default_rng(1)
NAMED = {2: ["no", "yes"], 3: ["a", "b", "c"]}


def drawn(n, classes=2, rng=RNG):
    """Log-odds that are a little too sure, and classes."""
    if classes == 2:
        z = rng.normal(-0.5, 1.5, n)
        return z, (rng.random(n) < 1 / (1 + np.exp(-0.8 * z))).astype(int)
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    z = rng.normal(size=(n, 3)) * 1.2
    z[np.arange(n), y] += 1.4
    return z, y


def probabilities(z):
    z = np.column_stack([np.zeros_like(z), z]) if z.ndim == 1 else z
    odds = np.exp(z - z.max(1)[:, None])
    return odds / odds.sum(1)[:, None]


def figures_of(z, y):
    p = probabilities(z)
    return of_predictions(y, p.argmax(1) if z.ndim == 2 else (z > 0) * 1, z if z.ndim == 1 else p, p, NAMED[p.shape[1]])


def equal_mass_error(sure, happened, bins=15):
    """The definition, written anew."""
    order = np.argsort(sure, kind="stable")
    ends = [len(sure) * i // bins for i in range(bins + 1)]
    parts = [order[a:b] for a, b in pairwise(ends)]
    return sum(len(part) / len(sure) * abs(sure[part].mean() - happened[part].mean()) for part in parts)


def counted(z, y, edges):
    """The histogram of a linear model whose rows are their own scores."""
    classes = 2 if z.ndim == 1 else z.shape[1]
    rows = z[:, None] if z.ndim == 1 else z
    loss, labels = (Logistic(), 2.0 * y - 1) if classes == 2 else (Softmax(), y)
    model = Linear(rows.shape[1], loss, 1 if classes == 2 else classes)
    theta = np.eye(rows.shape[1]).reshape(-1)
    records = records_of(model, rows, labels)
    return score_counts(records, Drawn(), theta, edges if classes == 2 else 1 / (1 + np.exp(-edges)), classes)


# --- public rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_figures_of_public_rows_are_those_of_scikit_learn(classes):
    z, y = drawn(3000, classes)
    p, found = probabilities(z), figures_of(z, y)
    guess = p.argmax(1)
    auc = known.roc_auc_score(y, p[:, 1]) if classes == 2 else known.roc_auc_score(y, p, multi_class="ovr")
    sure, happened = (p[:, 1], y) if classes == 2 else (p.max(1), guess == y)
    expected = {
        "accuracy": known.accuracy_score(y, guess),
        "baseline_accuracy": np.bincount(y).max() / len(y),
        "balanced_accuracy": known.balanced_accuracy_score(y, guess),
        "roc_auc": auc,
        "log_loss": known.log_loss(y, p),
        "calibration_error": equal_mass_error(sure, happened),
    }
    assert {name: one.value for name, one in found.metrics.items()} == pytest.approx(expected, abs=1e-9)
    assert all(one.interval[0] <= one.value <= one.interval[1] for one in found.metrics.values())
    assert found.confusion["counts"] == known.confusion_matrix(y, guess).tolist()
    assert sum(point["share"] for point in found.calibration) == pytest.approx(1)


def test_ties_count_half():
    y, z = RNG.integers(0, 2, 500), RNG.integers(0, 4, 500).astype(float)
    assert figures_of(z, y).metrics["roc_auc"].value == pytest.approx(known.roc_auc_score(y, z))
    assert area(np.array([3.0]), np.array([5.0]))[0] == 0.5


def test_figures_of_numbers_are_those_of_scikit_learn():
    y = RNG.uniform(0, 100, 2000)
    guess = y + RNG.normal(0, 10, 2000)
    found = {name: one.value for name, one in of_numbers(guess, y).metrics.items() if one.value is not None}
    expected = {"rmse": known.root_mean_squared_error(y, guess), "mae": known.mean_absolute_error(y, guess)}
    assert found == pytest.approx(expected | {"r2": known.r2_score(y, guess)})


def test_what_there_is_not_is_null_and_every_key_is_there():
    z, y = drawn(50)
    for found in (figures_of(z, y), figures_of(z, np.zeros(50, int)), of_numbers(z, np.ones(50))):
        told = found.to_dict()
        assert tuple(told["metrics"]) == NAMES and all(
            {*one} == {"value", "interval"} for one in told["metrics"].values()
        )
        assert all((one["value"] is None) == (one["interval"] is None) for one in told["metrics"].values())
    assert figures_of(z, np.zeros(50, int)).metrics["roc_auc"].value is None  # one class alone has no order
    assert of_numbers(z, np.ones(50)).metrics["r2"].value is None


def test_one_answer_for_all_is_said_in_words():
    z, y = drawn(4000)
    assert figures_of(z, y).verdict is None
    rare = (RNG.random(4000) < 0.1).astype(int)
    useless = figures_of(np.full(4000, -2.0), rare)
    assert useless.verdict.startswith("No better than always answering 'no', which is right 89.6% of the time")
    ranks = figures_of(-4 + 1.2 * rare + RNG.normal(0, 0.5, 4000), rare)
    assert ranks.verdict.startswith("No better than") and "by rank (ROC AUC 0.9" in ranks.verdict
    barely = figures_of(np.where(np.arange(60) % 29 == 1, 1.0, -1.0), (np.arange(60) % 2))
    assert barely.verdict.startswith("Not clearly better than always answering 'no'")
    numbers = RNG.uniform(0, 1, 300)
    assert of_numbers(np.full(300, 0.7), numbers).verdict == "No better than always answering the mean of the target"
    assert of_numbers(numbers, numbers).verdict is None


# --- a histogram with hardly any noise --------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("noise", "near"), [(1e-6, 0.004), (10.0, 0.012), (30.0, 0.02)])
def test_a_histogram_gives_nearly_what_the_scores_give(classes, noise, near):
    """The grid is the one that such a noise would have; the noise itself is left out."""
    z, y = drawn(10_000, classes)
    edges, truth = edges_for(10_000, noise), figures_of(z, y)
    source = Noised(counted(z, y, edges).astype(float), 1e-6, 10_000.0, 0.0)
    found = of_histogram(source, edges, NAMED[classes], likely=True)
    away = np.abs(np.array(found.confusion["counts"]) - np.array(truth.confusion["counts"])).sum()
    assert away <= (0 if classes == 2 else 4)  # theta on its grid decides a tie of probabilities elsewhere
    for name, one in truth.metrics.items():
        exact = name in ("accuracy", "baseline_accuracy", "balanced_accuracy")
        assert found.metrics[name].value == pytest.approx(
            one.value, abs=(1e-6 if classes == 2 else 5e-4) if exact else near
        ), name


def test_grids_have_an_edge_where_the_prediction_turns():
    for least, _ in GRIDS:
        edges = edges_for(least + 1.0, 1.0)
        assert 0.0 in edges.tolist() and (np.diff(edges) > 0).all() and np.array_equal(edges, -edges[::-1])


def test_scores_without_probabilities_have_no_log_loss():
    z, y = drawn(2000)
    edges = edges_for(2000, 1e-6)
    found = of_histogram(Noised(counted(z, y, edges).astype(float), 1.0, 2000.0, 0.0), edges, NAMED[2], likely=False)
    told = found.to_dict()
    assert told["metrics"]["log_loss"] == told["metrics"]["calibration_error"] == {"value": None, "interval": None}
    assert told["metrics"]["roc_auc"]["value"] > 0.7 and told["calibration"] is None


def test_too_few_of_a_class_for_the_noise_are_not_divided_by():
    z, _ = drawn(500)
    edges = edges_for(500, 20.0)
    values = counted(z, np.zeros(500, int), edges) + np.random.default_rng(0).normal(0, 20, 2 * len(edges) + 2)
    found = of_histogram(Noised(values, 20.0, 500.0, 0.0), edges, NAMED[2], likely=True)
    assert found.metrics["roc_auc"].value is found.metrics["balanced_accuracy"].value is None
    assert 0 <= found.metrics["accuracy"].value <= 1


# --- intervals --------------------------------------------------------------------------------------------------------


def coverage(truth, draw, runs):
    """How often each figure's interval holds the truth, and how wide it is."""
    held, widths = {}, {}
    for _ in range(runs):
        for name, (value, interval) in draw().items():
            if value is not None:
                held.setdefault(name, []).append(interval[0] <= truth[name] <= interval[1])
                widths.setdefault(name, []).append(interval[1] - interval[0])
                assert interval[0] <= value <= interval[1]
    return {name: np.mean(found) for name, found in held.items()}, {name: np.median(w) for name, w in widths.items()}


@pytest.mark.sample(2)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("n", "noise"), [(400, 4.0), (4000, 4.0), (4000, 15.0)])
def test_intervals_of_a_histogram_cover_what_they_say(classes, n, noise):
    """Fresh rows and fresh noise, 200 times; 95 % of 200 is at least 175 with probability 1 - 1e-5. That of the
    calibration error is wide on purpose."""
    rng = np.random.default_rng(3)
    whole = figures_of(*drawn(400_000, classes, rng))
    truth = {name: one.value for name, one in whole.metrics.items()} | {"gain": whole.gain.value}
    size_noise = 3 * noise

    def once():
        z, y = drawn(n, classes, rng)
        size = max(n + rng.normal(0, size_noise), 1.0)
        edges = edges_for(size, noise)
        values = counted(z, y, edges) + rng.normal(0, noise, cells(len(edges) + 1, classes))
        found = of_histogram(Noised(values, noise, size, size_noise), edges, NAMED[classes], likely=True)
        return found.metrics | {"gain": found.gain}

    held, widths = coverage(truth, once, 200)
    assert min(held.values()) >= 0.875, held
    assert held["accuracy"] < 1 and widths["accuracy"] < 4 * (1 / math.sqrt(n) + 6 * noise / n)


@pytest.mark.parametrize(("n", "noise"), [(500, 1e-3), (2000, 2.0), (20_000, 20.0)])
def test_intervals_of_moments_cover_what_they_say(n, noise):
    """As above; that of R^2 has to allow for what was not bought."""
    rng = np.random.default_rng(4)

    def numbers(n):
        y = rng.beta(2, 3, n) * 100
        return np.clip(0.9 * y + 5 + rng.normal(0, 8, n), 0, 100), y

    truth = {name: one.value for name, one in of_numbers(*numbers(400_000)).metrics.items()}

    def once():
        guess, y = numbers(n)
        a, u = np.abs(guess - y) / 100, y / 100
        sums = (np.array([a, a**2, a**4, u, (2 * u - 1) ** 2]) - 0.5).sum(1) + rng.normal(0, noise, 5)
        size = n + rng.normal(0, 2 * noise)
        return of_moments(Noised(sums, noise, size, 2 * noise), 0.0, 100.0)[0].metrics

    held, _ = coverage(truth, once, 200)
    assert {*held} == {"rmse", "mae", "r2"} and min(held.values()) >= 0.875, held


@pytest.mark.parametrize("classes", [2, 3])
def test_intervals_of_public_rows_cover_what_they_say(classes):
    rng = np.random.default_rng(5)
    truth = {name: one.value for name, one in figures_of(*drawn(400_000, classes, rng)).metrics.items()}
    held, _ = coverage(truth, lambda: figures_of(*drawn(600, classes, rng)).metrics, 200)
    assert min(held.values()) >= 0.875, held


# --- what a record adds, and what leaves ------------------------------------------------------------------------------

HOSTILE = [math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, -0.0, 1e-320, 0.5, -0.5]
MODELS = {
    "two": (Linear(2, Logistic()), 2),
    "softmax of two": (Linear(2, Softmax(), 2), 2),
    "four": (Linear(2, Softmax(), 4), 4),
    "perceptron": (MLP((2, 3, 1), Logistic(), "tanh"), 2),
    "perceptron of three": (MLP((2, 3, 3), Softmax(), "relu"), 3),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [0.3, -1e20, 1e29])
def test_every_record_is_in_as_many_cells_as_it_is_charged_for(name, scale):
    """Also one that is not finite, has no label or scores beyond all numbers: none is left out, and none counts twice."""
    model, classes = MODELS[name]
    theta, edges = np.linspace(-1, 1, model.dimension) * scale, np.array([0.2, 0.5, 0.8])
    for value in HOSTILE:
        for label in (-1, 0, 1, 99):
            X, y = np.array([[value, 1.0]]), np.array([label if model.loss.task == "classes" else float(label)])
            found = score_counts(records_of(model, X, y), Drawn(), theta, edges, classes)
            assert found.min() >= 0 and found.max() == 1 and found.sum() == (1 if classes == 2 else classes + 2)
    empty = records_of(model, np.zeros((0, 2)), np.zeros(0, np.int64))
    assert not score_counts(empty, Drawn(), theta, edges, classes).any()


def test_a_record_that_is_not_finite_is_surely_wrong():
    for label, cell in ((1.0, 1), (-1.0, 4)):  # its label's cell in the bin that is farthest from it
        rows, labels = np.array([[math.nan]]), np.array([label])
        found = score_counts(
            records_of(Linear(1, Logistic()), rows, labels), Drawn(), np.ones(1), np.array([-1.0, 1.0]), 2
        )
        # a row that is not finite has lost its label too
        assert found.argmax() == 4 and found.sum() == 1
        huge = MLP((1, 2, 1), Logistic(), "relu")  # of a finite row, but infinite scores
        records = records_of(huge, np.ones((1, 1)), labels)
        found = score_counts(records, Drawn(), np.full(huge.dimension, 1e29), np.array([-1.0, 1.0]), 2)
        assert found.argmax() == cell


def test_no_record_adds_more_to_the_moments_than_it_is_charged_for():
    for value in HOSTILE:
        for label in (-1e30, -1.0, 0.0, 0.3, 1.0, math.nan):
            rows, labels = np.array([[value]]), np.array([label])
            found = error_moments(records_of(Linear(1, Squared()), rows, labels), Drawn(), np.full(1, 3.0))
            assert (np.abs(found) <= 1 << 30).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScoreHistogram((0.0,), (1.0, 0.0)),
        lambda: ScoreHistogram((0.0,), ()),
        lambda: ScoreHistogram((0.0,), (0.0, math.nan)),
        lambda: ScoreHistogram((0.0,), (0.0, 0.0)),
        lambda: ScoreHistogram((0.0,), (0.0,), 2.5),
        lambda: ScoreHistogram((0.0,), (0.0,), 1.0),
        lambda: ScoreHistogram((math.nan,), (0.0,)),
        lambda: ErrorMoments((math.inf,)),
    ],
)
def test_edges_and_thetas_that_could_make_a_cell_of_their_own_are_refused(make):
    with pytest.raises(ValueError, match=r"ScoreHistogram|ErrorMoments"):
        make()


X = RNG.uniform(-1, 1, (1500, 2))


def wavy(rows):
    return 50 + 30 * rows[:, 0] + 15 * np.sin(9 * rows[:, 1])


def fitted(kind):
    options = {"bounds": (-1, 1), "method": "dpsgd", "random_state": 0}
    if kind == "numbers":
        made = PrivateRegressor(3.0, 1e-6, target_bounds=(0, 100), **options).fit(X, wavy(X))
        return made.fitted_, wavy
    ends = {"two": [0.1], "three": [-0.3, 0.3], "hinge": [0.1]}[kind]
    loss = "hinge" if kind == "hinge" else "auto"
    made = PrivateClassifier(3.0, 1e-6, loss=loss, **options).fit(X, np.digitize(X[:, 0], ends))
    return made.fitted_, lambda rows: np.digitize(rows[:, 0], ends)


@pytest.fixture(scope="module", params=["two", "three", "hinge", "numbers"])
def model(request):
    return fitted(request.param)


def test_bought_figures_are_near_the_free_ones_at_a_generous_budget(model):
    found, labels = model
    rows, y = found.scaling(X), labels(X)
    free = public_quality(found, rows, y).figures.metrics
    for adjacency in ("add_remove", "replace_one"):
        bought = private_quality(found, rows, y, Budget(40.0, 1e-6, adjacency), seed=1).figures.metrics
        for name in NAMES:
            one, other = free.get(name), bought.get(name)
            assert (one is None or one.value is None) == (other is None or other.value is None), name
            if one is not None and one.value is not None:
                assert other.value == pytest.approx(one.value, abs=0.03, rel=0.1), name


def test_all_that_leaves_is_made_of_the_answers(model, monkeypatch):
    """With answers given, nothing about the rows shows: not their number, labels or scores, nor in what is raised."""
    found, labels = model
    rng = np.random.default_rng(0)
    draws = {}

    def told(self, what, **how):
        kind = type(what).__name__
        if kind == "Count":
            return Answer(np.array(900.0), 9.0)
        size = 5 if kind == "ErrorMoments" else cells(len(what.edges) + 1, int(what.classes))
        draws.setdefault(size, rng.normal(10, 3, size))
        return Answer(draws[size].copy(), 3.0)

    monkeypatch.setattr(Curator, "ask", told)
    monkeypatch.setattr(Curator, "trace", property(lambda self: (Answer(np.zeros(1), 9.0),)))
    seen = set()
    for rows in (X, X[:3], X[:0], X[X[:, 0] > 0.9], np.full((2, 2), math.nan), np.full((5, 2), 1e300)):
        with np.errstate(all="ignore"):
            scaled = found.scaling(rows)
            y = np.nan_to_num(labels(rows))
        seen.add(repr(private_quality(found, scaled, y, Budget(1.0, 1e-6))))
    assert len(seen) == 1


def test_one_histogram_and_the_size_are_all_that_is_asked(model, monkeypatch):
    found, labels = model
    asked, original = [], Curator.ask

    def listening(self, what, **how):
        asked.append(type(what).__name__)
        return original(self, what, **how)

    monkeypatch.setattr(Curator, "ask", listening)
    whole = "ScoreHistogram" if found.classes is not None else "ErrorMoments"
    private_quality(found, found.scaling(X), labels(X), Budget(1.0, 1e-6))
    bought = private_quality(found, found.scaling(X), labels(X), Budget(1.0, 1e-6), size_is_public=True)
    assert asked == ["Count", whole, whole] and len(bought.events) == 1


def test_no_rows_and_tiny_budgets_give_figures_within_their_limits(model):
    found, labels = model
    for rows in (X[:0], X[:2]):
        for epsilon in (0.001, 1.0):
            for seed in range(5):
                y = labels(rows)
                bought = private_quality(found, found.scaling(rows), y, Budget(epsilon, 1e-6), seed=seed)
                for name, (value, interval) in bought.figures.metrics.items():
                    if value is not None:
                        low, high = interval
                        assert low <= value <= high and math.isfinite(low) and math.isfinite(high), name
                        assert low >= 0 or name == "r2"
    with pytest.raises(ValueError, match="no rows to score"):
        public_quality(found, found.scaling(X[:0]), labels(X[:0]))
