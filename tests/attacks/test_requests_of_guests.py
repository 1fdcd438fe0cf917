"""What a guest asks for that its host would pay for, fail by, or fill its memory with; asked as the host hears it, over no pipe."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from noisewise.budget import Budget, Terms, open_meter
from noisewise.curator import Curator
from noisewise.guest import wire
from noisewise.guest.running import Served
from noisewise.messages import pack, unpack
from noisewise.trusted.features import Hats, TableColumn, even
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.models import Additive, Linear

N = 40
FULL = ("full",)
COLUMNS = (TableColumn("a", (-1.0, 1.0), (0.0, 1.0)), TableColumn("b", (-1.0, 1.0), (0.0, 1.0)))
SCALE = (0.0, (-1.0, 1.0), (0.0, 1.0))
HAT = Hats(0, (-1.0, 1.0), (0.0, 1.0), 2)


class Still:
    """A guest that nobody waits for."""

    def tick(self):
        pass


def served(*, table=False):
    X = torch.rand((N, 2), generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5
    model = Additive(1, LOSSES["logistic"], columns=COLUMNS) if table else Linear(2, LOSSES["logistic"])
    meter = open_meter(Budget(2.0, 1e-5), Terms.adaptive("gdp"))
    return Served(
        Still(), Curator(X, torch.sign(X[:, 0]), model=model, meter=meter, size=float(N), row_bound=1.0, seed=1)
    )


def asked(serve, **request):
    """What the host answers to a message of a guest."""
    return serve(unpack(pack(request)))


def question(name, *values, noise=8.0):
    return {"ask": "question", "question": name, "values": list(values), "noise": noise, "sampling": FULL}


def walk(**values):
    start = {"start": np.zeros(2), "steps": 3.0, "step_size": 0.5, "noise_multiplier": 8.0, "l2": 0.1, "radius": 1.0}
    return {"ask": "last_iterate", "walk": "Descent", "values": {**start, **values}}


WHOLE = {"ask": "minimise", "walk": "PerturbedObjective"}
LARGE = np.zeros(2, np.uint8)  # as floats it has eight times the length
REFUSED = {
    "a theta of bytes": question("Gradient", LARGE, 1.0),
    "a theta of bytes among others": question("Choice", [np.zeros(2), LARGE], 1.0),
    "noise that is a text": question("Gradient", np.zeros(2), 1.0, noise="8.0"),
    "too many candidates": question("Choice", [np.zeros(2)] * 5000, 1.0),
    "a walk of next to no step": walk(step_size=1e-300),
    "an epsilon of next to nothing": {**WHOLE, "values": {"start": np.zeros(2), "epsilon": 5e-324, "delta": 1e-7}},
    "a start of no shape": {**WHOLE, "values": {"start": np.zeros((3, 0)), "epsilon": 0.1, "delta": 1e-7}},
    "a theta of another length, turned back": {"ask": "in_first_basis", "theta": np.zeros(5)},
}
OF_TABLES = {
    "more parts than fit in memory": question("ColumnLevels", [SCALE] * 100, 20.0),
    "a hundred thousand columns of a row": {"ask": "prepare", "features": even([HAT] * 10_000).to_dict()},
}


@pytest.mark.parametrize(("table", "name"), [(False, name) for name in REFUSED] + [(True, name) for name in OF_TABLES])
def test_a_request_that_no_method_needs_is_refused_unpaid(table, name):
    serve = served(table=table)
    if not table:
        asked(serve, ask="change_basis", matrix=2 * np.eye(2))
    assert asked(serve, **(OF_TABLES if table else REFUSED)[name]) == {"error": "refused"}
    assert serve._private.meter.spent_fraction == 0 and serve.refused is not None


def test_products_of_very_many_columns_are_refused_unpaid():
    serve = served(table=True)
    features = even([Hats(0, (-1.0, 1.0), (0.0, 1.0), 1024)] * 10).to_dict()
    assert asked(serve, ask="prepare", features=features) == {"answer": None}
    for name in ("SecondMoment", "MinEigenvalue"):
        assert asked(serve, **question(name)) == {"error": "refused"}
    assert serve._private.meter.spent_fraction == 0


@pytest.mark.guard("it shows that the requests above are refused for their oddity alone")
@pytest.mark.parametrize(
    "request_", [question("Gradient", np.zeros(2), 1.0), question("Choice", [np.zeros(2)] * 9, 1.0, noise=0.01), walk()]
)
def test_usual_requests_are_answered(request_):
    found = asked(served(), **request_)["answer"]
    assert math.isfinite(found["noise_std"]) and np.isfinite(found["value"]).all()


class Flood:
    """Pipes that always have another byte, as of a guest with many threads that write."""

    def __init__(self):
        self.left = 5000

    def register(self, descriptor, what):
        self.descriptor = descriptor

    def poll(self, milliseconds):
        return [(self.descriptor, 1)]

    def read(self, descriptor, most):
        self.left -= 1
        assert self.left, "the host reads on"
        return b"\x01" if self.left == 4996 else b"\x00"  # the beginning of a message of 2^24 bytes


@pytest.mark.parametrize("printed", [None, 7], ids=["sent", "printed"])
def test_a_guest_that_never_pauses_does_not_keep_the_host_reading(monkeypatch, printed):
    flood = Flood()
    monkeypatch.setattr(wire, "os", SimpleNamespace(read=flood.read, set_blocking=lambda *_: None))
    monkeypatch.setattr(wire.select, "poll", lambda: flood)
    with pytest.raises(wire.Hung):
        wire.Wire(3, 4, printed).receive(0.001)
