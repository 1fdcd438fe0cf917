"""A module's records at several ranks: the same sums up to the rounding that is charged, the same distribution of answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ranks import DirectLine
from scipy import stats

from noisewise.accounts import Budget, Terms, open_meter
from noisewise.curator import Curator
from noisewise.faces.pytorch import processes as several
from noisewise.faces.pytorch.fit import fit
from noisewise.remote.holder import Holder, Holding
from noisewise.remote.processes import Lead, cut, spread_tensors
from noisewise.trusted.engine import Spec
from noisewise.trusted.models.module import ModuleModel
from noisewise.trusted.stores.modules import MARGIN, ONES, ModuleRecords, TensorRows
from noisewise.trusted.stores.totals import Drawn

PIECE = 8


def rows_of(n=60):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 3, generator=generator)
    return X, (X[:, :1] > 0).float()


def model_of(ranks=1, dropout=0.0, arithmetic="assumed"):
    torch.manual_seed(0)
    layers = (torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(4, 1))
    model = ModuleModel(
        torch.nn.Sequential(*layers),
        torch.nn.MSELoss(),
        [Spec((3,), torch.float32)],
        [Spec((1,), torch.float32)],
        arithmetic=arithmetic,
        chunk=16,
    )
    model.world_size = ranks
    return model


def spread_module(ranks, stamps=("",), **kind):
    """Rows and targets of :func:`rows_of` at so many ranks, each with a model of its own."""
    X, y = rows_of()
    holders = []
    for rank in range(ranks):
        parts = cut(len(X), PIECE, rank, ranks)
        own = [number for part in parts for number in part]
        numbers = tuple(range(rank, -(-len(X) // PIECE), ranks))
        holding = Holding(
            numbers, tuple(map(len, parts)), (X[own],), (y[own],), model=model_of(ranks, **kind),
            stamp=stamps[rank % len(stamps)],
        )  # fmt: skip
        holders.append(Holder({"module": lambda holding=holding: holding}))
    lead = Lead(DirectLine(holders), holders[0])
    return lead, spread_tensors(lead, "module", -(-len(X) // PIECE), lambda: ([(3,)], [(1,)]), 10**8)


def curator(inputs, targets, model, seed=None):
    meter = open_meter(Budget(900.0, 1e-5), Terms.adaptive("gdp"))
    return Curator(inputs, targets, model=model, meter=meter, size=60.0, seed=seed)


@pytest.mark.parametrize("arithmetic", ["assumed", "bounded"])
def test_sums_are_those_of_one_process_up_to_charged_rounding(arithmetic):
    lead, (inputs, _targets) = spread_module(3, arithmetic=arithmetic)
    X, y = rows_of()
    model = model_of(3, arithmetic=arithmetic)
    alone, theta = ModuleRecords(TensorRows((X,), (y,)), model, lambda many: np.ones(many, int)), model.start()
    records = inputs.held(model, None, lambda many: np.arange(many))
    for drawn in (Drawn(), Drawn(np.arange(0, 60, 7), 9.0), Drawn(np.empty(0, np.int64), 9.0)):
        one, other = alone.gradients(drawn, theta, 0.5), records.gradients(drawn, theta, 0.5)
        chunks = 3 + 60 // 16
        assert np.abs(one.values - other.values).max() <= max(2 * chunks, ONES * 2.0**-18)
        assert (one.ones, one.one) == (other.ones, other.one) and (drawn.rows is None or other.values.any()) != (
            drawn.rows is not None and not len(drawn.rows)
        )
        layers = records.layered(drawn, theta, [0.1] * 4)
        assert [total.values.shape for total in layers] == [(12,), (4,), (4,), (1,)]
    assert len(records) == 60 and not lead.broken


def test_what_several_ranks_round_is_charged():
    margins = [ModuleRecords(TensorRows(*((part,) for part in rows_of())), model_of(ranks), None).margin(10**6)
               for ranks in (1, 4)]  # fmt: skip
    assert margins[1] - MARGIN == pytest.approx(4 * (margins[0] - MARGIN)) and margins[0] > MARGIN
    bounded = [
        ModuleRecords(TensorRows(*((part,) for part in rows_of())), model_of(ranks, arithmetic="bounded"), None)
        for ranks in (1, 4)
    ]
    assert bounded[1].margin(21) > bounded[0].margin(21)


def test_every_rank_draws_its_own_dropout_from_words_of_rank_0():
    lead, (inputs, targets) = spread_module(3, dropout=0.5)
    private = curator(inputs, targets, model_of(3, dropout=0.5), seed=1)
    for _ in range(2):
        private.gradient(model_of().start(), clip=1.0, noise_multiplier=5.0)
    seeds = [request.arguments[5] for _, request in lead._line.requests if request.act == "total"]
    assert len({*seeds}) == len(seeds) == 4 and all(type(seed) is int for seed in seeds)


def test_modules_that_differ_between_ranks_are_refused():
    with pytest.raises(ValueError, match="not the same at all ranks"):
        spread_module(2, stamps=("one", "another"))
    torch.manual_seed(1)
    frozen = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    frozen[0].requires_grad_(False)
    rows = TensorRows(*((part,) for part in rows_of()))
    made = {"inputs": [Spec((3,), torch.float32)], "targets": [Spec((1,), torch.float32)]}
    stamps = []
    for change in (0.0, 0.0, 1.0):
        with torch.no_grad():
            frozen[0].bias += change
            frozen[1].bias += 1.0  # which is trained, and sent
        stamps.append(several._stamp(ModuleModel(frozen, torch.nn.MSELoss(), **made), 60, rows))
    assert stamps[0] == stamps[1] != stamps[2]


class Alone(DirectLine):
    """A line to nobody."""

    def __init__(self):
        super().__init__([None])


def test_a_fit_among_ranks_is_the_fit_of_one_process(monkeypatch):
    monkeypatch.setattr(several, "RECORDS_PER_PIECE", PIECE)
    X, y = rows_of()
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(3, 1))
    asked = {"budget": Budget(3.0, 1e-5), "steps": 4, "size_is_public": True, "random_state": 1, "progress": False}
    plain = fit(module, torch.nn.MSELoss(), (X, y), **asked)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setattr(several, "common_line", Alone)
    among = fit(module, torch.nn.MSELoss(), (X, y), **asked)
    assert torch.equal(plain.module[0].weight, among.module[0].weight) and plain.trace == among.trace
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    fit(module, torch.nn.MSELoss(), (X, y), **asked)
    with pytest.raises(RuntimeError, match="started this script anew"):
        fit(module, torch.nn.MSELoss(), (X, y), **{**asked, "random_state": None})


@pytest.mark.slow  # sums are compared above
def test_answers_have_the_distribution_of_one_process():
    """2,000 releases, private ones, of Poisson batches with dropout: Kolmogorov-Smirnov on every coordinate."""
    X, y = rows_of()
    theta, released = model_of().start(), []
    for ranks in (1, 3):
        kind = {"dropout": 0.2}
        rows = ((X,), (y,)) if ranks == 1 else spread_module(ranks, **kind)[1]
        model = model_of(ranks, **kind)
        answers = []
        for _ in range(20):
            private = curator(*rows, model)
            for _ in range(100):
                asked = private.gradient(theta, clip=1.0, noise_multiplier=0.5, sampling=("poisson", 0.3))
                answers.append(asked.value)
        released.append(np.array(answers))
    for one, other in zip(released[0].T, released[1].T, strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-4
