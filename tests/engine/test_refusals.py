"""What is refused before a private row is touched; and what is not, because each record is alone: no record moves more than its part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from architectures import flat
from module_networks import Applied, built, weights
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from noisewise.trusted.engine import Layout, Refused, Spec, clip_factors, passed, rehearsed, values
from noisewise.trusted.engine.alone import Failed, too_coarse

ROWS, SEQUENCE = (Spec((5,), torch.float32),), (Spec((4, 3), torch.float32),)
CLASSES, TAGS = (Spec((), torch.int64, 3),), (Spec((4,), torch.int64, 3),)
LOSS = nn.CrossEntropyLoss()
HOSTILE = (0.0, 1e3, -1e3, 1e30, 1e-30, float("nan"), float("inf"))
CLIP = 0.1


def mixing(call, **parts):
    return Applied(call, layer=nn.Linear(5, 3), **parts)


def most_moved(module: nn.Module, loss: Any, specs: Sequence[Spec], classes: Sequence[Spec], layout: Layout) -> float:
    """How far one replaced record moves the clipped sum, in clips; its label may be anything."""
    made = torch.Generator().manual_seed(0)
    inputs = [torch.randn(6, *spec.shape, generator=made) for spec in specs]
    targets = [torch.randint(3, (6, *spec.shape), generator=made) for spec in classes]

    def summed() -> Tensor:
        tape, _ = passed(module, loss, inputs, targets, layout, seed=1)
        return flat(tape.sums(clip_factors(tape.squared_norms(), CLIP)))

    before, moved = summed(), 0.0
    for value in HOSTILE:
        for label in (0, 2, -100, 3, -1) if targets else (0,):
            for one in inputs:
                one[2] = value
            for one in targets:
                one[2] = label
            moved = max(moved, float((summed() - before).norm()) / CLIP)
    return moved


def sound(module: nn.Module, specs: Sequence[Spec], classes: Sequence[Spec] = (), loss: Any = LOSS) -> None:
    """Not refused, and no record moves the sum by more than two clips."""
    layout = rehearsed(module, specs, classes, loss)
    assert most_moved(module, loss, specs, classes, layout) <= 2 * (1 + 1e-4)


# --- records that mix ---


MIXED = {
    "less the mean of the batch": mixing(lambda m, x: m.layer(x - x.mean(0))),
    "over the largest of the batch": mixing(lambda m, x: m.layer(x / x.abs().max())),
    "softmax over the batch": mixing(lambda m, x: torch.softmax(m.layer(x), 0)),
    "the neighbour": mixing(lambda m, x: m.layer(x + 0.1 * x.roll(1, 0))),
    "sorted": mixing(lambda m, x: m.layer(x.sort(0).values)),
    "normed over the batch": mixing(lambda m, x: F.layer_norm(m.layer(x).T, (x.shape[0],)).T),
    "attention among records": mixing(lambda m, x: m.layer(F.scaled_dot_product_attention(x[None], x[None], x[None])[0])),
    "batch norm by hand": mixing(lambda m, x: m.layer(F.batch_norm(x, None, None, training=True))),
    "a running mean": mixing(lambda m, x: m.layer(x * 1.0), mean=nn.BatchNorm1d(5)),
    "by the size of the batch": mixing(lambda m, x: m.layer(x) / len(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_records_that_mix(name):
    with pytest.raises(Refused, match=r"mixes|batch norm|more than 1 value"):
        rehearsed(MIXED[name], ROWS, CLASSES, LOSS)


@pytest.mark.parametrize("length", [3, 4, 5])
def test_a_transposed_batch(length):
    """Positions taken for records: as long as the batch, longer and shorter."""
    specs = (Spec((length, 3), torch.float32),)
    module = Applied(lambda m, x: m.layer(x.transpose(0, 1))[0].sum(0), layer=nn.GRU(3, 3, batch_first=True))
    with pytest.raises(Refused, match="mixes"):
        rehearsed(module, specs, CLASSES, LOSS)
    turned = Applied(
        lambda m, x: m.layer(x.transpose(0, 1).reshape(-1, 3)).view(x.shape[1], len(x), 3).sum(0), layer=nn.Linear(3, 3)
    )
    sound(turned, specs, CLASSES)  # turned and turned back: each record by itself


def test_what_only_another_batch_would_do_is_never_done():
    """A record is a batch of one: what a module does with five of them is not what is trained."""
    sound(mixing(lambda m, x: m.layer(x) if len(x) < 5 else m.layer(x - x.mean(0))), ROWS, CLASSES)


# --- losses ---


LOSSES = {
    "ignored class": lambda out, y: F.cross_entropy(out, y, ignore_index=1),
    "weighted mean": lambda out, y: F.cross_entropy(out, y, weight=torch.tensor([1.0, 5.0, 2.0], dtype=out.dtype)),
    "largest loss": lambda out, y: F.cross_entropy(out, y.clamp(min=0), reduction="none").max(),
    "spread of scores": lambda out, y: F.cross_entropy(out, y.clamp(min=0)) + out.std(0, correction=0).sum(),
    "contrast": lambda out, y: F.cross_entropy(out @ out.T, torch.arange(len(out))),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_mix_records(name):
    with pytest.raises(Refused, match="mixes records"):
        rehearsed(nn.Linear(5, 3), ROWS, CLASSES, LOSSES[name])


@pytest.mark.parametrize("name", [*LOSSES, *MIXED])
def test_and_if_they_were_not_refused_each_record_would_still_be_alone(name):
    """The rehearsal keeps people from training something else than they mean; records are apart without it."""
    if name in ("batch norm by hand", "a running mean"):
        return
    module = MIXED.get(name, built("perceptron"))
    layout = rehearsed(mixing(lambda m, x: m.layer(x)), ROWS) if name in MIXED else rehearsed(module, ROWS)
    assert most_moved(module, LOSSES.get(name, LOSS), ROWS, CLASSES, layout) <= 2 * (1 + 1e-4)


def test_a_mean_that_leaves_labels_out_is_that_of_one_record():
    """Refused once, as the mean of a batch counts its labels; alone there is no batch to count."""
    sound(nn.Linear(5, 3), ROWS, CLASSES, lambda out, y: F.cross_entropy(out, y))


def test_a_loss_of_torch_is_asked_for_single_entries():
    tagger = Applied(lambda m, x: m.layer(x).transpose(1, 2), layer=nn.Linear(3, 3))
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 2.0]), ignore_index=1)
    for loss in (weighted, LOSS, nn.CrossEntropyLoss(reduction="sum")):
        sound(tagger, SEQUENCE, TAGS, loss)
    assert rehearsed(tagger, SEQUENCE, TAGS, weighted).terms == 4
    with pytest.raises(Refused, match="weighted mean"):
        rehearsed(tagger, SEQUENCE, TAGS, lambda out, y: F.cross_entropy(out, y, weighted.weight.to(out.dtype)))


def test_losses_by_their_reduction():
    module = mixing(lambda m, x: m.layer(x))
    layout = rehearsed(module, ROWS, CLASSES, LOSS)
    x, y = torch.randn(4, 5), torch.tensor([0, 1, 2, -100])
    with torch.no_grad():
        out = module(x)
    single, bad = values(module, LOSS, [x], [y], layout)
    assert single.shape == (4,) and float(single[3]) == 0 and not bool(bad.any())
    assert torch.allclose(single[:3], F.cross_entropy(out[:3], y[:3], reduction="none"))
    for reduction in ("mean", "sum"):
        loss = lambda a, b, how=reduction: F.mse_loss(a[:, 0], b.float(), reduction=how)  # noqa: E731
        given, _ = values(module, loss, [x], [y], layout)
        assert torch.allclose(given, (out[:, 0] - y).square())
    with pytest.raises(Refused, match="must be one number"):
        values(module, lambda a, b: a, [x], [y], layout)
    with pytest.raises(Refused, match="does not depend on the record"):
        values(module, lambda a, b: torch.zeros(()), [x], [y], layout)


# --- what a module keeps ---


def test_buffers_that_a_pass_changes():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.register_buffer("seen", torch.zeros(5))

        def forward(self, x):
            self.seen += x.detach().sum(0)
            return self.layer(x)

    with pytest.raises(Refused, match=r"the buffer seen|written into a tensor that belongs to none"):
        rehearsed(Counting(), ROWS, CLASSES, LOSS)
    tracking = nn.Sequential(
        nn.Conv1d(1, 2, 3), nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(6, 3)
    )
    with pytest.raises(Refused, match=r"running_mean.*track_running_stats=False"):
        rehearsed(tracking, (Spec((1, 5), torch.float32),), CLASSES, LOSS)


class Keeping(nn.Module):
    """Adds what it kept of the pass before."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.layer, self.where, self.count, self.last = nn.Linear(5, 3), where, 0, None
        self.shelf: list[Tensor] = []

    def forward(self, x):
        if self.where == "count":
            self.count += 1
            return self.layer(x) * self.count
        if self.where == "attribute":
            last, self.last = self.last, x
            return self.layer(x if last is None or len(last) != len(x) else x + last)
        self.shelf.append(x)
        return self.layer(x)


@pytest.mark.parametrize("where", ["attribute", "shelf", "count"])
def test_modules_that_keep_something(where):
    with pytest.raises(
        Refused,
        match=r"keeps something of a record|changes (count|shelf)|not those of single records run in a plain loop",
    ):
        rehearsed(Keeping(where), ROWS, CLASSES, LOSS)


def test_what_a_module_only_shows_is_taken_back():
    class Showing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scores = nn.Linear(5, 3), None

        def forward(self, x):
            self.scores = self.layer(x)
            return self.scores

    module = Showing()
    sound(module, ROWS, CLASSES)
    assert module.scores is None


def test_a_tensor_that_was_kept_in_a_closure_is_of_no_use_in_the_next_pass():
    shelf: list[Tensor] = []

    def call(m, x):
        shelf.append(x)
        return m.layer(x + shelf[max(len(shelf) - 2, 0)])

    module = mixing(call)
    layout = rehearsed(mixing(lambda m, x: m.layer(x)), ROWS, CLASSES, LOSS)
    passed(module, LOSS, [torch.randn(3, 5)], [torch.arange(3)], layout)
    with pytest.raises(Refused, match="kept from another pass"):
        passed(module, LOSS, [torch.randn(3, 5)], [torch.arange(3)], layout)


# --- what would let a value out ---


class Own(Tensor):
    pass


LEAKING = {
    "a branch": (lambda m, x: m.layer(x) if x.max() > 1 else m.layer(-x), "__bool__|decides by a record's values"),
    "a path for large values": (lambda m, x: m.layer(x) if bool((x < 1e20).all()) else m.layer(x.neg()), "__bool__|decides by"),
    "item": (lambda m, x: m.layer(x) * x.sum().item(), "item"),
    "tolist": (lambda m, x: m.layer(x) * x.tolist()[0][0], "tolist"),
    "numpy": (lambda m, x: m.layer(x) * float(x.detach().numpy().max()), "numpy"),
    "nonzero": (lambda m, x: m.layer(x) * len(x.nonzero()), "nonzero"),
    "unique": (lambda m, x: m.layer(x) * len(x.unique()), "unique"),
    "rows by a mask": (lambda m, x: m.layer(x) * x[x > 0].sum(), "mask"),
    "text": (lambda m, x: m.layer(x) * len(str(x)), "text|repr"),
    "data": (lambda m, x: m.layer(x.data), "data"),
    "a hook": (lambda m, x: (m.layer(x), x.register_hook(print))[0], "hook|requires"),
    "resized": (lambda m, x: m.layer(x.clone().resize_(len(x), 5)), "resize_"),
    "memory": (lambda m, x: m.layer(x) * (x.data_ptr() % 3), "data_ptr"),
    "its own gradient": (lambda m, x: m.layer(x) + torch.func.grad(lambda v: v.square().sum())(x)[:, :3], "torch.func"),
    "its own batch": (lambda m, x: torch.vmap(m.layer)(x), "torch.func"),
    "its own form": (lambda m, x: (torch.func.functionalize(lambda v: v.mul_(2))(x), m.layer(x))[1], "torch.func"),
    "its own class": (lambda m, x: m.layer(x.as_subclass(Own)), "cannot be seen"),
    "functions under torch's": (lambda m, x: m.layer(torch.ops.aten.mul.Tensor(x, x)), "not tested"),
    "its own numbers": (lambda m, x: m.layer(x) + torch.rand(3, generator=torch.Generator().manual_seed(1)), "generator"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("name", LEAKING)
def test_what_reads_a_value_or_cannot_be_seen(name):
    call, words = LEAKING[name]
    with pytest.raises(Refused, match=words):
        rehearsed(mixing(call), ROWS, CLASSES, LOSS)


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("name", LEAKING)
def test_nor_may_a_module_catch_that(name):
    """Whatever it makes of the exception, the pass counts as failed."""
    call, _ = LEAKING[name]

    def caught(m, x):
        try:
            return call(m, x)
        except Exception:
            return m.layer(x) * 100

    layout = rehearsed(mixing(lambda m, x: m.layer(x)), ROWS, CLASSES, LOSS)
    with pytest.raises((Refused, Failed)):
        passed(mixing(caught), LOSS, [torch.randn(3, 5)], [torch.arange(3)], layout)


def test_parameters_that_slip_by():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w.T

        @staticmethod
        def backward(ctx, b):
            x, w = ctx.saved_tensors
            return b @ w, b.T @ x

    with pytest.raises(Refused, match=r"autograd.Function of its own has no rule"):
        rehearsed(Applied(lambda m, x: Own.apply(x, m.w), w=weights(3, 5)), ROWS, CLASSES, LOSS)
    again = Applied(lambda m, x: checkpoint(m.layer, x, use_reentrant=False), layer=nn.Linear(5, 3))
    with pytest.raises(Refused, match="checkpointing"):
        rehearsed(again, ROWS, CLASSES, LOSS)


def test_hooks_on_gradients():
    module = built("perceptron")
    handle = module[0].weight.register_hook(lambda gradient: gradient)
    with pytest.raises(Refused, match="hook on its gradient"):
        rehearsed(module, ROWS, CLASSES, LOSS)
    handle.remove()
    module[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(Refused, match="hook on gradients"):
        rehearsed(module, ROWS, CLASSES, LOSS)


# --- kinds of numbers, and what has no sense ---


def test_modules_that_make_numbers_of_a_kind_of_their_own():
    own = Applied(
        lambda m, x: m.head(m.layer(x, torch.zeros(1, len(x), 4))[0].sum(1)),
        layer=nn.GRU(3, 4, batch_first=True),
        head=nn.Linear(4, 3),
    )
    assert rehearsed(own, SEQUENCE, CLASSES, LOSS).terms == 4
    single = mixing(lambda m, x: m.layer(x.float() / 255))
    assert rehearsed(single, ROWS, CLASSES, LOSS).plain_linear
    with pytest.raises(Refused, match="mixes records"):
        rehearsed(mixing(lambda m, x: m.layer(x.float() - x.float().mean(0))), ROWS, CLASSES, LOSS)
    assert torch.get_default_dtype() is torch.float32


def test_what_has_no_rule_or_no_sense():
    limited = nn.Sequential(nn.Embedding(9, 5, max_norm=1.0), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(Refused, match="max_norm"):
        rehearsed(limited, (Spec((4,), torch.int64, 9),), CLASSES, LOSS)
    with pytest.raises(Refused, match="float32 or float64"):
        rehearsed(nn.Linear(5, 3).half(), ROWS)
    with pytest.raises(Refused, match="fails on made-up rows"):
        rehearsed(nn.Linear(4, 3), ROWS)


def test_words_by_their_frequency_are_counted_in_one_record():
    """Refused once, as a batch would count the words of all."""
    module = nn.Sequential(nn.Embedding(9, 3, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(12, 3))
    layout = rehearsed(module, (Spec((4,), torch.int64, 9),), CLASSES, LOSS)
    made = torch.Generator().manual_seed(0)
    words, y = torch.randint(9, (6, 4), generator=made), torch.arange(6) % 3

    def summed() -> Tensor:
        tape, _ = passed(module, LOSS, [words], [y], layout)
        return flat(tape.sums(clip_factors(tape.squared_norms(), CLIP)))

    before = summed()
    for word in (-1, 0, 3, 9):
        words[2] = word
        assert float((summed() - before).norm()) <= 2 * CLIP * (1 + 1e-4)


def test_numbers_of_an_accelerator_that_are_rounder_than_they_look():
    assert too_coarse("cpu") is None and too_coarse("meta") is None
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
        assert "cudnn.allow_tf32" in too_coarse("cuda")
        torch.backends.cudnn.allow_tf32 = False
        assert too_coarse("cuda") is None
        torch.backends.cuda.matmul.allow_tf32 = True
        assert "matmul.allow_tf32" in too_coarse("cuda")
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def test_autocast_and_other_parameters_are_refused():
    module, data = built("perceptron"), ([torch.randn(2, 5)], [torch.arange(2)])
    layout = rehearsed(module, ROWS, CLASSES, LOSS)
    with torch.autocast("cpu"), pytest.raises(Refused, match="autocast"):
        passed(module, LOSS, *data, layout)
    module[0].requires_grad_(False)
    with pytest.raises(Refused, match="other parameters train"):
        passed(module, LOSS, *data, layout)
