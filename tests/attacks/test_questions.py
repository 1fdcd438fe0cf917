"""A question, a number or an array that lies: priced as one thing, answered as another (issue 12, A.1).

Public names only, so that the same file runs on older versions.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import warnings

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import noisewise as nw
from noisewise import curator as room
from noisewise.budget import AdditiveMeter, Budget
from noisewise.curator import CrossMoment, Descent, FirstMoment, NormAtMost, SecondMoment
from noisewise.methods import Method
from noisewise.trusted import curator as columns
from noisewise.trusted.losses import Logistic, Softmax

from .house import MLP, Linear

try:
    from noisewise.trusted.accountants import choose as choice
except ImportError:
    from noisewise import choice

REFUSALS = (TypeError, ValueError, RuntimeError, AttributeError)
rng = np.random.default_rng(0)
X = torch.tensor(rng.uniform(-0.5, 0.5, (400, 3)), dtype=torch.float32)
Y = torch.sign(X[:, 0])
SUM = (X.double() * Y[:, None]).sum(0)


def curator(epsilon=0.1, delta=1e-9, adjacency="add_remove", model=None, rows=X, labels=Y, **more):
    meter = AdditiveMeter(Budget(epsilon, delta, adjacency), "gdp")
    settings = {"size": float(len(rows)), "row_bound": 1.0, "seed": 1, **more}
    return nw.Curator(rows, labels, model=model or Linear(3, Logistic()), meter=meter, **settings)


def refused(private, ask):
    """Whether the question is refused before anything is spent or released."""
    try:
        ask()
    except REFUSALS:
        return private.meter.spent_fraction == 0 and not private.trace
    return False


class Moving(CrossMoment):
    """A large bound to the clamp and to the price, a tiny one to the noise; or the other way around."""

    answers = (1.0,)
    looks = 0

    @property
    def bound(self):
        type(self).looks += 1
        return self.answers[min(type(self).looks, len(self.answers)) - 1]


def moving(*answers):
    kind = type("Lie", (Moving,), {"answers": answers, "looks": 0})
    return object.__new__(kind)


@pytest.mark.parametrize("answers", [(1.0, 1e-9), (1e-9, 1.0), (1.0, 1.0, 1e-9), (1.0,) * 4 + (1e-9,)])
def test_a_bound_that_moves_releases_nothing(answers):
    private = curator()
    sigma = private.meter.noise_for(1.0)
    with pytest.raises(TypeError, match="Lie"):
        released = private.statistic(moving(*answers), noise_multiplier=sigma).value
        assert not torch.allclose(released.double(), SUM, atol=1e-3), "the exact sum was released"
    assert private.meter.spent_fraction == 0 and not private.trace


def test_the_attack_of_a_whole_method():
    """The method gets the exact sum of x y at a claimed (0.1, 1e-9), and its statement verifies."""
    stolen = []

    def honestly(self, facts):
        choose = choice.choose_terms if hasattr(Method, "terms") else choice.choose_meter
        return choose(facts.budget, adaptive=True)

    def step(self, state, private, public):
        for answers in ((1.0, 1e-9), (1e-9, 1.0), (1.0, 1.0, 1e-9), (1.0, 1.0, 1.0, 1e-9)):
            answer = private.statistic(moving(*answers), noise_multiplier=private.meter.noise_for(0.1))
            stolen.append(answer.value.double())
        return (1, state[1])

    body = {
        "name": "thief", "init": lambda self, theta, facts, public: (0, theta), "step": step,
        "done": lambda self, state: state[0] > 0, "finish": lambda self, state, public: state[1],
        "settings": lambda self: {}, ("terms" if hasattr(Method, "terms") else "meter"): honestly,
    }  # fmt: skip
    thief = type("Thief", (Method,), body)()
    fitting = nw.PrivateClassifier(0.1, 1e-9, method=thief, bounds=(-0.5, 0.5), classes=[-1, 1], size_is_public=True)
    try:
        fitting.fit(X.numpy(), Y.numpy())
    except TypeError as error:
        assert "Lie" in str(error)
    assert not stolen


class Light(float):
    """A number that weighs less than it says, in whatever is done with it."""

    def _less(self, *_):
        return 1e-9

    __mul__ = __rmul__ = __truediv__ = __float__ = __add__ = __radd__ = _less


@pytest.mark.guard("numbers were made plain")
def test_numbers_that_are_light_when_they_are_multiplied():
    """Whatever number is made of it, the noise is that number times the unit that is used for clipping."""
    for ask in (
        lambda private, sigma: private.statistic(CrossMoment(Light(1.0)), noise_multiplier=sigma),
        lambda private, sigma: private.statistic(FirstMoment(), noise_multiplier=Light(sigma)),
        lambda private, sigma: private.gradient(torch.zeros(3), clip=Light(1.0), noise_multiplier=sigma),
        lambda private, sigma: private.gradient(torch.zeros(3), clip=1.0, noise_multiplier=Light(sigma)),
    ):
        private = curator()
        sigma = private.meter.noise_for(1.0)
        try:
            answer = ask(private, sigma)
        except (*REFUSALS, nw.BudgetExhausted):
            assert private.meter.spent_fraction == 0
            continue
        assert answer.noise_std > 0.1 / 400 or float(answer.value.norm()) < 1e-6, "less noise than was paid for"


CHANGES = {
    "bound": (lambda: CrossMoment(1.0), {"bound": math.inf}),
    "bound is no number": (lambda: CrossMoment(1.0), {"bound": "1"}),
    "bound is nothing": (lambda: CrossMoment(1.0), {"bound": math.nan}),
    "theta is far": (lambda: NormAtMost(1.0, (0.0,) * 3), {"theta": (1e40,) * 3}),
    "theta is not finite": (lambda: NormAtMost(1.0, (0.0,) * 3), {"theta": (math.nan,) * 3}),
    "threshold": (lambda: NormAtMost(1.0, (0.0,) * 3), {"threshold": -1.0}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_frozen_question_that_was_changed_is_checked_again(change):
    make, changes = CHANGES[change]
    question, private = make(), curator()
    for name, value in changes.items():
        object.__setattr__(question, name, value)
    assert refused(private, lambda: private.statistic(question, noise_multiplier=private.meter.noise_for(0.5)))


@pytest.mark.guard("a question had no methods that a price was asked of")
def test_methods_put_on_a_question_are_not_asked():
    question, private = FirstMoment(), curator()
    honest = private.statistic(FirstMoment(), noise_multiplier=private.meter.noise_for(0.5)).noise_std
    for name in ("moves", "unit", "noise_std", "event", "noised", "total", "totals"):
        object.__setattr__(question, name, lambda *_: (1e-9, 1e-9))
    again = curator()
    assert again.statistic(question, noise_multiplier=again.meter.noise_for(0.5)).noise_std == honest


class Pretends(type):
    """A class that says it is another one, whoever asks."""

    def __getattribute__(cls, name):
        return (
            getattr(CrossMoment, name)
            if name in ("__name__", "__qualname__", "__module__")
            else super().__getattribute__(name)
        )

    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return hash(CrossMoment)


class Impostor(metaclass=Pretends):
    bound = 1.0
    __class__ = CrossMoment


def test_what_only_looks_like_a_question_is_refused():
    private = curator()
    assert refused(private, lambda: private.statistic(Impostor(), noise_multiplier=private.meter.noise_for(0.5)))


@pytest.mark.guard("these do not even look like one")
@pytest.mark.parametrize("what", [CrossMoment, lambda rows: rows, "CrossMoment", None, (FirstMoment(),)])
def test_what_is_no_question_is_refused(what):
    private = curator()
    assert refused(private, lambda: private.statistic(what, noise_multiplier=private.meter.noise_for(0.5)))


@pytest.mark.guard("there was no registry")
@pytest.mark.parametrize("home", ["noisewise.curator.mine", "noisewise.trusted.questions.mine"])
def test_no_question_can_be_added(home):
    from noisewise.trusted import questions

    kind = dataclasses.dataclass(frozen=True)(type("Mine", (FirstMoment,), {"__module__": home}))
    with pytest.raises(TypeError, match="room"):
        questions.question(kind)
    with pytest.raises(TypeError):
        room.QUESTIONS["Mine"] = kind


# -- settings of other libraries, left behind by a stranger --------------------------------------------------------


def heard(ask, rows):
    """What warnings, errors and numpy's own callbacks tell while a question is answered."""
    told = []
    private = curator(epsilon=5.0, rows=rows, labels=torch.ones(len(rows)))
    old, call = np.seterr(all="call"), np.seterrcall(lambda kind, flag: told.append(kind))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask(private, private.meter.noise_for(0.2))
    except REFUSALS as error:
        told.append(type(error))
    finally:
        np.seterr(**old)
        np.seterrcall(call)
    return told, [str(entry.message) for entry in caught], private.meter.spent_fraction > 0


LOUD = {
    "a tiny threshold": lambda private, sigma: private.statistic(NormAtMost(1e-308, (0.0,) * 3), noise_multiplier=sigma),
    "a tiny quantile": lambda private, sigma: private.gradient(
        torch.zeros(3), clip=1.0, noise_multiplier=2 * sigma, quantile_at=1e-308, count_noise_multiplier=2 * sigma),
    "a scale": lambda private, sigma: private.gradient(
        torch.zeros(3), clip=1.0, noise_multiplier=sigma, scale=torch.full((3,), 1e6)),
    "a norm": lambda private, sigma: private.gradient_norm(torch.full((3,), 1e19), clip=1.0, noise_multiplier=sigma),
    "a choice": lambda private, sigma: private.choose(
        [torch.zeros(3), torch.full((3,), 1e19)], loss_bound=1.0, epsilon=0.1),
    "a bound": lambda private, sigma: private.statistic(CrossMoment(1e-12), noise_multiplier=sigma),
}  # fmt: skip


@pytest.mark.guard("sums were torch's, which tells nobody")
def test_no_record_is_heard_through_the_errors_of_numpy():
    """An overflow that only a long row makes would say, without any noise, that there is a long row."""
    usual, long = torch.full((50, 3), 0.1), torch.full((50, 3), 0.1)
    long[7] = 1e4
    tiny = usual.clone()
    tiny[7] = 1e-42
    zero, lost = usual.clone(), usual.clone()
    zero[7], lost[7] = 0.0, math.nan
    for name, ask in LOUD.items():
        expected = heard(ask, usual)
        assert all(heard(ask, rows) == expected for rows in (long, tiny, zero, lost)), name


class Loud(Logistic):
    """A loss of somebody else, by a formula that overflows where scores are large."""

    def row_slope(self, z, y):
        return -y / (1 + np.exp(y * z))


@pytest.mark.guard("sums were torch's, which tells nobody")
def test_no_record_is_heard_through_a_loss_that_overflows():
    usual, long = torch.full((50, 3), 0.1), torch.full((50, 3), 0.1)
    long[7] = 1e4

    def ask(private, sigma):
        return private.gradient(torch.ones(3), clip=1.0, noise_multiplier=sigma)

    told = [heard(lambda _, sigma, rows=rows: ask(loud(rows), sigma), rows) for rows in (usual, long)]
    assert told[0] == told[1]


def loud(rows):
    return curator(epsilon=5.0, model=Linear(3, Loud()), rows=rows, labels=torch.ones(len(rows)))


class Spy(TorchFunctionMode):
    """Sees the arguments of every function of torch that is called."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen += [part for part in args if isinstance(part, torch.Tensor) and part.numel() >= 30 * 3]
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("what", ["gradient", "perceptron", "walk", "basis"])
def test_a_mode_of_torch_is_not_handed_the_rows(what):
    rows, labels = X[:30], torch.ones(30)
    model = MLP((3, 2, 2), Softmax(), "tanh") if what == "perceptron" else None
    labels = labels.long() if what == "perceptron" else labels
    private = curator(epsilon=5.0, rows=rows, labels=labels, model=model)
    sigma, mode = private.meter.noise_for(0.5), Spy()
    theta = torch.zeros(private.facts.dimension)
    try:
        with mode:
            if what == "walk":
                private.last_iterate(Descent(theta, 5, 0.1, sigma))
            elif what == "basis":
                private.change_basis(2 * torch.eye(3))
            else:
                private.gradient(theta, clip=1.0, noise_multiplier=sigma, sampling=("full",))
    except RuntimeError:
        pass
    assert not mode.seen


@pytest.mark.guard("single precision was asked for by name")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_another_default_precision_changes_nothing(dtype):
    def answer():
        private = curator(epsilon=5.0, model=MLP((3, 7, 2), Softmax(), "relu"), labels=(Y > 0).long())
        theta = torch.linspace(-1, 1, private.facts.dimension, dtype=torch.float32)
        return private.gradient(theta, clip=0.5, noise_multiplier=1e2, sampling=("poisson", 0.3)).value

    usual, before = answer(), torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        assert torch.equal(answer(), usual)
        assert torch.get_default_dtype() is dtype
    finally:
        torch.set_default_dtype(before)


# -- what is handed out ----------------------------------------------------------------------------------------------


def test_facts_that_were_changed_change_no_noise():
    """The end of a walk is noised by what one record moves it, which is computed from the facts."""

    def ask(change):
        private = curator(epsilon=1.0, delta=1e-6)
        facts = private.facts
        if change:
            for name, value in {"lipschitz": 1e-6, "size": 1e9}.items():
                object.__setattr__(facts, name, value)
        sigma = private.meter.noise_for(1.0)
        return private.last_iterate(Descent(torch.zeros(3), 5, 0.1, sigma)).noise_std

    assert ask(change=True) == ask(change=False)


def test_a_tiny_l2_does_not_lower_the_noise():
    """l2 and step_size times l2 are among the smallest numbers there are, which have no digits left to divide."""
    for step, l2 in ((0.7, 1e-323), (1.49, 5e-324), (2.49, 5e-324)):
        private, plain = curator(epsilon=1.0), curator(epsilon=1.0)
        with_l2 = private.last_iterate(Descent(torch.zeros(3), 4, step, 20.0, l2=l2)).noise_std
        assert with_l2 >= plain.last_iterate(Descent(torch.zeros(3), 4, step, 20.0)).noise_std * (1 - 1e-9)


@pytest.mark.guard("the meter always had a lock")
def test_many_threads_get_no_more_than_one():
    private, answers = curator(epsilon=1.0), []
    sigma = private.meter.noise_for(0.25)

    def ask():
        for _ in range(5):
            try:
                answers.append(private.statistic(SecondMoment(), noise_multiplier=sigma))
            except nw.BudgetExhausted:
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(private.trace) <= 4


@pytest.mark.guard("arrays were copied before they were used")
def test_an_array_that_is_changed_while_it_is_asked_about():
    """Either it is refused, or it is answered as some theta that was allowed."""
    theta, stop = torch.zeros(3), threading.Event()

    def change():
        while not stop.is_set():
            theta.fill_(math.nan)
            theta.fill_(0.0)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        private = curator(epsilon=1e3, delta=1e-5)
        for _ in range(30):
            try:
                value = private.gradient(theta, clip=1.0, noise_multiplier=5.0).value
            except ValueError:
                continue
            assert torch.isfinite(value).all()
    finally:
        stop.set()
        thread.join()


HOSTILE = {
    "a theta of two dimensions": lambda p, s: p.gradient(torch.zeros(3, 1), clip=1.0, noise_multiplier=s),
    "a theta that is too far": lambda p, s: p.gradient(torch.full((3,), 1e31, dtype=torch.float64), clip=1.0, noise_multiplier=s),
    "a clip of nothing": lambda p, s: p.gradient(torch.zeros(3), clip=5e-324, noise_multiplier=s),
    "an endless clip": lambda p, s: p.gradient(torch.zeros(3), clip=math.inf, noise_multiplier=s),
    "a clip that is an array": lambda p, s: p.gradient(torch.zeros(3), clip=np.ones(1), noise_multiplier=s),
    "no noise": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=0.0),
    "noise that is not a number": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=math.nan),
    "endless noise": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=1e300),
    "a true noise": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=True),
    "a rate that is not a number": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=s, sampling=("poisson", math.nan)),
    "a rate above 1": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=s, sampling=("poisson", 1.5)),
    "an endless count noise": lambda p, s: p.gradient(
        torch.zeros(3), clip=1.0, noise_multiplier=s, quantile_at=1.0, count_noise_multiplier=1e300),
    "histograms of rows": lambda p, s: p.statistic(columns.Histograms(np.array([[0.0, 1.0]] * 3)), noise_multiplier=s),
    "no candidates": lambda p, s: p.choose([], loss_bound=1.0, epsilon=0.01),
    "candidates of numbers": lambda p, s: p.choose([(0.0, 0.0, 0.0)], loss_bound=1.0, epsilon=0.01),
    "a basis that is not orthonormal": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=s, basis=2 * torch.eye(3)),
    "a scale of nothing": lambda p, s: p.gradient(torch.zeros(3), clip=1.0, noise_multiplier=s, scale=torch.zeros(3)),
}  # fmt: skip


@pytest.mark.guard("most were refused; the others are of the new core")
@pytest.mark.parametrize("what", HOSTILE)
def test_what_cannot_be_asked_is_refused_before_it_is_paid(what):
    private = curator(epsilon=5.0)
    assert refused(private, lambda: HOSTILE[what](private, private.meter.noise_for(0.2)))


@pytest.mark.guard("the new core's own integers")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("size", [1.0, 7.5, 1e3, 1e9, 1e15])
@pytest.mark.parametrize("sigma", [1e-6, 1.0, 2.0**26])
def test_every_size_and_noise_that_is_paid_for_is_answered(size, sigma, adjacency):
    """A question that was paid for never fails, at the ends of what is allowed either."""
    private = curator(epsilon=1e6, delta=0.1, adjacency=adjacency, size=size)
    asks = [
        lambda: private.gradient_norm(torch.zeros(3), clip=1e12, noise_multiplier=sigma, squared=True),
        lambda: private.gradient_norm(torch.zeros(3), clip=1e-4, noise_multiplier=sigma, squared=True),
        lambda: private.gradient_norm(torch.zeros(3), clip=1e-4, noise_multiplier=sigma),
        lambda: private.gradient(torch.zeros(3), clip=1e12, noise_multiplier=sigma),
        lambda: private.gradient(torch.zeros(3), clip=1.0, noise_multiplier=sigma, scale=torch.full((3,), 1e-6).double() * 2),
        *[lambda what=what: private.statistic(what, noise_multiplier=sigma)
          for what in (FirstMoment(), SecondMoment(), CrossMoment(1e12), CrossMoment(1e-12), room.SquaredLength(),
                       room.Count(), room.MinEigenvalue(), NormAtMost(1e-30, (1e29,) * 3), room.Correct((0.0,) * 3))],
    ]  # fmt: skip
    for ask in asks:
        before = len(private.trace)
        try:
            value = ask().value
        except nw.BudgetExhausted:
            continue
        assert len(private.trace) == before + 1 and np.isfinite(np.asarray(value)).all()
