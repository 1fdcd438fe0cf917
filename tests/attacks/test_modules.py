"""Attacks on torch modules: records that move a sum by more than the clip, methods that count records, checkpoints that pay twice.

They worked on the commit that brought modules; ``make attacks-old`` runs them there.
"""

from __future__ import annotations

import json
import math
import random
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import noisewise as nw
from noisewise.budget import Terms
from noisewise.methods.dpsgd import DpSgd
from noisewise.pytorch import PrivacyEngine
from noisewise.trusted.engine import Spec, Tape
from noisewise.trusted.models.module import ModuleModel, made_up
from noisewise.trusted.models.module_loss import _bits
from noisewise.trusted.stores.modules import ONES, held_tensors
from noisewise.trusted.stores.totals import Drawn

CLASS = Spec((), torch.int64)
BUDGET = nw.Budget(8.0, 1e-6)


# --- sums: one record more moves them by at most the clip ---------------------------------------------------------------


class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(1, 2) * 0.1)

    def forward(self, x):
        return torch.einsum("bti,io->bto", x[:, :, None], self.w).sum(1)


class Derived(nn.Module):
    """A weight that is made of a parameter, over positions."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 64) * 0.1)

    def forward(self, x):
        return F.linear(x.reshape(-1, 8, 64), self.w * 1.0).sum(1)[:, :4]


class Reused(nn.Module):
    """One convolution that sees two halves of a record."""

    def __init__(self):
        super().__init__()
        self.convolution, self.last = nn.Conv1d(1, 64, 16), nn.Linear(64, 4)

    def forward(self, x):
        halves = (self.convolution(half[:, None]).mean(2) for half in x.chunk(2, 1))
        return self.last(sum(halves))


class Quotient(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.last = nn.Parameter(torch.ones(6)), nn.Linear(6, 4)

    def forward(self, x):
        return self.last(torch.tanh(self.w / x))


def model_of(module, width, *, arithmetic="assumed", **options):
    spec = Spec((width,), torch.float32)
    return ModuleModel(module, nn.CrossEntropyLoss(), [spec], [CLASS], arithmetic=arithmetic, **options)


def moved(model, X, odd, clip=1e-3, at=None):
    """By how many clip norms a record moves the sum of the others."""
    theta, y = (np.asarray(model.start()) if at is None else at), torch.arange(len(X)) % 2

    def total(X, y):
        return held_tensors((X,), (y,), model, None).gradients(Drawn(), theta, clip).values.astype(np.float64)

    joined = total(torch.cat([X, odd[None]]), torch.cat([y, torch.tensor([1])]))
    return float(np.linalg.norm(joined - total(X, y))) / ONES


@pytest.mark.parametrize(
    "make, width", [(Einsum, 40), (Derived, 512), (Reused, 36)], ids=["without a rule", "derived weight", "reused"]
)
def test_terms_that_cancel_otherwise_in_company(make, width):
    """Alone they cancel, and the norm is small; in the product of a whole batch rounding leaves any multiple of the clip."""
    torch.manual_seed(0)
    model, g = model_of(make(), width), torch.Generator().manual_seed(5)
    X, worst = torch.randn(20, width, generator=g), 0.0
    for size in 10.0 ** np.arange(2, 16, 0.5):
        half = torch.randn(width // 2, generator=g) * size
        other = half if make is Reused else half.view(4, -1)[torch.randperm(4, generator=g)].flatten()
        worst = max(worst, moved(model, X, torch.cat([half, -other])))
    assert worst <= 1.0


def test_a_record_left_out_whose_zeros_divide():
    """A record that is not finite is left out; zeros in its place were divided, and 0 / 0 took the sum of all others along."""
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    X = torch.randn(1, 6, generator=g) + 0.1 * torch.randn(200, 6, generator=g)
    model = model_of(Quotient(), 6)
    for odd in (math.nan, math.inf, 0.0, 1e-42):
        assert moved(model, X, torch.full((6,), odd), clip=0.5) <= 1.0, odd


def test_the_self_test_looks_at_what_derived_weights_have_booked():
    module = nn.Sequential(nn.Linear(6, 3, bias=False))
    nn.utils.parametrizations.weight_norm(module[0])
    model = model_of(module, 6)
    found = _bits(model, made_up(model, 8))
    assert any(part.shape == (8, 3, 6) for part in found) and any(part.shape == (8, 3, 1) for part in found)


def test_books_that_fail_with_a_record(monkeypatch):
    """Where a pass succeeds and its books cannot be read, the record is left out, and nothing is raised."""
    true = Tape.squared_norms

    def squared_norms(self):
        found = true(self)
        if not bool(torch.isfinite(found).all()):
            raise RuntimeError(f"a secret is {found}")
        return found

    model, X = model_of(nn.Linear(6, 4), 6), torch.randn(20, 6)
    monkeypatch.setattr(Tape, "squared_norms", squared_norms)
    assert moved(model, X, torch.full((6,), math.nan)) < 1e-3


class Sequence(nn.Module):
    def __init__(self, layer, width):
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(1, 8), layer, nn.Linear(width, 4)

    def forward(self, x):
        out = self.layer(self.first(x[:, :, None]))
        return self.last((out[0] if isinstance(out, tuple) else out).mean(1))


NETWORKS = {
    "dense": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)),
    "norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4)),
    "rms": lambda: nn.Sequential(nn.RMSNorm(6), nn.Linear(6, 4)),
    "slope": lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 4)),
    "gru": lambda: Sequence(nn.GRU(8, 5, batch_first=True), 5),
    "pooled": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 4)
    ),
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))),
}
HOSTILE = (math.nan, math.inf, 1e38, 1e30, 1e19, 1e12, 1e6, 1e-20, 1e-42, 0.0)


@pytest.mark.guard("norms and factors were safe here")
@pytest.mark.parametrize("name", NETWORKS)
def test_hostile_numbers(name):
    torch.manual_seed(1)
    model, X = model_of(NETWORKS[name](), 6), torch.randn(1, 6) + 0.1 * torch.randn(30, 6)
    start = np.asarray(model.start())
    for far in (1.0, 1e4):
        for number in HOSTILE:
            for odd in ([number] * 6, [number, -number] * 3, [number, 1.0, 2.0, -number, 0.5, -3.5]):
                found = moved(model, X, torch.tensor(odd), at=start * far)
                assert found <= 1.0, (far, odd)


# --- a method that counts records, or stops at them ----------------------------------------------------------------------


def records(n=50, odd=None):
    g = torch.Generator().manual_seed(1)
    X, y = torch.randn(n, 6, generator=g), torch.randint(4, (n,), generator=g)
    if odd is not None:
        X[0] = odd
    return X, y


def fitted(module, loss=None, dataset=None, **options):
    given = {"budget": BUDGET, "progress": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nw.fit(module, loss or nn.CrossEntropyLoss(), dataset or records(), **given)


class RandomLoss(nn.Module):
    def forward(self, outputs, target):
        return F.cross_entropy(F.dropout(outputs, 0.5, self.training), target, reduction="none")


class ByNumpy(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw, self.linear = draw, nn.Linear(6, 4)

    def forward(self, x):
        self.draw(len(x))
        return self.linear(x)


class Counting(DpSgd):
    """Seeds every generator, asks, and looks how far they have moved on."""

    def step(self, state, private, public):
        torch.manual_seed(0), np.random.seed(0), random.seed(0)
        before = torch.get_rng_state(), np.random.get_state()[1:], random.getstate()
        state = super().step(state, private, public)
        after = torch.get_rng_state(), np.random.get_state()[1:], random.getstate()
        assert torch.equal(before[0], after[0])
        assert before[1][1] == after[1][1] and before[2] == after[2]
        return state


def of_numpy(many):
    np.random.rand(many)


def of_python(many):
    [random.random() for _ in range(many)]


@pytest.mark.parametrize(
    "module, loss",
    [(nn.Linear(6, 4), RandomLoss()), (ByNumpy(of_numpy), None), (ByNumpy(of_python), None)],
    ids=["a random loss", "numpy", "python"],
)
def test_generators_that_count_private_records(module, loss):
    """The number of records is private here; a generator that a batch has drawn from was that much further."""
    fitted(module, loss, method=Counting(steps=1), arithmetic="assumed")


class Shouting(DpSgd):
    def step(self, state, private, public):
        with torch.autograd.set_detect_anomaly(True):
            return super().step(state, private, public)


@pytest.mark.parametrize("odd", [None, math.nan])
def test_a_search_for_anomalies(odd):
    module = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)))
    fitted(module, dataset=records(odd=odd), method=Shouting(steps=1), arithmetic="assumed")


class Keeping(nn.Module):
    """As many modules do, it keeps what it has computed last, to be looked at."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(1000, 4), nn.Linear(4, 4)

    def forward(self, ids):
        self.seen, self.out = ids, self.last(self.words(ids).mean(1))
        return self.out


def test_a_module_that_keeps_its_inputs_is_given_back_without_them():
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(317, 731, (40, 5), generator=g)  # the smallest and the largest word are private
    run = fitted(Keeping(), dataset=(ids, torch.randint(4, (40,), generator=g)), steps=1)
    assert not hasattr(run.module, "seen") and not hasattr(run.module, "out")


# --- checkpoints that pay twice, or for nothing --------------------------------------------------------------------------


class TwoFaces(float):
    """A number that is large when it is written down, and small when it is used."""

    def __new__(cls):
        self = super().__new__(cls, 1e4)
        self.faces = [1e4, 1.0]
        return self

    def __float__(self):
        return self.faces.pop(0) if len(self.faces) > 1 else self.faces[0]


class Interrupted(DpSgd):
    def terms(self, facts):
        return Terms.adaptive("gdp")

    def step(self, state, private, public):
        private.gradient(torch.zeros(28), clip=1.0, noise_multiplier=TwoFaces())
        raise KeyboardInterrupt


def test_a_journal_that_is_told_another_noise_than_is_charged(tmp_path):
    """The run would be taken up with what stands there, and spend the rest again."""
    torch.manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        fitted(nn.Linear(6, 4), method=Interrupted(steps=1), size_is_public=True, checkpoint=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    written = next(line["event"]["noise_multiplier"] for line in lines if "charged" in line)
    drawn = next(line["noise_std"] for line in lines if "answered" in line) * 50
    assert written == pytest.approx(drawn)


def private_loop(noise, module=None, **options):
    module = module or nn.Linear(6, 4)
    engine = PrivacyEngine()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return engine, *engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(*records(60)), batch_size=60),
            noise_multiplier=noise,
            max_grad_norm=1.0,
            **options,
        )


def test_weights_without_noise_do_not_become_private_by_a_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"
    engine, module, optimizer, loader = private_loop(0.0)
    for x, y in loader:
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    engine.save_checkpoint(path=path, module=module)
    engine, module, optimizer, loader = private_loop(2.0, epochs=1)
    with pytest.raises(ValueError, match="keep no promise"):
        engine.load_checkpoint(path=path, module=module)


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x, centred=False, how="plainly"):
        return self.linear(x - x.mean(0) * float(centred or how != "plainly"))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, when what flags stand in is copied
@pytest.mark.parametrize("option", [{"centred": True}, {"how": "centred"}])
def test_a_flag_under_which_records_mix(option):
    """The call that was probed had another flag."""
    _, module, optimizer, loader = private_loop(1.0, Centred(), epochs=2)
    plainly = {name: Centred.forward.__defaults__[("centred", "how").index(name)] for name in option}
    x, y = next(iter(loader))
    F.cross_entropy(module(x, **plainly), y).backward()
    optimizer.step()
    x, y = next(iter(loader))
    with pytest.raises(ValueError, match="mixes records"):
        F.cross_entropy(module(x, **option), y).backward()


@pytest.mark.guard("noise was what was charged")
def test_noise_of_layers_and_counts():
    found = {}

    class Asking(DpSgd):
        def terms(self, facts):
            return Terms.adaptive("gdp")

        def step(self, state, private, public):
            theta, size = torch.zeros(28), private.facts.size
            each = {"clips": (0.5, 0.1), "noise_multiplier": 3.0}
            for name, shares in (("even", None), ("shares", (0.25, 0.75))):
                asked = [private.layered_gradient(theta, **each, shares=shares).value for _ in range(300)]
                found[name] = torch.stack(asked).std(0) * size
            count = {"quantile_at": 1.0, "count_noise_multiplier": 5.0}
            both = [private.gradient(theta, clip=0.7, noise_multiplier=3.0, **count) for _ in range(300)]
            found["flat"] = torch.stack([one.value for one in both]).std(0) * size
            found["count"] = torch.tensor([one.below for one in both]).std() * size
            found["event"] = private.trace[-1].event.noise_multiplier
            return super().step(state, private, public)

    fitted(nn.Linear(6, 4), budget=nw.Budget(1e3, 1e-5), method=Asking(steps=1))
    near = {"rel": 0.05}  # six standard errors of the mean over 24 or 28 coordinates; the bounds below are as wide
    assert float(found["even"].mean()) == pytest.approx(3 * math.hypot(0.5, 0.1), **near)
    assert float(found["shares"][:24].mean()) == pytest.approx(3.0, **near)
    assert float(found["shares"][24:].mean()) == pytest.approx(0.3 / math.sqrt(0.75), rel=0.125)
    assert float(found["flat"].mean()) == pytest.approx(2.1, **near)
    assert float(found["count"]) == pytest.approx(2.5, rel=0.25)
    assert found["event"] == pytest.approx((3.0**-2 + 5.0**-2) ** -0.5)
