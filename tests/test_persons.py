"""A person with several rows, from a table to a checked promise: what counts, what it says, what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.accounts import Budget, Terms, open_meter
from noisewise.accounts.purse import Purse
from noisewise.curator import QUESTIONS, Curator, Gradient
from noisewise.evidence import runs
from noisewise.evidence.audit.canaries import small_setting
from noisewise.evidence.audit.lower_bound import epsilon_lower_bound
from noisewise.faces.cli.main import app
from noisewise.methods import registry
from noisewise.statements.statement import verify_data
from noisewise.tables.bought import Purchase, purchase
from noisewise.tables.files import open_source
from noisewise.tables.persons import PersonColumn
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.curator import ColumnCurator
from noisewise.trusted.events import FULL, BoundedRange
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.question import HowAsked
from noisewise.trusted.stores import records_of
from noisewise.trusted.stores.tables import ColumnRecords
from noisewise.trusted.stores.totals import Drawn
from noisewise.trusted.units import RECORD, Unit

SCHEMA = Schema(
    (Column("a", "number", -1, 1), Column("b", "number", -1, 1), Column("y", "category", categories=("no", "yes"))), "y"
)
OURS = replace(SCHEMA, unit="person_id", rows_per_unit=3)


def table(n=1200, people=400, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(-1, 1, n), "person_id": rng.integers(0, people, n), "b": rng.uniform(-1, 1, n)})
    return X, np.where(X.a > X.b, "yes", "no")


def fitted(X, y, **settings):
    common = {"bounds": (-1, 1), "random_state": 0, "unit": "person_id", "rows_per_unit": 3}
    return nw.PrivateClassifier(1.0, 1e-6, **{**common, **settings}).fit(X, y)


# --- one row per person is what it was --------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("method", ["descent", "adaptive_clip", "agd", "growing_batch", "objective_perturbation"])
def test_one_row_per_person_is_what_it_was_but_for_the_words(method, adjacency):
    X, y = table(300)
    X["person_id"] = [f"somebody {i}" for i in range(len(X))]
    settings = {"method": method, "adjacency": adjacency}
    mine = fitted(X, y, rows_per_unit=1, **settings)
    plain = fitted(X.drop(columns="person_id"), y, unit=None, rows_per_unit=None, **settings)
    assert mine.fitted_.theta.tobytes() == plain.fitted_.theta.tobytes() and mine.trace_ == plain.trace_
    words = ("promise", "guarantee", "accounting", "does_not_cover", "assumed", "covers")
    one, other = dict(mine.statement_.data), dict(plain.statement_.data)
    assert one["promise"] == {**other["promise"], "unit": "one person, at most 1 row"}
    assert {name: one[name] for name in one if name not in words} == {n: other[n] for n in other if n not in words}


# --- a person of 3k rows, chosen and summed ---------------------------------------------------------------------------


def totals_of(case, model, X, y, how):
    if isinstance(case, QUESTIONS["Histograms"]):
        return case.totals(ColumnRecords(lambda: [X], X.shape[1]), Drawn(), how)
    return case.totals(records_of(model, X, y), Drawn(), how)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("kind", [kind for kind in QUESTIONS if not QUESTIONS[kind].sharded])  # refused for persons
def test_a_person_with_any_number_of_rows_moves_no_answer_by_more_than_its_unit(kind, adjacency):
    """The rows that count are chosen as in training. The person stands last: the others' coins are the same."""
    rng, k, model = np.random.default_rng(3), 3, Linear(3, Logistic())
    how = HowAsked(adjacency, FULL, 1.0, 10.0, 3, k)
    for asked in QUESTIONS[kind].cases(3 if kind == "Histograms" else model.dimension):
        if kind in ("SquaredError", "ScoreHistogram", "ErrorMoments", "ColumnLevels"):
            continue  # of other models; test_person_laws has theirs
        if len(getattr(asked, "clips", ())) > 1:
            continue  # of torch modules; test_module_records has theirs
        ends = []
        for rows in (0, 1, k, 3 * k):
            X, labels = rng.normal(size=(12, 3)), rng.choice([-1.0, 1.0], 12)
            rng = np.random.default_rng(3)  # the same others
            loud = np.tile([[1.0, -1.0, 0.5]], (rows, 1)) * (1 if rows != k else -1)
            ids = [*(i // 2 for i in range(12)), *["she"] * rows]
            there = PersonColumn("who", k).in_table(pd.DataFrame({"who": pd.Series(ids, dtype=object)}), seed=5)
            assert there[12:].sum() == min(rows, k)
            X, labels = np.concatenate([X, loud])[there], np.append(labels, np.ones(rows))[there]
            totals = totals_of(asked, model, X, labels, how)
            ends.append(np.concatenate([t.values * t.worth / (1 if i == 0 else 2 * k) for i, t in enumerate(totals)]))
        pairs = (
            [(ends[0], end) for end in ends[1:]] if adjacency == "add_remove" else [(a, b) for a in ends for b in ends]
        )
        unit, apart = asked.unit(how), 1 if adjacency == "add_remove" else 2
        if isinstance(asked.event(1.0), BoundedRange):
            assert max(np.ptp(a - b) for a, b in pairs) <= apart * unit * (1 + 1e-9)
        elif getattr(asked, "count_noise_multiplier", None) is None:
            assert max(np.linalg.norm(a - b) for a, b in pairs) <= apart * unit * (1 + 1e-9), asked


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("public", [False, True])
def test_a_run_says_whose_promise_it_is_and_is_verified(tmp_path, adjacency, public):
    X, y = table()
    for _ in range(4):  # noise may be zero, once in a hundred or so
        model = fitted(X, y, adjacency=adjacency, size_is_public=public, random_state=None)
        if public or model.fitted_.size != len(X):
            break
    promise = model.statement_.data["promise"]
    assert promise["unit"] == "one person, at most 3 rows" and "one person" in str(model.statement_)
    assert "one record" not in str(model.statement_)
    assert model.statement_.data["size"] == ("public" if public else "bought")
    assert model.fitted_.size == len(X) if public else model.fitted_.size != len(X)  # of the table, or noisy
    folder = nw.save(model, tmp_path / "run")
    verdict = nw.verify(folder)
    assert verdict.holds and verdict.unit == "one person, at most 3 rows" and "at most 3 rows" in str(verdict)
    again = nw.load(folder)
    assert (again.unit, again.rows_per_unit) == ("person_id", 3)
    assert (again.predict(X) == model.predict(X.drop(columns="person_id"))).all()


def test_the_number_of_persons_is_public_under_replace_one_and_that_of_their_rows_is_not():
    X, y = table()
    assert fitted(X, y, adjacency="replace_one", rows_per_unit=1).fitted_.size == X.person_id.nunique()
    several = fitted(X, y, adjacency="replace_one", rows_per_unit=2)
    assert several.statement_.data["size"] == "bought" and several.trace_[0].question == "Count"
    std = several.trace_[0].noise_std  # a person more or less of two rows, half of it for a replacement
    assert std == pytest.approx(several.trace_[0].event.noise_multiplier * 2 / 2)


def test_words_of_units():
    assert [Unit.of_words(Unit(rows).words).rows for rows in (None, 1, 2, 10)] == [None, 1, 2, 10]
    assert (RECORD.persons, RECORD.most, Unit(1).persons, Unit(3).most) == (False, 1, True, 3)
    for odd in (
        "one person",
        "one person, at most 0 rows",
        "one person, at most 1 rows",
        "one person, at most 2 row",
        "",
    ):
        with pytest.raises(ValueError, match="the unit is"):
            Unit.of_words(odd)


def forged(folder, **changes):
    """The folder with another statement under a new seal."""
    statement = json.loads((folder / "statement.json").read_text())
    for name, value in changes.items():
        statement["promise"][name] = value
    return statement


def test_a_statement_that_says_another_unit_is_found_out(tmp_path):
    X, y = table()
    folder = nw.save(fitted(X, y, random_state=None), tmp_path / "run")
    assert verify_data(json.loads((folder / "statement.json").read_text())).holds
    for unit in ("one record", "one household", "one person, at most 0 rows", "one person"):
        assert not verify_data(forged(folder, unit=unit)).holds, unit
    data = json.loads((folder / "statement.json").read_text())
    data["events"].append({"kind": "Poisson", "rate": 0.1, "event": {"kind": "Gaussian", "noise_multiplier": 1e6}})
    verdict = verify_data(data)
    assert not verdict.holds


def test_a_folder_whose_rows_per_unit_contradict_each_other_is_found_out(tmp_path):
    X, y = table()
    model = fitted(X, y, random_state=None)
    data = model.statement_.data
    smaller = {**data, "promise": {**data["promise"], "unit": "one person, at most 2 rows"}}
    assert verify_data(smaller).holds  # by itself it is a promise that the events pay for
    model.fitted_ = replace(model.fitted_, statement=type(model.statement_)(smaller))
    verdict = nw.verify(nw.save(model, tmp_path / "run"))
    assert not verdict.holds and "differ in the unit" in verdict.reason


def test_no_id_leaves(tmp_path):
    """Neither in the run folder nor in the report, nor in what is said when something is wrong."""
    X, y = table(600)
    X["person_id"] = [f"Zaphod{i % 150:03d}" for i in range(600)]
    X.assign(y=y).to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "s.toml").write_text(OURS.to_toml())
    arguments = ["--schema", str(tmp_path / "s.toml"), "--epsilon", "1", "--delta", "1e-6"]
    done = CliRunner().invoke(app, ["train", str(tmp_path / "d.csv"), *arguments, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0 and "at most 3 rows" in done.output and "Zaphod" not in done.output
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tmp_path / "d.csv"), "--epsilon", "1"])
    assert done.exit_code == 0 and "Zaphod" not in done.output
    (scored,) = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert scored["unit"] == "one person, at most 3 rows"
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"Zaphod" not in file.read_bytes(), file
    assert "one person, at most 3 rows" in (tmp_path / "run" / "report.html").read_text()
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "run"), "--json"])
    assert json.loads(done.stdout)["unit"] == "one person, at most 3 rows"
    bad = X.assign(y=y)
    bad.loc[5, "y"] = None
    bad.to_csv(tmp_path / "bad.csv", index=False)
    done = CliRunner().invoke(app, ["train", str(tmp_path / "bad.csv"), *arguments, "--out", str(tmp_path / "no")])
    assert done.exit_code != 0 and "Zaphod" not in done.output + str(done.exception)


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_and_tables_count_the_same_rows(tmp_path):
    X, y = table()
    X.assign(y=y).to_parquet(tmp_path / "d.parquet", index=False)
    settings = {"bounds": None, "unit": None, "rows_per_unit": None, "schema": OURS, "classes": None}
    from_table = fitted(X, y, **settings)
    face = nw.PrivateClassifier(1.0, 1e-6, schema=OURS, random_state=0)
    from_file = face.fit_files(tmp_path / "d.parquet")
    assert from_table.trace_[0].event == from_file.trace_[0].event
    assert from_table.fitted_.size == from_file.fitted_.size
    mapped = nw.PrivateClassifier(1.0, 1e-6, schema=OURS, random_state=0).fit_files(
        tmp_path / "d.parquet", cache=tmp_path
    )
    assert mapped.fitted_.theta.tobytes() == from_file.fitted_.theta.tobytes()
    said_here = nw.PrivateClassifier(1.0, 1e-6, schema=SCHEMA, random_state=0, unit="person_id", rows_per_unit=3)
    assert said_here.fit_files(tmp_path / "d.parquet").fitted_.theta.tobytes() == from_file.fitted_.theta.tobytes()
    folder = nw.save(said_here, tmp_path / "run")
    assert nw.load(folder).statement_.data["promise"]["unit"] == "one person, at most 3 rows"


def test_a_table_in_which_nobody_counts_is_answered_with_noise(tmp_path):
    X, y = table(100)
    X["person_id"] = None
    assert np.isfinite(fitted(X, y).fitted_.theta).all()
    X.assign(y=y).to_csv(tmp_path / "d.csv", index=False)
    for cache in (None, tmp_path):
        model = nw.PrivateClassifier(1.0, 1e-6, schema=OURS, random_state=0).fit_files(tmp_path / "d.csv", cache=cache)
        assert model.statement_.data["size"] == "bought"


def test_bounds_are_bought_for_persons(tmp_path):
    """The noise of both histograms is for three rows, and a person's other rows are in no bin."""
    X, y = table(3000, 30)
    X.loc[X.person_id == 0, "a"] = 1e6
    X.assign(y=y).to_csv(tmp_path / "d.csv", index=False)
    open_ended = replace(OURS, columns=(Column("a", "number"), *OURS.columns[1:]))
    (tmp_path / "s.toml").write_text(open_ended.to_toml())
    arguments = ["--schema", str(tmp_path / "s.toml"), "--epsilon", "20", "--delta", "1e-6", "--bounds-epsilon", "10"]
    done = CliRunner().invoke(app, ["train", str(tmp_path / "d.csv"), *arguments, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    verdict = nw.verify(tmp_path / "run")
    assert verdict.holds and verdict.unit == "one person, at most 3 rows"
    curators = [
        ColumnCurator(
            lambda: [np.zeros((5, 1))],
            1,
            meter=open_meter(Budget(1.0, 1e-6), Terms.adaptive("gdp")),
            rows_per_unit=rows,
        )
        for rows in (None, 1, 4)
    ]
    noises = [curator.histograms(np.array([[-1.0, 1.0]]), noise_multiplier=50.0)[1] for curator in curators]
    assert noises[0] == noises[1] == pytest.approx(50) and noises[2] == pytest.approx(200)


def test_no_more_rows_of_a_person_are_counted_for_bounds_than_count(tmp_path, monkeypatch):
    X, y = table(3000, 30)
    X["a"] = X.person_id.astype(float)  # a value tells whose row it is
    X.assign(y=y).to_csv(tmp_path / "d.csv", index=False)
    open_ended, seen = replace(OURS, columns=(Column("a", "number"), *OURS.columns[1:])), []
    monkeypatch.setattr(Purchase, "paid_for", lambda _, pieces, *__, **___: seen.extend(pieces()))
    bounds = purchase(open_ended, epsilon=1.0, budget=Budget(2.0, 1e-6))
    bounds.bounds(open_source(tmp_path / "d.csv"), None)
    _, times = np.unique(np.concatenate(seen)[:, 0], return_counts=True)
    assert times.tolist() == [3] * 30


def test_a_score_is_bought_for_persons(tmp_path):
    X, y = table(900, 300)
    X.assign(y=y).to_csv(tmp_path / "d.csv", index=False)
    face = nw.PrivateClassifier(1.0, 1e-6, schema=OURS, random_state=0).fit_files(tmp_path / "d.csv")
    nw.save(face, tmp_path / "run")
    widths = []
    for k in (3, 30):
        (tmp_path / f"run{k}").mkdir()
        other = nw.PrivateClassifier(1.0, 1e-6, schema=replace(OURS, rows_per_unit=k), random_state=0)
        runs.save(other.fit_files(tmp_path / "d.csv").fitted_, tmp_path / f"run{k}" / "run")
        done = CliRunner().invoke(
            app, ["evaluate", str(tmp_path / f"run{k}" / "run"), str(tmp_path / "d.csv"), "--epsilon", "1", "--json",
                  "--seed", "1", "--size-is-public"],
        )  # fmt: skip
        low, high = json.loads(done.stdout)["interval"]
        widths.append(high - low)
    assert widths[1] > 3 * widths[0]
    X.drop(columns="person_id").assign(y=y).to_csv(tmp_path / "no.csv", index=False)
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tmp_path / "no.csv"), "--epsilon", "1"])
    assert done.exit_code != 0 and "whose row it is" in done.output + str(done.exception)
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(tmp_path / "no.csv"), "--public-test"])
    assert done.exit_code == 0


# --- what is refused --------------------------------------------------------------------------------------------------


REFUSED = {
    "growing_batch",
    "objective_perturbation",
    "output_perturbation",
    "pnsgd",
    "projected_sgd",
    "sgd_adv",
    "sgd_ma",
}


@pytest.mark.sample(8)
@pytest.mark.filterwarnings("ignore:protector")
@pytest.mark.parametrize("name", sorted(registry()))
def test_every_method_is_proved_for_persons_or_refused_by_name(name):
    """From public facts, before anything is reserved."""
    X, y = table(300, 100)
    adjacency = "replace_one" if name == "pnsgd" else "add_remove"
    loss = "auto" if "logistic" in registry()[name].losses else registry()[name].losses[0]
    settings = {"method": name, "adjacency": adjacency, "size_is_public": True, "loss": loss}
    public = (X.drop(columns="person_id"), y)
    if name not in REFUSED:
        assert fitted(X, y, **settings) if name == "nonprivate" else fitted_with(X, y, public, settings)
        return
    purse = Purse(Budget(1.0, 1e-6, adjacency))
    face = nw.PrivateClassifier(
        1.0, 1e-6, bounds=(-1, 1), random_state=0, unit="person_id", rows_per_unit=2, **settings
    )
    with pytest.raises(ValueError, match="rows_per_unit is 2"):
        face.fit(X, y, public, purse=purse)
    assert purse.entries == () and purse.spent_fraction == 0


def fitted_with(X, y, public, settings):
    face = nw.PrivateClassifier(
        1.0, 1e-6, bounds=(-1, 1), random_state=0, unit="person_id", rows_per_unit=2, **settings
    )
    return face.fit(X, y, public).statement_.data["promise"]["unit"] == "one person, at most 2 rows"


def room(rows, adjacency="add_remove", size=4.0):
    meter = open_meter(Budget(1.0, 1e-6, adjacency), Terms.adaptive("gdp"))
    X, y = np.eye(3, dtype=np.float32), np.ones(3, np.float32)
    return Curator(X, y, model=Linear(3, Logistic()), meter=meter, size=size, row_bound=1.0, rows_per_unit=rows)


def test_the_curator_refuses_batches_of_rows_and_charges_nothing():
    curator = room(2)
    for sampling in (("poisson", 0.5), ("fixed", 0.5)):
        with pytest.raises(ValueError, match="rows_per_unit is 2"):
            curator.ask(Gradient(np.zeros(3), 1.0), noise=50.0, sampling=sampling)
    assert curator.meter.spent_fraction == 0
    assert room(1).ask(Gradient(np.zeros(3), 1.0), noise=50.0).noise_std == 50 / 4
    with pytest.raises(ValueError, match="size is missing"):
        room(1, "replace_one", None)
    assert room(2, "replace_one", None).release_size(noise_multiplier=100.0) >= 1
    for odd in (0, 1.0, True, "2", math.nan):
        with pytest.raises(ValueError, match="rows_per_unit"):
            room(odd)


def test_faces_refuse_what_does_not_go_together():
    X, y = table(100)
    with pytest.raises(ValueError, match="go together"):
        fitted(X, y, rows_per_unit=None)
    with pytest.raises(ValueError, match="go together"):
        fitted(X, y, unit=None)
    with pytest.raises(ValueError, match="one column 'nobody'"):
        fitted(X, y, unit="nobody")
    with pytest.raises(ValueError, match="pass a DataFrame"):
        fitted(X.to_numpy(), y)
    with pytest.raises(ValueError, match="say it in one place"):
        fitted(X, y, bounds=None, schema=OURS, rows_per_unit=5)


# --- audits -----------------------------------------------------------------------------------------------------------

AUDIT = {"epsilon": 2.0, "delta": 0.25, "runs": 360, "confidence": 0.999}


@pytest.mark.sample(1)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", ["dpsgd", "sufficient_statistics", "agd"])
def test_an_audit_with_a_canary_of_three_rows_finds_nothing(name, adjacency):
    method = small_setting(name).method
    assert not epsilon_lower_bound(method, adjacency=adjacency, rows_per_unit=3, **AUDIT).violation


def test_the_audit_notices_noise_for_one_row(monkeypatch):
    """The rows clipped to C/3 and the noise for one of them: three rows are seen at once."""
    true = HowAsked.unit
    monkeypatch.setattr(HowAsked, "unit", lambda self, *moves: true(self, *moves) / self.rows)
    assert epsilon_lower_bound(small_setting("dpsgd").method, rows_per_unit=3, **AUDIT).violation


def test_plan_shows_what_rows_cost():
    arguments = ["plan", "--epsilon", "1", "--delta", "1e-6", "--steps", "10", "--json"]
    one, three = (
        json.loads(CliRunner().invoke(app, [*arguments, "--rows-per-unit", str(rows)]).stdout) for rows in (1, 3)
    )
    assert three["unit"] == "one person, at most 3 rows" and three["row_clip"] == pytest.approx(1 / 3)
    assert [row["sampling"] for row in three["rows"]] == ["full"] and len(one["rows"]) == 3
    assert three["rows"][0]["run_ratio"] == pytest.approx(3 * one["rows"][0]["run_ratio"])
    assert three["rows"][0]["noise_std"] == one["rows"][0]["noise_std"]
    assert "3 times" in three["words"]
