"""What is refused before a private row is touched: records that mix, buffers that change, parameters that slip by."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from module_networks import Applied, built, weights
from torch import nn
from torch.utils.checkpoint import checkpoint

from noisewise.engine import Refused, Spec, Tape, per_record_losses, probed

ROWS, SEQUENCE = (Spec((5,), torch.float32),), (Spec((4, 3), torch.float32),)
CLASSES, TAGS = (Spec((), torch.int64, 3),), (Spec((4,), torch.int64, 3),)


def mixing(call, **parts):
    return Applied(call, layer=nn.Linear(5, 3), **parts)


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
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_records_that_mix(name):
    with pytest.raises(Refused, match=r"mix|batch|more than 1 value"):
        probed(MIXED[name], ROWS, CLASSES, nn.CrossEntropyLoss())


@pytest.mark.parametrize("length", [3, 4, 5])
def test_a_transposed_batch(length):
    """Positions taken for records: as long as the batch, longer and shorter."""
    module = Applied(lambda m, x: m.layer(x.transpose(0, 1)).sum(0), layer=nn.GRU(3, 3, batch_first=True))
    module.call = lambda m, x: m.layer(x.transpose(0, 1))[0].sum(0)
    with pytest.raises(Refused):
        probed(module, (Spec((length, 3), torch.float32),), CLASSES, nn.CrossEntropyLoss())
    turned = Applied(
        lambda m, x: m.layer(x.transpose(0, 1).reshape(-1, 3)).view(x.shape[1], len(x), 3).sum(0), layer=nn.Linear(3, 3)
    )
    with pytest.raises(Refused):
        probed(turned, (Spec((length, 3), torch.float32),), CLASSES, nn.CrossEntropyLoss())


def test_buffers_that_a_pass_changes():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.register_buffer("seen", torch.zeros(5))

        def forward(self, x):
            self.seen += x.detach().sum(0)
            return self.layer(x)

    with pytest.raises(Refused, match="the buffer seen"):
        probed(Counting(), ROWS, CLASSES, nn.CrossEntropyLoss())
    tracking = nn.Sequential(
        nn.Conv1d(1, 2, 3), nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(6, 3)
    )
    with pytest.raises(Refused, match="running means"):
        probed(tracking, (Spec((1, 5), torch.float32),), CLASSES, nn.CrossEntropyLoss())


SPREAD = nn.CrossEntropyLoss()
LOSSES = {
    "ignored labels": lambda out, y: F.cross_entropy(out, y),
    "ignored class": lambda out, y: F.cross_entropy(out, y, ignore_index=1),
    "weighted mean": lambda out, y: F.cross_entropy(out, y, weight=torch.tensor([1.0, 5.0, 2.0], dtype=out.dtype)),
    "largest loss": lambda out, y: F.cross_entropy(out, y.clamp(min=0), reduction="none").max(),
    "spread of scores": lambda out, y: F.cross_entropy(out, y.clamp(min=0)) + out.std(0, correction=0).sum(),
    "contrast": lambda out, y: F.cross_entropy(out @ out.T, torch.arange(len(out))),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_mix_records(name):
    with pytest.raises(Refused, match=r"mix|loss"):
        probed(nn.Linear(5, 3), ROWS, CLASSES, LOSSES[name])


def test_a_loss_of_torch_is_asked_for_single_entries_unless_it_is_called_as_it_is():
    tagger = Applied(lambda m, x: m.layer(x).transpose(1, 2), layer=nn.Linear(3, 3))
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 2.0]), ignore_index=1)
    assert probed(tagger, SEQUENCE, TAGS, weighted).terms == 4
    with pytest.raises(Refused, match="mixes records"):
        probed(tagger, SEQUENCE, TAGS, weighted, as_called=True)
    with pytest.raises(Refused, match="mixes records"):
        probed(tagger, SEQUENCE, TAGS, nn.CrossEntropyLoss(), as_called=True)  # -100 by default
    assert probed(tagger, SEQUENCE, TAGS, nn.CrossEntropyLoss(reduction="sum"), as_called=True).terms == 4


def test_losses_by_their_reduction():
    out, y = torch.randn(4, 3), torch.tensor([0, 1, 2, -100])
    single = per_record_losses(nn.CrossEntropyLoss(), out, [y], 4)
    assert single.shape == (4,) and float(single[3]) == 0
    assert torch.allclose(single[:3], F.cross_entropy(out[:3], y[:3], reduction="none"))
    for reduction in ("mean", "sum"):
        given = per_record_losses(
            lambda a, b, how=reduction: F.mse_loss(a[:, 0], b.float(), reduction=how), out, [y], 4, reduction
        )
        assert torch.allclose(given.sum(), F.mse_loss(out[:, 0], y.float(), reduction="sum"))
    with pytest.raises(Refused, match="one number for each record"):
        per_record_losses(lambda a, b: a, out, [y], 4)


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

    with pytest.raises(Refused, match="w is used in a way that has no rule"):
        probed(Applied(lambda m, x: Own.apply(x, m.w), w=weights(3, 5)), ROWS, CLASSES, nn.CrossEntropyLoss())
    again = Applied(lambda m, x: checkpoint(m.layer, x, use_reentrant=False), layer=nn.Linear(5, 3))
    with contextlib.suppress(Refused):  # either its gradients are right or it is refused
        assert probed(again, ROWS, CLASSES, nn.CrossEntropyLoss()).names == ("layer.weight", "layer.bias")


def test_modules_that_make_numbers_of_a_kind_of_their_own():
    own = Applied(
        lambda m, x: m.head(m.layer(x, torch.zeros(1, len(x), 4))[0].sum(1)),
        layer=nn.GRU(3, 4, batch_first=True),
        head=nn.Linear(4, 3),
    )
    assert probed(own, SEQUENCE, CLASSES, nn.CrossEntropyLoss()).terms == 4
    single = mixing(lambda m, x: m.layer(x.float() / 255))
    assert probed(single, ROWS, CLASSES, nn.CrossEntropyLoss()).plain_linear
    with pytest.raises(Refused, match="mixes records"):
        probed(mixing(lambda m, x: m.layer(x.float() - x.float().mean(0))), ROWS, CLASSES, nn.CrossEntropyLoss())
    assert torch.get_default_dtype() is torch.float32


def test_what_has_no_rule_or_no_sense():
    limited = nn.Sequential(nn.Embedding(9, 5, max_norm=1.0), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(Refused, match="max_norm"):
        probed(limited, (Spec((4,), torch.int64, 9),), CLASSES, nn.CrossEntropyLoss())
    with pytest.raises(Refused, match="scale_grad_by_freq"):
        probed(
            nn.Sequential(nn.Embedding(9, 3, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(12, 3)),
            (Spec((4,), torch.int64, 9),),
        )
    with pytest.raises(Refused, match="float32 or float64"):
        probed(nn.Linear(5, 3).half(), ROWS)
    with pytest.raises(Refused, match="fails on made-up rows"):
        probed(nn.Linear(4, 3), ROWS)
    with pytest.raises(Refused, match="larger batch"):
        probed(mixing(lambda m, x: m.layer(x) if len(x) < 5 else m.layer(x) * 2.0), ROWS)


def test_a_path_that_depends_on_records_is_refused_when_it_is_taken():
    module = mixing(lambda m, x: m.layer(x) if bool((x < 1e20).all()) else m.layer(x.neg()))
    layout = probed(module, ROWS, CLASSES, nn.CrossEntropyLoss())
    with pytest.raises(Refused, match="path"), Tape(module, layout, 2):
        module(torch.full((2, 5), 1e21))


def test_autocast_and_other_parameters_are_refused():
    module = built("perceptron")
    layout = probed(module, ROWS, CLASSES, nn.CrossEntropyLoss())
    with torch.autocast("cpu"), pytest.raises(Refused, match="autocast"), Tape(module, layout, 2):
        pass
    module[0].requires_grad_(False)
    with pytest.raises(Refused, match="other parameters train"):
        Tape(module, layout, 2)
