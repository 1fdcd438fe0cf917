"""Learned protectors on arrays: the same runs as on tensors, whatever the design, and no step that is not finite."""

from __future__ import annotations

import math

import pytest
import torch

from noisewise.protect.learned.fast import (
    HEAVIEST,
    SMALL,
    FastProjector,
    FastQuestion,
    empty_memory,
    fast,
    net_from,
    run_net,
)
from noisewise.protect.learned.parts import Design, LearnedProjector, new_weights, protector, weights_from, zero_weights
from noisewise.protect.optimizers import Momentum
from noisewise.protect.protector import answered, begin, by_hand, finished, next_question
from noisewise.protect.signal import first_signal, one

HORIZON = 12
ONE, LAYERS = (7,), (6, 3, 2, 1)


def weights_of(design, seed=0, size=0.4):
    g = torch.Generator().manual_seed(seed)
    return weights_from({n: size * torch.randn(w.shape, generator=g) for n, w in new_weights(design).tensors().items()})


def whole_run(part, groups, *, seed=0):
    """Clip norms, shares and thetas of a run whose answers come from a seed, the last ones scaled."""
    d, g, left = sum(groups), torch.Generator().manual_seed(seed), 1.0
    signal = first_signal(1, d, horizon=HORIZON, ratio=one(20.0), typical_clip=0.5, groups=groups)
    at = begin(part, torch.randn(1, d, generator=g), signal)
    seen = []
    for _ in range(HORIZON):
        if part.norm_share:
            left *= 0.99
            norm = torch.rand(1, generator=g)
            at = at._replace(signal=at.signal._replace(paid_norm=norm, remaining=one(left)))
        clip, share, at = next_question(part, at)
        left *= 1 - 0.9 * float(share)
        std = 0.05 + 0.2 * torch.rand(1, generator=g)
        gradient = 0.1 + std[:, None] * torch.randn(1, d, generator=g)
        at = answered(part, at, gradient, std, clip, one(left))
        seen.append(torch.cat([clip, share, at.thetas[0]]))
    return torch.stack([*seen, torch.cat([clip, share, finished(part, at)[0]])])


@pytest.mark.parametrize("norm_share", [0.0, 0.1])
@pytest.mark.parametrize("groups", [ONE, LAYERS, (SMALL,)], ids=["one group", "layers", "large"])
@pytest.mark.parametrize("form", ["exact", "open"])
@pytest.mark.parametrize("inputs", ["normalised", "paper"])
def test_a_run_is_the_same_on_arrays_as_on_tensors(inputs, form, groups, norm_share):
    design = Design(units=5, inputs=inputs, form=form, norm_share=norm_share)
    slow = protector(weights_of(design), design)
    quick = fast(slow)
    assert isinstance(quick.together, FastQuestion) and isinstance(quick.projector, FastProjector)
    expected, found = whole_run(slow, groups), whole_run(quick, groups)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    if form == "exact" and inputs == "normalised":
        assert expected[:-2, 1].std() > 1e-3, "the schedule does something"
    other = whole_run(fast(protector(weights_of(design, seed=1), design)), groups)
    assert not torch.allclose(other, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("part", ["clip", "scheduler", "projector"])
def test_a_part_that_is_not_learned_stays(part):
    design = Design(units=4, **{part: False})
    slow = protector(weights_of(design), design)
    quick = fast(slow)
    assert (quick.together is None) == (part != "projector")
    assert isinstance(quick.projector, LearnedProjector if part == "projector" else FastProjector)
    expected = whole_run(slow, ONE)
    assert torch.allclose(whole_run(quick, ONE), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    designed = by_hand(Momentum(0.1))
    assert fast(designed) == designed


def test_a_clip_without_a_scale_has_none():
    design = Design(units=4)
    tensors = weights_of(design).tensors()
    tensors |= {"clip.head": tensors["clip.head"][:1], "clip.head_bias": tensors["clip.head_bias"][:1]}
    slow = protector(weights_from(tensors), design)
    assert fast(slow).scale is None is slow.scale
    expected = whole_run(slow, ONE)
    assert torch.allclose(whole_run(fast(slow), ONE), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_asking_and_moving_change_nothing_that_was_there():
    """A run is a value: the same run asked twice says the same, and goes to the same place."""
    design = Design(units=4)
    quick = fast(protector(weights_of(design), design))
    at = begin(quick, torch.zeros(1, 5), first_signal(1, 5, horizon=4, ratio=one(20.0), typical_clip=0.5))
    gradient = torch.linspace(-1, 1, 5)[None]
    for _ in range(3):
        first, again = next_question(quick, at), next_question(quick, at)
        assert first[:2] == again[:2]
        moved = [answered(quick, first[2], gradient, one(0.1), first[0], one(0.5)) for _ in range(2)]
        assert torch.equal(moved[0].thetas, moved[1].thetas) and not torch.equal(moved[0].thetas, at.thetas)
        at = moved[0]


@pytest.mark.parametrize("inputs", ["normalised", "paper"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e35, 3e38])
def test_no_weights_give_a_step_that_is_not_finite(value, inputs):
    """Each tensor of weights spoiled, alone and all at once."""
    design = Design(units=3, inputs=inputs)
    for spoiled in [*new_weights(design).tensors(), None]:
        tensors = weights_of(design).tensors()
        for name, weight in tensors.items():
            if spoiled in (name, None):
                weight.view(-1)[::2] = value
        seen = whole_run(fast(protector(weights_from(tensors), design)), ONE)
        assert torch.isfinite(seen).all() and (seen[:, :2] > 0).all() and (seen[:, 1] <= 1).all()


def test_zero_weights_are_the_zero_weight_protector():
    design = Design(units=3)
    zero = protector(zero_weights(design), design)
    assert torch.allclose(whole_run(fast(zero), ONE), whole_run(zero, ONE), rtol=1e-5, atol=1e-5)
    assert whole_run(fast(zero), ONE)[:-1, 1].tolist() == pytest.approx([1 / (HORIZON - t) for t in range(HORIZON)])


def test_a_net_keeps_its_weights_below_what_could_overflow():
    design = Design(units=3)
    tensors = {name: torch.full_like(weight, math.inf) for name, weight in new_weights(design).tensors().items()}
    net = net_from(weights_from(tensors).projector, 4)
    out, _ = run_net(net, 1e6 * torch.ones(4, 2).numpy(), [1e6] * 5, empty_memory(net, 2))
    assert abs(out).max() <= 10 * HEAVIEST
