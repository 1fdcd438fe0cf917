"""Protectors designed by hand: an ordinary optimiser with equal noise, run as one shape with the learned ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisewise.curator import Answer
from noisewise.protect.optimizers import Adam, Momentum, Sgd
from noisewise.protect.protector import (
    FixedClip,
    Protector,
    Stepped,
    Uniform,
    answered,
    begin,
    by_hand,
    finished,
    next_question,
)
from noisewise.protect.signal import first_signal
from noisewise.trusted.losses import Hinge, HuberHinge, Logistic, Softmax, Squared

HORIZON = 12


def walk(protector, gradients, start, spend_norm=0.0):
    """Thetas, shares and what is left after each step, for given gradients (T, R, d)."""
    copies, d = start.shape
    signal = first_signal(copies, d, horizon=len(gradients), ratio=np.ones(copies), typical_clip=0.5)
    run, path, shares, lefts = begin(protector, start, signal), [], [], []
    for gradient in gradients:
        clip, share, run = next_question(protector, run)
        left = run.signal.remaining * (1 - share)
        run = answered(protector, run, gradient, np.ones(copies), clip, left)
        path.append(run.thetas), shares.append(share), lefts.append(left)
    return np.stack(path), np.stack(shares), np.stack(lefts)


def gradients(copies=2, d=3):
    return np.random.default_rng(0).normal(size=(HORIZON, copies, d))


@pytest.mark.parametrize("rule", [Sgd(0.1), Momentum(0.1, 0.9), Adam(0.1)], ids=repr)
def test_a_rule_in_a_protector_steps_as_it_does_alone(rule):
    start, heard = np.ones((1, 3)), gradients(copies=1)
    path, _, _ = walk(by_hand(rule), heard, start)
    theta, state = start[0], rule.init(3)
    for gradient, there in zip(heard, path, strict=True):
        theta, state = rule(Answer(gradient[0], 0.0), theta, state)
        assert np.array_equal(theta, there[0])


def test_equal_noise_spends_the_same_at_every_step_and_everything_in_all():
    _, shares, lefts = walk(by_hand(Sgd(0.1)), gradients(), np.zeros((2, 3)))
    assert np.allclose(shares[:, 0], [1 / (HORIZON - t) for t in range(HORIZON)])
    spent = -np.diff(np.concatenate([np.ones((1, 2)), lefts]), axis=0)
    assert np.allclose(spent, 1 / HORIZON, atol=1e-6)
    assert not lefts[-1].any()


def test_past_its_horizon_it_still_asks_for_a_share():
    signal = first_signal(1, 2, horizon=3, ratio=np.ones(1), typical_clip=1.0)
    for step in (2, 3, 10):
        share, _ = Uniform()(signal._replace(step=step), None)
        assert share == 1.0


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_the_fixed_clip_is_a_multiple_of_the_typical_one(factor):
    signal = first_signal(4, 2, horizon=3, ratio=np.ones(4), typical_clip=0.5)
    clip, _ = FixedClip(factor)(signal, None)
    assert np.array_equal(clip, np.full(4, 0.5 * factor))


@pytest.mark.parametrize(
    "loss, clip",
    [
        (Logistic(), 0.5),
        (Hinge(), 1.0),
        (HuberHinge(), 1.0),
        (Squared(signs=True), 2.0),
        (Squared(), 1.0),
        (Softmax(), 1.0),
    ],
)
def test_the_typical_clip_is_the_slope_at_the_start(loss, clip):
    assert loss.typical_clip == clip


def test_copies_do_not_feel_each_other():
    heard, start = gradients(copies=3), np.random.default_rng(1).normal(size=(3, 3))
    protector = by_hand(Momentum(0.1, 0.9), clip_factor=2.0)
    together, _, _ = walk(protector, heard, start)
    for copy in range(3):
        alone, _, _ = walk(protector, heard[:, copy : copy + 1], start[copy : copy + 1])
        assert np.allclose(together[:, copy], alone[:, 0])


def test_each_part_keeps_its_own_memory():
    class Counting:
        def init(self, copies, dimension):
            return (copies, dimension, 0)

        def __call__(self, signal, memory):
            return np.full(signal.copies, 0.5), (*memory[:2], memory[2] + 1)

    protector = Protector(Counting(), Counting(), Stepped(Sgd(1.0)))
    signal = first_signal(2, 3, horizon=5, ratio=np.ones(2), typical_clip=1.0)
    before = begin(protector, np.zeros((2, 3)), signal)
    _, _, asked = next_question(protector, before)
    assert before.clip_memory == before.schedule_memory == (2, 3, 0)
    assert asked.clip_memory == asked.schedule_memory == (2, 3, 1)
    after = answered(protector, asked, np.ones((2, 3)), np.ones(2), np.ones(2), np.ones(2))
    assert after.signal.step == 1 and after.schedule_memory == (2, 3, 1)
    assert np.array_equal(after.thetas, -np.ones((2, 3))) and np.array_equal(asked.thetas, np.zeros((2, 3)))


def test_of_layers_the_last_two_thetas_are_averaged_where_a_protector_says_so():
    thetas, before = np.full((2, 3), 4.0), np.zeros((2, 3))
    for settle, groups, expected in ((True, (1, 2), 2.0), (True, (3,), 4.0), (False, (1, 2), 4.0)):
        part = replace(by_hand(Sgd(0.1)), settle=settle)
        signal = first_signal(2, 3, horizon=5, ratio=np.ones(2), typical_clip=1.0, groups=groups)
        run = begin(part, thetas, signal)
        assert np.array_equal(finished(part, run, before), np.full((2, 3), expected))
        assert np.array_equal(finished(part, run), thetas)
