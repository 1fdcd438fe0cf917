"""``noisewise attack``: tables, JSON, pictures and one line for bad input."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from noisewise import PrivateClassifier, save
from noisewise.faces.cli.attacks import attack, load_pictures

QUICK = {
    "membership": ["--rows", "60", "--targets", "1", "--shadows", "2", "--hidden", "0"],
    "leakage": ["--records", "2", "--noise", "0,1", "--hidden", "0"],
    "inversion": ["--epsilons", "1", "--hidden", "0", "--rows", "300"],
    "gan": ["--rounds", "2", "--repeats", "2", "--rows", "300", "--hidden", "4"],
}


def run(*arguments: object):
    return CliRunner().invoke(attack, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", QUICK)
def test_json_and_a_picture(command, tmp_path):
    told = run(command, *QUICK[command], "--out", tmp_path / "new", "--json")
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    (picture,) = (tmp_path / "new").iterdir()
    assert picture.name.startswith(f"attack-{command}") and picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in told.stderr.replace("\n", "")
    if command == "membership":
        plain, private = document["models"].values()
        assert [one["attack"] for one in private] == ["loss", "shadow", "lira", "lira_offline"]
        assert plain[0]["allowed"] is None and private[0]["allowed"]["epsilon"] == 1.0
        assert {"roc", "auc", "advantage", "tpr_at_fpr", "confidence", "verdict"} <= set(private[0])
    elif command == "leakage":
        exact, noisy, blind = document["rows"]
        assert exact["psnr"] > 60 > noisy["psnr"] and blind["noise_multiplier"] is None
    elif command == "gan":
        levels = ["no noise", "record level", "client clip only", "client level"]
        assert [row["setting"] for row in document["rows"][::2]] == levels == [*document["above_reference"]]
        assert [row["victim_there"] for row in document["rows"]] == 4 * [True, False]
        assert document["epsilon"] == 8.0 and document["simulation"] and document["noise_multiplier"] > 0.5
    else:
        plain, private = document["rows"]
        assert plain["similarity_to_people"] > private["similarity_to_people"] and document["people"] == [10, 11, 12]


@pytest.mark.parametrize("command", QUICK)
def test_a_table_for_people_fits_a_terminal(command, tmp_path):
    told = run(command, *QUICK[command], "--out", tmp_path)
    assert told.exit_code == 0, told.output
    assert "…" not in told.stdout and max(map(len, told.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", QUICK)
def test_help_has_an_example(command):
    told = run(command, "--help")
    assert told.exit_code == 0
    assert f"noisewise attack {command}" in " ".join(re.sub(r"[│╭╮╰╯─]", " ", told.stdout).split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["leakage", "--noise", "a,b"], "--noise is 'a,b'; pass finite numbers >= 0 with commas"),
        (["inversion", "--epsilons", "-1"], "--epsilons is '-1'; pass finite numbers"),
        (["membership", "--members", "in.csv"], "belong to --run RUN"),
        (["membership", "--run", "somewhere"], "--run needs --members FILE and --non-members FILE"),
        (["gan", "--epsilon", "-1"], "epsilon is -1"),
        (["gan", "--rows", "200", "--holders", "99"], "more than there are pictures of 3"),
        (["membership", "--shadows", "3", "--rows", "40"], "pass an even number"),
    ],
)
def test_bad_input_is_one_clear_error(arguments, message, tmp_path):
    told = run(*arguments, "--out", tmp_path)
    assert isinstance(told.exception, ValueError) and message in str(told.exception)


@pytest.mark.parametrize("public", [False, True])
def test_a_finished_run(public, tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.uniform(-1, 1, (80, 2)), columns=["a", "b"])
    model = PrivateClassifier(epsilon=1.0, delta=1e-5, bounds=(-1, 1), random_state=0)
    save(model.fit(rows[:40], rows["a"][:40] > 0), tmp_path / "run")
    table = rows.assign(label=rows["a"] > 0)
    table[:40].to_csv(tmp_path / "in.csv", index=False)
    table[40:].to_parquet(tmp_path / "out.parquet")
    told = run(
        "membership", "--run", tmp_path / "run", "--members", tmp_path / "in.csv", "--non-members",
        tmp_path / "out.parquet", "--target", "label", "--out", tmp_path, "--json",
        *(["--members-public"] if public else []),
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert document["members"] == document["non_members"] == 40 and document["recorded"] is public
    assert (tmp_path / "run" / "audit.json").exists() is public
    assert ("nothing pays for" in told.stderr.replace("\n", " ")) is not public


def test_gan_says_what_each_promise_covers(tmp_path):
    told = run("gan", *QUICK["gan"], "--epsilon", "0.01", "--out", tmp_path)
    words = " ".join(told.stdout.split())
    assert "simulations, not private" in words and "client level: likeness" in words
    assert "0.01 for one picture" in words and "no class is covered" in words
    assert "for all that one client adds. Accuracy there:" in words


def test_pictures_of_a_folder(tmp_path):
    with pytest.raises(ValueError, match=r"has no mnist\.npz with X_train and y_train"):
        load_pictures(tmp_path, 5, 0)
    X = np.arange(7 * 6, dtype=np.uint8).reshape(7, 2, 3)
    np.savez(tmp_path / "mnist.npz", X_train=X, y_train=np.arange(7, dtype=np.uint8))
    pictures = load_pictures(tmp_path, 5, 0)
    assert pictures.X.shape == (5, 6) and pictures.shape == (2, 3) and pictures.top == 255.0
    assert (X.reshape(7, 6)[pictures.y] == pictures.X).all()
