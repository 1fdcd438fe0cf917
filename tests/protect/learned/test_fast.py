"""The protector of a private run takes the same steps as the one on tensors, whatever the design, and none that is not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from noisewise.protect.learned import fast, parts
from noisewise.protect.learned.fast import MAX_WEIGHT, FastProjector, FastQuestion, empty_memory, net_from, run_net
from noisewise.protect.learned.weights import Design, weights_from, zero_weights
from noisewise.protect.protector import answered, begin, finished, next_question
from noisewise.protect.schedules import FixedClip, Uniform
from noisewise.protect.signal import first_signal, one

HORIZON = 12
ONE, LAYERS, LARGE = (7,), (6, 3, 2, 1), (6000,)


def weights_of(design, seed=0, size=0.4):
    rng, zero = np.random.default_rng(seed), zero_weights(design).tensors()
    return weights_from({name: (size * rng.normal(size=w.shape)).astype(np.float32) for name, w in zero.items()})


def whole_run(part, groups, kind=np.asarray, *, seed=0):
    """Clip norms, shares and thetas of a run whose answers come from a seed, the last ones scaled; ``kind`` of array it is on."""
    d, rng, left = sum(groups), np.random.default_rng(seed), 1.0

    def normal():
        return rng.normal(size=(1, d)).astype(np.float32)

    signal = first_signal(1, d, horizon=HORIZON, ratio=kind(one(20.0)), typical_clip=0.5, groups=groups)
    at = begin(part, kind(normal()), signal)
    seen = []
    for _ in range(HORIZON):
        if part.norm_share:
            left *= 0.99
            norm = kind(one(rng.random()))
            at = at._replace(signal=at.signal._replace(paid_norm=norm, remaining=kind(one(left))))
        clip, share, at = next_question(part, at)
        left *= 1 - 0.9 * share.item()
        std = one(0.05 + 0.2 * rng.random())
        at = answered(part, at, kind(0.1 + std[:, None] * normal()), kind(std), clip, kind(one(left)))
        seen.append((clip, share, at.thetas[0]))
    seen.append((clip, share, finished(part, at)[0]))
    return np.stack([np.concatenate([np.asarray(what) for what in step]) for step in seen])


def on_tensors(weights, design, groups):
    return whole_run(parts.protector(weights, design), groups, torch.from_numpy)


def same(found, expected):
    return np.allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("norm_share", [0.0, 0.1])
@pytest.mark.parametrize("groups", [ONE, LAYERS, LARGE], ids=["one group", "layers", "large"])
@pytest.mark.parametrize("form", ["exact", "open"])
@pytest.mark.parametrize("inputs", ["normalised", "paper"])
def test_a_run_is_the_same_on_arrays_as_on_tensors(inputs, form, groups, norm_share):
    design = Design(units=5, inputs=inputs, form=form, norm_share=norm_share)
    quick = fast.protector(weights_of(design), design)
    assert isinstance(quick.together, FastQuestion) and isinstance(quick.projector, FastProjector)
    expected, found = on_tensors(weights_of(design), design, groups), whole_run(quick, groups)
    assert found.dtype == np.float32 and same(found, expected)
    if form == "exact" and inputs == "normalised":
        assert expected[:-2, 1].std() > 1e-3, "the schedule does something"
    other = whole_run(fast.protector(weights_of(design, seed=1), design), groups)
    assert not np.allclose(other, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("inputs", ["normalised", "paper"])
@pytest.mark.parametrize("form", ["exact", "open"])
@pytest.mark.parametrize(
    "off",
    [("clip",), ("scheduler",), ("projector",), ("clip", "scheduler"), ("clip", "scheduler", "projector")],
    ids=" ".join,
)
def test_a_part_that_is_not_learned_is_the_plain_one(off, form, inputs):
    design = Design(units=4, form=form, inputs=inputs, **dict.fromkeys(off, False))
    quick = fast.protector(weights_of(design), design)
    assert (quick.together is None) == ({"clip", "scheduler"} <= set(off))
    assert (quick.scale is None) == ("clip" in off)
    assert (quick.clip, quick.schedule) == (FixedClip(), Uniform())
    found = whole_run(quick, ONE)
    assert same(found, on_tensors(weights_of(design), design, ONE))
    if "clip" in off:
        assert (found[:, 0] == 0.5).all()
    if "scheduler" in off:
        assert found[:-1, 1] == pytest.approx([1 / (HORIZON - t) for t in range(HORIZON)])


def test_a_clip_without_a_scale_has_none():
    design = Design(units=4)
    tensors = weights_of(design).tensors()
    tensors |= {"clip.head": tensors["clip.head"][:1], "clip.head_bias": tensors["clip.head_bias"][:1]}
    weights = weights_from(tensors)
    quick = fast.protector(weights, design)
    assert quick.scale is None is parts.protector(weights, design).scale
    assert same(whole_run(quick, ONE), on_tensors(weights, design, ONE))


def test_asking_and_moving_change_nothing_that_was_there():
    """A run is a value: the same run asked twice says the same, and goes to the same place."""
    design = Design(units=4)
    quick = fast.protector(weights_of(design), design)
    at = begin(quick, np.zeros((1, 5), np.float32), first_signal(1, 5, horizon=4, ratio=one(20.0), typical_clip=0.5))
    gradient = np.linspace(-1, 1, 5, dtype=np.float32)[None]
    for _ in range(3):
        first, again = next_question(quick, at), next_question(quick, at)
        assert first[:2] == again[:2]
        moved = [answered(quick, first[2], gradient, one(0.1), first[0], one(0.5)) for _ in range(2)]
        assert np.array_equal(moved[0].thetas, moved[1].thetas) and not np.array_equal(moved[0].thetas, at.thetas)
        at = moved[0]


@pytest.mark.parametrize("inputs", ["normalised", "paper"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e35, 3e38])
def test_no_weights_give_a_step_that_is_not_finite(value, inputs):
    """Each array of weights spoiled, alone and all at once."""
    design = Design(units=3, inputs=inputs)
    for spoiled in [*zero_weights(design).tensors(), None]:
        tensors = weights_of(design).tensors()
        for name, weight in tensors.items():
            if spoiled in (name, None):
                weight.flat[::2] = value
        seen = whole_run(fast.protector(weights_from(tensors), design), ONE)
        assert np.isfinite(seen).all() and (seen[:, :2] > 0).all() and (seen[:, 1] <= 1).all()


def test_zero_weights_are_the_zero_weight_protector():
    design = Design(units=3)
    found = whole_run(fast.protector(zero_weights(design), design), ONE)
    assert np.allclose(found, on_tensors(zero_weights(design), design, ONE), rtol=1e-5, atol=1e-5)
    assert found[:-1, 1].tolist() == pytest.approx([1 / (HORIZON - t) for t in range(HORIZON)])


def test_a_net_keeps_its_weights_below_what_could_overflow():
    design = Design(units=3)
    arrays = {name: np.full_like(weight, math.inf) for name, weight in zero_weights(design).tensors().items()}
    net = net_from(weights_from(arrays).projector, 4)
    out, _ = run_net(net, np.full((4, 2), 1e6, np.float32), [1e6] * 5, empty_memory(net, 2))
    assert abs(out).max() <= 10 * MAX_WEIGHT
