"""Private records of a module: sums against a loop over single records, neighbours that attack them, chunks, failing rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from noisewise.trusted.engine import Refused, Spec
from noisewise.trusted.models.module import ModuleModel, TensorRows
from noisewise.trusted.models.module_loss import ModuleLoss
from noisewise.trusted.stores.modules import CAP, MAX_RECORDS, ONES, UNIT, held_tensors
from noisewise.trusted.stores.totals import Drawn

CLIP = 0.5
LAST = nn.CrossEntropyLoss()
FLOATS, CLASS = Spec((6,), torch.float32), Spec((), torch.int64)


def net(seed=0, width=16):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 4))


def pictures(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


def rows(n=37, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=g), torch.randint(4, (n,), generator=g)


def model_of(module, *, spec=FLOATS, loss=LAST, **options):
    return ModuleModel(module, loss, [spec], [CLASS], **{"arithmetic": "assumed", **options})


def held(model, X, y):
    return held_tensors((X,), (y,), model, None)


def by_loop(module, X, y, clip):
    """Single records, one after the other, in double precision; a clip norm for all of a gradient, or for each parameter."""
    own = module.double()
    total = [torch.zeros_like(part) for part in own.parameters()]
    for x, label in zip(X.double(), y, strict=True):
        gradients = torch.autograd.grad(LAST(own(x[None]), label[None]), list(own.parameters()))
        norms = [float(part.norm()) for part in gradients]
        if isinstance(clip, float):
            factors = [min(1.0, clip / math.hypot(*norms))] * len(norms)
        else:
            factors = [min(1.0, c / norm) for c, norm in zip(clip, norms, strict=True)]
        for whole, part, factor in zip(total, gradients, factors, strict=True):
            whole += factor * part
    return torch.cat([part.flatten() for part in total]).numpy()


@pytest.mark.parametrize("arithmetic", ["assumed", "bounded"])
@pytest.mark.parametrize(
    "make, spec", [(net, FLOATS), (pictures, Spec((1, 6, 6), torch.float32))], ids=["dense", "conv"]
)
def test_sums_are_those_of_a_loop_over_single_records(make, spec, arithmetic):
    g = torch.Generator().manual_seed(3)
    X, y = torch.randn(21, *spec.shape, generator=g), torch.randint(3, (21,), generator=g)
    model = model_of(make(), spec=spec, arithmetic=arithmetic, chunk=16)
    total = held(model, X, y).gradients(Drawn(), model.start(), CLIP)
    right = by_loop(make(), X, y, CLIP)
    assert np.linalg.norm(total.values * total.worth - right) < 0.02 * np.linalg.norm(right)  # what rounding is charged
    assert np.linalg.norm(total.values * total.worth - 1.1 * right) > 0.05 * np.linalg.norm(right)


def test_layers_are_clipped_each_by_itself():
    X, y = rows()
    clips = [0.3, 0.05, 0.2, 0.01]
    model = model_of(net())
    totals = held(model, X, y).layered(Drawn(), model.start(), clips)
    found = np.concatenate([total.values * total.worth for total in totals])
    assert np.linalg.norm(found - by_loop(net(), X, y, clips)) < 1e-3
    assert [len(total.values) for total in totals] == [*model.groups] and [total.one for total in totals] == clips


@pytest.mark.parametrize("arithmetic", ["assumed", "bounded"])
def test_the_result_is_the_same_for_every_chunk(arithmetic):
    X, y = rows()
    found = []
    for chunk in (16, 32, 48):
        model = model_of(net(), chunk=chunk, arithmetic=arithmetic)
        records = held(model, X, y)
        total = records.gradients(Drawn(np.arange(0, 37, 2)), model.start(), CLIP)
        found.append(total.values * total.worth / (1 - records.margin(model.dimension)))
    assert np.abs(found[0] - found[1]).max() < 1e-5 and np.abs(found[0] - found[2]).max() < 1e-5


HOSTILE = [math.nan, math.inf, -math.inf, 1e38, -1e30, 1e20, 1e8, 1e-40, 0.0]


@pytest.mark.parametrize("arithmetic", ["assumed", "bounded"])
@pytest.mark.parametrize("theta", ["start", "far"])
def test_no_neighbour_moves_a_sum_further_than_a_clip_norm(arithmetic, theta):
    X, y = rows(20)
    model = model_of(net(), arithmetic=arithmetic, chunk=16)
    at = model.start() * (1.0 if theta == "start" else 1e6)
    whole = held(model, X, y).gradients(Drawn(), at, CLIP).values.astype(object)
    for number in HOSTILE:
        for place in (0, 9, 20):
            odd = torch.full((1, 6), number)
            odd[0, 1] = -number / 3
            more = torch.cat([X[:place], odd, X[place:]]), torch.cat([y[:place], torch.tensor([2]), y[place:]])
            joined = held(model, *more).gradients(Drawn(), at, CLIP).values.astype(object)
            assert sum((joined - whole) ** 2) <= ONES**2, (number, place)


def test_a_record_that_is_not_finite_counts_as_zero_and_leaves_the_others_alone():
    X, y = rows(20)
    model = model_of(net(), chunk=7)
    whole = held(model, X, y).gradients(Drawn(), model.start(), CLIP).values
    odd = torch.cat([X, torch.full((1, 6), math.nan)]), torch.cat([y, y[:1]])
    records = held(model, *odd)
    assert np.abs(records.gradients(Drawn(), model.start(), CLIP).values - whole).max() <= ONES * 1e-5
    short, losses = records.short(Drawn(np.array([20])), model.start(), 1.0), None
    losses = records.losses(Drawn(np.array([20])), [model.start()], 2.0)
    assert short.values.tolist() == [-short.ones] and losses.values.tolist() == [losses.ones]


def test_a_record_that_makes_a_pass_fail_is_left_out_alone():
    X, y = rows(20)
    bad = y.clone()
    bad[[3, 11]] = 99  # no such class: torch raises
    model = model_of(net(), chunk=8)
    good = Drawn(np.array([i for i in range(20) if i not in (3, 11)]))
    left = held(model, X, y).gradients(good, model.start(), CLIP).values
    found = held(model, X, bad).gradients(Drawn(), model.start(), CLIP).values
    assert np.abs(found - left).max() <= ONES * 1e-5
    assert np.abs(left).max() > ONES * 1e-2


def test_no_record_is_no_pass():
    model = model_of(net())
    total = held(model, *rows()).gradients(Drawn(np.zeros(0, np.int64)), model.start(), CLIP)
    assert total.values.tolist() == [0] * model.dimension


def test_terms_that_cancel_cannot_hide():
    """Two positions whose parts of a gradient cancel: their factor is capped, so that rounding stays what is charged."""
    width = 50  # wide enough that norms come from pairs of positions, and not from gradients themselves
    model = ModuleModel(
        nn.Linear(width, width, bias=False), lambda out, y: (out.sum((1, 2)) * y), [Spec((2, width), torch.float32)],
        [Spec((), torch.float32)], arithmetic="bounded", chunk=16,
    )  # fmt: skip
    X = torch.full((1, 2, width), 1e6)
    X[0, 1] = -1e6 + 0.25
    records = held_tensors((X,), (torch.ones(1),), model, None)
    total = records.gradients(Drawn(), model.start(), 1e3)
    terms = 2 * width * 1e6  # their norms, added up
    assert np.linalg.norm(total.values * total.worth) <= 0.25 * width * CAP * 1e3 / terms * 1.01


def test_what_rounding_is_charged_grows_with_what_there_is_to_round():
    small, large = (held(model_of(net(), arithmetic="bounded", chunk=chunk), *rows()) for chunk in (16, 64))
    e = 2 * MAX_RECORDS * UNIT
    assert small.margin(100) > e * 16 and large.margin(100) > e * 64
    assert small.margin(10**6) > small.margin(100)
    assert small.arithmetic.grade == "bounded" and held(model_of(net()), *rows()).arithmetic.grade == "assumed"


def test_what_is_random_is_not_called_bounded():
    dropped = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 4))
    with pytest.raises(Refused, match="place in a chunk"):
        model_of(dropped, arithmetic="bounded")
    assert not model_of(dropped, arithmetic=None).bounded


def test_dropout_is_drawn_anew_from_the_coins():
    model, seen = model_of(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 4)), arithmetic=None), []
    coins = iter(range(1, 100))
    records = held_tensors(*((part,) for part in rows()), model, lambda many: np.array([next(coins)]))
    state = torch.random.get_rng_state()
    seen = [records.gradients(Drawn(), model.start(), CLIP).values for _ in range(2)]
    assert not np.array_equal(*seen)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_public_sums_are_the_same_sums():
    X, y = rows()
    model = model_of(net())
    batch = TensorRows((X,), (y,))
    assert np.allclose(model.clipped_sum(model.start(), batch, CLIP), by_loop(net(), X, y, CLIP), atol=1e-4)
    single = model.per_record(model.start(), batch)
    assert np.allclose(np.linalg.norm(single, axis=1), model.norms(model.start(), batch), rtol=1e-4)
    assert np.allclose(single.sum(0), model.clipped_sum(model.start(), batch, math.inf), atol=1e-4)
    assert float(model.losses(model.start(), batch).mean()) == pytest.approx(LAST(net()(X), y).item(), rel=1e-5)


def test_a_count_after_a_sum_is_that_of_the_same_batch():
    X, y = rows(20)
    X[4] = math.nan
    model = model_of(net(), chunk=8)
    records, alone = held(model, X, y), held(model, X, y)
    at, some = model.start(), Drawn(np.arange(0, 20, 2))
    records.gradients(some, at, CLIP)
    assert records.short(some, at, 2.2).values.tolist() == alone.short(some, at, 2.2).values.tolist()
    records.gradients(some, at, CLIP)  # of another batch, or at another theta, it is counted anew
    other = Drawn(np.arange(1, 20, 2))
    assert records.short(other, at, 2.2).values.tolist() == alone.short(other, at, 2.2).values.tolist()
    records.gradients(some, at, CLIP)
    assert records.short(some, 3 * at, 2.2).values.tolist() == alone.short(some, 3 * at, 2.2).values.tolist()
    assert alone.short(some, at, 2.2).values.tolist() != alone.short(some, 3 * at, 2.2).values.tolist()


def test_a_loss_is_as_steep_as_torchs_of_that_name_only_if_it_is_torchs():
    class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
        def forward(self, outputs, targets):
            return 100 * super().forward(outputs, targets)

    assert ModuleLoss(torch.nn.CrossEntropyLoss()).lipschitz == math.sqrt(2)
    assert ModuleLoss(CrossEntropyLoss()).lipschitz == math.inf
