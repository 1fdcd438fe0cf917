"""Evaluation on held-out tasks: paired, ended as private runs end, and right about what it measures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from noisewise.learned.evaluate import (
    accuracy,
    best_horizon,
    default_epsilons,
    designed,
    ended,
    evaluate_protector,
    held_out_task,
    on_one_thread,
)
from noisewise.learned.meta_training import stopped_loss
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.learned.unroll import starts
from noisewise.protect.learned.parts import new_weights, protector
from noisewise.protect.learned.weights import Design, weights_from, zero_weights
from noisewise.protect.learned.zoo import Learned
from noisewise.protect.optimizers import Sgd
from noisewise.protect.protector import by_hand
from noisewise.trusted.accountants.gdp import mu_of

TASKS = Tasks(
    "tiny",
    (TaskSource("gaussian", columns=(4, 8), losses=("logistic",), weight=3.0), TaskSource("quadratic", columns=(4, 4))),
    size=(2000, 4000),
    horizon=(4, 16),
    rows=60,
    copies=2,
)
OPEN = Design(units=3, form="open")
RANGES = {"size": [1, 1e6], "dimension": [1, 100], "epsilon": [0.01, 1], "horizon": [1, 100]}


def a_task(epsilon=0.5, horizon=8, copies=3, number=0, tasks=TASKS):
    return held_out_task(tasks, number, 4, epsilon=epsilon, horizon=horizon, copies=copies)


def learned_with(weights, design, horizon=6):
    return Learned(weights, design, {"name": "x", "sha256": "", "horizon": horizon, "ranges": RANGES})


def always(design, value):
    """Weights whose scheduler says ``value`` at every step."""
    tensors = {name: weight.copy() for name, weight in zero_weights(design).tensors().items()}
    tensors["scheduler.head_bias"] += value
    return weights_from(tensors)


def test_a_task_is_the_same_for_every_epsilon_but_for_its_budget():
    one, other = a_task(0.1), a_task(0.4)
    assert torch.equal(one.rows.X, other.rows.X) and one.size == other.size
    assert one.mu.tolist() == pytest.approx([mu_of(0.1, TASKS.delta)] * 3)
    assert other.mu.tolist() == pytest.approx([mu_of(0.4, TASKS.delta)] * 3)


def test_a_bought_basis_is_paid_for():
    bought = replace(TASKS, sources=(replace(TASKS.sources[0], basis=1.0),))
    assert float(a_task(0.1, tasks=bought).mu[0]) == pytest.approx(math.sqrt(1 - 0.055) * mu_of(0.1, TASKS.delta))


def test_sources_take_turns_by_weight():
    names = [a_task(number=number).name.split()[0] for number in range(4)]
    assert names == ["gaussian"] * 3 + ["quadratic"]


def test_runs_end_as_an_unrolled_run_does_when_the_schedule_is_exact():
    design = Design(units=3, clip=False)  # so that nothing scales the last theta
    part, task = protector(new_weights(design, 1), design), a_task()
    end = ended(part, task, seed=5)
    expected = stopped_loss(part, task, torch.Generator().manual_seed(5))
    assert float(end.losses.mean()) == pytest.approx(expected, rel=1e-6)
    assert end.spent.tolist() == pytest.approx([1.0] * 3, abs=1e-5) and end.steps.tolist() == [8.0] * 3


@pytest.mark.parametrize(("factor", "steps"), [(2.0, 4), (0.5, 8), (4.0, 2)])
def test_an_open_schedule_stops_where_its_budget_ends(factor, steps):
    part, task = protector(always(OPEN, math.log(factor) / 2), OPEN), a_task()
    end = ended(part, task, seed=5)
    assert end.wanted.tolist() == pytest.approx([factor] * 3, rel=1e-4)
    assert end.spent.tolist() == pytest.approx([min(factor, 1.0)] * 3, rel=1e-4)
    assert end.steps.tolist() == [steps] * 3


def test_the_step_that_would_overspend_gets_what_is_left():
    """At 0.4 of the budget a step the third would overspend: it is made with the rest, not left out, and is the last."""
    part, task = protector(always(OPEN, math.log(8 / 3 * 1.2) / 2), OPEN), a_task()
    end = ended(part, task, seed=5)
    assert end.steps.tolist() == [3.0] * 3 and end.spent.tolist() == pytest.approx([1.0] * 3, rel=1e-4)


def test_spent_counts_paid_norms():
    design = Design(units=3, norm_share=0.3)
    end = ended(protector(zero_weights(design), design), a_task(), seed=0)
    assert end.spent.tolist() == pytest.approx([1.0] * 3, abs=1e-4)


def test_accuracy_of_each_kind_of_model():
    task = a_task()
    batch = task.rows
    theta = torch.randn(task.rows.model.dimension, generator=torch.Generator().manual_seed(0))
    right = ((batch.X @ theta > 0) == (batch.y > 0)).double().mean()
    assert accuracy(task, theta[None]) == pytest.approx(float(right))
    assert accuracy(task, torch.stack([theta, -theta])) == pytest.approx(0.5)
    softmax = replace(TASKS, sources=(TaskSource("gaussian", columns=(4, 4), losses=("softmax",)),))
    classes = a_task(tasks=softmax)
    direction = torch.randn(5, generator=torch.Generator().manual_seed(0))
    said = (classes.rows.X @ direction > 0).long()
    expected = (said == classes.rows.y).double().mean()
    assert accuracy(classes, torch.cat([-direction, direction])[None]) == pytest.approx(float(expected))
    assert math.isnan(accuracy(a_task(number=3), torch.zeros(1, 5)))


def test_the_designed_protector_learns_and_is_stable():
    for epsilon in (0.01, 100.0):
        task = a_task(epsilon, horizon=16)
        start = float(task.rows.mean_losses(starts(task.rows.model)))
        end = float(ended(designed(task), task, seed=0).losses.mean())
        assert math.isfinite(end) and (epsilon < 1 or end < start)


def test_rows_are_complete_and_gains_are_paired():
    design = Design(units=3)
    rows = evaluate_protector(
        learned_with(new_weights(design, 3), design), TASKS, epsilons=[0.1, 0.8], many=4, copies=2
    )
    assert [(row["epsilon"], row["protector"]) for row in rows] == [
        (epsilon, name) for epsilon in (0.1, 0.8) for name in ("learned", "zero-weight", "momentum")
    ]
    learned, untrained, momentum = rows[:3]
    assert learned["loss_gain"] is None and learned["accuracy_gain"] is None
    for row in (untrained, momentum):
        assert row["loss_gain"] == pytest.approx(row["loss"] - learned["loss"])
        assert row["accuracy_gain"] == pytest.approx(learned["accuracy"] - row["accuracy"])
    assert (
        0 < untrained["loss_gain_se"] < 0.2 * untrained["loss_se"]
    )  # fresh weights are almost zero: a paired difference
    assert all(row["steps"] == 6 and row["spent"] == pytest.approx(1, abs=1e-4) for row in rows)


def test_a_protector_compared_with_itself_gains_nothing():
    design = Design(units=3)
    rows = evaluate_protector(learned_with(zero_weights(design), design), TASKS, epsilons=[0.2], many=3, copies=2)
    assert rows[1]["loss_gain"] == 0 and rows[1]["loss_gain_se"] == 0 and rows[1]["accuracy_gain"] == 0


def test_regression_alone_has_no_accuracy_and_one_task_no_error():
    quadratic = replace(TASKS, sources=TASKS.sources[1:])
    design, told = Design(units=3), []
    rows = evaluate_protector(learned_with(zero_weights(design), design), quadratic, epsilons=[0.2], many=1,
                    report=lambda done, total: told.append((done, total)))  # fmt: skip
    assert rows[0]["accuracy"] is None and rows[0]["loss"] > 0 and rows[0]["loss_se"] is None
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_bad_epsilons_are_refused():
    design = Design(units=3)
    with pytest.raises(ValueError, match="epsilons is -1"):
        evaluate_protector(learned_with(zero_weights(design), design), TASKS, epsilons=[-1.0])


def test_default_epsilons_lie_in_the_range():
    assert default_epsilons(replace(TASKS, epsilon=(0.03, 0.2))) == (0.05, 0.1, 0.2)
    assert default_epsilons(replace(TASKS, epsilon=(2.0, 8.0))) == (4.0,)


def test_the_best_horizon_is_the_one_with_the_least_loss():
    design = Design(units=3)
    found = best_horizon(zero_weights(design), design, TASKS, tried=3, many=3, copies=2)
    assert list(found.losses) == [4, 8, 16]
    assert found.losses[found.best] == min(found.losses.values())
    assert all(0 < loss <= 2 for loss in found.losses.values())
    narrow = best_horizon(zero_weights(design), design, replace(TASKS, horizon=(5, 5)), many=2, copies=2)
    assert narrow.best == 5


def test_more_steps_are_better_when_there_is_no_noise_to_speak_of(monkeypatch):
    """A protector by hand whose step size does not depend on the horizon: the longest run wins."""
    monkeypatch.setattr("noisewise.learned.evaluate.protector", lambda weights, design: by_hand(Sgd(0.5)))
    rich = replace(TASKS, epsilon=(50.0, 100.0), sources=TASKS.sources[:1])
    design = Design(units=3)
    found = best_horizon(zero_weights(design), design, rich, tried=3, many=2, copies=2)
    assert found.best == 16 and found.losses[4] > found.losses[8] > found.losses[16]


def test_one_thread_gives_the_threads_back():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), on_one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_evaluation_is_repeatable():
    design = Design(units=3)
    first, second = (
        evaluate_protector(learned_with(new_weights(design, 3), design), TASKS, epsilons=[0.1], many=2, copies=2)
        for _ in range(2)
    )
    assert first == second and not np.isnan(first[0]["loss"])
