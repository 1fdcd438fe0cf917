"""What real runs write agrees with itself; folders that do not, or are not folders of a run, are a no in one line."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import noisewise as nw
from noisewise.methods import registry
from noisewise.methods.adaptive_clip import AdaptiveClip
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.projected import ProjectedSgd
from noisewise.statements.seal import reseal
from noisewise.trusted.events import ADJACENCIES

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)
PUBLIC = (np.random.default_rng(1).uniform(-1, 1, (60, 3)), np.tile([0, 1], 30))


def saved(place: Path, method: Any, **settings: Any) -> Path:
    """A private run on made-up rows."""
    regression = isinstance(method, str) and "logistic" not in registry()[method].losses
    kind, y = (nw.PrivateRegressor, X[:, 0]) if regression else (nw.PrivateClassifier, Y)
    public = PUBLIC if isinstance(method, str) and registry()[method].needs_public else None
    settings |= {"target_bounds": (-1, 1)} if regression else {}
    return nw.save(kind(2.0, 1e-5, bounds=(-1, 1), method=method, **settings).fit(X, y, public), place)


PROVED = {"pnsgd": ("replace_one",), "sgd_ma": ("add_remove",)}  # others for both
CASES = [
    (name, adjacency)
    for name, kind in registry().items()
    if kind.private
    for adjacency in PROVED.get(name, ADJACENCIES)
]


@pytest.mark.sample(16)
@pytest.mark.filterwarnings("ignore::noisewise.protect.learned.zoo.OutsideRange")
@pytest.mark.parametrize(("name", "adjacency"), CASES)
def test_the_folder_of_every_method_verifies(tmp_path, name, adjacency):
    known = name in ("projected_sgd", "sgd_adv")  # their batches or prices need a public size
    method = (
        ProjectedSgd(steps=50, batch_size=30.0) if name == "projected_sgd" else name
    )  # batches of 1 take seconds to price
    verdict = nw.verify(saved(tmp_path / "run", method, adjacency=adjacency, size_is_public=known))
    if (name, adjacency) == ("only_public", "replace_one"):
        assert "no event" in verdict.reason
        return
    assert verdict.holds, verdict.reason
    assert (verdict.epsilon, verdict.delta, verdict.adjacency, verdict.seal) == (2.0, 1e-5, adjacency, "intact")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (DpSgd(steps=5, sampling=("poisson", 0.1)), {"model": (4,)}),
        (DpSgd(steps=5, sampling=("fixed", 0.05)), {"adjacency": "replace_one"}),
        (DpSgd(steps=5, sampling=("fixed", 0.1)), {"adjacency": "replace_one", "max_grad_norm": 0.5}),
        (AdaptiveClip(steps=5, count_share=0.9), {}),
        (AdaptiveClip(steps=5, form="adaclip", sampling=("poisson", 0.2)), {}),
    ],
)
def test_folders_of_other_settings_verify(tmp_path, method, settings):
    place = saved(tmp_path / "run", method, **settings)
    assert nw.verify(place).holds, nw.verify(place).reason
    assert nw.verify(nw.save(nw.load(place), tmp_path / "again")).holds


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("runs") / "run", "descent", max_grad_norm=1.0)


@pytest.fixture
def run(ready: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(ready, tmp_path / "run"))


def refused(run: Path, seal: str = "intact") -> str:
    verdict = nw.verify(str(run))
    assert (verdict.holds, verdict.epsilon, verdict.seal) == (False, None, seal), verdict
    assert "\n" not in verdict.reason and "Error" not in verdict.reason
    return verdict.reason


def edit(run: Path, name: str, change: Any) -> None:
    document = json.loads((run / name).read_text())
    change(document)
    (run / name).write_text(json.dumps(document))
    reseal(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 1.0), ("epsilon", "2"), ("epsilon", None), ("epsilon", True), ("epsilon", float("nan")), ("epsilon", 10**400),
     ("epsilon", float("inf")), ("delta", 1e-6), ("adjacency", "replace_one"), ("method", "dpsgd"), ("random_state", 7), ("seed", 7),
     ("size_is_public", True), ("size_is_public", 0), ("max_grad_norm", 2.0), ("model", "mlp")],
)  # fmt: skip
def test_settings_that_the_statement_does_not_have(run, name, value):
    edit(run, "run.json", lambda document: document["settings"].update({name: value}))
    refused(run)


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.pop("settings"), lambda run: run.update(settings=[]), lambda run: run["settings"].pop("random_state"),
        lambda run: run["settings"].pop("epsilon"), lambda run: run.update(seed=3), lambda run: run.update(size="many"),
        lambda run: run.update(size=float("nan")), lambda run: run.update(size=10**400), lambda run: run.update(size=-1),
        lambda run: run["model"].update(parameters=3), lambda run: run.pop("model"), lambda run: run.update(format="x"),
        lambda run: run.update(size=run["size"] * 3),
    ],
)  # fmt: skip
def test_descriptions_that_the_statement_does_not_have(run, change):
    edit(run, "run.json", change)
    refused(run)


@pytest.mark.parametrize("place", [0, 1, 2, -1])
@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["event"].update(noise_multiplier=row["event"]["noise_multiplier"] * 2),
        lambda row: row["event"].update(noise_multiplier=float("nan")), lambda row: row["event"].update(kind="Laplace"),
        lambda row: row.update(noise_std=row["noise_std"] * 2), lambda row: row.update(noise_std=row["noise_std"] / 2),
        lambda row: row.update(noise_std=-1), lambda row: row.update(noise_std=float("inf")), lambda row: row.update(noise_std=10**400),
        lambda row: row.update(question="choose"), lambda row: row.update(clip="1"), lambda row: row.update(clip=-1.0),
        lambda row: row.update(spent=row["spent"] / 2 - 0.1), lambda row: row.update(spent=float("nan")),
        lambda row: row.update(norm=float("nan")), lambda row: row.update(event=[]), lambda row: row.update(event=None),
        lambda row: row.update(more=1), lambda row: row.pop("norm"), lambda row: row.clear(),
        lambda row: row.update(event={"kind": "Composed", "events": []}),
    ],
)  # fmt: skip
def test_traces_that_the_statement_does_not_have(run, place, change):
    edit(run, "trace.json", lambda trace: change(trace["rows"][place]))
    refused(run)


@pytest.mark.parametrize(
    "change",
    [
        lambda trace: trace["rows"].pop(), lambda trace: trace["rows"].append(trace["rows"][-1]), lambda trace: trace.update(rows=[]),
        lambda trace: trace.update(rows=None), lambda trace: trace.pop("rows"), lambda trace: trace.update(rows={"a": 1}),
        lambda trace: trace["rows"][-1].update(clip=trace["rows"][-1]["clip"] * 2), lambda trace: trace.update(format="x"),
        lambda trace: trace["rows"].reverse(),
    ],
)  # fmt: skip
def test_traces_of_another_length(run, change):
    edit(run, "trace.json", change)
    refused(run)


@pytest.mark.parametrize(
    "name", ["run.json", "trace.json", "statement.json", "statement.txt", "seal.json", "model.safetensors"]
)
def test_files_that_are_missing_links_or_no_documents(run, tmp_path, name):
    whole = (run / name).read_bytes()
    (run / name).unlink()
    assert f"lacks {name}" in refused(run, "broken") or name == "statement.txt"
    (tmp_path / "outside").write_bytes(whole)
    (run / name).symlink_to(tmp_path / "outside")
    assert f"{name} is a link" in refused(run, "broken")
    (run / name).unlink()
    os.mkfifo(run / name)
    refused(run, "broken")
    (run / name).unlink()
    (run / name).mkdir()
    refused(run, "broken")
    (run / name).rmdir()
    for content in (
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1e400",
        b"NaN",
        b"null",
        b"9" * 5000,
        b'{"a": 1, "a": 2}',
    ):
        (run / name).write_bytes(content)
        refused(run, "broken")
        if name not in ("seal.json", "model.safetensors"):
            reseal(run)
            refused(run)


def test_folders_from_before_the_size_was_written_down_verify(run):
    edit(run, "run.json", lambda document: document.pop("size"))
    assert nw.verify(run).holds


def test_a_folder_without_its_text_is_refused_under_any_seal(run):
    (run / "statement.txt").unlink()
    reseal(run)
    assert "lacks statement.txt" in refused(run, "broken")


def test_whatever_is_written_into_a_folder_the_verdict_is_one_line(run):
    """Random edits under a new seal: none raises, and what is accepted is not about privacy."""
    odd = [None, True, 0, -1, 10**400, 1e308, float("inf"), float("nan"), "", "\ud800", [], {}, [[]], [None], 3.5, "1"]
    whole = {name: json.loads((run / name).read_text()) for name in ("run.json", "trace.json", "statement.json")}
    dice = random.Random(3)
    for _ in range(300):
        name = dice.choice(list(whole))
        document = place = json.loads(json.dumps(whole[name]))
        path: list[Any] = []
        while True:
            path.append(key := dice.choice(list(place) if isinstance(place, dict) else range(len(place))))
            if not (isinstance(place[key], dict | list) and place[key] and dice.random() < 0.7):
                break
            place = place[key]
        place[key] = dice.choice(odd)
        (run / name).write_text(json.dumps(document))
        reseal(run)
        verdict = nw.verify(run)
        assert "\n" not in str(verdict)
        free = name == "run.json" or {"norm", "settings", "code"} & {*map(str, path)} or document == whole[name]
        assert free or not verdict.holds, (name, path)
        (run / name).write_text(json.dumps(whole[name]))


def test_what_is_no_folder_of_a_run(tmp_path):
    for path in (tmp_path, tmp_path / "none", "", "\0"):
        verdict = nw.verify(path)
        assert not verdict.holds and verdict.seal == "none" and verdict.epsilon is None


def test_every_question_that_can_be_asked_has_words_in_the_report():
    from noisewise.curator import KINDS, QUESTIONS
    from noisewise.evidence.report import sentences as words

    assert {kind.name for kind in QUESTIONS.values()} < {*KINDS}
    for kind in KINDS.values():
        assert kind.words and words.question_text(kind.name) == kind.words
    assert words.question_text("Everything") == "Everything" and "interrupted" in words.question_text("lost")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("factor", [0.5, 0.97, 1.03, 2.0])
def test_the_noise_on_ranks_is_recomputed(tmp_path, adjacency, factor):
    place = saved(tmp_path / "run", "additive", adjacency=adjacency)
    assert nw.verify(place).holds
    trace = json.loads((place / "trace.json").read_text())
    (row,) = [row for row in trace["rows"] if row["question"] == "column levels"]
    row["noise_std"] *= factor
    (place / "trace.json").write_text(json.dumps(trace))
    reseal(place)
    verdict = nw.verify(place)
    assert not verdict.holds and "has another noise or clip than its event" in verdict.reason


def test_the_noise_on_ranks_of_persons_is_recomputed(tmp_path):
    people = pd.DataFrame(X, columns=["a", "b", "c"]).assign(who=np.arange(len(X)) // 2)
    clf = nw.PrivateClassifier(2.0, 1e-5, bounds=(-1, 1), unit="who", rows_per_unit=3, method="additive")
    place = nw.save(clf.fit(people, Y), tmp_path / "run")
    assert any(row.question == "column levels" for row in clf.trace_) and nw.verify(place).holds
