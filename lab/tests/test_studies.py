"""Transfer, ablation, memory and speed of learned protectors, on small stand-ins for the data."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from noisewise.learned.meta_training import Recipe
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.protect.learned.parts import new_weights, protector
from noisewise.protect.learned.weights import Design, zero_weights
from noisewise_lab import ablation, dissect, protector_speed, studies_plots, transfer
from noisewise_lab.ablation import held_out_task, stopped_run
from noisewise_lab.transfer import Lesson, TransferCell, private_task


def write_data(folder):
    """Files with the names and columns of the real ones."""
    rng = np.random.default_rng(0)
    for file, rows, columns in (("a9a", 700, 12), ("bank_lee_kifer", 500, 9), ("ipums_br", 600, 12)):
        X = rng.normal(size=(rows, columns))
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(columns)]).assign(y=(X[:, 0] + X[:, 1] > 0).astype(int))
        if file == "a9a":
            frame = frame.assign(split=np.where(np.arange(rows) < 600, "train", "test"))
        frame.to_parquet(folder / f"{file}.parquet")
    digits, arrays = np.arange(10), {}
    shapes = rng.integers(0, 200, size=(10, 9, 9))
    for part, many in (("train", 60), ("test", 20)):
        y = np.repeat(digits, many)
        arrays[f"X_{part}"] = np.clip(shapes[y] + rng.integers(0, 55, size=(len(y), 9, 9)), 0, 255).astype(np.uint8)
        arrays[f"y_{part}"] = y.astype(np.uint8)
    np.savez(folder / "mnist.npz", **arrays)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def small(monkeypatch):
    """Everything that makes a study long, made short."""
    monkeypatch.setattr(transfer, "HORIZON", 4)
    monkeypatch.setattr(transfer, "HORIZONS", (3, 4, 5, 6))
    monkeypatch.setattr(transfer, "COPIES", 2)
    monkeypatch.setattr(ablation, "HORIZON", 4)
    tasks, public = transfer.distributions, ablation.public_tasks
    short = partial(replace, rows=60, copies=2, horizon=(3, 4))
    monkeypatch.setattr(transfer, "distributions", lambda folder: {k: short(v) for k, v in tasks(folder).items()})
    monkeypatch.setattr(ablation, "public_tasks", lambda folder, rows=0: short(public(folder)))
    for cached in (private_task, held_out_task):
        cached.cache_clear()
    yield
    for cached in (private_task, held_out_task):
        cached.cache_clear()


def test_a_private_task_is_met_as_a_private_run_would(folder, small):
    task, (X, y) = private_task("ipums-br d/4", folder, 20.0, 7, 0)
    assert task.rows.model.features == 3 + 1, "a quarter of the columns and the intercept"
    assert task.size == 480 and task.horizon == 7 and len(X) == len(y) == 120
    assert 0.9 < float(task.rows.lengths.square().mean()) < 1.1, "typical rows are as long as 1 in the bought basis"
    other, _ = private_task("ipums-br d/4", folder, 40.0, 7, 0)
    assert torch.all(other.mu > task.mu)
    hinge, _ = private_task("ipums-br hinge", folder, 0.1, 7, 0)
    assert hinge.rows.model.loss.name == "hinge"
    quadratic, test = private_task("quadratic", folder, 0.1, 7, 0)
    assert test is None and quadratic.rows.model.loss.task == "regression"


def test_accuracy_rises_with_the_budget_and_repeats_are_reproducible(folder, small, tmp_path, monkeypatch):
    private_task.cache_clear()
    cell = TransferCell("matrix", "zero", "3-vs-5 PCA", 5.0, 20, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "mu_of", lambda epsilon, delta: 100 * epsilon)
        much = transfer.apply(cell, folder, tmp_path)
        little = transfer.apply(replace(cell, epsilon=1e-5), folder, tmp_path)
    assert much["accuracy"] > 0.9 > 0.8 > little["accuracy"] and much["loss"] < little["loss"]
    assert much["score"] == 100 * much["accuracy"]
    regression = transfer.apply(replace(cell, target="quadratic"), folder, tmp_path)
    assert regression["accuracy"] is None and regression["score"] < 100


@pytest.mark.slow
def test_transfer_trains_applies_resumes_and_pairs(folder, small, tmp_path):
    news = []
    run = partial(transfer.run_transfer, folder, out=tmp_path, repeats=2, jobs=1, report=news.append, quick=True)
    rows, trained = run(epochs=1)
    assert [row["name"] for row in trained] == [*transfer.PROTECTORS, "narrow"]
    assert {row["study"] for row in rows} == {"matrix", "dimension", "horizon", "budget"}
    matrix = {(row["target"], row["protector"]) for row in rows if row["study"] == "matrix"}
    assert len(matrix) == len(transfer.TARGETS) * 7
    zero = [row for row in rows if row["protector"] == "zero"]
    assert zero and all(row["over_zero"] == 0 and row["repeats"] == 2 for row in zero)
    assert any(row["over_momentum"] != 0 for row in zero)
    assert "training" in news and "applying" in news and news[-1][0] == news[-1][1] == 2 * len(rows)
    before = (tmp_path / "results.jsonl").read_text()
    (tmp_path / "protectors" / Lesson("svm", 1).file).unlink()
    again, _ = run(epochs=1)
    assert again == rows and (tmp_path / "results.jsonl").read_text() == before, "nothing is run twice"
    assert (tmp_path / "protectors" / Lesson("svm", 1).file).exists(), "what was deleted is trained again"
    for name, plot in (("m", studies_plots.plot_matrix), ("h", partial(studies_plots.plot_lines, study="horizon")),
                       ("b", partial(studies_plots.plot_lines, study="budget"))):  # fmt: skip
        plot(rows, path=tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_gains_are_paired():
    def row(name, repeat, score):
        place = {"study": "matrix", "target": "t", "epsilon": 0.1, "horizon": 4}
        return {**place, "protector": name, "repeat": repeat, "score": score, "loss": 1.0}

    rows = [row("zero", 0, 50.0), row("zero", 1, 70.0), row("momentum", 0, 50.0), row("momentum", 1, 70.0)]
    rows += [row("tables", 0, 51.0), row("tables", 1, 71.0)]
    gained = next(r for r in transfer.summary(rows) if r["protector"] == "tables")
    assert gained["over_zero"] == 1 and gained["over_zero_error"] == 0, "what splits have in common is not an error"
    assert gained["error"] == pytest.approx(10.0)
    assert transfer.standard_error([3.0]) == 0.0


def test_a_missing_file_is_named(tmp_path):
    for run in (transfer.run_transfer, ablation.run_ablation):
        with pytest.raises(ValueError, match=r"a9a\.parquet is not there; pass the folder .* --data"):
            run(tmp_path, out=tmp_path, repeats=1, jobs=1, report=print)


def test_variants_change_one_thing_and_cover_every_constraint():
    constraints = {variant.recipe.constraint for variant in ablation.VARIANTS}
    assert constraints == {"exact", "lagrangian", "tent", "batch_lagrangian", "batch_tent"}
    assert len(ablation.BY_NAME) == len(ablation.VARIANTS)
    assert ablation.BY_NAME["alternation"].updates == 6 and ablation.BY_NAME["full"].updates == 1


@pytest.mark.slow
def test_every_variant_trains_and_is_measured(folder, small, tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "memory_peak", lambda peak: {"megabytes": float(peak.steps), "seconds": 0.1})
    run = partial(ablation.run_ablation, folder, out=tmp_path, repeats=2, jobs=1, quick=True, epochs=1)
    tables = run(report=lambda news: None)
    variants = {row["variant"]: row for row in tables["variants"]}
    assert set(variants) == {*ablation.BY_NAME, "zero"}
    assert variants["full"]["accuracy_change"] == variants["full"]["loss_change"] == 0
    assert all(variants[name]["asked"] == pytest.approx(1, abs=1e-5) for name in ("full", "norm query", "constants"))
    assert all(math.isfinite(row["loss"]) and 0 <= row["accuracy"] <= 100 for row in variants.values())
    assert {row["protector"] for row in tables["steps"]} == {"full", "zero"} and len(tables["steps"]) == 2 * 4
    uniform = [row["spend"] for row in tables["steps"] if row["protector"] == "zero"]
    assert uniform == pytest.approx([0.25] * 4)
    assert run(report=lambda news: None) == tables
    plots = {"v": ("variants", studies_plots.plot_variants), "d": ("steps", studies_plots.plot_denoising),
             "i": ("steps", studies_plots.plot_influence), "m": ("memory", studies_plots.plot_memory)}  # fmt: skip
    for name, (table, plot) in plots.items():
        plot(tables[table], tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@pytest.fixture
def task():
    tasks = Tasks("t", (TaskSource("gaussian", columns=(20, 20)),), rows=300, copies=3, epsilon=(0.5, 0.5),
                  size=(3000, 3000))  # fmt: skip
    return tasks.draw(np.random.default_rng(0), horizon=10)


def test_a_schedule_that_asks_too_much_is_stopped_where_a_private_run_stops(task):
    design = Design(form="open", clip=False)
    weights = zero_weights(design)
    weights.scheduler.bias[:] = 0.5 * math.log(4.0)  # four times the even share: over after 2.5 steps of 10
    part = protector(weights, design)
    with torch.no_grad():
        thetas, asked = stopped_run(part, task, 0)
        assert asked.tolist() == pytest.approx([4.0] * 3)
        run = ablation.start(part, task)
        run, track = ablation.advance(part, task, run, 3, torch.Generator().manual_seed(0), limited=True)
    assert track.spent.sum(0).tolist() == pytest.approx([1.0] * 3)
    assert torch.equal(thetas, run.thetas), "where the third step led, whose noise is that of what was left"
    exact = protector(zero_weights(Design()), Design())
    assert stopped_run(exact, task, 0)[1].tolist() == pytest.approx([1.0] * 3, abs=1e-5)


def test_nearness():
    truth = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    stand_ins = torch.tensor([[[5.0, 0.0]], [[0.0, 5.0]]])
    cosine, error = dissect.nearness(stand_ins, truth)
    assert cosine.flatten().tolist() == [1.0, 0.0]
    assert error.flatten().tolist() == pytest.approx([0.5, math.hypot(1, 0.5)]), "one factor, 0.1, for both steps"
    assert dissect.nearness(7 * truth, truth)[1].max() < 1e-6, "a step size is no error"


def test_averaging_denoises_and_influence_is_the_derivative(task, monkeypatch):
    monkeypatch.setattr(dissect, "DRAWS", 1)
    part = protector(zero_weights(Design()), Design())
    noisy = dissect.dissect(part, task._replace(size=300.0), 0)
    assert np.mean(noisy["average_cosine"][5:]) > np.mean(noisy["released_cosine"][5:]) + 0.02
    seen = dissect.dissect(part, task, 0)
    assert seen["spend"] == pytest.approx([0.1] * 10)

    def final(step, factor):  # the noise of one step made larger, nothing else changed
        return (signed(step, factor, 1.0) + signed(step, factor, -1.0)) / 2

    def signed(step, factor, sign):
        generator, run = torch.Generator().manual_seed(0), dissect.start(part, task)
        with torch.no_grad():
            for t in range(task.horizon):
                std = (factor if t == step else 1.0) / (task.mu * math.sqrt(0.1) * task.size)
                clip, _, run = dissect.next_question(part, run)
                mean = task.rows.clipped_means(run.thetas, clip) / clip[:, None]
                answer = mean + sign * std[:, None] * torch.randn(mean.shape, generator=generator)
                run = dissect.answered(part, run, answer, std, clip, run.signal.remaining)
            return float(task.rows.mean_losses(run.thetas).double().mean()) / math.log(2)

    for step in (0, 9):
        slope = (final(step, math.exp(0.01)) - final(step, math.exp(-0.01))) / 0.02
        assert seen["influence"][step] == pytest.approx(slope, rel=0.1, abs=2e-5)


def test_memory_is_asked_of_another_process(monkeypatch):
    def in_this_process(command, env, **rest):
        assert env["OMP_NUM_THREADS"] == "1" and command[1] == "-c"
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(command[2], {})
        return subprocess.CompletedProcess(command, 0, told.getvalue(), "")

    monkeypatch.setattr(protector_speed.subprocess, "run", in_this_process)
    told = protector_speed.memory_peak(protector_speed.Peak("batch_lagrangian", 40))
    assert told["megabytes"] >= 0 and told["seconds"] > 0
    before = protector_speed._highest_kilobytes()
    status = Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else []
    now = next((int(line.split()[1]) for line in status if line.startswith("VmRSS:")), before)
    more = 100_000  # kilobytes beyond what other tests of this process have had
    held = torch.ones((before - now + more) * 256)
    assert held[-1] == 1 and protector_speed._highest_kilobytes() - before > 0.5 * more


def test_meta_steps_and_private_steps_run(monkeypatch):
    monkeypatch.setattr(protector_speed, "default_tasks",
                        lambda folder: Tasks("t", (TaskSource("gaussian", columns=(5, 5)),), rows=50, horizon=(2, 2)))  # fmt: skip
    assert protector_speed.meta_step_seconds(None, epochs=1) > 0
    protector_speed.projector_step(8)()
    plain, learned = protector_speed.full_batch_steps(200, 5)
    plain(), learned()
    assert protector_speed.default_tasks(None).sources and Recipe().epochs == protector_speed.EPOCHS
    assert new_weights(Design()).projector.inputs == 9
