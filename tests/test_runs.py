"""Run folders: what is loaded is what was saved, what was changed is refused, and nothing in one is executed."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import noisewise
from noisewise import PrivateClassifier, PrivateRegressor, load, save
from noisewise.evidence import runs
from noisewise.evidence.report.page import report_page
from noisewise.statements.seal import _digest
from noisewise.tables.schema import Column, Schema

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.uniform(0, 9, 300).round(2), "b": RNG.choice(["u", "v"], 300)})
CLASSES = np.where(FRAME["a"] > 4, "yes", "no")
SCHEMA = Schema(
    (Column("a", "number", 0, 9), Column("b", "category", categories=("u", "v")), Column("y", "category", categories=("no", "yes"))),
    "y",
)  # fmt: skip
FILES = ("run.json", "model.safetensors", "statement.json", "statement.txt", "trace.json")


def classifier(**changes):
    settings = {"schema": SCHEMA, "method": "dpsgd", "random_state": 3} | changes
    return PrivateClassifier(3.0, 1e-6, **settings).fit(FRAME, CLASSES)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(classifier(), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(saved, tmp_path):
    """A copy to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "run"))


def edit(run, name, change):
    document = json.loads((run / name).read_text())
    change(document)
    (run / name).write_text(json.dumps(document))
    runs.reseal(run)


A, NUMBERS = FRAME[["a"]], FRAME.assign(b=1.0)
MADE = {
    "schema": lambda: (classifier(), FRAME),
    "hinge": lambda: (classifier(random_state=None, loss="huber_hinge"), FRAME),
    "mlp": lambda: (classifier(model=(4, 3)), FRAME),
    "weights": lambda: (classifier(method="descent", adjacency="replace_one", class_weight={"yes": 2.0}), FRAME),
    "bounds": lambda: (PrivateClassifier(3.0, 1e-6, bounds=[(0, 9), (0, 1)]).fit(NUMBERS, CLASSES), NUMBERS),
    "three": lambda: (
        PrivateClassifier(9.0, 1e-6, schema=SCHEMA, classes=[0, 1, 2], random_state=1).fit(FRAME, np.arange(300) % 3),
        FRAME,
    ),
    "booleans": lambda: (PrivateClassifier(9.0, 1e-6, bounds=(0, 9)).fit(A.to_numpy(), FRAME["a"] > 4), A.to_numpy()),
    "regressor": lambda: (PrivateRegressor(9.0, 1e-6, bounds=(0, 9), target_bounds=(0, 20)).fit(A, 2 * FRAME["a"]), A),
    "moments": lambda: (
        PrivateRegressor(9.0, 1e-6, bounds=(0, 9), target_bounds=(0, 9), method="sufficient_statistics").fit(
            A, FRAME["a"]
        ),
        A,
    ),
}


@pytest.mark.parametrize("made", MADE)
def test_what_is_loaded_is_what_was_saved(tmp_path, made):
    estimator, table = MADE[made]()
    back = load(save(estimator, tmp_path / "run"))
    assert type(back) is type(estimator) and back.predict(table).tolist() == estimator.predict(table).tolist()
    assert back.predict(table).dtype.kind == estimator.predict(table).dtype.kind
    if hasattr(estimator, "predict_proba"):
        assert np.array_equal(back.predict_proba(table), estimator.predict_proba(table))
    assert back.statement_.data == json.loads(estimator.statement_.to_json()) and back.trace_ == estimator.trace_
    assert back.n_iter_ == estimator.n_iter_ and back.n_features_in_ == estimator.n_features_in_
    names = getattr(estimator, "feature_names_in_", np.array([]))
    assert getattr(back, "feature_names_in_", np.array([])).tolist() == names.tolist()
    for name in ("epsilon", "delta", "method", "loss", "adjacency", "size_is_public", "random_state", "schema"):
        assert getattr(back, name) == getattr(estimator, name)
    if estimator.model == "linear":
        assert np.array_equal(back.coef_, estimator.coef_)
        one, other = back.coef_std_, estimator.coef_std_
        assert (one is None and other is None) or np.allclose(one, other)
    again = load(save(back, tmp_path / "again"))  # a loaded model can be saved and fitted again
    assert again.predict(table).tolist() == estimator.predict(table).tolist()


def test_a_loaded_model_fits_again(run):
    assert load(run).fit(FRAME, CLASSES).predict(FRAME).tolist() == classifier().predict(FRAME).tolist()


def test_there_is_no_pickle_and_no_record_in_it(tmp_path):
    frame = FRAME.assign(a=np.where(np.arange(300) == 7, 3.14159265, FRAME["a"]))
    place = save(PrivateClassifier(3.0, 1e-6, schema=SCHEMA, method="dpsgd").fit(frame, CLASSES), tmp_path / "run")
    for path in place.iterdir():
        content = path.read_bytes()
        assert not content.startswith(b"\x80") and b"PK\x03\x04" not in content and b"pickle" not in content.lower()
        assert b"3.14159265" not in content
    assert {path.name for path in place.iterdir()} == {*FILES, "seal.json"}


@pytest.mark.parametrize("name", FILES)
def test_any_changed_byte_is_refused(run, name):
    whole = (run / name).read_bytes()
    places = sorted({0, len(whole) - 1, *random.Random(0).sample(range(len(whole)), 12)})
    for place in places:
        (run / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        for use in (load, report_page, runs.check_seal, runs.document_of):
            with pytest.raises(ValueError, match=f"{name} was changed since it was sealed"):
                use(run)
    (run / name).write_bytes(whole + b" ")
    with pytest.raises(ValueError, match="was changed"):
        load(run)
    (run / name).write_bytes(whole)
    load(run)


def test_every_use_of_a_changed_folder_is_refused(run, tmp_path, monkeypatch, capsys):
    import sys

    from noisewise.faces.cli import main

    FRAME.assign(y=CLASSES).to_csv(tmp_path / "d.csv", index=False)
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"yes"', '"yet"', 1))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for words in (["predict", run, tmp_path / "d.csv"], ["evaluate", run, tmp_path / "d.csv", "--epsilon", "1"],
                  ["evaluate", run, tmp_path / "d.csv", "--public-test"], ["report", run]):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        told = capsys.readouterr()
        assert stopped.value.code == 2 and "was changed since it was sealed" in told.err and told.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize("name", ["run.json", "model.safetensors", "statement.json", "trace.json", "seal.json"])
def test_a_missing_file_is_named(run, name):
    (run / name).unlink()
    with pytest.raises(ValueError, match=f"lacks {name}"):
        load(run)


def test_a_file_that_was_slipped_in_is_refused(run):
    (run / "evaluation.json").write_text("[]")
    with pytest.raises(ValueError, match=r"evaluation\.json was changed"):
        load(run)
    runs.reseal(run)
    load(run)
    (run / "evaluation.json").unlink()
    with pytest.raises(ValueError, match=r"lacks evaluation\.json"):
        load(run)


@pytest.mark.parametrize(
    "seal",
    [b"", b"{}", b"[]", b"null", b'{"format": "noisewise-seal/1"}', b'{"format": "noisewise-seal/1", "sha256": []}', b"[" * 100_000,
     b"\xff", b'{"format": "noisewise-seal/2", "sha256": {}}', b"1" * 5000],
)  # fmt: skip
def test_a_seal_that_is_none(run, seal):
    (run / "seal.json").write_bytes(seal)
    with pytest.raises(ValueError, match=r"seal\.json|was changed"):
        load(run)


def test_a_seal_cannot_send_us_to_other_files(run, tmp_path, monkeypatch):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    seal = json.loads((run / "seal.json").read_text())
    seal["sha256"] |= {"../secret.txt": _digest(b"secret"), str(secret): _digest(b"other")}
    (run / "seal.json").write_text(json.dumps(seal))
    opened = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: opened.append(self.name) or original(self))
    load(run)
    assert "secret.txt" not in opened and set(opened) == {*FILES, "seal.json"}


def test_nothing_is_written_through_a_link_that_somebody_laid_out(run, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for name in (".evaluation.json.new", ".seal.json.new", "evaluation.json"):
        (run / name).symlink_to(mine)
    with pytest.raises(ValueError, match=r"evaluation\.json was changed"):
        runs.append(run, "evaluation.json", {"metric": "accuracy"})
    (run / "evaluation.json").unlink()
    runs.append(run, "evaluation.json", {"metric": "accuracy"})
    assert mine.read_text() == "mine" and not (run / "evaluation.json").is_symlink()


def test_links_to_files_with_the_right_content_are_as_good_as_the_files(run, tmp_path):
    (run / "run.json").rename(tmp_path / "elsewhere.json")
    (run / "run.json").symlink_to(tmp_path / "elsewhere.json")
    load(run)
    (run / "run.json").unlink()
    (run / "run.json").symlink_to(run / "run.json")  # in circles
    with pytest.raises(ValueError, match=r"lacks run\.json"):
        load(run)
    (run / "run.json").unlink()
    os.mkfifo(run / "run.json")  # would wait for ever
    with pytest.raises(ValueError, match=r"lacks run\.json"):
        load(run)


def test_a_huge_file_is_not_read(run, monkeypatch):
    monkeypatch.setattr("noisewise.statements.seal.MAX_FILE_BYTES", 100)
    with pytest.raises(ValueError, match="too large"):
        load(run)


@pytest.mark.parametrize(
    "tensors",
    [
        {"theta": np.zeros(3, np.float32)}, {"theta": np.zeros((2, 2), np.float32)}, {"other": np.zeros(4, np.float32)}, {},
        {"theta": np.zeros(0, np.float32)}, {"theta": np.full(4, np.nan, np.float32)},
        {"theta": np.array([0, np.inf, 0, 0], np.float32)},
    ],
)  # fmt: skip
def test_a_model_of_another_shape_is_refused_even_under_a_new_seal(run, tensors):
    save_file(tensors, run / "model.safetensors")
    runs.reseal(run)
    with pytest.raises(ValueError, match="not a run that this version can read"):
        load(run)


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"\xff" * 64, b"PK\x03\x04", b"\x08" + bytes(7) + b"{}      "])
def test_a_model_that_is_no_safetensors_is_refused(run, content):
    (run / "model.safetensors").write_bytes(content)
    runs.reseal(run)
    with pytest.raises(ValueError, match="not a run that this version can read"):
        load(run)


CODE = "__import__('os').system('touch pwned')"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(estimator="os.system"), lambda d: d.update(estimator=CODE), lambda d: d.update(estimator=["x"]),
        lambda d: d.update(estimator="PrivateRegressor"), lambda d: d.update(format="noisewise-run/2"),
        lambda d: d["settings"].update(loss=CODE), lambda d: d["settings"].update(model=CODE),
        lambda d: d["settings"].update(model=[2**40, 2**40]), lambda d: d["settings"].update(verbose=1),
        lambda d: d["settings"].update(class_weight=CODE), lambda d: d.update(classes=None), lambda d: d.update(classes=["yes"]),
        lambda d: d.update(classes=["a", "b"]), lambda d: d.update(steps=float("inf")), lambda d: d.update(steps="many"),
        lambda d: d["preprocessing"].update(low=[0]), lambda d: d["preprocessing"].update(low=[9, 0, 0], high=[0, 1, 1]),
        lambda d: d["preprocessing"]["schema"].update(format="x"), lambda d: d["preprocessing"].pop("schema"),
        lambda d: d["preprocessing"]["schema"]["columns"].pop(), lambda d: d["coefficients"].append({}),
        lambda d: d["coefficients"][0].update(standard_error=CODE), lambda d: d.clear(),
    ],
)  # fmt: skip
def test_an_odd_description_is_refused_and_never_run(run, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edit(run, "run.json", change)
    with pytest.raises(ValueError) as told:
        load(run)
    assert str(run) in str(told.value) and "\n" not in str(told.value) and not Path("pwned").exists()


def test_whatever_is_written_into_a_folder_it_loads_or_is_refused(run):
    """Hundreds of random edits under a new seal: no other error, and what loads predicts."""
    odd = [
        None,
        True,
        0,
        -1,
        10**30,
        1e308,
        float("inf"),
        float("nan"),
        "",
        CODE,
        [],
        {},
        [[]],
        [None],
        "softmax",
        [1, 2],
        3.5,
    ]
    whole = {name: json.loads((run / name).read_text()) for name in ("run.json", "trace.json", "statement.json")}
    dice = random.Random(5)
    for _ in range(120):
        name = dice.choice(["run.json", "run.json", "trace.json", "statement.json"])
        document = place = copy.deepcopy(whole[name])
        while True:
            key = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], dict | list) and place[key] and dice.random() < 0.7:
                place = place[key]
                continue
            break
        if dice.random() < 0.3:
            del place[key]
        else:
            place[key] = dice.choice(odd)
        (run / name).write_text(json.dumps(document))
        runs.reseal(run)
        for use in (lambda: load(run).predict(FRAME), lambda: report_page(run)):
            try:
                use()
            except ValueError as error:
                assert "\n" not in str(error)
        (run / name).write_text(json.dumps(whole[name]))


def test_an_odd_list_is_not_added_to(run):
    (run / "audit.json").write_text('{"a": 1}')
    runs.reseal(run)
    with pytest.raises(ValueError, match=r"audit\.json is not a list"):
        runs.append(run, "audit.json", {})
    assert json.loads((run / "audit.json").read_text()) == {"a": 1}


def test_appending_seals_again(run):
    runs.append(run, "audit.json", {"n": 1})
    runs.append(run, "audit.json", {"n": np.int64(2)})
    assert json.loads((run / "audit.json").read_text()) == [{"n": 1}, {"n": 2}]
    runs.check_seal(run)
    with pytest.raises(ValueError, match=r"compliant|Out of range"):
        runs.append(run, "audit.json", {"n": float("nan")})
    runs.check_seal(run)
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    estimator = classifier()

    class Broken:
        def __getattr__(self, name):
            return getattr(estimator.fitted_, name)

        @property
        def trace(self):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        runs.save(Broken(), tmp_path / "deep" / "er" / "run")
    assert list(tmp_path.iterdir()) == []
    save(estimator, tmp_path / "deep" / "er" / "run")
    with pytest.raises(ValueError, match="exists already"):
        save(estimator, tmp_path / "deep" / "er" / "run")
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["run"]


def test_what_is_there_is_left_alone(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "linked").symlink_to(tmp_path / "empty")
    assert runs.vacant(tmp_path / "empty").is_dir() and runs.vacant(tmp_path / "new") == tmp_path / "new"
    for name in ("file", "dangling", "linked", ""):
        with pytest.raises(ValueError, match="exists already"):
            runs.vacant(tmp_path / name)
    runs.writable(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()
    for place in (tmp_path / "file" / "run", Path("/proc/none/run")):
        with pytest.raises(ValueError, match="cannot be written"):
            runs.writable(place)


def test_the_files_are_as_readable_as_the_user_wants_them(tmp_path):
    old = os.umask(0o027)
    try:
        place = save(classifier(), tmp_path / "run")
    finally:
        os.umask(old)
    assert oct(place.stat().st_mode & 0o777) == "0o750"
    assert {oct(path.stat().st_mode & 0o777) for path in place.iterdir()} == {"0o640"}


def test_the_public_names_are_there():
    assert noisewise.load is load and noisewise.save is save
