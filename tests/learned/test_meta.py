"""Meta-training: each way to hold the budget trains, its formulas are the paper's, and a run can be taken up again."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from noisewise.learned import meta_training as meta
from noisewise.learned.meta_training import (
    CONSTRAINTS,
    PAPER_DESIGN,
    PAPER_RECIPE,
    Recipe,
    Training,
    shared_out,
    soft_shares,
    stopped_loss,
    tent_average,
)
from noisewise.learned.tasks import Tasks, TaskSource
from noisewise.learned.unroll import Track
from noisewise.protect.learned.parts import protector
from noisewise.protect.learned.weights import Design, zero_weights

TINY = Tasks(
    "tiny", (TaskSource("gaussian", columns=(3, 5)),), epsilon=(1.0, 2.0), size=(2000, 3000), horizon=(4, 6), rows=60,
    copies=2,
)  # fmt: skip
SMALL = Design(units=3)


def training(constraint="exact", tasks=TINY, design=SMALL, **recipe):
    settings = {"epochs": 3, "batch": 2, "warm_up": 1, **recipe}
    return Training(tasks, design, Recipe(constraint=constraint, **settings))


def copied(training):
    return {name: weight.detach().clone() for name, weight in training.weights.tensors().items()}


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize("constants", [False, True])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_every_constraint_trains(constraint, constants):
    run = training(constraint, constants=constants, learning_rate=1e-2)
    before = copied(run)
    curve = list(run)
    after = copied(run)
    assert [epoch.number for epoch in curve] == [0, 1, 2] and len(run.curve) == 3
    assert all(torch.isfinite(weight).all() for weight in after.values())
    for part in ("scheduler.head", "projector.head", "clip.head", "rate"):
        assert not torch.equal(before[part], after[part]), part
    assert all(np.isfinite(epoch.objective) and epoch.seconds > 0 for epoch in curve)
    assert run.design.form == ("exact" if constraint == "exact" else "open")
    if constraint == "exact":
        assert all(epoch.spent == pytest.approx(1, abs=1e-4) for epoch in curve)


@pytest.mark.parametrize("constraint", ["lagrangian", "batch_lagrangian"])
def test_a_constraint_pulls_an_overspending_schedule_back(constraint):
    """A schedule that starts at 1.8 times the budget moves towards it."""
    run = training(constraint, epochs=15, learning_rate=5e-2)
    with torch.no_grad():
        run.weights.scheduler.bias.fill_(0.3)
    curve = list(run)
    assert curve[0].spent > 1.5 and np.mean([epoch.spent for epoch in curve[-3:]]) < curve[0].spent - 0.25


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_turn_changes_only_its_own_weights(constraint, monkeypatch):
    turns, update = [], Training._update

    def spied(self, loss, turn):
        before = copied(self)
        update(self, loss, turn)
        turns.append((turn, changed(before, copied(self))))

    monkeypatch.setattr(Training, "_update", spied)
    list(training(constraint, scheduler_updates=1, projector_updates=2, epochs=2))
    assert {turn for turn, _ in turns} == {"scheduler", "projector"}
    for turn, names in turns:
        assert names, "every update moves something"
        assert all(name.startswith("scheduler.") == (turn == "scheduler") for name in names), (turn, names)
    order = [turn for turn, _ in turns]
    per_turn = len(order) // 6
    assert order == ["scheduler"] * per_turn + ["projector"] * 2 * per_turn + order[: 3 * per_turn]


@pytest.mark.sample(2)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_training_taken_up_ends_where_it_would_have(constraint):
    """Through JSON, as a file would keep it; with a horizon that moves and with alternating updates."""
    recipe = {"epochs": 6, "learn_horizon": True, "scheduler_updates": 1, "projector_updates": 1}
    whole = training(constraint, **recipe)
    list(whole)
    first = training(constraint, **recipe)
    for _ in range(3):
        first.epoch()
    tensors, plain = first.state()
    plain = json.loads(json.dumps(plain))
    for _ in range(2):  # the same state serves twice: going on does not change it
        second = training(constraint, **recipe)
        second.take_up(tensors, plain)
        assert len(second.curve) == 3
        list(second)
        assert not changed(copied(whole), copied(second))
        assert [e[:4] for e in second.curve] == [e[:4] for e in whole.curve]
        assert second.horizon == whole.horizon
        assert all(torch.equal(a, b) for a, b in zip(whole.multipliers[:2], second.multipliers[:2], strict=True))


@pytest.mark.parametrize("constraint", ["batch_lagrangian", "batch_tent"])
def test_a_batch_keeps_no_graph_of_those_before(constraint, monkeypatch):
    entered, go = [], meta.advance

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        return [t for part in value for t in tensors(part)] if isinstance(value, tuple) else []

    def spied(part, task, run, steps, generator, **rest):
        entered.append((steps, any(tensor.requires_grad for tensor in tensors(run)), run.signal.step))
        return go(part, task, run, steps, generator, **rest)

    monkeypatch.setattr(meta, "advance", spied)
    run = training(constraint, epochs=1)
    list(run)
    assert len(entered) >= 2
    assert entered == [(min(2, run.horizon - at), False, at) for at in range(0, run.horizon, 2)]


def test_a_seed_decides_a_training():
    one, same, other = (training(seed=seed, epochs=2) for seed in (1, 1, 2))
    for run in (one, same, other):
        list(run)
    assert not changed(copied(one), copied(same)) and changed(copied(one), copied(other))


def test_gradients_that_are_not_finite_change_nothing():
    run = training()
    before = copied(run)
    run._update(run.weights.rate.sum() * float("nan"), "all")
    assert not changed(before, copied(run))


@pytest.mark.parametrize("seed", range(5))
def test_shared_out_minimises_equation_5(seed):
    rng = np.random.default_rng(seed)
    many, mu, z_r, mu_r = rng.integers(1, 8), rng.uniform(0.01, 1), rng.normal(), rng.uniform(0.01, 1)
    wanted = rng.uniform(0, 0.6, many)

    def objective(r):
        h = r.sum() - 1
        return ((wanted - r) ** 2).sum() / (2 * mu) - z_r * h + h**2 / (2 * mu_r)

    found = minimize(objective, np.zeros(many), method="BFGS", options={"gtol": 1e-9}).x
    r, h_r = shared_out(torch.from_numpy(wanted), mu, z_r, mu_r)
    assert r.numpy() == pytest.approx(found, abs=1e-5)
    assert h_r == pytest.approx(float(r.sum()) - 1, abs=1e-6)


def test_the_multipliers_drive_the_shares_to_one():
    """Eq. 5 with z_r <- z_r - h_r/mu_r again and again: the shares come to add up to the budget."""
    wanted, mu, z_r = torch.tensor([0.5, 0.7, 0.4]), 0.05, 0.0
    for _ in range(60):
        r, h_r = shared_out(wanted, mu, z_r, mu)
        z_r -= h_r / mu
    assert float(r.sum()) == pytest.approx(1, abs=1e-4)
    assert torch.allclose(r - wanted, (r - wanted).mean().expand(3), atol=1e-5), "all give way alike"


def tent_by_hand(losses, spent, horizon):
    """F and its two-term gradient (Eq. 3) in the losses and in what was spent, for one copy."""
    h = np.cumsum(spent) - 1
    end = min(int((h < 0).sum()), len(h) - 1)
    near = np.abs(np.arange(len(h)) - end) <= max(1, round(0.25 * horizon))
    tent = np.where(near, np.maximum(1 - np.abs(h), 0), 0.0)
    average = (tent * losses).sum() / tent.sum()
    slope = np.where(near & (np.abs(h) < 1), -np.sign(h), 0.0)  # of the tent in h_t; h_t moves with every earlier spend
    second = np.array([((losses - average) * slope)[j:].sum() for j in range(len(h))]) / tent.sum()
    return average, tent / tent.sum(), second


@pytest.mark.parametrize("seed", range(6))
def test_the_tent_and_its_gradient_are_equation_3(seed):
    rng = np.random.default_rng(seed)
    steps, horizon = 12, 8
    losses, spent = rng.uniform(0.3, 0.7, (steps, 2)), rng.uniform(0.02, 0.25, (steps, 2))
    f, s = (torch.from_numpy(x).requires_grad_(True) for x in (losses, spent))
    average = tent_average(Track(f, s, s), horizon)
    in_losses, in_spent = torch.autograd.grad(average.sum(), (f, s))
    for copy in range(2):
        value, first, second = tent_by_hand(losses[:, copy], spent[:, copy], horizon)
        assert float(average[copy].detach()) == pytest.approx(value, rel=1e-4)
        assert in_losses[:, copy].numpy() == pytest.approx(first, abs=1e-4)
        assert in_spent[:, copy].numpy() == pytest.approx(second, rel=1e-3, abs=1e-4)


def test_the_tent_looks_where_the_budget_ends():
    """Losses that fall late: a schedule whose budget lasts longer has the smaller tent average."""
    losses = torch.linspace(1, 0, 20)[:, None]
    early, late = (torch.full((20, 1), 1 / steps) for steps in (6, 15))
    assert float(tent_average(Track(losses, late, late), 12)) < float(tent_average(Track(losses, early, early), 12))
    nothing = torch.zeros(20, 1)
    assert torch.isfinite(tent_average(Track(losses, nothing, nothing), 12)).all()


def equation_6(r, wanted, means, mu):
    h = np.cumsum(r) - 1
    end = min(int((h <= 0).sum()), len(r) - 1)
    tent = np.where(np.abs(np.arange(len(r)) - end) <= 1, np.maximum(1 - np.abs(h), 0), 0.0) + 1e-6
    return ((wanted - r) ** 2).sum() / (2 * mu) + (tent * means).sum() / tent.sum()


@pytest.mark.parametrize("seed", range(8))
def test_soft_shares_lower_equation_6(seed):
    rng = np.random.default_rng(seed)
    wanted, means, mu = rng.dirichlet(np.ones(5)) * rng.uniform(0.8, 1.2), rng.uniform(0.3, 0.7, 5), 0.01
    r = soft_shares(torch.from_numpy(wanted), torch.from_numpy(means), mu).numpy()
    assert equation_6(r, wanted, means, mu) <= equation_6(wanted, wanted, means, mu) + 1e-9
    assert not np.allclose(r, wanted)


def test_falling_losses_make_the_budget_last():
    """Eq. 7: while the loss still falls from batch to batch, shares shrink so that the budget ends later."""
    wanted = torch.full((5,), 0.25, dtype=torch.float64)
    falling = torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1], dtype=torch.float64)
    assert float(soft_shares(wanted, falling, 0.01).sum()) < 1.25 < float(soft_shares(wanted, 1 - falling, 0.01).sum())


def test_a_run_that_stops_is_judged_where_it_stops():
    design = Design(units=3, form="open")
    weights = zero_weights(design)
    task = TINY.draw(np.random.default_rng(0), horizon=10)
    part = protector(weights, design)
    whole = stopped_loss(part, task, torch.Generator().manual_seed(0))
    weights.scheduler.bias[:] = 3.0  # everything at the first step
    short = stopped_loss(protector(weights, design), task, torch.Generator().manual_seed(0))
    assert whole != short and np.isfinite(whole) and np.isfinite(short)


def test_a_horizon_moves_within_its_range():
    tasks = Tasks("h", TINY.sources, epsilon=(1.0, 2.0), size=(2000, 3000), horizon=(4, 16), rows=60, copies=2)
    run = training("batch_lagrangian", tasks=tasks, epochs=6, learn_horizon=True)
    horizons = {epoch.horizon for epoch in run}
    assert all(4 <= horizon <= 16 for horizon in horizons)
    assert len(run.multipliers.z) == len(run.multipliers.r) == -(-run.horizon // 2)
    fixed = training("batch_lagrangian", tasks=tasks, epochs=2)
    assert len({epoch.horizon for epoch in fixed}) == 1


@pytest.mark.parametrize("constraint", ["tent", "batch_tent"])
def test_the_tent_forms_move_their_horizon_to_where_the_budget_ends(constraint):
    """With spending three times too fast, T falls and the scheduler with it: a step costs what it did, a run the budget."""
    tasks = Tasks("h", TINY.sources, epsilon=(1.0, 2.0), size=(2000, 3000), horizon=(4, 24), rows=60, copies=2)
    run = training(constraint, tasks=tasks, epochs=5, learning_rate=1e-9)
    with torch.no_grad():
        run.weights.scheduler.bias.fill_(math.log(3) / 2)
    before = run.horizon
    epochs = list(run)
    assert {epoch.horizon for epoch in epochs} == {before}  # moved after the fifth
    assert run.horizon == pytest.approx(before / 3, abs=1) and run.asked == []
    assert float(run.weights.scheduler.bias.detach()) == pytest.approx(0, abs=0.02)
    again = training(constraint, tasks=tasks, epochs=5, learning_rate=1e-9)
    with torch.no_grad():
        again.weights.scheduler.bias.fill_(-math.log(100) / 2)  # far too slowly: T ends at its range
    list(again)
    assert again.horizon == 24


def test_paid_norms_count_in_what_was_asked():
    run = Training(TINY, Design(norm_share=0.5), Recipe(constraint="tent", epochs=1, learning_rate=1e-9, warm_up=1))
    list(run)
    assert run.asked[0] > 1.2  # the even shares of the gradients, and half as much again for norms


def test_only_the_tents_keep_what_was_asked():
    run = training("lagrangian", epochs=2)
    list(run)
    assert run.asked == []


def test_training_starts_where_the_recipe_says():
    fresh, moved = training(), training(start_rate=4.0, start_clip=0.1)
    assert float(torch.exp(2 * moved.weights.rate.detach())) == pytest.approx(4.0)
    assert float(torch.exp(2 * moved.weights.clip.bias[0].detach())) == pytest.approx(0.1)
    assert torch.equal(fresh.weights.projector.head, moved.weights.projector.head)


def test_the_papers_preset():
    assert (PAPER_RECIPE.epochs, PAPER_RECIPE.scheduler_updates, PAPER_RECIPE.projector_updates) == (100, 1, 5)
    assert PAPER_RECIPE.in_batches and PAPER_RECIPE.batch == 20 and meta.PAPER_HORIZON == 1000
    assert PAPER_DESIGN.inputs == "paper" and PAPER_DESIGN.norm_share > 0 and PAPER_DESIGN.units == 20


@pytest.mark.parametrize(
    "wrong", [{"constraint": "hope"}, {"epochs": 0}, {"batch": 0}, {"learning_rate": 0.0}, {"penalty": -1.0},
              {"final_weight": 1.5}, {"start_rate": 0.0}, {"start_rate": 500.0}, {"start_clip": -1.0}, {"start_clip": 0.01}, {"start_clip": 3.0}, {"scheduler_updates": 1}, {"gradient_clip": 0.0}]
)  # fmt: skip
def test_a_wrong_recipe_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Recipe(**wrong)
