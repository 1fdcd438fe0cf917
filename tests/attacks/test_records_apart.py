"""Attacks on records that a module or a loss mixes: one replaced record may move a sum by two clip norms, and no further.

They worked on the engine that found out by shapes which rows belong to which record (``make attacks-old`` runs them there), most
with modules that did what they were asked to. Public names only: ``nw.fit`` and ``PrivacyEngine``.
"""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import noisewise as nw
from noisewise.budget import Terms
from noisewise.methods.dpsgd import DpSgd
from noisewise.pytorch import BatchMemoryManager, PrivacyEngine

CLIP = 1e-2
BUDGET = nw.Budget(1e6, 1e-5)
NOISE = 1e-2


class Asking(DpSgd):
    """Asks once, with next to no noise."""

    def terms(self, facts):
        return Terms.adaptive("gdp")

    def step(self, state, private, public):
        answer = private.gradient(state.walk.theta, clip=CLIP, noise_multiplier=NOISE)
        FOUND.append(torch.as_tensor(answer.value) * private.facts.size)
        return super().step(state, private, public)


FOUND: list[torch.Tensor] = []


def by_fit(module, loss, *records, arithmetic="assumed"):
    """The clipped sum that a fit asks for, in clip norms."""
    FOUND.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nw.fit(
            module, loss, records, budget=BUDGET, method=Asking(steps=1), size_is_public=True, progress=False,
            arithmetic=arithmetic,
        )  # fmt: skip
    return FOUND[0].double() / CLIP


def by_loop(module, loss, *records, own=None, call=lambda module, x: module(x), **options):
    """The same from a loop: without noise, all records, as sums; ``own``: a loss that the loop computes by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {} if loss is None else {"criterion": loss}
        module, optimizer, *rest = PrivacyEngine().make_private(
            module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
            data_loader=DataLoader(TensorDataset(*records), batch_size=len(records[0])),
            noise_multiplier=0.0, max_grad_norm=CLIP, **given, **options,
        )  # fmt: skip
    criterion = (rest[0] if len(rest) == 2 else loss) if own is None else own
    for _ in range(options.get("epochs", 1)):
        for x, y in rest[-1]:
            optimizer.zero_grad()
            criterion(call(module, x), y).backward()
            optimizer.step()
    divided = 1 if options.get("loss_reduction") == "sum" else len(records[0])
    return torch.cat([one.grad.double().flatten() for one in optimizer.params]) * divided / CLIP


def apart(how, build, loss, one, other, **options):
    """By how many clip norms two neighbours' sums differ; 0 where the module is refused before anything is paid."""
    found = []
    for records in (one, other):
        torch.manual_seed(0)
        try:
            found.append(how(build(), loss, *records, **options))
        except ValueError:  # refused
            return 0.0
    return float((found[0] - found[1]).norm())


WAYS = pytest.mark.parametrize("how", [by_fit, by_loop], ids=["fit", "loop"])


def replaced(x, y, row, label=None):
    """The same records but for the last."""
    x, y = x.clone(), y.clone()
    x[-1] = row
    if label is not None:
        y[-1] = label
    return x, y


# --- modules -------------------------------------------------------------------------------------------------------------


class Packed(nn.Module):
    """Only tokens that are there go through the layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        there = x[:, :, 0] > -1e30
        out = x.new_zeros(*x.shape[:2], 2)
        out[there] = self.layer(x[there])
        return out.sum(1)


@WAYS
@pytest.mark.parametrize("n", [33, 129])
def test_tokens_packed_by_a_mask(how, n):
    x = torch.full((n, n + 1, 2), -1e31)
    x[:, 0] = torch.tensor([1.0, 0.5])
    y = torch.arange(n) % 2
    assert apart(how, Packed, nn.CrossEntropyLoss(), (x, y), replaced(x, y, torch.tensor([-2.0, 3.0]))) <= 2.001


class Sorted(nn.Module):
    """As one does for packed sequences: the longest first, and put back behind the layer."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        order = (x[:, :, 0] > -1e30).sum(1).argsort(stable=True)
        return self.head(torch.tanh(self.layer(x[order].clamp(min=-1).sum(1)))[order.argsort()])


@WAYS
def test_a_batch_that_is_sorted_and_put_back(how):
    n, g = 100, torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, 2, generator=g) * torch.tensor([30.0, 0.01]).repeat(n // 2)[:, None, None]
    y = torch.arange(n) % 2
    short = torch.full((3, 2), -1e31)
    assert apart(how, Sorted, nn.CrossEntropyLoss(), (x, y), replaced(x, y, short)) <= 2.001


class Asked(nn.Module):
    """Attention to keys that are learned, with dropout."""

    def __init__(self):
        super().__init__()
        self.keys, self.values = (nn.Parameter(torch.randn(1, 1, 6, 4)) for _ in range(2))

    def forward(self, x):
        seen = F.scaled_dot_product_attention(x[:, None, None], self.keys, self.values, dropout_p=0.5)
        return seen.flatten(1)


def test_attention_with_dropout_to_a_parameter():
    """Norms were found with one mask and sums with another."""
    n, g = 3, torch.Generator().manual_seed(0)
    x, y = torch.randn(n, 4, generator=g), torch.arange(n) % 2
    for size in (1.0, 30.0, 1e4):
        alone = []
        for _ in range(4):
            torch.manual_seed(0)
            alone.append(float(by_fit(Asked(), nn.CrossEntropyLoss(), x[:1] * size, y[:1]).norm()))
        assert max(alone) <= 1.1  # noise included


class Scaled(nn.Module):
    """Pictures may come as bytes or as fractions."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(400, 2, bias=False)

    def forward(self, x):
        return self.layer(x / (255 if x.max() > 1 else 1))


@WAYS
def test_a_branch_on_the_largest_number_of_the_batch(how):
    x, y = torch.full((64, 400), 0.005), torch.arange(64) % 2
    x[::2] = -0.005
    assert apart(how, Scaled, nn.CrossEntropyLoss(), (x, y), replaced(x, y, 3.0)) <= 2.001


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2, bias=False)

    def forward(self, x, steps=0):
        return self.layer(x - x.mean(0) * float(steps > 3))


def test_a_number_in_the_call_that_switches_mixing_on():
    """The first call had another number, of which only the kind was looked at."""
    x, y = torch.full((64, 4), 0.5), torch.zeros(64, dtype=torch.int64)

    def second_call(module, loss, *records):
        steps = iter((1, 5))
        return by_loop(
            module, None, *records, own=F.cross_entropy, call=lambda module, x: module(x, next(steps)), epochs=2
        )

    assert apart(second_call, Switched, None, (x, y), replaced(x, y, 300.0)) <= 2.001


# --- losses --------------------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x):
        return self.layer(x).transpose(1, 2)


@pytest.mark.parametrize(
    "loss, label",
    [
        (nn.CrossEntropyLoss(), -100),
        (nn.CrossEntropyLoss(ignore_index=2), 2),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 1e-6])), 2),
        (nn.NLLLoss(), -100),
    ],
    ids=["-100", "ignore_index", "class weights", "nll"],
)
def test_losses_whose_mean_counts_labels(loss, label):
    """One record has all the labels, or a few: a mean over the labels of the batch weighs every record by that."""
    n, length = 40, 200
    x, y = torch.ones(n, length, 2), torch.full((n, length), label)
    y[:, 0] = 0
    other = y.clone()
    other[0] = 1
    for clip in (1.0, 0.05):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(globals(), "CLIP", clip)
            assert apart(by_loop, Tagger, loss, (x, y), (x, other)) <= 2.001


def over_the_mean(outputs, target):
    """Rare records count more; the weights are over their mean."""
    weights = 1 + 1e6 * (target > 50)
    return (weights / weights.mean() * (outputs[:, 0] - target).square()).mean()


@pytest.mark.parametrize("arithmetic", ["assumed", "bounded"])
def test_weights_over_their_mean_in_a_fit(arithmetic):
    x = torch.ones(100, 3)
    y = torch.linspace(-1, 1, 100)
    given = {"arithmetic": arithmetic}
    assert apart(by_fit, lambda: nn.Linear(3, 1), over_the_mean, (x, y), replaced(x, y, 1.0, 60.0), **given) <= 2.001


def test_a_loss_that_is_a_mean_is_taken_in_a_fit():
    """It was an IndexError of ours."""
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    for loss in (lambda outputs, y: F.mse_loss(outputs, y), lambda outputs, y: (outputs - y).square().mean()):
        assert math.isfinite(float(by_fit(nn.Linear(3, 1), loss, x, y, arithmetic=None).norm()))


# --- loops ---------------------------------------------------------------------------------------------------------------


def loop(n=32, noise=0.0, **options):
    torch.manual_seed(0)
    module, data = nn.Linear(4, 2), TensorDataset(torch.randn(n, 4), torch.arange(n) % 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = PrivacyEngine().make_private(
            module=module, optimizer=optimizer, data_loader=DataLoader(data, batch_size=n), noise_multiplier=noise,
            max_grad_norm=CLIP, **options,
        )  # fmt: skip
    return optimizer, *made


def test_a_stale_piece():
    """The first piece in place of each later one, which has as many rows: its records would count several times."""
    _, module, optimizer, loader = loop()
    kept = None
    pieces = BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer)
    with pieces as order, pytest.raises(ValueError, match="earlier batch"):
        for x, y in order:
            kept = (x, y) if kept is None else kept
            F.cross_entropy(module(kept[0]), kept[1]).backward()
            optimizer.step()


def test_an_exemplar_that_is_rehearsed_in_every_batch():
    _, module, optimizer, loader = loop()
    exemplar = None
    with pytest.raises(ValueError, match="of several"):
        for _ in range(2):
            for x, y in loader:
                exemplar = x[:1].clone() if exemplar is None else exemplar
                x[:1] = exemplar
                F.cross_entropy(module(x), y).backward()
                optimizer.step()


def test_rows_that_were_not_handed_out():
    _, module, _, loader = loop()
    x, y = next(iter(loader))
    own = torch.randn(x.shape)
    with pytest.raises(ValueError, match="other rows"):
        F.cross_entropy(module(own), y).backward()


@pytest.mark.parametrize("which", ["original", "second"])
def test_an_optimizer_without_noise(which):
    original, module, _, loader = loop(noise=1.0, epochs=1)
    other = original if which == "original" else torch.optim.Adam(module.parameters())
    x, y = next(iter(loader))
    module.eval()
    before = module.weight.detach().clone()
    F.cross_entropy(module(x), y).backward()
    with pytest.raises(RuntimeError, match="without its noise"):
        other.step()
    assert torch.equal(module.weight, before)
