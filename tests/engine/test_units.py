"""Sums become whole numbers, whatever comes in."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisewise.trusted.engine import in_units
from noisewise.trusted.engine import whole_numbers as units


def chosen(monkeypatch, few: int | None) -> None:
    """The reference with so many at a time, or whatever is in use."""
    if few is not None:
        monkeypatch.setattr(units, "compiled", lambda: False)
        monkeypatch.setattr(units, "NUMBERS_PER_PASS", few)


@pytest.mark.parametrize("few", [1, 7, 2**15, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_in_order_and_rounded(monkeypatch, few, dtype):
    chosen(monkeypatch, few)
    made = torch.Generator().manual_seed(0)
    parts = [torch.randn(shape, generator=made, dtype=dtype) for shape in ((3, 5), (4,), (), (2, 2, 3), (0,))]
    parts[0] = parts[0].t()  # lies another way than it is read
    found = in_units(parts, 2.0**40 / 3, 2.0**60)
    expected = np.rint(np.concatenate([part.double().numpy().reshape(-1) for part in parts]) * (2.0**40 / 3))
    assert found.dtype == np.int64 and np.array_equal(found, expected.astype(np.int64))


@pytest.mark.parametrize("few", [2, 2**15, None])
def test_what_is_no_number_or_too_large(monkeypatch, few):
    chosen(monkeypatch, few)
    parts = [torch.tensor([1.0, torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 2.0])]
    assert in_units(parts, 1.0, 2.0**60).tolist() == [1, 0, 2**60, -(2**60), 2**60, -(2**60), 2]


def test_nothing():
    assert in_units([], 1.0, 1.0).tolist() == []
