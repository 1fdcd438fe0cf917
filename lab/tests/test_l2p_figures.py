"""The studies of Learning to Protect, on small generated files in the layout of the real ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from noisewise.accounts import Budget
from noisewise.methods.l2p import L2P
from noisewise.protect.learned.zoo import load_protector
from noisewise.train import Records, train
from noisewise.trusted.events import Gaussian
from noisewise.trusted.facts import Released
from noisewise_lab import figure2, figure3, figure4, hand_tuned, l2p_data
from noisewise_lab.datasets import Missing
from noisewise_lab.hand_tuned import HandTuned, Trial, Tuned
from noisewise_lab.store import read_rows, run_cells

pytestmark = pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")


def write_files(folder, *, shift=0):
    """Small stand-ins: tables with a linear label, and 4 x 4 images; ``shift`` changes the private digits only."""
    rng = np.random.default_rng(0)
    for file, columns, rows in (("ipums_br", 4, 500), ("a9a", 6, 300), ("bank_lee_kifer", 3, 300)):
        X = rng.normal(size=(rows, columns))
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(columns)]).assign(y=(X[:, 0] > 0).astype(int))
        if file == "a9a":
            frame = frame.assign(split=["train"] * 200 + ["test"] * 100)
        frame.to_parquet(folder / f"{file}.parquet")
    arrays = {}
    for part, many in (("train", 400), ("test", 200)):
        y = np.arange(many) % 10
        X = rng.integers(0, 100, (many, 4, 4)) + 12 * y[:, None, None]
        X[np.isin(y, (3, 5))] += shift
        arrays |= {f"X_{part}": X.astype(np.uint8), f"y_{part}": y.astype(np.uint8)}
    np.savez(folder / "mnist.npz", **arrays)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


@dataclass(frozen=True)
class Square:
    number: int


def square(cell, seen):
    seen.append(cell.number)
    return {"value": cell.number**2}


def test_a_study_goes_on_where_it_stopped(tmp_path):
    out, seen, told = tmp_path / "new" / "rows.jsonl", [], []
    work = partial(square, seen=seen)
    run_cells([Square(1), Square(2)], work, out=out, jobs=1, report=told.append)
    with out.open("a") as file:
        file.write('{"key": "Square(number=3)", "val')  # interrupted while writing
    rows = run_cells([Square(n) for n in (3, 2, 1)], work, out=out, jobs=1, report=told.append)
    assert seen == [1, 2, 3], "finished cells are not run again, a half-written one is"
    assert [row["value"] for row in rows] == [9, 4, 1] and rows[0]["number"] == 3
    assert told[-1] == (3, 3) and len(read_rows(out)) == 3 == len(out.read_text().splitlines())


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text('nonsense\n{"key": "a"}\n')
    with pytest.raises(ValueError, match="line 1: not a finished cell"):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("name", l2p_data.TASKS)
def test_rows_have_norm_one_and_labels_are_signs(folder, name):
    found = l2p_data.problem(name, folder)
    public = [l2p_data.auxiliary(name, folder, n) for n in range(l2p_data.how_many_auxiliaries(name))]
    for rows in (found.train, found.test, *public):
        assert np.allclose(np.linalg.norm(rows.X, axis=1), 1, atol=1e-5) and set(rows.y.tolist()) == {-1.0, 1.0}
        assert rows.X.dtype == np.float32
    assert len(public) == (2 if name == "ipums-br" else 28)
    widths = {"ipums-br": 4, "mnist35": 16, "mnist35-features": 16, "mnist35-gradients": 8}
    assert found.train.X.shape[1] == widths[name] + 1, "with an intercept"


def test_a_table_is_split_anew_for_each_repeat_and_a9a_has_its_training_part(folder):
    first, again, second = (l2p_data.problem("ipums-br", folder, repeat=repeat) for repeat in (0, 0, 1))
    assert len(first.train.y) == 400 and len(first.test.y) == 100
    assert np.array_equal(first.train.X, again.train.X) and not np.array_equal(first.train.X, second.train.X)
    assert len(l2p_data.auxiliary("ipums-br", folder, 0).y) == 200


@pytest.mark.parametrize("kind", ["components", "gradients"])
def test_features_and_public_pairs_do_not_look_at_the_private_digits(folder, tmp_path, kind):
    (tmp_path / "other").mkdir()
    other = write_files(tmp_path / "other", shift=90)
    changed = l2p_data.problem("mnist35", folder).train.X != l2p_data.problem("mnist35", other).train.X
    assert changed.any(), "the private images do differ"
    mine, theirs = (l2p_data.public_features(place, kind) for place in (folder, other))
    for here, there in zip(mine, theirs, strict=True):
        assert np.array_equal(here, there)
    assert not any({3, 5} & set(pair) for pair in (*l2p_data.PAIRS, l2p_data.PAPER_PAIR, *figure4.QUICK_PAIRS))


def test_a_missing_file_is_named(tmp_path):
    for name, file in (("ipums-br", "ipums_br.parquet"), ("mnist35", "mnist.npz")):
        with pytest.raises(Missing, match=file):
            l2p_data.is_there(name, tmp_path)
    with pytest.raises(Missing, match=r"ipums_us\.parquet nor ipums_br\.parquet"):
        figure2.table_in(tmp_path)


def run_on(folder, method, epsilon=1.0):
    rows = l2p_data.problem("ipums-br", folder).train
    model = l2p_data.model_for(rows, "linear")
    X, y = l2p_data.labelled(rows, model)
    records = Records(X, y, float(len(X)), row_bound=1.0)
    return train(method, records, model=model, budget=Budget(epsilon, 1e-8), seed=0)


@pytest.mark.parametrize("rule", hand_tuned.RULES)
def test_hand_tuned_descent_spends_all_of_the_budget_in_equal_parts(folder, rule):
    run = run_on(folder, HandTuned(steps=7, rule=rule, learning_rate=0.1, clip_factor=0.4))
    assert [line.question for line in run.trace] == ["gradient"] * 7, "no basis is bought"
    assert all(line.clip == pytest.approx(0.2) for line in run.trace), "0.4 of the logistic slope at 0"
    noises = [line.noise_std for line in run.trace]
    assert max(noises) / min(noises) < 1 + 1e-6 and run.meter.spent_fraction == pytest.approx(1)


def test_a_hand_tuned_step_is_the_rate_times_the_gradient_in_units_of_its_clip_norm(folder):
    one, two = (run_on(folder, HandTuned(steps=1, rule="sgd", learning_rate=rate)).theta for rate in (1.0, 3.0))
    assert np.allclose(3 * one, two, rtol=1e-5)
    half = run_on(folder, HandTuned(steps=1, rule="sgd"), epsilon=1e6).theta
    assert 0.01 < np.linalg.norm(half) <= 1 + 1e-3, "without noise at most one clip norm"


def test_the_zero_weight_protector_has_the_design_of_the_rules_and_no_weights(folder):
    zero, learned = run_on(folder, figure3.ZeroWeight(steps=4)), run_on(folder, L2P(steps=4))
    assert [line.question for line in zero.trace] == [line.question for line in learned.trace]
    clips = [line.clip for line in zero.trace if line.question == "gradient"]
    assert clips == [pytest.approx(0.5)] * 4, "a clip cell without weights gives the typical clip norm"
    assert not np.allclose(zero.theta, learned.theta)


def a_trial(**changes):
    trial = Trial("ipums-br", "linear", 0, 400.0, (0.1, 1.0), 1e-8, "sgd", 4, 1.0, (0.5, 4.0), 50, 2)
    return replace(trial, **changes)


def test_a_trial_has_a_loss_for_each_rate_and_budget(folder):
    losses = np.array(hand_tuned.run_trial(a_trial(size=1e9, rates=(1e-9, 1.0)), folder)["losses"])
    assert losses.shape == (2, 2)
    assert losses[0] == pytest.approx(1.0, abs=1e-4) and (losses[1] < 0.99).all(), "relative to the start; steps help"
    small = np.array(hand_tuned.run_trial(a_trial(size=20.0, rates=(1.0,)), folder)["losses"])
    assert small[0, 0] > small[0, 1], "noise is that of the pretended size and the budget"


def test_the_settings_with_the_least_public_loss_are_chosen_for_each_budget():
    cells = [a_trial(rule=rule, auxiliary=number) for number in (0, 1) for rule in hand_tuned.RULES]
    tables = {"sgd": [[0.5, 0.9], [0.7, 0.2]], "momentum": [[0.4, 0.8], [0.9, 0.9]], "adam": [[0.6, 0.6], [0.6, 0.5]]}
    results = [{"losses": tables[cell.rule]} for cell in cells]
    small, large = hand_tuned.tuned_on(cells, results).values()
    assert small.best == "momentum" and small.by_rule["sgd"].learning_rate == 0.5
    assert large.best == "sgd" and large.by_rule["sgd"].learning_rate == 4.0 and large.losses["sgd"] == 0.2
    assert (large.by_rule["adam"].steps, large.by_rule["adam"].clip_factor) == (4, 1.0)


def test_the_grid_covers_evenly_spaced_public_tasks_and_says_when_a_choice_is_at_its_edge():
    full = hand_tuned.trials("mnist35", "linear", 400.0, (0.1,), 1e-8)
    assert {trial.auxiliary for trial in full} == set(range(0, 28, 4)), "evenly spaced, so that none is picked"
    assert all(len(trial.rates) >= 6 for trial in full) and {trial.horizon for trial in full} == {25, 50, 100}
    assert len({trial.auxiliary for trial in hand_tuned.trials("mnist35", "mlp", 4e2, (0.1,), 1e-8)}) == 4
    rates = next(trial.rates for trial in full if trial.rule == "adam" and trial.horizon == 25)
    assert hand_tuned.at_an_edge(HandTuned(rule="adam", steps=25, learning_rate=rates[-1]))
    assert not hand_tuned.at_an_edge(HandTuned(rule="adam", steps=25, learning_rate=rates[3]))


def some_tuned():
    return Tuned(
        {rule: HandTuned(rule=rule, steps=5) for rule in hand_tuned.RULES}, dict.fromkeys(hand_tuned.RULES, 1.0)
    )


def test_the_plan_has_every_method_and_public_starts_only_for_digits():
    tuned = {place: {0.1: some_tuned()} for place in ("ipums-br", "mnist35-features")}
    cells = [cell for cell, _ in figure3.plan(list(tuned), tuned, 2)]
    names = {"l2p", "zero_weight", "hand_sgd", "hand_momentum", "hand_adam", "descent", "nonprivate"}
    assert {cell.method for cell in cells} == names | set(figure3.BASELINES)
    public = {(cell.place, cell.method) for cell in cells if cell.start == "public"}
    assert public == {("mnist35-features", name) for name in figure3.BASELINES}
    deflated = {cell.place: "deflate=True" in cell.settings for cell in cells if cell.method == "l2p"}
    assert deflated == {"ipums-br": True, "mnist35-features": False}
    assert len(set(map(repr, cells))) == len(cells)


def test_a_changed_protector_is_run_again(monkeypatch):
    before = figure3.settings_of(L2P())
    monkeypatch.setattr(figure3, "fingerprint", lambda: "fff")
    assert figure3.settings_of(L2P()) != before
    assert "fff" not in figure3.settings_of(HandTuned()), "what does not use it is not"


@pytest.mark.parametrize("place", figure3.PLACES)
def test_a_cell_has_accuracy_and_loss_or_a_refusal(folder, place):
    method = HandTuned(steps=5, rule="adam", learning_rate=0.2)
    row = figure3.run_cell(figure3.Figure3Cell(place, 8.0, "hand_adam", "zero", 0, "hand"), folder, {"hand": method})
    assert 0 <= row["accuracy"] <= 1 and row["loss"] > 0 and row["refused"] is None
    refusal = {"sgd_ma": figure3.registry()["sgd_ma"]()}
    row = figure3.run_cell(figure3.Figure3Cell(place, 0.05, "sgd_ma", "zero", 0, "sgd_ma"), folder, refusal)
    assert row["accuracy"] is None and "moments accountant" in row["refused"]


def test_a_public_start_is_where_the_run_starts(folder, monkeypatch):
    seen = []
    monkeypatch.setattr(figure3, "train", lambda *a, theta, **k: seen.append(theta) or train(*a, theta=theta, **k))
    method = {"m": HandTuned(steps=1)}
    for start in ("zero", "public"):
        figure3.run_cell(figure3.Figure3Cell("mnist35", 1.0, "hand_sgd", start, 0, "m"), folder, method)
    assert seen[0] is None and np.linalg.norm(seen[1]) > 0.1


def results_of(accuracies):
    return [
        {"place": "p", "epsilon": epsilon, "method": method, "start": "zero", "repeat": repeat, "accuracy": value,
         "loss": 1 - value, "refused": None}
        for (method, epsilon), values in accuracies.items() for repeat, value in enumerate(values)
    ]  # fmt: skip


def test_differences_are_paired_and_averaged_over_the_small_budgets():
    rows = results_of({
        ("l2p", 0.05): [0.9, 0.8], ("hand_tuned", 0.05): [0.85, 0.77], ("zero_weight", 0.05): [0.9, 0.8],
        ("l2p", 0.1): [0.9, 0.9], ("hand_tuned", 0.1): [0.89, 0.87], ("zero_weight", 0.1): [0.8, 0.8],
        ("l2p", 0.4): [0.9, 0.9], ("hand_tuned", 0.4): [0.1, 0.1], ("zero_weight", 0.4): [0.9, 0.9],
    })  # fmt: skip
    gaps = {(gap["rival"], gap["epsilon"]): gap for gap in figure3.differences(rows)}
    assert gaps["hand_tuned", 0.05]["accuracy"] == pytest.approx(0.04)
    assert gaps["hand_tuned", 0.05]["accuracy_se"] == pytest.approx(0.01), "of 0.05 and 0.03"
    assert gaps["hand_tuned", "<= 0.1"]["accuracy"] == pytest.approx(0.03), "0.4 is not among them"
    assert gaps["hand_tuned", "<= 0.1"]["accuracy_se"] == pytest.approx(0, abs=1e-12), "0.03 in both repeats"
    assert gaps["zero_weight", "<= 0.1"]["loss"] == pytest.approx(-0.05)


def test_refusals_stay_in_the_summary():
    rows = results_of({("l2p", 0.05): [0.9, 0.7], ("sgd_ma", 0.05): [0.5, 0.5]})
    for row in rows[2:]:
        row.update(accuracy=None, loss=None, refused="too small")
    learned, refused = figure3.summary(rows)
    assert learned["accuracy"] == pytest.approx(0.8) and learned["accuracy_se"] == pytest.approx(0.1)
    assert refused["refused"] == 2 and refused["repeats"] == 0 and refused["accuracy"] is None


def test_the_best_rule_by_public_loss_is_what_is_called_hand_tuned():
    tuned = Tuned(some_tuned().by_rule, {"sgd": 0.3, "momentum": 0.2, "adam": 0.4})
    rows = results_of({("hand_sgd", 0.1): [0.99], ("hand_momentum", 0.1): [0.5], ("hand_adam", 0.1): [0.7]})
    (best,) = figure3.best_by_hand(rows, {"p": {0.1: tuned}})
    assert best["method"] == "hand_tuned" and best["accuracy"] == 0.5, "public loss decides, not private accuracy"


def test_what_is_paid_between_gradients_counts_to_the_first():
    questions = [("FirstMoment", 0.1), ("gradient", 0.2), ("choose", 0.3), ("gradient", 0.4), ("gradient", 0.5)]
    trace = [Released(question, Gaussian(1.0), None, 0.0, None, spent) for question, spent in questions]
    assert figure2.spent_by(trace) == [0.1, 0.3, 0.4, 0.5]


@pytest.mark.parametrize("method", figure2.METHODS)
def test_a_run_of_figure_2_ends_where_training_ends(folder, method):
    row = figure2.run_cell(figure2.Figure2Cell("ipums-br", method, 0, ""), folder)
    rows = l2p_data.problem("ipums-br", folder).train
    model = l2p_data.model_for(rows, "svm")
    X, y = l2p_data.labelled(rows, model)
    budget = Budget(figure2.EPSILON, figure2.DELTA, adjacency="add_remove")
    records = Records(X, y, float(len(X)), row_bound=1.0)
    run = train(figure2.registry()[method](), records, model=model, budget=budget, seed=0)
    assert row["losses"][-1] == pytest.approx(l2p_data.mean_loss(model, run.theta, rows))
    assert row["spent"] == figure2.spent_by(run.trace) and len(row["losses"]) == len(row["spent"])
    assert row["losses"][0] == 1.0 and all(np.diff(row["spent"]) > 0) and row["spent"][-1] <= 1


def test_a_run_that_has_ended_stays_where_it_ended():
    runs = [{"method": "l2p", "losses": [1.0, 0.5], "spent": [0.0, 1.0]},
            {"method": "l2p", "losses": [1.0, 0.7, 0.3], "spent": [0.0, 0.4, 1.0]}]  # fmt: skip
    last = figure2.curves(runs)[-1]
    assert last["loss"] == pytest.approx(0.4) and last["runs"] == 1 and last["step_spent"] == pytest.approx(0.3)
    assert last["loss_std"] == pytest.approx(np.std([0.5, 0.3], ddof=1))


def test_a_pairs_protector_is_trained_on_that_pair_alone_and_written(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "RANGES", {**figure4.RANGES, "horizon": (3, 4)})
    path = tmp_path / "protectors" / "1-2.safetensors"
    figure4.trained_on((1, 2), folder, 1, path)
    written = load_protector(path)
    assert (
        written.header["trained_on"] == [{"data": "mnist.npz, 1 vs 2", "licence": "CC BY-SA 3.0"}]
        and written.horizon == figure4.HORIZON
    )
    (source,) = figure4.pair_tasks((1, 2), folder).sources
    assert source.pairs == ((1, 2),) and source.columns == figure4.COLUMNS


def test_every_pair_is_resumed_by_itself(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(figure4, "RANGES", {**figure4.RANGES, "horizon": (3, 4)})
    told, trained, train_pair = [], [], figure4.trained_on
    monkeypatch.setattr(figure4, "trained_on", lambda pair, *rest: trained.append(pair) or train_pair(pair, *rest))
    go = partial(figure4.run_figure4, folder, epochs=1, repeats=1, jobs=1, out=tmp_path / "out", report=told.append)
    go(pairs=[(0, 1)])
    rows = figure4.summary(go(pairs=[(0, 1), (4, 6)]))
    assert trained == [(0, 1), (4, 6)]
    assert {row["trained_on"] for row in rows[2:]} == {"rule", "zero_weight"}, "references come last"
    assert {row["trained_on"] for row in rows} == {
        "0 vs 1", "4 vs 6", "rule", "zero_weight"
    }  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert len(lines) == 4 and all(0 <= value <= 1 for line in lines for value in line["accuracies"])
