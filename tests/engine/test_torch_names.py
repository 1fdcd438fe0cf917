"""Versions of torch that were not tested, and private names that work otherwise, are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noisewise.trusted.engine import Refused, Spec, rehearsed, torch_names
from noisewise.trusted.models.module import ModuleModel
from noisewise.trusted.stores.modules import held_tensors

ROWS = [Spec((3,), torch.float32)]


@pytest.fixture(autouse=True)
def looked_at_anew():
    torch_names.check_torch.cache_clear()
    yield
    torch_names.check_torch.cache_clear()


def test_a_version_that_was_not_tested(monkeypatch):
    assert torch_names.untested() is None
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    with pytest.raises(Refused, match=r"torch 2\.99\.0\+cpu was not tested.*NOISEWISE_UNTESTED_TORCH=1"):
        rehearsed(nn.Linear(3, 2), ROWS)
    monkeypatch.setenv("NOISEWISE_UNTESTED_TORCH", "1")
    model = ModuleModel(nn.Linear(3, 2), nn.CrossEntropyLoss(), ROWS, [Spec((), torch.int64)])
    records = held_tensors((torch.randn(4, 3),), (torch.zeros(4, dtype=torch.int64),), model, None)
    assert any("2.99.0" in one for one in records.arithmetic.assumptions) and records.arithmetic.grade == "assumed"


@pytest.mark.parametrize("name", ["under_level", "current_level"])
def test_a_private_name_that_works_otherwise(name, monkeypatch):
    monkeypatch.setattr(torch_names, name, lambda *_: (torch.zeros(3), 0) if name == "under_level" else 0)
    with pytest.raises(Refused, match="work otherwise"):
        rehearsed(nn.Linear(3, 2), ROWS)


def test_no_level_is_left_open():
    with pytest.raises(ZeroDivisionError), torch_names.level(3):
        raise ZeroDivisionError
    assert torch_names.current_level() == 0
