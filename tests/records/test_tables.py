"""A table keeps entries of few blocks, and rows that are laid out from kept ones have the same bits as rows made anew."""

from __future__ import annotations

import numpy as np
import torch

from noisewise.losses import Logistic
from noisewise.models import Additive
from noisewise.prepare import Hats, TableColumn
from noisewise.prepare.features import even
from noisewise.records import records_of, tables

COLUMNS = (TableColumn("a", (0.0, 1.0), (0.0, 1.0)), TableColumn("b", (-5.0, 5.0), (0.0, 1.0)))


def records(n=50):
    rng = np.random.default_rng(0)
    cells = np.column_stack([rng.random(n), rng.normal(size=n)])
    cells[0], cells[1, 1] = np.nan, np.inf
    labels = torch.from_numpy(np.where(rng.random(n) > 0.5, 1.0, -1.0))
    return records_of(Additive(1, Logistic(), columns=COLUMNS), torch.from_numpy(cells), labels)


def hats(knots):
    return even((Hats(0, (0.0, 1.0), (0.0, 1.0), knots), Hats(1, (-5.0, 5.0), (0.0, 1.0), knots)))


def test_a_method_that_asks_for_ever_new_features_does_not_fill_the_memory():
    held = records()
    for knots in range(2, 200):
        held = held.prepared(hats(knots))
        assert len(held.table.made) <= 4
    assert {block.knots for block in held.table.made} == {198, 199}


def test_kept_entries_are_laid_out_as_new_ones(monkeypatch):
    kept = records().prepared(hats(9)).prepared(hats(4)).prepared(hats(9)).rows
    monkeypatch.setattr(tables, "KEPT", 0)
    anew = records().prepared(hats(9)).rows
    for name in ("places", "values", "filled", "squares", "most", "alive"):
        assert np.array_equal(getattr(kept, name), getattr(anew, name)), name
