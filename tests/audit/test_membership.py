"""Membership attacks work where they must, fail where a promise holds, and are judged by the right curve."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from noisewise import PrivateClassifier, PrivateRegressor, load, save
from noisewise.evidence.audit.membership import ATTACKS, judge, membership, membership_game, train_shadows
from noisewise.evidence.audit.roc import Allowed, Rate, allowed_by, point, roc
from noisewise.evidence.runs import append
from noisewise.faces.sklearn.finished import attack_run, entry, read_table
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.nonprivate import NonPrivate
from noisewise.tables.generated import digits
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.accountants.gdp import mu_of

BY_HEART = NonPrivate(steps=60)


def noisy_digits(rows: int, share: float = 0.2):
    """Digits with a share of labels replaced at random: a large model learns those by heart."""
    table, rng = digits(), np.random.default_rng(0)
    chosen = rng.permutation(len(table.y))[:rows]
    y = np.where(rng.random(rows) < share, rng.integers(0, 10, rows), table.y[chosen])
    return table.X.to_numpy()[chosen], y


def learner(hidden=(16,), **settings):
    return PrivateClassifier(bounds=(0, 16), model=hidden, **settings)


@pytest.fixture(scope="module")
def overfit():
    """All attacks on four models that were trained without privacy."""
    X, y = noisy_digits(240)
    return membership_game(learner(method=BY_HEART), X, y, targets=4, shadows=16, allowed=Allowed(1.0, 1e-5))


@pytest.fixture(scope="module")
def private():
    """The same at epsilon 1, on more models, since they are cheap."""
    X, y = noisy_digits(240)
    return membership_game(learner(epsilon=1.0, delta=1e-5), X, y, targets=6, shadows=16)


# ---- the allowed curve


def best_test(p_out, p_in, fpr):
    """The largest TPR at a FPR between two distributions on few outcomes: Neyman-Pearson, by hand."""
    order = sorted(range(len(p_out)), key=lambda i: -(p_in[i] / p_out[i] if p_out[i] else np.inf))
    left, tpr = fpr, 0.0
    for i in order:
        share = 1.0 if p_out[i] <= left else left / p_out[i]
        tpr, left = tpr + share * p_in[i], left - share * p_out[i]
    return tpr


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 1e-5), (1.0, 0.05), (4.0, 1e-3)])
def test_the_allowed_curve_is_that_of_the_least_private_mechanism(epsilon, delta):
    heads = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    p_in, p_out = [delta, heads, 1 - delta - heads, 0.0], [0.0, 1 - delta - heads, heads, delta]
    grid = np.linspace(0, 1, 101)
    expected = [best_test(p_out, p_in, fpr) for fpr in grid]
    assert np.allclose(Allowed(epsilon, delta)(grid), expected, atol=1e-12)
    fine = np.linspace(0, 1, 100_001)
    assert Allowed(epsilon, delta).advantage == pytest.approx((Allowed(epsilon, delta)(fine) - fine).max(), abs=1e-4)


def test_the_gaussian_curve_is_that_of_two_normals():
    mu = mu_of(1.0, 1e-5)
    curve, cuts = Allowed(1.0, 1e-5, mu), np.linspace(-4, 4, 50)
    assert np.allclose(curve(stats.norm.sf(cuts)), stats.norm.sf(cuts, loc=mu), atol=1e-9)
    assert (curve(np.linspace(0, 1, 999)) <= Allowed(1.0, 1e-5)(np.linspace(0, 1, 999))).all()
    assert curve.advantage == pytest.approx(stats.norm.cdf(mu / 2) - stats.norm.cdf(-mu / 2))


def test_a_huge_epsilon_allows_everything_but_certainty_at_no_cost():
    assert Allowed(1e5, 1e-5)([0.0, 1e-9, 1.0]).tolist() == [1e-5, 1.0, 1.0]


def test_what_a_statement_allows():
    X, y = noisy_digits(100)

    def promise(**settings):
        return allowed_by(learner("linear", random_state=0, **settings).fit(X, y).statement_)

    full = promise(epsilon=1.0, delta=1e-5, method=DpSgd(steps=2))
    assert (full.epsilon, full.delta, full.mu) == (1.0, 1e-5, mu_of(1.0, 1e-5))
    assert promise(epsilon=1.0, delta=1e-5).mu == mu_of(1.0, 1e-5)  # a GDP filter
    for other in ({"accountant": "pld"}, {"meter": "additive", "name": "rdp"}):
        stated = {
            "promise": {"epsilon": 1.0, "delta": 1e-5},
            "meter": {"meter": "plan", "one_shot_delta": 0.0, **other},
        }
        assert allowed_by(stated) == Allowed(1.0, 1e-5)
    mixed = {"meter": "additive", "name": "gdp", "one_shot_delta": 1e-6}
    assert allowed_by({"promise": {"epsilon": 1.0, "delta": 1e-5}, "meter": mixed}).mu is None
    assert promise(method="nonprivate") is None and allowed_by(None) is None


# ---- rates and curves


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (3, 50), (50, 50), (1, 1)])
def test_intervals_are_clopper_and_pearsons(hits, trials):
    exact = stats.binomtest(hits, trials).proportion_ci(0.9, method="exact")
    rate = Rate.of(hits, trials, 0.9)
    assert (rate.value, rate.low, rate.high) == pytest.approx((hits / trials, exact.low, exact.high))


def test_the_roc_curve_is_valid_and_its_area_counts_pairs():
    rng = np.random.default_rng(1)
    inside, outside = rng.integers(0, 9, 80).astype(float) + 1, rng.integers(0, 9, 120).astype(float)
    curve = roc(inside, outside)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(curve.fpr) >= 0).all() and (np.diff(curve.tpr) >= 0).all()
    pairs = [(a > b) + 0.5 * (a == b) for a in inside for b in outside]
    assert curve.auc == pytest.approx(np.mean(pairs))


def test_the_strongest_attack_that_is_allowed_is_seldom_called_a_violation():
    rng, mu, alarms = np.random.default_rng(2), 0.5, 0
    for _ in range(300):
        result = judge("loss", rng.normal(mu, 1, 800), rng.normal(0, 1, 800), allowed=Allowed(10.0, 1e-5, mu))
        alarms += result.violates
    assert alarms <= 23  # 5 % of 300, and two standard deviations


def test_an_attack_beyond_what_is_allowed_is_called_a_violation():
    rng, mu = np.random.default_rng(3), 1.5
    caught = [
        judge("loss", rng.normal(mu, 1, 800), rng.normal(0, 1, 800), allowed=Allowed(10.0, 1e-5, mu / 2)).violates
        for _ in range(50)
    ]
    assert np.mean(caught) > 0.9
    assert "VIOLATION" in judge("loss", np.ones(99), np.zeros(99), allowed=Allowed(1.0, 1e-5)).verdict


def test_a_false_positive_rate_is_kept_with_ties():
    inside, outside = np.ones(100), np.r_[np.ones(5), np.zeros(95)]
    strict = point(inside, outside, 0.01, allowed=None, confidence=0.95, tests=1)
    assert (strict.fpr.value, strict.tpr.value) == (0.0, 0.0)  # the next threshold would take five non-members
    loose = point(inside, outside, 0.05, allowed=None, confidence=0.95, tests=1)
    assert (loose.fpr.value, loose.tpr.value) == (0.05, 1.0)


# ---- attacks on models


def test_attacks_work_on_a_model_without_privacy(overfit):
    assert set(overfit) == set(ATTACKS)
    for result in overfit.values():
        assert result.advantage.low > 0.1 and result.auc > 0.65
        assert result.members + result.non_members == 4 * 240


def test_the_likelihood_ratio_beats_the_loss_threshold(overfit):
    at_one_percent = {name: result.points[1].tpr for name, result in overfit.items()}
    assert overfit["lira"].auc > overfit["loss"].auc + 0.05
    assert at_one_percent["lira"].low > at_one_percent["loss"].high
    assert at_one_percent["lira_offline"].value > at_one_percent["loss"].value


def test_a_model_that_lies_about_its_epsilon_is_caught(overfit):
    assert overfit["lira"].violates and "VIOLATION" in overfit["lira"].verdict


def test_attacks_fail_on_a_private_model(overfit, private):
    for name, result in private.items():
        assert result.allowed.mu == mu_of(1.0, 1e-5)
        assert not result.violates and result.verdict.startswith("no violation found")
        assert result.advantage.low <= result.allowed.advantage
        assert result.auc < stats.norm.cdf(result.allowed.mu / np.sqrt(2)) + 0.05  # the area that mu-GDP allows
        assert result.advantage.value < overfit[name].advantage.value / 2
        for one in result.points:
            assert one.tpr.low <= float(result.allowed(one.fpr.high))


def test_a_finished_model_is_attacked_with_its_own_kind():
    X, y = noisy_digits(160)
    members, others = (X[:80], y[:80]), (X[80:], y[80:])
    model = learner((8,), method=BY_HEART).fit(*members)
    shadows = train_shadows(learner((8,), method=BY_HEART), X, y, count=8, seed=1)
    assert shadows.inside.sum(axis=0).tolist() == [4] * 160  # each candidate is in half of them
    lira = membership(model, members, others, attack="lira", shadows=shadows)
    assert lira.allowed is None and lira.auc > 0.75 and lira.to_dict()["roc"]["fpr"][-1] == 1.0
    assert "roc" not in lira.to_dict(curve=False) and json.dumps(lira.to_dict())
    unfitted = membership(learner((8,), method=BY_HEART), members, others, attack="loss")
    assert unfitted.auc > 0.6


def test_tables_stay_tables_and_background_rows_join_every_shadow():
    X, y = noisy_digits(60)
    seen = []

    def train(rows, labels, seed):
        seen.append((type(rows), len(rows)))
        return learner("linear", method="nonprivate", classes=range(10)).fit(rows, labels)

    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    shadows = train_shadows(train, frame, y, count=2, background=(frame.iloc[:7], y[:7]))
    assert [kind for kind, _ in seen] == [pd.DataFrame] * 2
    assert [rows for _, rows in seen] == (shadows.inside.sum(axis=1) + 7).tolist()


def test_a_fixed_size_relation_gets_a_half_of_fixed_size(monkeypatch):
    X, y = noisy_digits(50)
    sizes = []
    fit = PrivateClassifier.fit
    monkeypatch.setattr(PrivateClassifier, "fit", lambda self, X, y: (sizes.append(len(y)), fit(self, X, y))[1])
    for adjacency in ("replace_one", "add_remove"):
        settings = {"adjacency": adjacency, "epsilon": 1.0, "delta": 1e-5}
        membership_game(learner("linear", **settings), X, y, attacks=("loss",), targets=8)
    assert sizes[:8] == [25] * 8 and len(set(sizes[8:])) > 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_regression_is_attacked_by_its_errors(attack):
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (120, 3)), rng.uniform(-1, 1, 120)
    found = membership_game(DecisionTreeRegressor(), X, y, attacks=(attack,), targets=2, shadows=8)
    assert found[attack].auc > (0.8 if attack == "lira_offline" else 0.9)  # it does not know how small errors get
    linear = PrivateRegressor(epsilon=1.0, delta=1e-5, bounds=(-1, 1), target_bounds=(-1, 1))
    found = membership_game(linear, X, y, attacks=(attack,), targets=2, shadows=4)
    assert not found[attack].violates and found[attack].advantage.low < 0.2


def test_scores_without_probabilities_are_enough():
    X, y = noisy_digits(100)
    svm = PrivateClassifier(bounds=(0, 16), loss="hinge", method="nonprivate")
    found = membership_game(svm, X, y < 5, attacks=("loss", "shadow", "lira"), targets=1, shadows=2)
    assert all(result.auc > 0.5 for result in found.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attack": "magic"}, "attack is 'magic'; pass one of"),
        ({"attack": "lira"}, "train is missing"),
        ({"attack": "lira", "train": 3}, "train is 3; pass an unfitted estimator"),
        ({"attack": "lira", "train": learner("linear"), "shadows": 3}, "shadows is 3; pass an even number"),
    ],
)
def test_bad_input_is_one_line(settings, message):
    X, y = noisy_digits(40)
    model = learner("linear", method="nonprivate").fit(X, y)
    with pytest.raises(ValueError, match=message):
        membership(model, (X[:20], y[:20]), (X[20:], y[20:]), **settings)
    with pytest.raises(ValueError, match="at least two rows each"):
        membership(model, (X[:1], y[:1]), (X[20:], y[20:]), attack="loss")


# ---- a finished run folder


SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("job", "category", categories=("clerk", "farmer")),
        Column("rich", "category", categories=("no", "yes")),
    ),
    "rich",
)


def people(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, rows)
    rich = np.where(age + rng.normal(0, 30, rows) > 50, "yes", "no")
    return pd.DataFrame({"age": age, "job": rng.choice(["clerk", "farmer"], rows), "rich": rich})


@pytest.fixture
def run_folder(tmp_path):
    table = people(80, 0)
    model = PrivateClassifier(epsilon=1.0, delta=1e-5, schema=SCHEMA, random_state=0)
    return save(model.fit(table.drop(columns="rich"), table["rich"]), tmp_path / "run"), table, people(90, 1)


def test_a_run_folder_is_attacked_and_keeps_only_what_may_be_kept(run_folder):
    path, members, others = run_folder
    quiet = attack_run(load(path), members, others)
    assert not (path / "audit.json").exists() and quiet.allowed.epsilon == 1.0
    assert (quiet.members, quiet.non_members, quiet.violates) == (80, 90, False)
    append(path, "audit.json", {"kind": "epsilon_lower_bound"})
    append(path, "audit.json", entry(attack_run(load(path), members, others, target="rich")))
    load(path)  # the seal holds
    first, kept = json.loads((path / "audit.json").read_text())
    assert first == {"kind": "epsilon_lower_bound"}
    assert kept["unit"] == "one record" and entry(quiet, "one person, at most 2 rows")["unit"].startswith("one person")
    assert kept["kind"] == "membership" and kept["claimed"] == 1.0 and kept["verdict"] == quiet.verdict
    assert kept["confidence"] == 0.95 and kept["when"].endswith("+00:00") and "roc" not in kept


def test_a_run_folder_is_attacked_with_models_of_its_own_settings(run_folder):
    path, members, others = run_folder
    found = attack_run(load(path), members, others, attack="lira_offline", shadows=4)
    assert found.attack == "lira_offline" and not found.violates


def test_labels_of_a_run_without_a_schema_may_come_as_text(tmp_path):
    X, y = noisy_digits(60)
    table = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    path = save(learner("linear", method="nonprivate").fit(table, y), tmp_path / "run")
    written = table.assign(digit=y.astype(str))
    assert attack_run(load(path), written[:30], written[30:], target="digit").members == 30
    with pytest.raises(ValueError, match="target is missing"):
        attack_run(load(path), written, written)
    with pytest.raises(ValueError, match="no column 'sex'"):
        attack_run(load(path), table, table, target="sex")
    odd = table.assign(digit="secret")
    with pytest.raises(ValueError, match="'digit' holds values that are no class") as error:
        attack_run(load(path), odd, odd, target="digit")
    assert "secret" not in str(error.value)


def test_rows_are_read_from_csv_and_parquet(tmp_path):
    table = pd.DataFrame({"a": [1, 2], "b": ["x", "NA"]})
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.csv").to_dict("list") == {"a": ["1", "2"], "b": ["x", "NA"]}
    assert read_table(tmp_path / "t.parquet").equals(table)
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\nsecret\n")
    for name, message in (("ragged.csv", "^(?!.*secret)"), ("no.csv", "no such file")):  # a cell is never shown
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name)
