"""Two threads at one desk: each answer is given alone, with the library's own settings, whoever waits meanwhile."""

from __future__ import annotations

import threading
import time

import numpy as np
import torch

import noisewise.trusted.gate as room
from noisewise.accounts import AdditiveMeter, Budget
from noisewise.curator import Count, Curator
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear


def test_who_waits_is_not_left_with_settings_that_the_other_gives_back(monkeypatch):
    meter = AdditiveMeter(Budget(50.0, 1e-6), "gdp")
    private = Curator(np.zeros((20, 3)), np.ones(20), model=Linear(3, Logistic()), meter=meter, size=20.0, seed=1)
    seen, draw = [], room.draw

    def slowly(*asked):
        time.sleep(0.05)  # the others come to wait
        seen.append(torch.get_default_dtype())
        return draw(*asked)

    monkeypatch.setattr(room, "draw", slowly)
    torch.set_default_dtype(torch.float64)
    try:
        asking = [threading.Thread(target=private.ask, args=(Count(),), kwargs={"noise": 50.0}) for _ in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen == [torch.float32] * 4 and len(private.trace) == 4
