"""What a stranger can do with tensors, budgets, prices, losses and files that the rebuilt rooms pass among themselves."""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from noisewise.budget import AdditiveMeter, Budget, PlanMeter
from noisewise.curator import Curator, Descent
from noisewise.methods import method_named
from noisewise.trusted.events import Gaussian, Poisson, Repeated
from noisewise.trusted.losses import Logistic

from .house import Linear
from .test_review import Stranger

ROWS = 30
rng = np.random.default_rng(0)
WIDE = 4100  # parameters: a theta of so many is copied in another way than a short one
LABELS = torch.tensor(rng.choice([-1.0, 1.0], ROWS), dtype=torch.float32)


def rows_of(columns):
    rows = torch.tensor(rng.uniform(-1, 1, (ROWS, columns)), dtype=torch.float32)
    return rows / rows.norm(dim=1, keepdim=True)


def curator_of(model, **options):
    meter = AdditiveMeter(Budget(100.0, 1e-6), "gdp")
    return Curator(
        rows_of(model.features), LABELS, model=model, meter=meter, size=ROWS, row_bound=1.0, seed=1, **options
    )


def fit_of(method, **options):
    """A fit on a few rows, described by hand; older versions have no such rooms."""
    from noisewise.tables.fit.fit import Fit, Scaling
    from noisewise.tables.fit.labels import Classes
    from noisewise.train import Records

    labels = Classes(np.array([0, 1]), False, True)
    asked = {"budget": Budget(1.0, 1e-6), "scaling": Scaling(-np.ones(2), np.ones(2), True), "labels": labels}
    rows = Records(rows_of(3).numpy(), LABELS.numpy())
    return Fit(method=method, model=Linear(3, Logistic()), seed=1, **{**asked, **options}).on(rows)


# -- tensors with methods of their own ------------------------------------------------------------------------------


class Seeing(np.ndarray):
    """An array that keeps what it is computed with."""

    seen: ClassVar[list[object]] = []

    def __array_ufunc__(self, function, method, *inputs, **options):
        Seeing.seen += [part for part in inputs if type(part) is np.ndarray and len(part) == ROWS]
        found = getattr(function, method)(*[np.asarray(part) for part in inputs], **{**options, "out": None})
        return found.view(Seeing) if isinstance(found, np.ndarray) else found

    def __array_function__(self, function, types, args, kwargs):
        found = super().__array_function__(function, types, args, kwargs)
        return found.view(Seeing) if isinstance(found, np.ndarray) else found


def tensor_that_becomes(array):
    """A plain tensor, by its type, whose copy is what a stranger wants."""

    class Copied:
        def numpy(self):
            return array

    inner = torch.zeros(len(array))
    inner.to = lambda *args, **options: Copied()
    outer = torch.zeros(len(array))
    outer.detach = lambda: inner
    outer.numpy, outer.numel = (lambda *args, **options: array), lambda: 0
    return outer


class Returning(TorchFunctionMode):
    """Answers a question for the numbers of a tensor with an array of its own."""

    def __init__(self, array):
        super().__init__()
        self.array = array

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "numpy":
            return self.array
        return function(*args, **(kwargs or {}))


@pytest.mark.guard("every question was rebuilt twice")
@pytest.mark.parametrize("columns", [3, WIDE])
@pytest.mark.parametrize("way", ["methods of its own", "a mode"])
def test_a_theta_is_copied_whatever_its_methods_or_a_mode_return(way, columns):
    Seeing.seen.clear()
    curator, theirs = curator_of(Linear(columns, Logistic())), np.zeros(columns, dtype=np.float32).view(Seeing)
    asked = {"clip": 1.0, "noise_multiplier": 5.0, "quantile_at": 1.0, "count_noise_multiplier": 5.0}
    if way == "a mode":
        with Returning(theirs):
            answer = curator.gradient(torch.zeros(columns), **asked)
    else:
        answer = curator.gradient(tensor_that_becomes(theirs), **asked)
    assert not Seeing.seen
    assert type(answer.value) is torch.Tensor


@pytest.mark.guard("what came out was refused further in")
def test_a_start_is_copied_whatever_a_mode_returns():
    """A walk's start that is no plain tensor would be handed the gradients of records."""

    class Watching(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            seen.append(args)
            plainly = [part.as_subclass(torch.Tensor) if isinstance(part, cls) else part for part in args]
            return function(*plainly, **(kwargs or {}))

    class Exchanging(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") in ("detach", "as_subclass"):
                return torch.Tensor._make_subclass(Watching, torch.zeros(3, dtype=torch.float64))
            return function(*args, **(kwargs or {}))

    seen, curator = [], curator_of(Linear(3, Logistic()))
    walk = Descent(torch.zeros(3), 2, 0.1, 5.0)
    with Exchanging(), contextlib.suppress(TypeError, RuntimeError, NotImplementedError):
        curator.last_iterate(walk)
    assert not [args for args in seen if any(isinstance(part, torch.Tensor) and part.abs().sum() for part in args)]


class Theirs(Stranger):
    """Ends with a theta that keeps what it is multiplied with."""

    losses = ("logistic",)

    def __init__(self, way):
        self.way = way

    def finish(self, state, public):
        theirs = np.zeros(3, dtype=np.float32).view(Seeing)
        if self.way == "a mode":
            self.mode = Returning(theirs)
            self.mode.__enter__()
            return state[0]
        theta = torch.zeros(3)
        theta.numpy = lambda: theirs
        outer = torch.zeros(3)
        outer.detach = lambda: type("", (), {"as_subclass": lambda *_: type("", (), {"clone": lambda _: theta})()})()
        return outer


@pytest.mark.guard("fits were described elsewhere")
@pytest.mark.parametrize("way", ["methods of its own", "a mode"])
def test_the_theta_that_a_method_ends_with_is_copied_too(way):
    method = Theirs(way)
    fit = fit_of(method)
    try:
        fitted = fit.run()
    finally:
        if way == "a mode":
            method.mode.__exit__(None, None, None)
    Seeing.seen.clear()
    fitted.predictions(fit.private.X)
    assert type(fitted.theta) is np.ndarray
    assert not Seeing.seen


# -- prices and budgets ---------------------------------------------------------------------------------------------


class Poison(float):
    """A number that says it is another one, to whoever looks it up."""

    def __new__(cls, value, says):
        made = super().__new__(cls, value)
        made.says = says
        return made

    def __hash__(self):
        return hash(self.says)

    def __eq__(self, other):
        return other == self.says

    def __ne__(self, other):
        return other != self.says


def test_a_price_is_not_remembered_for_a_number_that_says_it_is_another():
    rate, sigma, order, relation = 0.25, 3.0, 7, "replace_one"
    rdp = importlib.import_module("noisewise.trusted.accountants.rdp")
    with contextlib.suppress(ValueError, TypeError):  # far cheaper, under the name of what is asked later
        rdp.cost(Poisson(Poison(1e-6, rate), Gaussian(sigma)), relation, order)
    alone = rdp.cost(Poisson(rate, Gaussian(sigma * (1 + 1e-12))), relation, order)
    assert rdp.cost(Poisson(rate, Gaussian(sigma)), relation, order) >= alone * 0.99


@pytest.mark.guard("prices of plans were not remembered")
def test_the_price_of_a_plan_is_not_remembered_for_a_delta_that_says_it_is_another():
    plan = [Repeated(Gaussian(3.21), 12)]
    with contextlib.suppress(ValueError, TypeError):
        PlanMeter(Budget(90.0, Poison(0.9, 1e-7)), plan)
    assert PlanMeter(Budget(90.0, 1e-7), plan).epsilon > 5


class Raising(Stranger):
    """Writes another promise into the budget that it is shown with the facts."""

    losses = ("logistic",)

    def before(self, facts):
        object.__setattr__(facts.budget, "epsilon", 1e5)


@pytest.mark.guard("fits were described elsewhere")
def test_the_budget_that_a_method_is_shown_while_a_fit_is_checked_is_not_the_users():
    fit = fit_of(Raising(), size_is_public=True)
    fit.check(public=False, records=ROWS)
    assert fit.budget.epsilon == 1.0
    assert fit.run().statement.data["promise"]["epsilon"] == 1.0


# -- what runs while the desk is closed -----------------------------------------------------------------------------


# -- methods and losses that are not what they seem -------------------------------------------------------------------


@pytest.mark.guard("fits were described elsewhere")
def test_nonprivate_runs_the_librarys_own_step():
    """An object of exactly that type, with a step that a stranger gave it."""
    seen, method = [], method_named("nonprivate")

    def step(state, private, public):
        seen.append(public.batch)
        return state

    object.__setattr__(method, "step", step)
    fit = fit_of(method)
    fit.run()
    assert not seen


def test_nobody_writes_into_a_registry():
    rooms = {
        "noisewise.trusted.losses": "LOSSES",
        "noisewise.trusted.questions": "QUESTIONS",
        "noisewise.trusted.models.layers": "LAYERS",
        "noisewise.trusted.accountants.base": "ACCOUNTANTS",
    }
    for room, name in rooms.items():
        known = getattr(importlib.import_module(room), name)
        first = next(iter(known))
        with pytest.raises(TypeError):
            known[first] = known[first]  # what is there already: where it can be written, later tests need it


@pytest.mark.guard("losses were not registered from outside")
def test_a_loss_does_not_take_the_place_of_one_of_the_same_name():
    from noisewise.trusted.losses import loss_named, register

    mine = Logistic()
    object.__setattr__(mine, "row_slope", lambda z, y: z)
    register(mine)
    assert loss_named("logistic") is not mine

    class Turning(Logistic):
        """Has another name each time it is asked."""

        asked = 0

        @property
        def name(self):
            self.asked += 1
            return "turning" if self.asked < 3 else "logistic"

    with contextlib.suppress(ValueError, TypeError):
        register(Turning())
    assert type(loss_named("logistic")) is Logistic


# -- what commands write down ---------------------------------------------------------------------------------------


@pytest.mark.guard("nothing was written down")
@pytest.mark.parametrize("other", [Budget(1.0, 1e-6), Budget(2.0, 1e-6)])
def test_two_commands_with_one_place_do_not_tidy_each_others_spending_away(tmp_path, other):
    from noisewise.budget import Terms
    from noisewise.faces.cli.keeping import spending

    terms, first, second = Terms.adaptive("gdp"), Budget(1.0, 1e-6), contextlib.ExitStack()
    with spending(tmp_path / "run", first, simulation=False) as mine:
        theirs = second.enter_context(spending(tmp_path / "run", other, simulation=False))  # before mine is reserved
        part = mine.purse.part(terms, first)
        part.meter.spend(Gaussian(10.0))
        with contextlib.suppress(Exception), second:
            theirs.purse.part(terms, other)
            raise ValueError("their rows cannot be read")
        assert mine.purse.entries
        assert mine.path.exists()


@pytest.mark.guard("nothing was written down")
def test_spending_that_cannot_be_read_any_more_is_not_tidied_away(tmp_path):
    from noisewise.budget import Terms
    from noisewise.faces.cli.keeping import spending

    with (
        contextlib.suppress(ValueError, KeyError),
        spending(tmp_path / "run", Budget(1.0, 1e-6), simulation=False) as spent,
    ):
        spent.purse.part(Terms.adaptive("gdp"), Budget(1.0, 1e-6)).meter.spend(Gaussian(10.0))
        spent.path.write_text(spent.path.read_text()[:-20])
        raise KeyError("anything")
    assert spent.path.exists()


# -- what held ------------------------------------------------------------------------------------------------------


@pytest.mark.guard("held")
def test_an_answer_keeps_its_numbers_when_the_next_one_is_drawn():
    curator = curator_of(Linear(3, Logistic()))
    first = curator.gradient(torch.zeros(3), clip=1.0, noise_multiplier=50.0).value
    before = first.clone()
    first_sum = curator.trace[-1]
    for _ in range(3):
        later = curator.gradient(torch.zeros(3), clip=1.0, noise_multiplier=50.0).value
        assert not np.shares_memory(first.numpy(), later.numpy())
    assert torch.equal(first, before)
    first.zero_()
    assert curator.trace[0] == first_sum


@pytest.mark.guard("held")
def test_what_is_no_option_or_no_plain_number_is_refused_before_it_is_paid_for():
    class Growing(float):
        """Larger each time it is read."""

        read = 0

        def __float__(self):
            Growing.read += 1
            return 10.0**Growing.read

    class Lying:
        __class__ = np.ndarray

        def __array__(self, *_, **__):
            return np.full(3, np.nan)

    curator, how = curator_of(Linear(3, Logistic())), {"clip": 1.0, "noise_multiplier": 50.0}
    for asked in ({"cls": 1}, {"rows": 1}, {"clip": True}, {"clip": np.inf}, {"scale": Lying()}, {"quantile_at": 1.0}):
        with pytest.raises((TypeError, ValueError)):
            curator.gradient(torch.zeros(3), **{**how, **asked})
    with pytest.raises((TypeError, ValueError)):
        curator.gradient(Lying(), **how)
    assert curator.meter.spent_fraction == 0
    curator.gradient(torch.zeros(3), clip=Growing(1.0), noise_multiplier=50.0)
    assert curator.trace[-1].clip == 10.0
    assert Growing.read == 1


@pytest.mark.guard("held")
def test_threads_that_ask_at_once_are_each_charged():
    curator = curator_of(Linear(3, Logistic()))
    asking = [
        threading.Thread(target=lambda: curator.gradient(torch.zeros(3), clip=1.0, noise_multiplier=50.0))
        for _ in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert curator.meter.events == {Gaussian(50.0): 8}
    assert len(curator.trace) == 8


@pytest.mark.guard("held")
def test_an_interrupt_inside_leaves_the_desk_open_and_the_charge_done(monkeypatch):
    curator, module = curator_of(Linear(3, Logistic())), importlib.import_module("noisewise.trusted.gate")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            curator.gradient(torch.zeros(3), clip=1.0, noise_multiplier=50.0)
    assert curator.meter.events == {Gaussian(50.0): 1}
    assert gc.isenabled()
    curator.gradient(torch.zeros(3), clip=1.0, noise_multiplier=50.0)
    assert curator.meter.events == {Gaussian(50.0): 2}
