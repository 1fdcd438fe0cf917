"""The learned protector as a function of the signal: its zero point, its symmetries, and that no weights break it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.protect.learned.formulas import MAX_COORDINATE
from noisewise.protect.learned.parts import LearnedSchedule, new_weights, protector
from noisewise.protect.learned.weights import Design, weights_from, zero_weights
from noisewise.protect.protector import answered, begin, finished, next_question
from noisewise.protect.signal import first_signal

HORIZON, COPIES, D = 9, 2, 5
DESIGNS = [
    Design(units=4, form=form, inputs=inputs, clip=clip)
    for form in ("exact", "open")
    for inputs in ("normalised", "paper")
    for clip in (True, False)
]


def wild(design, size, seed=0, poison=None):
    """Weights drawn at a size; ``poison`` puts a number that is not finite in every tensor."""
    g = torch.Generator().manual_seed(seed)
    tensors = {k: size * torch.randn(w.shape, generator=g) for k, w in new_weights(design).tensors().items()}
    if poison is not None:
        for weight in tensors.values():
            weight.view(-1)[int(torch.randint(weight.numel(), (1,), generator=g))] = poison
    return weights_from(tensors)


def walk(part, *, horizon=HORIZON, copies=COPIES, d=D, groups=(), gradients=None, start=None, noise=0.1):
    """(clips, shares, what is left, thetas) of every step, on given gradients (T, R, d)."""
    g = torch.Generator().manual_seed(4)
    gradients = torch.randn(horizon, copies, d, generator=g) if gradients is None else gradients
    signal = first_signal(
        copies, d, horizon=horizon, ratio=torch.full((copies,), 30.0), typical_clip=0.5, groups=groups
    )
    run = begin(part, torch.zeros(copies, d) if start is None else start, signal)
    seen = []
    for gradient in gradients:
        clip, share, run = next_question(part, run)
        left = run.signal.remaining * (1 - share)
        run = answered(part, run, gradient, torch.full((copies,), noise), clip, left)
        seen.append((clip, share, left, run.thetas))
    return tuple(torch.stack(what) for what in zip(*seen, strict=True))


@pytest.mark.parametrize("design", DESIGNS, ids=repr)
def test_zero_weights_are_plain_descent_with_equal_noise(design):
    gradients = torch.randn(HORIZON, COPIES, D, generator=torch.Generator().manual_seed(0))
    start = torch.randn(COPIES, D, generator=torch.Generator().manual_seed(1))
    clips, _, lefts, thetas = walk(protector(zero_weights(design), design), gradients=gradients, start=start)
    assert torch.equal(clips, torch.full_like(clips, 0.5))
    spent = -torch.diff(torch.cat([torch.ones(1, COPIES), lefts]), dim=0)
    assert torch.allclose(spent, torch.full_like(spent, 1 / HORIZON), atol=1e-6)
    theta = start.double()
    for t in range(HORIZON):  # n mu / T, and n mu is the ratio times sqrt(d)
        theta = theta - 30 * math.sqrt(D) / HORIZON * gradients[t].double()
        assert torch.allclose(thetas[t].double(), theta, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inputs", ["normalised", "paper"])
@given(size=st.sampled_from([1e-3, 0.1, 1.0, 30.0, 1e6]), seed=st.integers(0, 10**6), horizon=st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_the_exact_schedule_spends_everything_and_no_more(inputs, size, seed, horizon):
    design = Design(units=3, inputs=inputs)
    _, shares, lefts, _ = walk(protector(wild(design, size, seed), design), horizon=horizon, d=3)
    assert torch.equal(shares[-1], torch.ones(COPIES)), "the last step takes all that is left"
    assert not lefts[-1].any()
    assert bool((shares > 0).all()) and bool((shares <= 1).all())
    assert bool((lefts >= 0).all())


@pytest.mark.parametrize("design", DESIGNS, ids=repr)
@pytest.mark.parametrize("poison", [None, math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e6, 1e30])
def test_no_weights_break_a_step(design, poison, size):
    for seed in range(3):
        clips, shares, _, thetas = walk(protector(wild(design, size, seed, poison), design))
        assert bool((shares > 0).all()) and bool((shares <= 1).all())
        assert bool((clips > 0).all()) and bool(torch.isfinite(clips).all())
        assert float(clips.max()) <= 0.5 * math.e * 1.001 and float(clips.min()) >= 0.5 * math.exp(-4) * 0.999
        assert bool(torch.isfinite(thetas).all()) and float(thetas.abs().max()) <= MAX_COORDINATE


@pytest.mark.parametrize("noise", [1e-12, 1e-3, 1e6])
@pytest.mark.parametrize("norm", [0.0, 1e-12, 1e9])
def test_no_signal_breaks_a_step(noise, norm):
    """Gradients from nothing to huge, on noise from nothing to huge."""
    for design in DESIGNS:
        gradients = norm * torch.ones(HORIZON, COPIES, D)
        clips, shares, _, thetas = walk(
            protector(wild(design, 1.0), design), gradients=gradients, noise=noise, groups=(2, 3)
        )
        assert bool((shares > 0).all()) and bool((shares <= 1).all()) and bool((clips > 0).all())
        assert bool(torch.isfinite(thetas).all())


@pytest.mark.parametrize("design", DESIGNS, ids=repr)
def test_without_a_learned_projector_theta_stays_within_reach_too(design):
    design = replace(design, projector=False, scheduler=False)
    weights = wild(design, 1.0)._replace(rate=torch.tensor([math.inf]))
    _, _, _, thetas = walk(protector(weights, design), gradients=1e30 * torch.ones(HORIZON, COPIES, D))
    assert bool(torch.isfinite(thetas).all()) and float(thetas.abs().max()) <= MAX_COORDINATE


@pytest.mark.parametrize("design", DESIGNS, ids=repr)
def test_permuting_the_coordinates_permutes_the_steps(design):
    g = torch.Generator().manual_seed(0)
    gradients, start = torch.randn(HORIZON, COPIES, D, generator=g), torch.randn(COPIES, D, generator=g)
    order, part = torch.randperm(D, generator=g), protector(wild(design, 1.0), design)
    clips, shares, _, thetas = walk(part, gradients=gradients, start=start)
    other = walk(part, gradients=gradients[..., order], start=start[:, order])
    assert torch.allclose(other[0], clips, rtol=1e-4) and torch.allclose(other[1], shares, rtol=1e-4, atol=1e-6)
    assert torch.allclose(other[3], thetas[..., order], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("design", DESIGNS, ids=repr)
def test_copies_run_as_they_would_alone(design):
    g = torch.Generator().manual_seed(0)
    gradients, part = torch.randn(HORIZON, 3, D, generator=g), protector(wild(design, 0.5), design)
    together = walk(part, copies=3, gradients=gradients)
    for copy in range(3):
        alone = walk(part, copies=1, gradients=gradients[:, copy : copy + 1])
        for one, all_of_them in zip(alone, together, strict=True):
            assert torch.allclose(one[:, 0], all_of_them[:, copy], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("inputs", ["normalised", "paper"])
def test_one_set_of_weights_serves_any_dimension_and_horizon(inputs):
    design = Design(units=4, inputs=inputs)
    part = protector(wild(design, 0.5), design)
    for d, groups, horizon in [(1, (), 1), (3, (), 2), (40, (30, 10), 25), (200, (), 4)]:
        clips, _, _, thetas = walk(part, d=d, groups=groups, horizon=horizon)
        assert thetas.shape == (horizon, COPIES, d) and clips.shape == (horizon, COPIES)


def test_layers_of_different_scale_are_told_apart():
    """The same gradient in another layer gives another step; with one layer the two coordinates are alike."""
    design = Design(units=4)
    part = protector(wild(design, 1.0), design)
    gradients = torch.zeros(HORIZON, 1, 4)
    gradients[..., 0], gradients[..., 1], gradients[..., 2] = 0.3, 5.0, 0.3
    steps = {
        groups: walk(part, copies=1, d=4, groups=groups, gradients=gradients)[3][-1, 0] for groups in [(2, 2), (4,)]
    }
    assert float(steps[4,][0]) == pytest.approx(float(steps[4,][2]), rel=1e-4)
    assert float(steps[2, 2][0]) != pytest.approx(float(steps[2, 2][2]), rel=1e-3)


@pytest.mark.parametrize("poison", [None, math.nan, math.inf], ids=str)
@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 1e6])
def test_the_last_theta_is_scaled_by_a_bounded_factor_and_of_layers_only_the_last(size, poison):
    design = Design(units=4)
    thetas = torch.ones(COPIES, D)
    for groups, before in [((), 0), ((2, 3), 2)]:
        signal = first_signal(
            COPIES, D, horizon=HORIZON, ratio=torch.ones(COPIES), typical_clip=0.5, groups=groups
        )._replace(step=HORIZON, remaining=torch.zeros(COPIES))
        part = protector(wild(design, size, poison=poison), design)
        released = finished(part, begin(part, thetas, signal))
        assert bool((released >= math.exp(-4) * 0.999).all()) and bool((released <= math.exp(2) * 1.001).all())
        if size == 0.1 and poison is None:
            assert not bool((released[:, before:] == 1).any())
        assert bool((released[:, :before] == 1).all())
        if size == 0.0 and poison is None:
            assert torch.equal(released, thetas)
    plain = protector(wild(design, 1.0), replace(design, clip=False))
    assert torch.equal(finished(plain, begin(plain, thetas, signal)), thetas)


def test_the_open_form_wants_the_same_however_much_is_left():
    design = Design(units=3, form="open")
    schedule = protector(zero_weights(design), design).schedule
    assert isinstance(schedule, LearnedSchedule)
    signal = first_signal(1, 2, horizon=10, ratio=torch.ones(1), typical_clip=1.0)
    for left, share in [(1.0, 0.1), (0.5, 0.2), (0.1, 1.0), (0.02, 1.0), (0.0, 1.0)]:
        at = signal._replace(remaining=torch.tensor([left]))
        assert float(schedule.spend(at, schedule.init(1, 2))[0]) == pytest.approx(0.1)
        assert float(schedule(at, schedule.init(1, 2))[0]) == pytest.approx(share)


def test_a_paid_norm_is_what_the_schedule_and_the_clip_look_at():
    for design in DESIGNS:
        part = protector(wild(design, 0.2), design)
        signal = first_signal(1, 3, horizon=9, ratio=torch.ones(1), typical_clip=1.0)
        run = begin(part, torch.zeros(1, 3), signal)
        small, large = (
            next_question(part, run._replace(signal=signal._replace(paid_norm=torch.tensor([norm]))))
            for norm in (0.0, 5.0)
        )
        assert not torch.equal(small[1], large[1])
        assert torch.equal(small[0], large[0]) != design.clip


@pytest.mark.parametrize(
    "wrong", [{"units": 0}, {"form": "closed"}, {"inputs": "mine"}, {"norm_share": 1.0}, {"norm_share": -0.1},
              {"norm_share": math.nan}]
)  # fmt: skip
def test_a_wrong_design_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Design(**wrong)


def test_weights_by_name():
    design = Design(units=3)
    tensors = new_weights(design).tensors()
    assert torch.equal(weights_from(tensors).scheduler.head, tensors["scheduler.head"])
    for wrong in (
        {k: w for k, w in tensors.items() if k != "rate"},
        {**tensors, "rate": torch.zeros(2)},
        {**tensors, "extra": torch.zeros(1)},
        {**tensors, "scheduler.extra": torch.zeros(1)},
        {k: w for k, w in tensors.items() if not k.startswith("clip.")},
    ):
        with pytest.raises(ValueError):
            weights_from(wrong)
    assert not any(weight.any() for weight in zero_weights(design).tensors().values())
    assert torch.equal(new_weights(design, 3).projector.head, new_weights(design, 3).projector.head)
    assert not torch.equal(new_weights(design, 3).projector.head, new_weights(design, 4).projector.head)
