"""PublicTask distributions: what a file says is what is drawn, and what it cannot mean is refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from noisewise.learned.tasks import GENERATED, Tasks, TaskSource, load_tasks, tasks_from
from noisewise.learned.unroll import advance, start
from noisewise.protect.learned.parts import new_weights, protector
from noisewise.protect.learned.weights import Design
from noisewise.trusted.losses import loss_named, loss_names

EVERYTHING = """
name = "both"
epsilon = [0.05, 0.5]
delta = 1e-6
size = [500, 900]
horizon = [5, 7]
rows = 40
copies = 3
[[source]]
data = "table"
file = "people.csv"
label = "rich"
licence = "made up"
where = { year = 2000 }
drop = ["number"]
columns = [2, 2]
rescale = [0.5, 0.9]
losses = ["logistic", "hinge"]
basis = 0.5
weight = 2.0
[[source]]
data = "images"
file = "shapes.npz"
pairs = [[0, 2]]
[[source]]
data = "gaussian"
model = "mlp"
hidden = 4
"""


def people(folder, n=60):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd")).assign(
        number=np.arange(n), rich=rng.integers(0, 2, n), year=np.where(np.arange(n) < 50, 2000, 2010)
    )
    table.to_csv(folder / "people.csv", index=False)
    return table


def shapes(folder):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (90, 3, 3)).astype(np.uint8)
    np.savez(folder / "shapes.npz", X_train=X, y_train=np.repeat([0, 1, 2], 30))
    return X


@pytest.fixture
def folder(tmp_path):
    people(tmp_path), shapes(tmp_path)
    (tmp_path / "tasks.toml").write_text(EVERYTHING)
    return tmp_path


def small(*sources, **more):
    settings = {"size": (500, 900), "horizon": (3, 5), "rows": 60, "copies": 2, **more}
    return Tasks(name="small", sources=sources, **settings)


def rows(task):
    return task.rows.X.double().numpy() * task.rows.lengths.double().numpy()[:, None]


def test_a_file_says_what_is_drawn(folder):
    tasks = load_tasks(folder / "tasks.toml")
    assert (tasks.name, tasks.epsilon, tasks.delta, tasks.size) == ("both", (0.05, 0.5), 1e-6, (500, 900))
    assert (tasks.horizon, tasks.rows, tasks.copies, tasks.folder) == ((5, 7), 40, 3, folder)
    table, images, made = tasks.sources
    assert table == TaskSource(
        "table", "people.csv", "rich", {"year": 2000}, ("number",), "made up", columns=(2, 2), rescale=(0.5, 0.9),
        losses=("logistic", "hinge"), basis=0.5, weight=2.0,
    )  # fmt: skip
    assert images.pairs == ([0, 2],) and images.name == "shapes.npz"
    assert (made.model, made.hidden, made.name) == ("mlp", 4, "gaussian")
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        task = tasks.draw(rng)
        kind = task.name.split()[0]
        seen.add(kind)
        assert 500 <= task.size <= 900 and 5 <= task.horizon <= 7 and task.copies == 3
        if kind == "people.csv":
            assert task.rows.model.features == 3 and len(rows(task)) == 40
            assert task.rows.model.loss.name in ("logistic", "hinge")
    assert seen == {"people.csv", "shapes.npz", "gaussian"}
    assert tasks_from(
        {"name": "x", "source": [{"data": "gaussian"}]}, folder
    ) == Tasks("x", (TaskSource("gaussian"),), folder=folder)  # fmt: skip


WRONG = {
    "surprise = 1\n[[source]]\ndata='gaussian'": "'surprise'",
    "[[source]]\ndata='gaussian'\nlables='y'": "'lables'",
    "[[source]]\ndata='gauss'": "data is 'gauss'",
    "[[source]]\ndata='gaussian'\nmodel='tree'": "model is 'tree'",
    "[[source]]\ndata='gaussian'\nlosses=['hinge', 'mine']": "losses is 'mine'",
    "[[source]]\ndata='gaussian'\nlosses=[]": "losses is empty",
    "[[source]]\ndata='gaussian'\nlosses=['hinge']\nmodel='mlp'": "huber_hinge",
    "[[source]]\ndata='gaussian'\nbasis=1.5": "basis is 1.5",
    "[[source]]\ndata='gaussian'\nweight=0.0": "weight is 0.0",
    "[[source]]\ndata='gaussian'\nhidden=0": "hidden is 0",
    "[[source]]\ndata='gaussian'\nfile='a.csv'": "generated tasks have none",
    "[[source]]\ndata='table'": "need a file",
    "[[source]]\ndata='table'\nfile='missing.csv'": "missing.csv is not there",
    "epsilon=[1.0, 0.5]\n[[source]]\ndata='gaussian'": "epsilon is",
    "epsilon=[0, 0.5]\n[[source]]\ndata='gaussian'": "epsilon is",
    "size=[100, inf]\n[[source]]\ndata='gaussian'": "size is",
    "horizon=[1, 5]\n[[source]]\ndata='gaussian'": "horizon is",
    "horizon=7\n[[source]]\ndata='gaussian'": "horizon",
    "horizon=['a', 'b']\n[[source]]\ndata='gaussian'": "horizon",
    "epsilon=[0.1]\n[[source]]\ndata='gaussian'": "epsilon",
    "delta=0.0\n[[source]]\ndata='gaussian'": "delta is 0.0",
    "rows=0\n[[source]]\ndata='gaussian'": "rows is 0",
    "copies=0\n[[source]]\ndata='gaussian'": "copies is 0",
    "name='nothing'": "no \\[\\[source\\]\\]",
    "[[source]]\ndata='gaussian'\ncolumns=[5]": "columns",
    "[[source]]\ndata='gaussian'\ncolumns=[0, 5]": "columns",
    "[[source]]\ndata='gaussian'\ncolumns=7": "columns",
    "[[source]]\ndata='gaussian'\nrescale=0.5": "rescale",
    "[[source]]\ndata='digits'\npairs=[]": "pairs",
    "[[source]]\ndata='digits'\npairs='some'": "pairs",
    "[[source]]\ndata='digits'\npairs=[[3]]": "pairs",
    "source = [": "not a TOML file",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text.replace("\n", " "))
def test_what_a_file_cannot_mean_is_refused_by_name(text, tmp_path):
    path = tmp_path / "tasks.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=WRONG[text]) as refusal:
        load_tasks(path)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value).strip()


def test_files_are_looked_up_in_the_given_folder(folder, tmp_path):
    elsewhere = tmp_path / "there"
    elsewhere.mkdir()
    with pytest.raises(ValueError, match="is not there; pass its folder with --data"):
        load_tasks(folder / "tasks.toml", elsewhere)
    assert load_tasks(folder / "tasks.toml", folder).folder == folder


def unique_rows(tasks, held_out, draws=4):
    found = set()
    for seed in range(draws):
        task = tasks.draw(np.random.default_rng(seed), held_out=held_out)
        found |= {tuple(row) for row in rows(task).round(5).tolist()}
    return found


@pytest.mark.parametrize("data, rest", [("census", {}), ("digits", {"pairs": ((3, 5),)}), ("people.csv", {})])
def test_held_out_rows_are_never_trained_on(data, rest, tmp_path):
    if data == "people.csv":
        people(tmp_path)
        source = TaskSource("table", data, "rich", drop=("number", "year"))
    else:
        source = TaskSource(data, **rest)
    tasks = small(source, rows=5000, folder=tmp_path)
    training, held_out = unique_rows(tasks, False), unique_rows(tasks, True)
    assert not training & held_out
    assert 0.15 < len(held_out) / (len(training) + len(held_out)) < 0.27


@pytest.mark.parametrize("data", GENERATED)
@pytest.mark.parametrize(
    "loss, model",
    [(loss, "linear") for loss in loss_names()]
    + [(loss, "mlp") for loss in loss_names() if math.isfinite(loss_named(loss).smoothness)],
)
def test_every_loss_and_model_draws_and_unrolls_without_a_file(data, loss, model, tmp_path):
    source = TaskSource(data, losses=(loss,), model=model, hidden=3, columns=(4, 6), basis=0.5)
    task = small(source, folder=tmp_path / "nowhere").draw(np.random.default_rng(0))
    design = Design(units=3)
    part = protector(new_weights(design), design)
    run, track = advance(part, task, start(part, task), 2, torch.Generator().manual_seed(0))
    assert torch.isfinite(run.thetas).all() and torch.isfinite(track.losses).all()
    assert track.losses.shape == (2, 2)
    assert run.thetas.shape == (2, task.rows.model.dimension)
    if model == "mlp":
        assert task.rows.model.activation == "sigmoid"


def test_quadratic_is_a_regression_whatever_its_losses():
    for losses in (("logistic",), ("squared",), ("hinge", "softmax")):
        task = small(TaskSource("quadratic", losses=losses, columns=(5, 9))).draw(np.random.default_rng(0))
        model, y = task.rows.model, task.rows.y
        assert (model.loss.name, model.loss.task, model.outputs) == ("squared", "regression", 1)
        assert len(torch.unique(y)) > 30 and float(y.abs().max()) <= 1
    binary = small(TaskSource("gaussian", losses=("squared",), columns=(5, 9))).draw(np.random.default_rng(0))
    assert binary.rows.model.loss.task == "binary"
    assert set(binary.rows.y.tolist()) == {-1.0, 1.0}


def test_rows_have_length_one_and_an_intercept():
    for source in (TaskSource("gaussian", columns=(5, 5)), TaskSource("census", rescale=(0.1, 0.2))):
        x = rows(small(source).draw(np.random.default_rng(0)))
        assert np.allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
        assert bool((x[:, -1] > 0).all())


def test_a_basis_takes_the_mean_out():
    plain, deflated = (
        rows(
            small(TaskSource("census", basis=basis), size=(1e6, 1e6), epsilon=(1.0, 1.0)).draw(np.random.default_rng(0))
        )
        for basis in (0.0, 1.0)
    )
    before, after = (np.linalg.norm(x.mean(0)) / np.linalg.norm(x.std(0)) for x in (plain, deflated))
    assert before > 1.0 and after == pytest.approx(0.4, abs=0.1)
    assert (deflated**2).sum(1).mean() == pytest.approx(1.0, rel=0.1)


def test_pairs_of_classes(tmp_path):
    shapes(tmp_path)
    first = {
        pairs: {
            tuple(row)
            for seed in range(6)
            for row in rows(
                small(TaskSource("images", "shapes.npz", pairs=pairs), folder=tmp_path).draw(np.random.default_rng(seed))
            ).round(5).tolist()
        }
        for pairs in (((0, 1),), ((0, 2),), ((1, 2),), "all")
    }  # fmt: skip
    assert first["all"] >= first[((0, 1),)] | first[((1, 2),)]
    assert first[((0, 1),)] & first[((0, 2),)] and first[((0, 1),)] - first[((0, 2),)]
    without = small(TaskSource("images", "shapes.npz", without=(1,)), folder=tmp_path)
    assert unique_rows(without, False, 6) == first[((0, 2),)]


def test_a_seed_decides_a_task_and_budgets_spread():
    tasks = small(TaskSource("gaussian"), TaskSource("census"), copies=50)
    one, same, other = (tasks.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.name == same.name and torch.equal(one.mu, same.mu) and np.array_equal(rows(one), rows(same))
    assert one.size != other.size
    assert 1.2 < float(one.mu.max() / one.mu.min()) <= 1.3**2 + 1e-6
    assert tasks.draw(np.random.default_rng(0), horizon=77).horizon == 77


def test_a_label_that_is_not_there_is_refused_by_name(tmp_path):
    people(tmp_path)
    tasks = small(TaskSource("table", "people.csv", "poor"), folder=Path(tmp_path))
    with pytest.raises(ValueError, match=r"people\.csv has no column 'poor'"):
        tasks.draw(np.random.default_rng(0))


def test_the_order_of_the_draws_stays_as_recorded_commands_need_it():
    """Size before epsilon without a ratio, epsilon before size and ratio with one: else a seed gives other protectors."""
    plain = Tasks(
        "order", (TaskSource("gaussian", columns=(7, 7)),), rows=30, copies=1, epsilon=(0.01, 1.0), size=(10.0, 1e6)
    )
    drawn = [tasks.draw(np.random.default_rng(0)) for tasks in (plain, replace(plain, ratio=(2.0, 14.0)))]
    assert [task.size for task in drawn] == pytest.approx([99.1954, 1021.1894], rel=1e-6)
    assert [float(task.mu) for task in drawn] == pytest.approx([0.019658756, 0.0071866373], rel=1e-5)


def test_components_are_those_of_the_rows_that_are_not_held_out():
    """Leading components first, of all classes but those left out, and centred by their mean."""
    source = TaskSource("digits", components=(5, 5), without=(0, 1), pairs=[[2, 3]])
    task = small(source, rows=300).draw(np.random.default_rng(0))
    made = rows(task)
    X = made[:, :-1] / made[:, -1:]  # undo the division by the length; the intercept was 1
    assert X.shape[1] == 5
    from noisewise.learned.tasks import HELD_OUT, _loaded

    pixels, labels = _loaded(("digits", None, "y", (), ()), Path("."))
    seen = pixels[: int((1 - HELD_OUT) * len(pixels))]
    taught = seen[~np.isin(labels[: len(seen)], (0, 1))]
    _, _, directions = np.linalg.svd(taught - taught.mean(0), full_matrices=False)
    expected = (seen[np.isin(labels[: len(seen)], (2, 3))] - taught.mean(0)) @ directions[:5].T
    distance = np.abs(np.abs(X[:, None]) - np.abs(expected)[None]).max(2).min(1)  # signs are free
    assert float(distance.max()) < 1e-4
    widths = {
        rows(small(replace(source, components=(3, 20))).draw(np.random.default_rng(s))).shape[1] for s in range(8)
    }
    assert len(widths) > 3 and widths <= set(range(4, 22))


def test_components_and_columns_do_not_go_together():
    for wrong in ({"components": (3, 5), "columns": (3, 5)}, {"components": (0, 5)}):
        with pytest.raises(ValueError, match="components"):
            TaskSource("digits", **wrong)
    with pytest.raises(ValueError, match="components"):
        TaskSource("gaussian", components=(3, 5))


def test_a_basis_is_bought_only_where_a_private_run_would_buy_one():
    """With too few records for a mean row, the rows stay and the whole budget is for training."""
    for size, bought in ((20.0, False), (1e6, True)):
        tasks = [
            small(TaskSource("census", basis=basis), size=(size, size), epsilon=(1.0, 1.0)).draw(
                np.random.default_rng(0), spread=1.0
            )
            for basis in (0.0, 1.0)
        ]
        assert np.array_equal(rows(tasks[0]), rows(tasks[1])) != bought
        assert bool((tasks[0].mu == tasks[1].mu).all()) != bought and len(set(tasks[1].mu.tolist())) == 1
