"""``noisewise evaluate``: free on public rows, paid for on private ones, and always written down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from desk import people

import noisewise
from noisewise.accounts import Budget
from noisewise.accounts.choosing import choose_meter
from noisewise.evidence.runs import check_seal, reseal
from noisewise.trusted.events import from_dict

OPTIONS = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6, "--method", "dpsgd", "--seed", 1, "--out", "run")


def entries(run):
    return json.loads((run / "evaluation.json").read_text())


def test_public_rows_are_free_and_exact(run, shell):
    told = shell("evaluate", run, "public.csv", "--public-test", "--json")
    entry = json.loads(told.out)
    table = pd.read_csv("public.csv")
    assert told.err == "" and entry["value"] == np.mean(noisewise.load(run).predict(table) == table["income"])
    assert entry["unit"] is None  # nothing was paid
    assert entry["rows"] == "public" and entry["epsilon"] is entry["delta"] is None and entry["file"] == "public.csv"
    assert entry["interval"][0] < entry["value"] < entry["interval"][1]
    assert entries(run) == [{name: value for name, value in entry.items() if name != "simulation"}]


def test_private_rows_are_paid_for_within_the_budget(run, shell):
    people(3000, 8).to_csv("held-out.csv", index=False)
    told = shell("evaluate", run, "held-out.csv", "--epsilon", 3, "--json")
    entry = json.loads(told.out)
    assert told.code == 0 and entry["rows"] == "private" and (entry["epsilon"], entry["delta"]) == (3, 1e-6)
    assert entry["unit"] == "one record"
    meter = choose_meter(Budget(3, 1e-6), adaptive=True)
    for event in entry["events"]:
        meter.spend(from_dict(event))
    assert len(entry["events"]) == 2 and meter.spent_fraction > 0.99
    exact = json.loads(shell("evaluate", run, "held-out.csv", "--public-test", "--json").out)["value"]
    assert abs(entry["value"] - exact) < 0.05
    assert [row["rows"] for row in entries(run)] == ["private", "public"]
    check_seal(run)


def test_the_report_adds_up_what_was_promised_and_evaluated(desk, shell):
    assert shell("train", "private.csv", *[option for option in OPTIONS if option not in ("--seed", 1)]).code == 0
    assert shell("evaluate", "run", "public.csv", "--epsilon", 3).code == 0
    page = Path("run/report.html").read_text()
    told = page.replace("\xa0", " ")
    assert (
        "epsilon = 5 and delta = 2 \N{MULTIPLICATION SIGN} 10⁻⁶, 2 for training and 3 for one private evaluation"
        in told
    )


def test_a_public_size_is_not_bought(run, shell):
    told = shell("evaluate", run, "public.csv", "--epsilon", 1, "--delta", 1e-5, "--size-is-public", "--json")
    entry = json.loads(told.out)
    assert len(entry["events"]) == 1 and entry["delta"] == 1e-5


def test_a_simulated_score_is_not_added_to_the_run(run, shell):
    before = sorted(run.iterdir())
    first, second = (shell("evaluate", run, "public.csv", "--epsilon", 1, "--seed", 3) for _ in range(2))
    assert first.out == second.out and "NOT private" in first.out and sorted(run.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "say whose rows"), (["--public-test", "--epsilon", 1], "say whose rows"), (["--epsilon", 0], "epsilon is 0"),
        (["--epsilon", "nan"], "epsilon is nan"), (["--epsilon", 1, "--delta", 2], "delta is 2"),
    ],
)  # fmt: skip
def test_nonsense_gets_one_line_and_changes_nothing(run, shell, options, told):
    before = {path: path.read_bytes() for path in run.iterdir()}
    answer = shell("evaluate", run, "public.csv", *options)
    assert answer.code == 2 and told in answer.err and answer.err.count("\n") == 1
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_what_is_stopped_after_paying_is_said(run, shell, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("noisewise.evidence.runs.append", full)
        told = shell("evaluate", run, "public.csv", "--epsilon", 0.5)
    assert told.code == 2 and "what was spent is written to run/evaluation.spending.json" in told.err and told.out == ""
    (entry,) = json.loads(Path("run/evaluation.spending.json").read_text())["entries"]
    assert entry["state"] == "spent" and entry["reserved"] == {"cost": 0.5, "delta": 1e-6} and entry["spent"]["events"]
    assert shell("evaluate", run, "public.csv", "--epsilon", 0.5).code == 0  # the folder is as it was
    assert not Path("run/evaluation.spending-2.json").exists()
    told = shell("evaluate", run, "public.csv", "--public-test")
    assert "spent" not in told.err


def test_a_folder_that_cannot_be_written_is_found_before_paying(run, shell, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("noisewise.evidence.runs.tempfile.TemporaryFile", refuse)
    monkeypatch.setattr(
        "noisewise.evidence.bought_quality.private_quality", lambda *_, **__: pytest.fail("it was paid for")
    )
    told = shell("evaluate", run, "public.csv", "--epsilon", 1)
    assert told.code == 2 and "cannot be written" in told.err


def test_a_regression_is_scored_in_units_of_the_target(desk, shell):
    schema = Path("schema.toml").read_text()
    number = 'kind = "number"\nlow = 0\nhigh = 200'
    Path("schema.toml").write_text(schema.replace('kind = "category"\ncategories = ["low", "high"]', number))
    for name in ("private.csv", "public.csv"):
        table = pd.read_csv(name)
        table.assign(income=table["age"] + table["hours"]).to_csv(name, index=False)
    assert shell("train", "private.csv", *OPTIONS).code == 0
    free = json.loads(shell("evaluate", "run", "public.csv", "--public-test", "--json").out)
    table = pd.read_csv("public.csv")
    error = float(np.mean((noisewise.load("run").predict(table) - table["income"]) ** 2))
    assert free["metric"] == "mean squared error" and free["value"] == pytest.approx(error, rel=1e-4)
    pd.concat([table] * 30).to_csv("many.csv", index=False)
    paid = json.loads(shell("evaluate", "run", "many.csv", "--epsilon", 50, "--json").out)
    assert paid["value"] == pytest.approx(error, rel=0.45)  # eight deviations of the noise
    assert shell("evaluate", "run", "public.csv", "--public-test").out.startswith("mean squared error ")


def test_a_folder_does_not_choose_a_large_delta_for_private_rows(run, shell):
    """The rows are the reader's, the folder may be a stranger's."""
    document = json.loads((run / "run.json").read_text())
    document["settings"]["delta"] = 0.4
    (run / "run.json").write_text(json.dumps(document))
    reseal(run)
    refused = shell("evaluate", run, "public.csv", "--epsilon", 1)
    assert refused.code == 2 and "pass --delta" in refused.err
    assert shell("evaluate", run, "public.csv", "--epsilon", 1, "--delta", 1e-6, "--seed", 1).code == 0


FIGURES = {"accuracy", "baseline_accuracy", "balanced_accuracy", "roc_auc", "log_loss", "calibration_error"}
NUMBERS = {"rmse", "mae", "r2"}


def known(entry):
    for one in entry["metrics"].values():
        assert (
            one["interval"] is None
            if one["value"] is None
            else one["interval"][0] <= one["value"] <= one["interval"][1]
        )
    return {name for name, one in entry["metrics"].items() if one["value"] is not None}


def test_all_figures_are_told_beside_the_accuracy(run, shell):
    people(4000, 8).to_csv("held-out.csv", index=False)
    free = json.loads(shell("evaluate", run, "held-out.csv", "--public-test", "--json").out)
    paid = json.loads(shell("evaluate", run, "held-out.csv", "--epsilon", 3, "--json").out)
    for entry in (free, paid):
        assert {*entry["metrics"]} == FIGURES | NUMBERS and known(entry) == FIGURES and entry["verdict"] is None
        assert entry["metrics"]["accuracy"] == {"value": entry["value"], "interval": entry["interval"]}
        assert np.shape(entry["confusion"]["counts"]) == (2, 2) and entry["calibration"]
    for name in FIGURES:
        assert paid["metrics"][name]["value"] == pytest.approx(free["metrics"][name]["value"], abs=0.06), name
    told = shell("evaluate", run, "held-out.csv", "--public-test").out
    for words in (
        "always answering the same (",
        "balanced accuracy: ",
        "ROC AUC: ",
        "log loss: ",
        "calibration error: ",
    ):
        assert words in told
    assert "label   predicted 'high'  'low'" in told
    page = Path("run/report.html").read_text()
    assert "Against one answer for all" in page and "calibration-2-title" in page and "Labels and predictions" in page
    check_seal(run)


def test_a_model_that_is_no_better_than_one_answer_says_so(run, shell):
    table = people(2000, 9)
    table.assign(income=np.where(np.arange(2000) % 20 == 0, "low", "high")).to_csv("useless.csv", index=False)
    told = shell("evaluate", run, "useless.csv", "--public-test").out
    assert told.rstrip().splitlines()[-1].startswith("No better than always answering 'high', which is right 95.0%")
    bought = json.loads(shell("evaluate", run, "useless.csv", "--epsilon", 2, "--json").out)
    assert bought["verdict"].startswith("No better than always answering 'high'")
    assert "No better than always answering" in Path("run/report.html").read_text()


def test_a_regression_has_errors_and_r2(desk, shell):
    schema = Path("schema.toml").read_text()
    number = 'kind = "number"\nlow = 0\nhigh = 200'
    Path("schema.toml").write_text(schema.replace('kind = "category"\ncategories = ["low", "high"]', number))
    table = people(4000, 3)
    income = table["age"] + table["hours"] + np.random.default_rng(0).normal(0, 15, 4000)
    table.assign(income=income).to_csv("private.csv", index=False)
    assert shell("train", "private.csv", *OPTIONS).code == 0
    free = json.loads(shell("evaluate", "run", "private.csv", "--public-test", "--json").out)
    paid = json.loads(shell("evaluate", "run", "private.csv", "--epsilon", 20, "--json").out)
    for entry in (free, paid):
        assert known(entry) == NUMBERS and entry["confusion"] is entry["calibration"] is None
        assert entry["metrics"]["rmse"]["value"] ** 2 == pytest.approx(entry["value"])
    for name in NUMBERS:
        assert paid["metrics"][name]["value"] == pytest.approx(free["metrics"][name]["value"], rel=0.1), name
    assert "R\N{SUPERSCRIPT TWO}: " in shell("evaluate", "run", "private.csv", "--public-test").out
