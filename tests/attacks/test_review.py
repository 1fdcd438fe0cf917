"""What a method can reach through the things that it shares with the curator, and through what it leaves behind.

Public names only, so that the same file runs on older versions.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from noisewise import budget as purses
from noisewise.budget import Budget
from noisewise.curator import Descent, PublicCurator
from noisewise.train import Records, train
from noisewise.trusted.losses import Logistic, Softmax

from .house import MLP, Linear, make_statement

SECRET = 30  # private records; there are fewer public ones
rng = np.random.default_rng(0)
X = torch.tensor(rng.uniform(-0.5, 0.5, (SECRET, 3)), dtype=torch.float32)
LABELS = torch.tensor(rng.integers(0, 2, SECRET))


class Spy(TorchFunctionMode):
    """Keeps every tensor as large as the private rows or labels that a function of torch is handed."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen += [part for part in args if isinstance(part, torch.Tensor) and len(part) == SECRET]
        return function(*args, **(kwargs or {}))


class Stranger:
    """The least that a method must have; what it does to the room is up to its kinds."""

    name, needs_public, private = "stranger", False, True

    def settings(self):
        return {}

    def terms(self, facts):
        self.before(facts)
        return purses.Terms.adaptive("gdp")

    def meter(self, facts):  # what older versions ask for
        self.before(facts)
        return purses.AdditiveMeter(facts.budget, "gdp")

    def before(self, facts):
        """What it does when it is asked for its terms."""

    def init(self, theta, facts, public):
        return theta

    def total_steps(self):
        return 1

    def done(self, state):
        return isinstance(state, tuple)

    def step(self, state, private, public):
        private.gradient(state, clip=1.0, noise_multiplier=private.meter.noise_for(0.5))
        return (state,)

    def finish(self, state, public):
        return state[0]


def runs(method, model, labels=LABELS, public=None):
    rows = Records(X, labels, float(SECRET), 1.0)
    try:
        return train(method, rows, model=model, budget=Budget(1.0, 1e-6), public=public, seed=1)
    except RuntimeError:
        return None


class Listening(Stranger):
    """Leaves a mode of torch behind when it is asked for its terms, before the curator has the rows."""

    def __init__(self, mode):
        self.mode = mode

    def before(self, facts):
        self.mode.__enter__()


@pytest.mark.parametrize("model", [Linear(3, Logistic()), MLP((3, 2, 2), Softmax())])
def test_a_mode_left_behind_with_the_terms_is_not_handed_the_rows(model):
    mode = Spy()
    labels = 2.0 * LABELS - 1 if isinstance(model, Linear) else LABELS
    try:
        runs(Listening(mode), model, labels)
    finally:
        mode.__exit__(None, None, None)
    assert not mode.seen


class Hearing:
    """Keeps what it is shown of records."""

    kernel = None

    def slope(self, z, y):
        seen.append(y)
        return super().slope(z, y)

    def row_slope(self, z, y):
        seen.append(y)
        return super().row_slope(z, y)


class Heard(Hearing, Softmax):
    pass


class Weighed(Hearing, Logistic):
    pass


seen = []


class Exchanging(Stranger):
    """Puts a loss of its own into the model that it is handed with the public rows."""

    needs_public = True

    def init(self, theta, facts, public):
        object.__setattr__(public.model, "loss", Heard() if public.model.outputs > 1 else Weighed())
        return theta

    def step(self, state, private, public):
        seen.clear()
        if public.model.outputs == 1:
            private.last_iterate(Descent(torch.zeros(3), 2, 0.1, private.meter.noise_for(0.3)))
        return super().step(state, private, public)


@pytest.mark.parametrize("model", [Linear(3, Logistic()), MLP((3, 2, 2), Softmax())])
def test_a_loss_put_into_the_public_model_is_not_shown_the_records(model):
    labels = 2.0 * LABELS - 1 if isinstance(model, Linear) else LABELS
    public = PublicCurator(X[:5].clone(), labels[:5].clone(), model=model)
    assert runs(Exchanging(), model, labels, public) is not None
    assert not seen
    assert type(model.loss) in (Logistic, Softmax)


class Named(Stranger):
    name = "plain\nPromise: (0, 0)-DP"


def test_the_name_of_a_method_adds_no_line_to_a_statement():
    method = Named()
    run = runs(method, Linear(3, Logistic()), 2.0 * LABELS - 1)
    shape = {"kind": "linear", "shape": "3", "loss": "logistic"}
    made = make_statement(method=method.name, settings={}, run=run, model=shape, assumed=["nothing"])
    assert not [line for line in str(made).splitlines() if line.startswith("Promise: (0, 0)")]
