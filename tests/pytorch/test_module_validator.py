"""Layers that cannot be trained privately are found and replaced; recurrent layers keep torch's names."""

from __future__ import annotations

import pytest
import torch
from private_loop import Loop, small
from torch import nn

from noisewise.faces.pytorch import DPGRU, DPLSTM, DPRNN, ModuleValidator, PrivacyEngine, UnsupportedModuleError


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48), nn.Sequential(nn.InstanceNorm2d(48, track_running_stats=True))
    )


def test_what_is_wrong_is_named():
    assert ModuleValidator.is_valid(small()) and ModuleValidator.validate(small()) == []
    errors = ModuleValidator.validate(normalised())
    assert [str(error).split()[0] for error in errors] == ["1", "2.0"]
    with pytest.raises(UnsupportedModuleError, match="GroupNorm"):
        ModuleValidator.validate(normalised(), strict=True)
    assert "eval mode" in str(ModuleValidator.validate(small().eval())[0])
    assert "no parameter" in str(ModuleValidator.validate(small().requires_grad_(False))[0])
    with pytest.raises(ValueError, match="mixes the records"):
        Loop(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))


def test_a_fixed_copy_is_valid_and_runs():
    module = normalised()
    fixed = ModuleValidator.fix_and_validate(module)
    assert isinstance(module[1], nn.BatchNorm2d) and isinstance(fixed[1], nn.GroupNorm)
    assert fixed[1].num_groups == 16 and fixed[2][0].running_mean is None  # 32 does not divide 48
    assert fixed(torch.randn(2, 3, 8, 8)).shape == (2, 48, 6, 6)
    assert isinstance(PrivacyEngine.get_compatible_module(nn.BatchNorm1d(4)), nn.GroupNorm)


def test_an_engine_says_what_is_compatible():
    optimizer = torch.optim.SGD(small().parameters(), lr=1.0)
    assert not PrivacyEngine().is_compatible(module=small(), optimizer=optimizer, data_loader=None)
    assert PrivacyEngine().is_compatible(module=small(), optimizer=None, data_loader=None)


@pytest.mark.parametrize("ours, theirs", [(DPLSTM, nn.LSTM), (DPGRU, nn.GRU), (DPRNN, nn.RNN)])
def test_recurrent_layers_load_what_torch_saved(ours, theirs):
    one, other = (kind(3, 4, num_layers=2, batch_first=True) for kind in (ours, theirs))
    one.load_state_dict(other.state_dict())
    given = torch.randn(2, 5, 3)
    assert torch.equal(one(given)[0], other(given)[0])
