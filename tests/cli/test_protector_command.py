"""``noisewise protector``: train (and stop, and go on), list, show, plot, evaluate; bad input is one line."""

from __future__ import annotations

import csv
import json
import pickle
import re
import sys

import pytest
import torch
from typer.testing import CliRunner

from noisewise.faces.cli import main as entry
from noisewise.faces.cli.main import app
from noisewise.learned import trained
from noisewise.learned.meta_training import CONSTRAINTS, Training
from noisewise.learned.tasks import tasks_from
from noisewise.protect.learned import parts, zoo
from noisewise.protect.learned.weights import zero_weights

TINY = """
name = "tiny"
epsilon = [0.2, 0.4]
size = [2000, 4000]
horizon = [4, 8]
rows = 40
copies = 2
[[source]]
data = "gaussian"
licence = "generated"
columns = [3, 6]
losses = ["logistic", "squared"]
basis = 0.5
"""
QUICK = ("--epochs", "5", "--units", "4")


def run(*arguments):
    return CliRunner().invoke(app, ["protector", *(str(argument) for argument in arguments)])


def refused(monkeypatch, capsys, *arguments):
    """The one line on standard error of bad input."""
    monkeypatch.setattr(sys, "argv", ["noisewise", "protector", *(str(argument) for argument in arguments)])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == "" and told.err.count("\n") == 1, told.err
    return told.err


@pytest.fixture(scope="module", autouse=True)
def few_tasks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained, "JUDGED_ON", 3)
        patch.setattr(trained, "CHOSEN_ON", 2)
        yield


@pytest.fixture(autouse=True)
def no_picture(made, monkeypatch):
    """The curves are drawn once, for ``made``."""
    monkeypatch.setattr(trained, "plot_curves", lambda curve, path, title: path.touch())


@pytest.fixture(scope="module")
def made(tmp_path_factory, few_tasks):
    """A task file, and a protector trained on it by the command."""
    folder = tmp_path_factory.mktemp("made")
    tasks, out = folder / "tiny.toml", folder / "new" / "mine.safetensors"
    tasks.write_text(TINY)
    told = run("train", tasks, "--out", out, *QUICK, "--name", "mine", "--seed", "3", "--json")
    assert told.exit_code == 0, told.output
    return tasks, out, json.loads(told.stdout)


def test_the_header_is_complete(made):
    _, out, header = made
    assert header == zoo.load_protector(out).header
    assert header["name"] == "mine" and header["seconds"] > 0
    assert header["trained_on"] == [{"data": "gaussian", "licence": "generated"}]
    assert header["recipe"]["epochs"] == 5 and header["recipe"]["seed"] == 3 and header["design"]["units"] == 4
    assert header["command"] == (
        "noisewise protector train tiny.toml --out mine.safetensors --epochs 5 --units 4 --seed 3 --name mine"
    )
    low, high = header["ranges"]["horizon"]
    assert 4 <= low <= header["horizon"] <= high <= 8
    assert 2000 <= header["ranges"]["size"][0] < header["ranges"]["size"][1] <= 4000
    assert 4 <= header["ranges"]["dimension"][0] <= header["ranges"]["dimension"][1] <= 7
    assert 0.2 <= header["ranges"]["epsilon"][0] <= header["ranges"]["epsilon"][1] <= 0.4
    assert header["version"] and header["torch"] and str(header["horizon"]) in header["horizons_tried"]
    assert {row["protector"] for row in header["held_out"]} == {"learned", "zero-weight", "momentum"}
    assert {row["epsilon"] for row in header["held_out"]} == {0.2, 0.4}


def test_the_tasks_in_the_header_can_be_used_again(made, tmp_path):
    tasks, _, header = made
    again = tasks_from(header["tasks"], tasks.parent)
    assert again == trained.find_tasks(str(tasks)) and str(tasks.parent) not in json.dumps(header)


def test_curves_are_beside_it_and_the_checkpoint_is_gone(made):
    _, out, _ = made
    assert {path.name for path in out.parent.iterdir()} == {"mine.safetensors", "mine.curves.csv", "mine.curves.png"}
    with (out.parent / "mine.curves.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert set(rows[0]) == {"epoch", "objective", "spent", "horizon", "seconds"}
    assert all(float(row["spent"]) == pytest.approx(1, abs=1e-4) for row in rows)
    assert (out.parent / "mine.curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_command_gives_the_same_weights(made, tmp_path):
    tasks, _, header = made
    again = run("train", tasks, "--out", tmp_path / "mine.safetensors", *QUICK, "--seed", "3", "--json")
    assert json.loads(again.stdout)["sha256"] == header["sha256"]
    other = run("train", tasks, "--out", tmp_path / "other.safetensors", *QUICK, "--seed", "4", "--json")
    assert json.loads(other.stdout)["sha256"] != header["sha256"]


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C in the middle of the fourth epoch, after its update: nothing of that epoch may count."""
    update, calls = Training._update, []

    def update_and_stop(self, loss, turn):
        update(self, loss, turn)
        calls.append(turn)
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Training, "_update", update_and_stop)
    return calls


def test_a_stopped_run_goes_on_to_the_same_weights(made, tmp_path, interrupted):
    tasks, _, header = made
    out = tmp_path / "mine.safetensors"
    arguments = ("train", tasks, "--out", out, *QUICK, "--seed", "3", "--name", "mine")
    told = run(*arguments)
    assert told.exit_code == 130 and "--resume" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.safetensors.checkpoint"]
    told = run(*arguments, "--resume", "--json")
    assert told.exit_code == 0, told.output
    assert len(interrupted) == 4 + 2  # the interrupted epoch is trained anew, the first three are not
    resumed = json.loads(told.stdout)
    assert resumed["sha256"] == header["sha256"]
    assert {**resumed, "seconds": 0} == {**header, "seconds": 0}
    assert not (tmp_path / "mine.safetensors.checkpoint").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("--epochs", "6"), "epochs was 5, now 6"),
        (("--seed", "4"), "seed was 3, now 4"),
        (("--units", "5"), "units was 4, now 5"),
        (("--constraint", "tent"), "exact"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(made, tmp_path, monkeypatch, capsys, changed, said, interrupted):
    tasks, _, _ = made
    arguments = ("train", tasks, "--out", tmp_path / "p", *QUICK, "--seed", "3")
    assert run(*arguments).exit_code == 130
    line = refused(monkeypatch, capsys, *arguments, *changed, "--resume")
    assert "another run" in line and said in line
    assert "--resume" in refused(monkeypatch, capsys, *arguments)  # nor is it overwritten without a word


def test_a_checkpoint_of_other_tasks_is_refused(made, tmp_path, monkeypatch, capsys, interrupted):
    tasks, _, _ = made
    assert run("train", tasks, "--out", tmp_path / "p", *QUICK).exit_code == 130
    other = tmp_path / "other.toml"
    other.write_text(TINY.replace("[2000, 4000]", "[2000, 5000]"))
    line = refused(monkeypatch, capsys, "train", other, "--out", tmp_path / "p", *QUICK, "--resume")
    assert "not the same tasks (size)" in line


def test_a_tampered_checkpoint_and_a_missing_one_are_refused(made, tmp_path, monkeypatch, capsys, interrupted):
    tasks, _, _ = made
    arguments = ("train", tasks, "--out", tmp_path / "p", *QUICK, "--resume")
    assert "nothing to resume" in refused(monkeypatch, capsys, *arguments)
    assert run(*arguments[:-1]).exit_code == 130
    checkpoint = tmp_path / "p.checkpoint"
    state, plain = trained.read_checkpoint(checkpoint, {})
    state["weight.rate"] += 1
    from safetensors.torch import save_file

    save_file(state, checkpoint, {"noisewise": json.dumps({"terms": {}, "plain": plain, "sha256": "0" * 64})})
    assert "hash" in refused(monkeypatch, capsys, *arguments)
    checkpoint.write_bytes(pickle.dumps({"rate": 1}))
    assert "not a checkpoint" in refused(monkeypatch, capsys, *arguments)


@pytest.mark.sample(1)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_every_constraint_trains(made, tmp_path, constraint):
    tasks, _, _ = made
    out = tmp_path / "p.safetensors"
    told = run("train", tasks, "--out", out, "--epochs", "2", "--units", "3", "--constraint", constraint, "--no-clip")
    assert told.exit_code == 0, told.output
    learned = zoo.load_protector(out)
    assert learned.design.form == ("exact" if constraint == "exact" else "open") and not learned.design.clip
    assert learned.header["command"].endswith(f"--constraint {constraint} --units 3 --no-clip --seed 0")
    low, high = learned.header["ranges"]["horizon"]
    assert low <= learned.horizon <= high
    assert all(row["spent"] <= 1 + 1e-4 for row in learned.header["held_out"])


def test_the_paper_preset(made, tmp_path, monkeypatch):
    tasks, _, _ = made
    monkeypatch.setattr(trained, "PAPER_HORIZON", 20)
    told = run("train", tasks, "--out", tmp_path / "p", "--preset", "paper", "--epochs", "1", "--units", "2", "--json")
    assert told.exit_code == 0, told.output
    header = json.loads(told.stdout)
    assert header["recipe"]["constraint"] == "batch_tent" and header["recipe"]["projector_updates"] == 5
    assert header["design"]["inputs"] == "paper" and header["design"]["norm_share"] == 0.1
    assert header["horizon"] == 20 and "--preset paper" in header["command"]


def test_the_progress_bar_says_how_training_goes(made, tmp_path, monkeypatch):
    from rich.console import Console

    from noisewise.faces import progress

    told = Console(stderr=True, force_terminal=True, width=140, record=True)
    monkeypatch.setattr(progress, "errors", told)
    assert run("train", made[0], "--out", tmp_path / "p", *QUICK).exit_code == 0
    text = told.export_text()
    assert re.search(r"objective \d\.\d{3}, spent 1\.000, \d\.\d\d s a meta-step", text)
    assert "5/5" in text and "judging on held-out tasks" in text and "choosing the horizon" in text


def test_list(monkeypatch):
    told = run("list", "--json")
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["protectors"]
    assert [row["name"] for row in rows] == list(zoo.names()) and len(rows) >= 2
    for row in rows:
        assert row["kilobytes"] < 100 and row["weights"] > 1000
        assert set(row["ranges"]) == {"size", "dimension", "epsilon", "horizon"}
    assert "clear" in run("list").stdout and "records" in run("list").stdout


def test_show(made):
    _, out, header = made
    assert json.loads(run("show", out, "--json").stdout) == header
    text = " ".join(run("show", out).stdout.split())
    for said in ("mine", "gaussian (generated)", "epsilon", header["sha256"], "exact, 5 epochs, seed 3", "zero-weight",
                 "a share of what is left"):  # fmt: skip
        assert said in text
    assert run("show", "clear").exit_code == 0


def test_plot(made, tmp_path):
    _, out, _ = made
    picture = tmp_path / "new" / "picture.png"
    told = run("plot", out, "--out", picture)
    assert told.exit_code == 0, told.output
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in told.stderr.replace("\n", "")


def test_evaluate(made):
    tasks, out, header = made
    told = run("evaluate", out, tasks, "--epsilons", "0.2,0.4", "--many", "3", "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert document["protector"] == "mine" and document["tasks"] == "tiny"
    assert trained.five_digits(document["rows"]) == header["held_out"]  # what the header says can be checked
    table = run("evaluate", out, tasks, "--epsilons", "0.3", "--many", "2", "--steps", "5").stdout
    assert "zero-weight" in table and "5 steps" in table and "±" in table


@pytest.mark.parametrize("name", trained.recipes())
def test_task_files_of_the_package(name, tmp_path, monkeypatch, capsys):
    if name == "generated":
        tasks = trained.find_tasks(name)
        assert not any(source.file for source in tasks.sources)
        assert {source.data for source in tasks.sources} == {"gaussian", "census", "digits", "quadratic"}
        assert all(source.licence for source in tasks.sources)
    else:  # their data does not come with the package
        assert "--data" in refused(monkeypatch, capsys, "train", name, "--out", tmp_path / "p", "--data", tmp_path)


def test_data_files_are_hashed_and_their_licence_is_named(tmp_path):
    import hashlib

    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (80, 3)), columns=list("abc")).assign(
        y=np.where(rng.random(80) < 0.5, 1, -1)
    )
    frame.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "tasks").mkdir()
    tasks = tmp_path / "tasks" / "own.toml"
    source = '[[source]]\ndata = "table"\nfile = "own.csv"\nlicence = "CC0"\n'
    tasks.write_text(TINY.split("[[source]]")[0] + source)
    told = run("train", tasks, "--out", tmp_path / "p", "--data", tmp_path, *QUICK, "--json")
    assert told.exit_code == 0, told.output
    digest = hashlib.sha256((tmp_path / "own.csv").read_bytes()).hexdigest()
    header = json.loads(told.stdout)
    assert header["trained_on"] == [{"data": "own.csv", "licence": "CC0", "sha256": digest}]
    assert "--data FOLDER" in header["command"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("epsilons = [0.1, 1.0]\n" + TINY, "'epsilons' is not known"),
        (TINY + "colour = 3\n", "no 'colour'"),
        (TINY.replace("gaussian", "table"), "need a file"),
        (TINY + '[[source]]\ndata = "table"\nfile = "gone.csv"\n', "gone.csv is not there"),
        ("name = tiny", "not a TOML file"),
        (TINY.replace("[4, 8]", "[8, 4]"), "horizon is (8, 4)"),
        (TINY.replace("[0.2, 0.4]", "0.2"), "tiny.toml"),
    ],
)
def test_bad_task_files(tmp_path, monkeypatch, capsys, text, reason):
    tasks = tmp_path / "tiny.toml"
    tasks.write_text(text)
    assert reason in refused(monkeypatch, capsys, "train", tasks, "--out", tmp_path / "p")
    assert reason in refused(monkeypatch, capsys, "evaluate", "clear", tasks)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--constraint", "loose"), "'batch_tent'"),
        (("--preset", "best"), "'paper'"),
        (("--inputs", "raw"), "'normalised'"),
        (("--norm-share", "1"), "norm_share"),
        (("--name", " "), "--name"),
    ],
)
def test_bad_options(made, tmp_path, monkeypatch, capsys, options, reason):
    assert reason in refused(monkeypatch, capsys, "train", made[0], "--out", tmp_path / "p", *options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there(made, tmp_path, monkeypatch, capsys):
    assert "generated" in refused(monkeypatch, capsys, "train", tmp_path / "no.toml", "--out", tmp_path / "p")
    assert "clear" in refused(monkeypatch, capsys, "show", tmp_path / "no.safetensors")
    assert "--epsilons" in refused(monkeypatch, capsys, "evaluate", made[1], made[0], "--epsilons", "a,b")


class Opened(Exception):
    """Raised by a file that runs code when it is unpickled."""


class Bomb:
    def __reduce__(self):
        return (_explode, ())


def _explode():
    raise Opened


@pytest.mark.parametrize("command", ["show", "plot", "evaluate"])
def test_what_is_not_a_protector_is_refused_and_never_unpickled(made, tmp_path, monkeypatch, capsys, command):
    rest = {"show": (), "plot": ("--out", tmp_path / "p.png"), "evaluate": (made[0],)}[command]
    pickled, tampered, torch_file = tmp_path / "pickled", tmp_path / "tampered", tmp_path / "torch"
    pickled.write_bytes(pickle.dumps(Bomb()))
    torch.save({"rate": torch.zeros(1), "bomb": Bomb()}, torch_file)
    whole = bytearray(made[1].read_bytes())
    whole[-5] ^= 1
    tampered.write_bytes(bytes(whole))
    for path, reason in ((pickled, "not a protector"), (torch_file, "not a protector"), (tampered, "hash")):
        assert reason in refused(monkeypatch, capsys, command, path, *rest)


@pytest.mark.parametrize("command", ["train", "list", "show", "plot", "evaluate"])
def test_help_has_an_example(command):
    told = run(command, "--help")
    assert told.exit_code == 0 and f"Example: noisewise protector {command}" in told.output


@pytest.mark.parametrize(("model", "groups"), [("linear", 1), ("mlp", 2)])
def test_the_plot_shows_a_task_of_the_kind_it_was_trained_for(made, model, groups):
    from noisewise.learned.plots import shown_task, watched

    learned = zoo.load_protector(made[1])
    header = {**learned.header, "tasks": {"source": [{"data": "gaussian", "model": model}]}}
    task = shown_task(zoo.Learned(learned.weights, learned.design, header), 0.2, 2)
    assert len(task.rows.model.groups) == groups
    steps = watched(parts.protector(zero_weights(learned.design), learned.design), task)
    assert steps.noise == pytest.approx(1.0, rel=1e-3) and steps.noise.shape == (learned.horizon, 2)
    assert steps.rate == pytest.approx(1.0, rel=1e-3)  # relative to the zero-weight protector, which this is
