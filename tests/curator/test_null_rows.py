"""A record without a label keeps its place and is in no answer: sums, counts, batches, shards, walks and whole runs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import noisewise as nw
from noisewise.accounts import AdditiveMeter, Budget
from noisewise.accounts.purse import Purse
from noisewise.curator import QUESTIONS, Curator
from noisewise.evidence.bought_quality import private_quality
from noisewise.methods import registry
from noisewise.tables.bought import purchase
from noisewise.tables.files import open_source
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.features import Codes, Features, Hats, TableColumn
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Additive, Linear
from noisewise.trusted.noise import Stream
from noisewise.trusted.questions import HowAsked
from noisewise.trusted.questions.moments import Count
from noisewise.trusted.selection import Entrant, _sum
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.grid import NO_CLASS, NO_LABEL, in_memory
from noisewise.trusted.stores.shards import NOBODY, deal
from noisewise.trusted.stores.totals import Drawn
from noisewise.trusted.walks.objective import PerturbedObjective
from noisewise.trusted.walks.oneshot import Descent, OnePass

D, N = 3, 40
NUMBER = (-1.0, 0.0, 1.0), (0.0, 0.3, 1.0)
TABLE = (TableColumn("a", *NUMBER), TableColumn("b", *NUMBER), TableColumn("c", groups=(0, 1, 0)))
BLOCKS = (Hats(0, *NUMBER, 2), Codes(2, (0, 1, 0)))
MADE = Features(BLOCKS, np.full(sum(block.width for block in BLOCKS) + 1, 0.5))
MODELS = {
    "logistic": Linear(D, Logistic()),
    "softmax": Linear(D, Softmax(), 4),
    "squared": Linear(D, Squared()),
    "table": Additive(1, Logistic(), columns=TABLE),
    "perceptron": MLP((D, 3, 1), Logistic(), "tanh"),
}
HOSTILE = np.array([[1e4, -1e4, 1.0], [math.nan, math.inf, 0.0], [0.1, 0.2, 2.0], [0.0, 0.0, 0.0]])


def records(model, seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.random((n, D)) * 1.2 - 0.6
    if model.table:
        X[:, 2] = rng.integers(0, 3, size=n)
    whole = model.loss.task == "classes"
    y = rng.integers(0, model.outputs, size=n) if whole else np.sign(rng.random(n) - 0.5)
    return X, y


def without(model, y, places):
    y = y.copy()
    y[places] = NO_CLASS if model.loss.task == "classes" else NO_LABEL
    return y


def room(model, X, y, *, adjacency="replace_one", seed=0, size=float(N)):
    meter = AdditiveMeter(Budget(500.0, 1e-6, adjacency=adjacency), "rdp", order=8, one_shot_delta=5e-7)
    curator = Curator(X, y, model=model, meter=meter, size=size, row_bound=1.0, seed=seed)
    if model.table:
        curator.prepare(MADE)
    return curator


def asked_of(kind, model):
    facts = room(model, *records(model)).facts
    for case in kind.cases(facts.dimension):
        try:
            case.check(facts)
        except (TypeError, ValueError):
            continue
        yield case


PAIRS = [(name, model) for name, kind in QUESTIONS.items() for model in MODELS if any(asked_of(kind, MODELS[model]))]


def plain(answer):
    return answer.value.astype(np.float64).ravel(), answer.below


@pytest.mark.parametrize(("kind", "name"), [pair for pair in PAIRS if not QUESTIONS[pair[0]].sharded])
def test_every_question_is_answered_as_if_it_were_not_there(kind, name):
    model = MODELS[name]
    X, y = records(model)
    null = np.array([0, 7, 8, N - 1])
    X[null] = HOSTILE
    kept = np.ones(N, bool)
    kept[null] = False
    for case in asked_of(QUESTIONS[kind], model):
        one = room(model, X, without(model, y, null)).ask(case, noise=3.0)
        other = room(model, X[kept], y[kept]).ask(case, noise=3.0)
        assert np.array_equal(plain(one)[0], plain(other)[0]) and plain(one)[1] == plain(other)[1]


@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_no_unit_is_less_than_what_a_record_does_that_loses_its_label(kind):
    for adjacency in ("add_remove", "replace_one"):
        for sampling in (("full",), ("poisson", 0.5)):
            how = HowAsked(adjacency, sampling, 1.0, 5.0, D)
            for case in QUESTIONS[kind].cases(4):
                added, replaced = case.moves(how)
                assert added <= replaced * (1 + 1e-12) or case.sharded
                far = 2 if adjacency == "replace_one" else 1  # how many units the event lets two means be apart
                assert added <= far * how.unit(added, replaced) * (1 + 1e-12)


def test_the_number_of_records_is_that_of_labels():
    model = MODELS["logistic"]
    X, y = records(model)
    curator = room(model, X, without(model, y, np.arange(10)), adjacency="add_remove", size=None)
    answers = [float(curator.ask(Count(), noise=0.5).value) for _ in range(20)]
    assert abs(np.mean(answers) - 30) < 5 * 0.5 / math.sqrt(20)
    for sampling in (("poisson", 0.5), ("full",)):
        nobody = room(model, X, without(model, y, np.arange(N)), adjacency="add_remove", size=None)
        assert abs(float(nobody.ask(Count(), noise=0.3, sampling=sampling).value)) < 3


@pytest.mark.parametrize("sampling", [("full",), ("poisson", 0.3), ("fixed", 0.25)])
@pytest.mark.parametrize("name", ["logistic", "softmax", "perceptron"])
def test_nobody_else_moves_when_a_record_loses_its_label(name, sampling):
    """The same coins: with the record left out of the matrix, every later one would be drawn by another coin."""
    model = MODELS[name]
    X, y = records(model)
    theta, clip, moved = np.full(model.dimension, 0.3), 0.5, 0
    place = np.argsort(model.norms(theta, model.lay_out(X, y)))[N // 4]  # not cut: answers are rounded to their grid
    for seed in range(12):
        size = 1.0 if sampling[0] == "full" else sampling[1]
        answers = [
            room(model, X, labels, seed=seed).gradient(theta, clip=clip, noise_multiplier=2.0, sampling=sampling).value
            for labels in (y, without(model, y, [place]))
        ]
        apart = np.linalg.norm(answers[0].astype(np.float64) - answers[1]) * N * size
        assert apart <= clip * (1 + 1e-5)
        moved += apart > 0
    assert moved == 12 if sampling[0] == "full" else 0 < moved < 12


def test_in_shards_it_takes_a_place_and_is_nobody():
    model = MODELS["logistic"]
    X, y = records(model)
    counted = np.ones(N, bool)
    counted[[2, 5]] = False
    with_all, with_null = (
        deal(records_of(model, X, y), 4, float(N), Stream(1, "shards"), mask) for mask in (None, counted)
    )
    assert np.array_equal(with_all.rows, with_null.rows)
    assert int((with_all.sides != with_null.sides).sum()) == 2
    assert (with_null.sides[with_all.sides != with_null.sides] == NOBODY).all()


def walks(X, y):
    start = np.zeros(D)
    yield Descent(start, 20, 0.5, 3.0, l2=0.1, radius=1.0)
    yield OnePass(start, np.full((5, D), 0.1), np.ones(5), 0.5, 3.0, l2=0.1, radius=1.0)
    yield PerturbedObjective(start, 1.0, 1e-7)


@pytest.mark.parametrize("place", [0, N - 1])
def test_walks_do_not_look_at_its_row(place):
    """Its row is zeros there, whatever it holds, and the others keep their steps."""
    model = MODELS["logistic"]
    ends = []
    for row in (*HOSTILE, np.array([0.6, 0.6, 0.6])):
        X, y = records(model)
        X[place] = row
        made = [room(model, X, without(model, y, [place])) for _ in range(3)]
        asked = walks(X, y)
        first, second = made[0].last_iterate(next(asked)), made[1].last_iterate(next(asked))
        ends.append(np.concatenate([first.value, second.value, made[2].minimise(next(asked)).value]))
    assert all(np.array_equal(end, ends[0]) for end in ends)


# --- whole runs -------------------------------------------------------------------------------------------------------

SCHEMA = Schema(a=(-1, 1), b=(-1, 1), c=["u", "v"], y=["no", "yes"], target="y", target_missing="drop")


def frame(n=120, wild=False, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 1, n), "c": rng.choice(["u", "v"], n)})
    table["y"] = np.where(table.a > table.b, "yes", "no")
    null = rng.random(n) < 0.2
    table.loc[null, "y"] = None
    if wild:
        table.loc[null, ["a", "b"]] = 1e6
        table.loc[null, "c"] = "v"
    return table


def fitted(table, method="descent", **settings):
    public = frame(30, seed=9).dropna()
    settings = {"random_state": 3, "schema": SCHEMA, "method": method, **settings}
    model = nw.PrivateClassifier(3.0, 1e-6, **settings)
    return model.fit(table[["a", "b", "c"]], table["y"], (public[["a", "b", "c"]], public["y"]))


SLOW = {"adaptive_clip", "growing_batch", "agd", "agd_avg", "l2p", "sgd_adv", "sgd_ma", "dynamic", "projected_sgd"}
QUICK = sorted(set(registry()) - SLOW - {"only_public"})


@pytest.mark.parametrize("method", QUICK)
def test_no_method_learns_from_its_features(method):
    settings = {"adjacency": "replace_one"} if method == "pnsgd" else {}
    one, other = (fitted(frame(wild=wild), method, **settings) for wild in (False, True))
    assert one.fitted_.theta.tobytes() == other.fitted_.theta.tobytes()


def test_where_all_are_asked_at_once_it_might_as_well_not_be_there():
    table = frame()
    kept = fitted(table)
    gone = fitted(table.dropna())
    assert kept.fitted_.theta.tobytes() == gone.fitted_.theta.tobytes()
    assert "a record without a label keeps its place and counts for nothing" in kept.statement_.data["assumed"]
    assert kept.statement_.data["promise"] == gone.statement_.data["promise"]


@pytest.mark.parametrize("settings", [{"adjacency": "replace_one"}, {"size_is_public": True}])
def test_a_public_size_is_that_of_all_records(settings):
    assert fitted(frame(), **settings).fitted_.size == 120
    assert fitted(frame(), "dpsgd", adjacency="replace_one").fitted_.size == 120


def test_files_tables_words_and_persons_agree(tmp_path):
    table = frame()
    table.fillna({"y": "?"}).to_csv(tmp_path / "d.csv", index=False)
    table.to_parquet(tmp_path / "d.parquet")
    thetas = []
    for path in ("d.csv", "d.parquet"):
        model = nw.PrivateClassifier(3.0, 1e-6, random_state=3, schema=SCHEMA, method="descent")
        thetas.append(model.fit_files(tmp_path / path).fitted_.theta)
    assert np.array_equal(*thetas)
    persons = {"unit": "who", "rows_per_unit": 2}
    theirs = [frame(wild=wild).assign(who=np.arange(120) % 50) for wild in (False, True)]
    face = nw.PrivateClassifier(3.0, 1e-6, random_state=3, schema=SCHEMA, method="descent", **persons)
    first, second = (clone(face).fit(t.drop(columns="y"), t["y"]) for t in theirs)
    assert first.fitted_.theta.tobytes() == second.fitted_.theta.tobytes()


def test_a_regression_and_numbers_with_gaps():
    schema = Schema(a=(-1, 1), b=(-1, 1), y=(-2, 2), target="y", target_missing="drop")
    table = frame()[["a", "b"]]
    table["y"] = np.where(np.arange(120) % 5 == 0, np.nan, table.a - table.b)
    wild = table.assign(a=table.a.where(table.y.notna(), 1e9))
    fits = [
        nw.PrivateRegressor(3.0, 1e-6, random_state=3, schema=schema).fit(t[["a", "b"]], t["y"]) for t in (table, wild)
    ]
    assert fits[0].fitted_.theta.tobytes() == fits[1].fitted_.theta.tobytes()


def test_a_label_is_still_never_made_up():
    table = frame()
    with pytest.raises(ValueError, match="missing labels"):
        nw.PrivateClassifier(1.0, 1e-6, bounds=(-1, 1), random_state=0).fit(table[["a", "b"]], table["y"])
    with pytest.raises(ValueError, match="not among the classes"):
        fitted(table.fillna({"y": "perhaps"}))
    with pytest.raises(ValueError, match="pass one of 'refuse', 'drop'"):
        Schema(a=(0, 1), target_missing="dropp")


def test_bought_bounds_do_not_look_at_it(tmp_path):
    column, y = Column("a", "number"), Column("y", "category", categories=("no", "yes"))
    schema = Schema((column, y), "y", target_missing="drop")
    found = []
    for wild in (False, True):
        frame(2000, wild=wild)[["a", "y"]].to_csv(tmp_path / "d.csv", index=False)
        deal = purchase(schema, epsilon=1.0, budget=Budget(2.0, 1e-6))
        found.append(deal.bounds(open_source(tmp_path / "d.csv"), Purse(Budget(2.0, 1e-6)), seed=1)[0]["a"])
    assert found[0] == found[1] and found[0].high <= 1.1
    face = nw.PrivateClassifier(3.0, 1e-6, bounds="buy", schema=schema, random_state=0, method="descent")
    tables = [frame(2000, wild=wild) for wild in (False, True)]
    first, second = (clone(face).fit(table[["a"]], table["y"]).fitted_ for table in tables)
    assert first.encoder == second.encoder and first.theta.tobytes() == second.theta.tobytes()


@pytest.mark.parametrize("kind", ["error", "loss"])
@pytest.mark.parametrize("name", ["logistic", "softmax", "squared", "table"])
def test_a_panel_does_not_look_at_it(name, kind):
    model = MODELS[name]
    X, y = records(model)
    null, kept = np.array([0, 9]), np.ones(N, bool)
    X[null] = HOSTILE[:2]
    kept[null] = False
    made = MADE if model.table else None
    width = model.of_width(MADE.width).dimension if model.table else model.dimension
    entrants = [
        Entrant(model, (0.2,) * width, rows, labels, made)
        for rows, labels in ((X, without(model, y, null)), (X[kept], y[kept]))
    ]
    assert _sum(entrants[0], kind, in_memory) == _sum(entrants[1], kind, in_memory)


@pytest.mark.parametrize("how", ["selection", "exponential"])
def test_a_search_and_a_bought_score_do_not_look_at_it(how):
    public = frame(30, seed=9).dropna()
    found = []
    for wild in (False, True):
        face = nw.PrivateClassifier(3.0, 1e-6, schema=SCHEMA, method="descent", random_state=3)
        table = frame(wild=wild)
        search = nw.PrivateSearchCV(face, [{"max_grad_norm": 0.5}, {"max_grad_norm": 1.0}], how=how)
        search.fit(table[["a", "b", "c"]], table["y"], (public[["a", "b", "c"]], public["y"]))
        best = search.best_estimator_.fitted_
        there = table["y"].notna().to_numpy()
        X = best.scaling(best.encoder(table[["a", "b", "c"]]))
        score = private_quality(best, X, table["y"].fillna("no").to_numpy(), Budget(1.0, 1e-6), seed=1, there=there)
        found.append((best.theta.tobytes(), search.best_score_, score.value, score.interval))
    assert found[0] == found[1]


def test_who_has_no_label_is_taken_out_of_what_was_drawn():
    counted = np.array([True, True, False, True])
    batch, everyone = Drawn(np.array([0, 2, 3]), 2.0).only(counted), Drawn().only(counted)
    assert batch.rows.tolist() == [0, 3] and batch.expected == 2.0 and everyone.rows.tolist() == [0, 1, 3]
    assert Drawn(np.array([2])).only(counted).count(4) == 0 and Drawn().only(None).rows is None


def test_a_row_of_a_client_without_a_label_is_none_of_its_rows():
    from noisewise.remote.clients.one_record import Together

    y = np.array([1.0, NO_LABEL, -1.0])
    assert len(Together(np.eye(3), y, 1, 1.0).held(Linear(3, Logistic()), in_memory).rows) == 2


def test_what_is_ready_to_run_shows_no_row():
    from noisewise.train import Records

    assert repr(Records(["rows"], ["labels"])) == "Records(...)"
