"""The criterion of a private loop: each record's loss alone, the only way from outputs to parameters."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from private_loop import Loop, by_hand, records, small
from torch import nn
from torch.utils.data import TensorDataset

from noisewise.faces.pytorch import BatchMemoryManager
from noisewise.trusted.engine import tape


def private(criterion=None, **settings):
    """A loop with a criterion, which takes all records at once and adds no noise."""
    criterion = criterion or nn.CrossEntropyLoss()
    loop = Loop(**{"criterion": criterion, "batch_size": 60, "noise_multiplier": 0.0, "epochs": None, **settings})
    loop.criterion = loop.made[2]
    return loop


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_criterion_comes_third_and_weighs_each_record_by_itself(mode):
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    loop = private(weighted, grad_sample_mode=mode)
    assert loop.loader is loop.made[3] and loop.module is loop.made[0]
    ((x, y),) = loop.loader
    loss = loop.passed(x, y)
    loop.optimizer.step()
    alone = nn.CrossEntropyLoss(weight=weighted.weight, reduction="sum")
    with torch.no_grad():
        torch.testing.assert_close(float(loss.detach()), float(alone(loop.module(x), y) / 60))
    torch.testing.assert_close(loop.gradient, by_hand(loop.module, x, y, 0.5, alone) / 60, rtol=1e-4, atol=1e-5)


def test_what_a_statement_says_of_the_loss():
    own, handed = Loop(), private(noise_multiplier=1.0, epochs=2)
    for loop in (own, handed):
        loop.epoch()
    said = "the loop's loss is a mean or sum of each record's own"
    assert said in str(own.engine.statement()) and said not in str(handed.engine.statement())


def test_a_loss_of_its_own_is_warned_of():
    with pytest.warns(UserWarning, match="pass criterion="):
        Loop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        private(noise_multiplier=1.0, epochs=2)


def test_no_other_loss_reaches_the_parameters():
    loop = private()
    ((x, y),) = loop.loader
    outputs = loop.module(x)
    with pytest.raises(RuntimeError, match="does not require grad"):
        F.cross_entropy(outputs, y).backward()
    assert not any(hasattr(part, "_noisewise_rows") for part in (outputs * 2, outputs.clone(), outputs[:]))
    with pytest.raises(ValueError, match="outputs as they are"):
        loop.criterion(outputs * 2, y).backward()
    with pytest.raises(ValueError, match="call backward"):
        (loop.criterion(outputs, y) * 3).backward()


def test_a_loss_is_gone_back_through_once():
    loop = private()
    ((x, y),) = loop.loader
    outputs = loop.module(x)
    loop.criterion(outputs, y).backward(retain_graph=True)
    with pytest.raises(ValueError, match="counts once"):
        loop.criterion(outputs, y).backward()


def test_outputs_and_targets_of_an_earlier_piece():
    loop = private()
    with BatchMemoryManager(data_loader=loop.loader, max_physical_batch_size=20, optimizer=loop.optimizer) as pieces:
        order = iter(pieces)
        x, y = next(order)
        outputs = loop.module(x)
        _, other = next(order)
        with pytest.raises(ValueError, match="earlier batch"):
            loop.criterion(outputs, y)
        with pytest.raises(ValueError, match="earlier batch"):
            loop.criterion(outputs, other)


def test_outside_of_training_it_is_the_loss_that_was_given():
    loop = private()
    x, y = records()[:10]
    loop.module.eval()
    torch.testing.assert_close(loop.criterion(loop.module(x), y), F.cross_entropy(loop.module(x), y))


def test_what_a_criterion_draws_comes_from_the_secret_seed():
    """Numbers of torch's own generator, which the loop may have seeded, stay where they were; each call draws anew."""
    loop = private(lambda outputs, y: F.cross_entropy(F.dropout(outputs, 0.5), y))
    ((x, y),) = loop.loader
    outputs, before = loop.module(x), torch.get_rng_state()
    found = {float(loop.criterion(outputs, y).detach()) for _ in range(4)}
    assert torch.equal(torch.get_rng_state(), before) and len(found) > 1


def test_attributes_that_a_pass_exchanges_are_given_back():
    class Exchanging(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.first = small(), None

        def forward(self, x):
            self.__dict__.pop("first", None)
            self.second = x
            return self.net(x)

    loop = private(module=Exchanging())
    ((x, y),) = loop.loader
    loop.passed(x, y)
    assert loop.module.first is None and not hasattr(loop.module, "second")


def test_empty_batches():
    loop = private(batch_size=1, public_size=10**4, noise_multiplier=1.0, epochs=1)
    for _, (x, y) in zip(range(3), loop.loader, strict=False):
        loop.passed(x, y)
        loop.optimizer.step()
    assert loop.optimizer.run.steps == 3


class Inside(nn.Module):
    """A model that computes its loss by itself, as those of transformers do when they are given labels."""

    def __init__(self):
        super().__init__()
        self.net = small()

    def forward(self, x, labels):
        scores = self.net(x)
        return {"loss": F.cross_entropy(scores, labels), "scores": scores}


def test_a_loss_inside_of_the_module():
    handed = private(lambda outputs, *_: outputs["loss"], module=Inside())
    own = Loop(Inside(), batch_size=60, noise_multiplier=0.0, epochs=None)
    for loop in (handed, own):
        ((x, y),) = loop.loader
        outputs = loop.module(x, y)
        assert outputs["scores"].shape == (60, 3) and outputs["loss"].dim() == 0
        (loop.criterion(outputs) if loop is handed else outputs["loss"]).backward()
        loop.optimizer.step()
        expected = by_hand(loop.module.net, x, y, 0.5) / 60
        torch.testing.assert_close(loop.gradient, expected, rtol=1e-4, atol=1e-5)


class Inverting(nn.Module):
    """torch raises for a matrix without an inverse; ``careful``: the module catches that and does something else."""

    def __init__(self, careful):
        super().__init__()
        self.out, self.careful = nn.Linear(4, 3), careful

    def forward(self, x):
        try:
            found = torch.linalg.lu_factor(x.view(-1, 2, 2))[0]
        except RuntimeError:
            if not self.careful:
                raise
            found = x.view(-1, 2, 2) * 0
        return self.out(found.flatten(1))


@pytest.mark.parametrize("careful", [False, True])
def test_a_record_for_which_a_function_raises_is_left_out_alone(careful, monkeypatch):
    """Functions that raise on values are refused; one that was forgotten stops nothing."""
    with pytest.raises(ValueError, match="raises on some values"):
        private(module=Inverting(careful), dataset=TensorDataset(torch.randn(9, 4), torch.arange(9) % 3), batch_size=9)
    monkeypatch.setitem(tape.ALLOWED, torch.linalg.lu_factor, "torch.linalg.lu_factor")
    made = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 4, generator=made), torch.randint(3, (12,), generator=made)
    x[5] = 0.0
    torch.manual_seed(0)
    loop = private(module=Inverting(careful), dataset=TensorDataset(x, y), batch_size=12)
    ((given, labels),) = loop.loader
    loop.passed(given, labels)
    loop.optimizer.step()
    good = [row for row in range(12) if row != 5]
    expected = by_hand(loop.module, x[good], y[good], 0.5) / 12
    torch.testing.assert_close(loop.gradient, expected, rtol=1e-4, atol=1e-5)


def test_labels_out_of_range_count_as_zero():
    data = records()
    data.tensors[1][4], data.tensors[1][9] = 7, -3
    loop = private(dataset=data)
    ((x, y),) = loop.loader
    loop.passed(x, y)
    loop.optimizer.step()
    good = (y >= 0) & (y < 3)
    expected = by_hand(loop.module, x[good], y[good], 0.5) / 60
    torch.testing.assert_close(loop.gradient, expected, rtol=1e-4, atol=1e-5)


def test_compiled_modules_are_unwrapped_with_a_word():
    module = small()
    with pytest.warns(UserWarning, match="it is trained as it was before"):
        loop = private(module=torch.compile(module, backend="eager"), noise_multiplier=1.0, epochs=2)
    assert loop.made[0] is module
