"""Attacks on passes in which each record is alone: what runs beside the pass, what is as long as a batch, what counts passes.

Modules, losses and loops are careless, not malicious, and reach for public names only. Where an attack is answered by a refusal
(a ValueError or a RuntimeError before the step), that is as good as a sum that moves by no more than it may.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import threading
import types
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import DataLoader, TensorDataset

import noisewise as nw
from noisewise.budget import Terms
from noisewise.methods.dpsgd import DpSgd
from noisewise.pytorch import PrivacyEngine

from .test_records_apart import BUDGET, CLIP, WAYS, apart, by_fit, by_loop

TWO = 2.001  # clip norms by which one replaced record may move a sum
ONE = 1.15  # by which one record more may, and the noise of two answers
CLASSES = nn.CrossEntropyLoss()
NEW = pytest.mark.guard("worked on e5c5ab7; on 4785ec3, which ran batches, another attack or none")


def private(module, criterion=None, *records, noise=0.0, trains=None, **options):
    """(module, optimizer, [criterion,] loader) of a private loop over full batches."""
    given = {} if criterion is None else {"criterion": criterion}
    optimizer = torch.optim.SGD(module.parameters() if trains is None else trains, lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = PrivacyEngine().make_private(
            module=module, optimizer=optimizer, noise_multiplier=noise, max_grad_norm=CLIP,
            data_loader=DataLoader(TensorDataset(*records), batch_size=len(records[0])), **given, **options,
        )  # fmt: skip
    if criterion is None or len(made) == 4:
        return made
    return *made[:2], criterion, made[2]  # once the loop kept its own criterion


def stepped(made, call=lambda module, x: module(x), also=()):
    """The clipped sum of one batch, in clip norms; ``also``: further arguments of the criterion."""
    module, optimizer, criterion, loader = made
    x, y = next(iter(loader))
    criterion(call(module, x), y, *also).backward()
    optimizer.step()
    return torch.cat([one.grad.double().flatten() for one in optimizer.params]) * len(x) / CLIP


def rows(n=32, width=4):
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, width, generator=g), torch.arange(n) % 2


# --- tensors that are as long as a batch, by chance ------------------------------------------------------------------------

TABLE = torch.linspace(-3, 3, 10)


class WithTable(nn.Module):
    """Hands a table on, for the loss."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 10)
        self.register_buffer("table", TABLE.clone())

    def forward(self, x):
        return self.layer(x), self.table


@pytest.mark.guard("worked where a criterion dealt tensors out by their length, which 4785ec3 had not")
@pytest.mark.parametrize("where", ["argument", "output"])
def test_a_shared_tensor_that_is_as_long_as_the_batch(where):
    """With ten records a table of ten is dealt out, an entry to each; with eleven every record sees all of it."""

    def own(n):
        torch.manual_seed(0)
        records = torch.ones(n, 4), torch.zeros(n)
        if where == "output":
            loss = lambda given, y: ((given[0] - y.unsqueeze(-1)) * given[1]).square().mean()  # noqa: E731
            return stepped(private(WithTable(), loss, *records))
        loss = lambda given, y, table: ((given - y.unsqueeze(-1)) * table).square().mean()  # noqa: E731
        return stepped(private(nn.Linear(4, 10), loss, *records), also=(TABLE,))

    try:
        few, more = own(10), own(11)
    except ValueError:
        return
    assert float((few - more).norm()) <= 1.001


def test_a_mean_of_rows_as_an_argument_of_the_criterion():
    """It carries the mark of the batch, and has no row for each record: every record's loss sees all of them."""

    def own(odd):
        torch.manual_seed(0)
        x, y = torch.ones(32, 4), torch.zeros(32)
        x[-1] = odd
        module, optimizer, criterion, loader = private(nn.Linear(4, 3), lambda o, y, m: (o * m[:3]).sum(), x, y)
        for x, y in loader:
            criterion(module(x), y, x.mean(0)).backward()
            optimizer.step()
        return torch.cat([one.grad.double().flatten() for one in optimizer.params]) * len(x) / CLIP

    try:
        moved = float((own(1.0) - own(-1e3)).norm())
    except ValueError:
        return
    assert moved <= TWO


class Cut(nn.Module):
    """Cuts a batch to its longest text, of which it is told in numbers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, x, lengths):
        return self.layer(x[:, : max(lengths)].sum(1, keepdim=True))


def test_a_list_of_every_records_length_in_the_call():
    def own(odd):
        torch.manual_seed(0)
        x, y = torch.tensor([1.0, 1.0, -500.0, 0.0]).repeat(6, 1), torch.zeros(6, dtype=torch.int64)
        return stepped(private(Cut(), CLASSES, x, y), call=lambda module, x: module(x, [2, 2, 2, 2, 2, odd]))

    try:
        moved = float((own(2) - own(4)).norm())
    except ValueError:
        return
    assert moved <= TWO


# --- code of the module's that runs beside the pass --------------------------------------------------------------------------


def scaled(module, args):
    """Numbers that are too large are scaled down, by the largest of the batch."""
    return (args[0] / args[0].abs().amax().clamp(min=10),)


class Called(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2, bias=False)

    def __call__(self, x):
        return super().__call__(*scaled(self, (x,)))

    def forward(self, x):
        return self.layer(x)


def hooked():
    module = nn.Sequential(nn.Linear(4, 2, bias=False))
    module.register_forward_pre_hook(scaled)
    return module


@pytest.mark.guard("worked in a loop where only forward was run record by record, which 4785ec3 did not do")
@pytest.mark.parametrize("how", [by_loop, by_fit])
@pytest.mark.parametrize("build", [hooked, Called], ids=["hook", "__call__"])
def test_what_the_module_does_before_forward(how, build):
    """A loop stands in for ``forward`` alone: hooks of the outermost module saw all rows."""
    x, y = torch.full((32, 4), 0.5), torch.arange(32) % 2
    x[::2] *= -1
    odd = x.clone()
    odd[-1] = 1e6
    assert apart(how, build, CLASSES, (x, y), (odd, y)) <= TWO


@pytest.mark.parametrize(
    "which", ["global", pytest.param("later", marks=pytest.mark.guard("4785ec3 compared every pass with the first"))]
)
def test_hooks_that_were_not_there_when_the_module_was_rehearsed(which):
    def own(odd):
        torch.manual_seed(0)
        x, y = torch.full((32, 4), 0.5), torch.arange(32) % 2
        x[::2] *= -1
        x[-1] = odd
        made = private(nn.Sequential(nn.Linear(4, 2, bias=False)), CLASSES, x, y)
        if which == "later":
            made[0].register_forward_pre_hook(scaled)
            return stepped(made)
        hook = register_module_forward_pre_hook(lambda m, a: scaled(m, a) if isinstance(m, nn.Sequential) else None)
        try:
            return stepped(made)
        finally:
            hook.remove()

    try:
        moved = float((own(0.5) - own(1e6)).norm())
    except (ValueError, RuntimeError):
        return
    assert moved <= TWO


# --- what counts passes ------------------------------------------------------------------------------------------------------

LATE = 40  # passes, more than a rehearsal makes
SUMS: list[torch.Tensor] = []


class Often(DpSgd):
    """Asks several times, with next to no noise."""

    def terms(self, facts):
        return Terms.adaptive("gdp")

    def step(self, state, private, public):
        for _ in range(6):
            answer = private.gradient(state.walk.theta, clip=CLIP, noise_multiplier=2e-2)
            SUMS.append(torch.as_tensor(answer.value).double() * private.facts.size / CLIP)
        return super().step(state, private, public)


class WarmLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, outputs, y):
        self.calls += 1
        return F.cross_entropy(outputs if self.calls <= LATE else -outputs, y)


class Warm(nn.Module):
    """Does something else after so many passes, as warm-ups do; they are counted where the rehearsal does not look."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(4, 2)
        if kind == "buffer":
            self.register_buffer("calls", torch.zeros(()))
        elif kind == "frozen":
            self.calls = nn.Parameter(torch.zeros(()), requires_grad=False)
        else:
            kinds = {"tensor": torch.zeros(()), "list": [0], "iterator": itertools.count(1)}
            self.calls = (kinds | {"array": np.zeros(1), "object": types.SimpleNamespace(many=0)})[kind]

    def forward(self, x):
        many = self.calls
        if self.kind in ("buffer", "frozen"):
            many.data.add_(1)
        elif self.kind == "tensor":
            self.calls += 1
        elif self.kind in ("list", "array"):
            many[0] += 1
            many = many[0]
        elif self.kind == "object":
            many.many += 1
            many = many.many
        elif self.kind == "iterator":
            many = next(many)
        return self.layer(x) * torch.where(torch.as_tensor(many) <= LATE, 1.0, -1.0)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("loss", marks=pytest.mark.guard("4785ec3 called the loss more often, and so refused this one")),
        "tensor",
        "list",
        "iterator",
        pytest.param("buffer", marks=pytest.mark.guard("4785ec3 refused a buffer that changes")),
        *(pytest.param(kind, marks=NEW) for kind in ("frozen", "array", "object")),
    ],
)
def test_passes_are_not_counted(kind):
    """One record more is one pass more, and from then on all others are treated otherwise one pass earlier."""

    def own(n):
        SUMS.clear()
        torch.manual_seed(0)
        module, loss = (nn.Linear(4, 2), WarmLoss()) if kind == "loss" else (Warm(kind), CLASSES)
        g = torch.Generator().manual_seed(0)
        records = (torch.randn(80, 4, generator=g) + 2)[torch.arange(n) % 80], torch.zeros(n, dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nw.fit(
                module, loss, records, budget=BUDGET, method=Often(steps=1), size_is_public=True, progress=False,
                arithmetic="assumed", max_physical_batch_size=8,
            )  # fmt: skip
        return torch.stack(SUMS)

    try:
        moved = (own(80) - own(81)).norm(dim=1)
    except ValueError:
        return
    assert float(moved.max()) <= ONE


# --- what is trained without noise -------------------------------------------------------------------------------------------


class Tempered(nn.Module):
    """A loss that learns."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, outputs, y):
        return F.cross_entropy(outputs * self.scale, y)


class Grown(nn.Module):
    """Gets another head later."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 2, bias=False), None

    def forward(self, x):
        x = self.layer(x)
        return x if self.head is None else self.head(x)


@pytest.mark.parametrize("which", ["loss", "head", "replaced"])
def test_parameters_that_another_optimizer_trains_without_noise(which):
    """They are no part of the run, so nobody refuses the step; their gradients are neither clipped nor noisy."""
    torch.manual_seed(0)
    criterion = Tempered() if which == "loss" else CLASSES
    try:
        module, _, criterion, loader = private(Grown(), criterion, *rows(), noise=1.0, epochs=1)
        if which == "head":
            module.head = nn.Linear(2, 2)
        elif which == "replaced":
            module.head = None
            module.layer.weight = nn.Parameter(module.layer.weight.detach().clone())
        part = {"loss": criterion, "head": module.head, "replaced": module.layer}[which]
        own = [*part.parameters()]
        other, before = torch.optim.SGD(own, lr=1.0), [one.detach().clone() for one in own]
        for x, y in loader:
            criterion(module(x), y).backward()
            other.step()
    except (ValueError, RuntimeError):
        return
    assert all(torch.equal(one, was) for one, was in zip(own, before, strict=True))


@pytest.mark.parametrize("how", ["put", "copied"])
def test_a_memory_of_earlier_rows_in_a_tensor_of_the_loops_own(how):
    """What is written into a tensor that was there before carried no mark, and came back as a row of every later batch."""
    module, optimizer, criterion, loader = private(nn.Linear(4, 2), CLASSES, *rows(), noise=1.0, epochs=2)
    memory, full = torch.zeros(1, 4), False
    with pytest.raises(ValueError, match=r"of several|earlier batch|other rows"):
        for x, y in itertools.chain(loader, loader):
            if full:
                x = torch.cat([x[1:], memory])
            elif how == "put":
                memory[0] = x[0]
            else:
                memory.copy_(x[:1])
            full = True
            criterion(module(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()


# --- what tells how many records there are -----------------------------------------------------------------------------------


class Seeded(nn.Module):
    """For the same dropout in every run: then a record's is that of its place, and one record less moves all others on."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.how = nn.Linear(4, 2), how

    def forward(self, x):
        with torch.random.fork_rng() if self.how == "forked" else contextlib.nullcontext():
            if self.how == "state":
                torch.set_rng_state(torch.Generator().manual_seed(0).get_state())
            else:
                torch.manual_seed(0)
            return self.layer(F.dropout(x, 0.5))


class Strided(nn.Module):
    """Asks how its numbers lie in memory, where the next entry is as far away as there are records."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.matrix, self.how = nn.Linear(4, 2), torch.eye(4), how

    def forward(self, x):
        lying = torch.mv(self.matrix.to(x.dtype), x[0])
        odd = lying.stride(0) > 39 if self.how == "stride" else lying.is_contiguous() and lying.stride() != (1,)
        return self.layer(-x if odd else x)


@NEW
@WAYS
@pytest.mark.parametrize(
    ("build", "which"),
    [(Seeded, "seed"), (Seeded, "forked"), (Seeded, "state"), (Strided, "stride"), (Strided, "contiguous")],
)
def test_one_record_less_leaves_the_others_as_they_are(how, build, which):
    x, y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)) + 2, torch.zeros(40, dtype=torch.int64)
    assert apart(how, lambda: build(which), CLASSES, (x, y), (x[1:], y[1:])) <= ONE


# --- numbers that are too coarse, and batches of one -------------------------------------------------------------------------


class Coarse(nn.Module):
    """A frozen layer in bfloat16 before a norm in single precision, whose gradients are bfloat16 then, and their sum."""

    def __init__(self):
        super().__init__()
        self.first, self.last = (nn.Linear(a, b).requires_grad_(False) for a, b in ((4, 16), (16, 2)))
        self.first.bfloat16()
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.last(self.norm(self.first(x.to(self.first.weight.dtype))).to(self.last.weight.dtype))


def test_gradients_that_are_coarser_than_their_parameter():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 4, generator=g) + 3, torch.zeros(400, dtype=torch.int64)
    assert apart(by_fit, Coarse, CLASSES, (x, y), (x[1:], y[1:])) <= ONE


class Squeezed(nn.Module):
    """As after pooling: what has one entry is dropped; in a batch of one, torch drops that as well."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        pooled = self.layer(x)[:, :, None, None].contiguous()
        return pooled.squeeze_().reshape(-1, 2)


@pytest.mark.guard("worked where records ran as batches of one, which 4785ec3 did not do")
def test_a_batch_of_one_record():
    """A pass over one record raised, which a pass over two did not."""
    x, y = rows(2)
    try:
        both = by_loop(Squeezed(), CLASSES, x, y)
    except ValueError:
        return
    assert by_loop(Squeezed(), CLASSES, x[:1], y[:1]).shape == both.shape


def test_a_search_for_anomalies_in_a_loop():
    """A record that is not finite counts as zero; it does not stop the loop, whatever torch is asked to look for."""
    ended = []
    for odd in (0.0, math.nan):
        x, y = rows()
        x[3] = odd
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            try:
                by_loop(nn.Linear(4, 2), CLASSES, x, y)
                ended.append("well")
            except (ValueError, RuntimeError) as error:
                ended.append(str(error))
    assert ended[0] == ended[1]


# --- never worked ------------------------------------------------------------------------------------------------------------

SHARED = torch.zeros(1, 4)
KEPT: list[torch.Tensor] = []


def _copied_into_shared(x):
    SHARED.copy_(x.detach())
    return SHARED + x


def _added_to_an_expanded(x):
    total = torch.zeros(1).expand(1, 4)
    total += x
    return total


def _kept_in_a_list(x):
    KEPT.append(x)
    return x + KEPT[0]


def _in_a_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x - x.mean(0)))
    thread.start()
    thread.join()
    return found[0]


def _caught(x):
    try:
        return x / (255 if x.max() > 1 else 1)
    except Exception:
        return x


def _mapped(x):
    return torch.vmap(lambda row: row * 2)(x)


def _foreach(x):
    return torch._foreach_mul([x], 2.0)[0]


def _aten(x):
    return torch.ops.aten.mul.Tensor(x, x)


def _strided(x):
    return x.as_strided((1, 4), (4, 1), 4)


class Unseen:
    """Torch hands a function over to it, and does not watch what it calls; what it keeps is of use in the next pass."""

    last = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kept, cls.last = cls.last, args[0]
        return args[0] if kept is None or kept.shape != args[0].shape else args[0] + kept


def _by_an_object(x):
    return torch.add(x, Unseen())


def _scaled_by_too_few(x):
    """torch's kernel reads the scales of rows that are not given from what lies behind: the next record's."""
    return torch._weight_norm(x.expand(4, 4).contiguous(), x[:, :1].contiguous(), 0)[:1]


def _from_record_to(x):
    return x + (torch.linspace(x[:1, :1], 0.0, 1).sum() if torch.compiler.is_compiling() else x[0, 0])


def _filled(x):
    return x.clone().index_fill_(1, (x[0, :1].abs() > 1e3).long() * 5, 7.0)


def _resized(x):
    return x.clone().resize_(2, 4)[1:]


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x - x.mean(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return slope

    @staticmethod
    def vmap(info, dims, x):
        return x - x.mean(dims[0], keepdim=True), dims[0]


class Does(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what, self.layer = what, nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(self.what(x))


@pytest.mark.guard("never worked")
@WAYS
@pytest.mark.parametrize(
    "what",
    [
        _copied_into_shared, _added_to_an_expanded, _kept_in_a_list, _caught, _mapped, _foreach, _aten, _strided,
        _filled, _resized, _Own.apply, _by_an_object, _scaled_by_too_few, _from_record_to,
        pytest.param(
            _in_a_thread,
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
        ),
    ],
)  # fmt: skip
def test_odd_modules(how, what):
    KEPT.clear()
    SHARED.zero_()
    x, y = torch.ones(12, 4), torch.arange(12) % 2
    odd = x.clone()
    odd[0] = 1e6
    assert apart(how, lambda: Does(what), CLASSES, (x, y), (odd, y)) <= TWO


@pytest.mark.guard("never worked")
def test_a_module_that_draws_from_python():
    def drawn(x):
        return x if random.random() < 0.5 else -x

    assert apart(by_fit, lambda: Does(drawn), CLASSES, rows(12), rows(12)) <= 0.2


@pytest.mark.guard("never worked")
@pytest.mark.parametrize("way", ["twice", "weighted", "eval", "part", "swapped"])
def test_odd_ways_back(way):
    """Each ends in a refusal, or in a sum of one batch that is clipped."""
    torch.manual_seed(0)
    module, optimizer, criterion, loader = private(nn.Linear(4, 2), CLASSES, *rows())
    x, y = next(iter(loader))
    x = x * 1e3
    with pytest.raises((ValueError, RuntimeError)):
        if way == "twice":
            loss = criterion(module(x), y)
            loss.backward(retain_graph=True)
            loss.backward()
        elif way == "weighted":
            (criterion(module(x), y) * 100).backward()
        elif way == "eval":
            module.eval()
            criterion(module(x), y).backward()
        elif way == "part":
            criterion(module(x) * 2, y).backward()
        else:
            swapped = {name: value * 2 for name, value in module.named_parameters()}
            criterion(torch.func.functional_call(module, swapped, (x,)), y).backward()
        optimizer.step()
