"""Nothing about the records can be read off the curator: not from its looks, its copies or its error messages."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import traceback

import numpy as np
import pytest
import torch
from purse import with_purse
from spies import SEEN, spies

from noisewise.accounts import Budget
from noisewise.curator import Count, CrossMoment, MinEigenvalue, NormAtMost, SecondMoment
from noisewise.train import Records
from noisewise.trusted.losses import Logistic, Softmax
from noisewise.trusted.models import MLP, Linear

VALUE, ROWS = 123456.75, 7919
SECRETS = ("123456", "1.2345", "7919")
PUBLIC = {
    "arithmetic",
    "ask",
    "centre",
    "change_basis",
    "forfeit",
    "in_first_basis",
    "take_up",
    "last_iterate",
    "minimise",
    "prepare",
    "choose",
    "facts",
    "features",
    "gradient",
    "layered_gradient",
    "gradient_norm",
    "meter",
    "release_size",
    "simulation",
    "statistic",
    "trace",
}


class Purse:
    name, adaptive, spent_fraction = "purse", True, 0.0

    def __init__(self):
        self.budget, self.events = Budget(1.0, 1e-6), []

    def spend(self, event):
        self.events.append(event)


def room(model=None, y=None, seed=0):
    model = model or Linear(3, Logistic())
    labels = np.ones(ROWS) if model.outputs == 1 else np.ones(ROWS, np.int64)
    X = np.full((ROWS, 3), VALUE)
    return with_purse(X, labels if y is None else y, model=model, meter=Purse(), size=1000.0, seed=seed)


def tells_nothing(text: object) -> bool:
    return not any(secret in str(text) for secret in SECRETS)


def messages(error: BaseException) -> str:
    """Everything an error shows, its causes included, without the source lines of this file."""
    shown = []
    while error is not None:
        shown += [type(error).__name__, str(error), repr(error.args), *getattr(error, "__notes__", [])]
        error = error.__cause__ or error.__context__
    return " ".join(shown)


def test_the_search_finds_what_it_looks_for():
    assert not tells_nothing(np.full(2, VALUE))
    assert not tells_nothing(f"got input ({ROWS})")
    with pytest.raises(ValueError) as caught:
        np.zeros((ROWS, 3)) + np.zeros(4)
    assert not tells_nothing(messages(caught.value))


def test_its_looks_and_its_trace_show_no_record():
    curator = room()
    curator.gradient(np.zeros(3), clip=1.0, noise_multiplier=3.0, sampling=("poisson", 0.5))
    curator.choose([np.zeros(3)], loss_bound=1.0, epsilon=1.0)
    curator.statistic(MinEigenvalue(), noise_multiplier=3.0)
    curator.statistic(Count(), noise_multiplier=1e4)
    assert len(curator.trace) == 4
    for looks in (repr(curator), str(curator), f"{curator}", repr(curator.facts), repr(curator.trace)):
        assert tells_nothing(looks)
    with pytest.raises(TypeError):
        vars(curator)
    with pytest.raises(TypeError):
        len(curator)
    with pytest.raises(TypeError):
        list(curator)


def test_its_public_names_are_questions_and_released_facts():
    curator = room()
    assert {name for name in dir(curator) if not name.startswith("_")} == PUBLIC
    for name in PUBLIC:
        value = getattr(curator, name)
        if not inspect.ismethod(value):
            assert tells_nothing(repr(value))


@pytest.mark.parametrize(
    "attempt",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda c: pickle.dumps(c, protocol=0),
        lambda c: c.__reduce__(),
        lambda c: c.__reduce_ex__(4),
        pytest.param(lambda c: c.__getstate__()),
    ],
)
def test_it_is_never_copied_or_saved(attempt):
    with pytest.raises(TypeError) as caught:
        attempt(room())
    assert tells_nothing(messages(caught.value))


def test_records_on_their_way_show_nothing():
    assert tells_nothing(repr(Records(np.full((3, 2), VALUE), np.full(3, VALUE), None, 1.0)))


QUESTION = {"clip": 1.0, "noise_multiplier": 3.0}
WRONG = {
    "theta too long": lambda c: c.gradient(np.zeros(4), **QUESTION),
    "theta a matrix": lambda c: c.gradient(np.zeros((3, 1)), **QUESTION),
    "theta a tensor too long": lambda c: c.gradient(torch.zeros(4), **QUESTION),
    "theta a sparse tensor": lambda c: c.gradient(torch.zeros(3).to_sparse(), **QUESTION),
    "theta a list": lambda c: c.gradient([0.0, 0.0, 0.0], **QUESTION),
    "theta a function": lambda c: c.gradient(lambda X: X, **QUESTION),
    "theta None": lambda c: c.gradient_norm(None, **QUESTION),
    "clip 0": lambda c: c.gradient(np.zeros(3), clip=0.0, noise_multiplier=1.0),
    "clip infinite": lambda c: c.gradient(np.zeros(3), clip=math.inf, noise_multiplier=1.0),
    "clip nan": lambda c: c.gradient_norm(np.zeros(3), clip=math.nan, noise_multiplier=1.0),
    "clip negative": lambda c: c.gradient(np.zeros(3), clip=-1.0, noise_multiplier=1.0),
    "clip a function": lambda c: c.gradient(np.zeros(3), clip=lambda X: X, noise_multiplier=1.0),
    "clip text": lambda c: c.gradient(np.zeros(3), clip="1", noise_multiplier=1.0),
    "clip a vector": lambda c: c.gradient(np.zeros(3), clip=np.ones(3), noise_multiplier=1.0),
    "clip a tensor": lambda c: c.gradient(np.zeros(3), clip=torch.ones(3), noise_multiplier=1.0),
    "noise 0": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=0.0),
    "noise negative": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=-1.0),
    "noise nan": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=math.nan),
    "noise infinite": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=math.inf),
    "noise a function": lambda c: c.gradient(np.zeros(3), clip=1.0, noise_multiplier=lambda X: X),
    "norm noise 0": lambda c: c.gradient_norm(np.zeros(3), clip=1.0, noise_multiplier=0.0),
    "statistic noise 0": lambda c: c.statistic(Count(), noise_multiplier=0.0),
    "size noise 0": lambda c: c.release_size(noise_multiplier=0.0),
    "sampling unknown": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=("shuffle", 0.1)),
    "sampling rate 0": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=("poisson", 0.0)),
    "sampling rate 2": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=("poisson", 2.0)),
    "sampling rate nan": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=("poisson", math.nan)),
    "sampling rate text": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=("poisson", "all")),
    "sampling a function": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=lambda n: range(n)),
    "sampling rows": lambda c: c.gradient(np.zeros(3), **QUESTION, sampling=[0, 1]),
    "statistic a function": lambda c: c.statistic(lambda X: X.sum(), noise_multiplier=1.0),
    "statistic a class": lambda c: c.statistic(Count, noise_multiplier=1.0),
    "statistic a name": lambda c: c.statistic("Count", noise_multiplier=1.0),
    "choose nobody": lambda c: c.choose([], loss_bound=1.0, epsilon=1.0),
    "choose wrong shape": lambda c: c.choose([np.zeros(3), np.zeros(2)], loss_bound=1.0, epsilon=1.0),
    "choose a function": lambda c: c.choose([lambda X: X], loss_bound=1.0, epsilon=1.0),
    "choose epsilon 0": lambda c: c.choose([np.zeros(3)], loss_bound=1.0, epsilon=0.0),
    "choose epsilon infinite": lambda c: c.choose([np.zeros(3)], loss_bound=1.0, epsilon=math.inf),
    "choose bound 0": lambda c: c.choose([np.zeros(3)], loss_bound=0.0, epsilon=1.0),
    "choose bound infinite": lambda c: c.choose([np.zeros(3)], loss_bound=math.inf, epsilon=1.0),
}
LATE = {
    "norms theta short": lambda: NormAtMost(1.0, (0.0,)),
    "norms theta long": lambda: NormAtMost(1.0, (0.0,) * 4),
    "norms theta text": lambda: NormAtMost(1.0, "abc"),
    "norms threshold text": lambda: NormAtMost("1", (0.0,) * 3),
    "norms threshold nan": lambda: NormAtMost(math.nan, (0.0,) * 3),
    "bound text": lambda: CrossMoment("1"),
    "bound nan": lambda: CrossMoment(math.nan),
    "bound infinite": lambda: CrossMoment(math.inf),
    "bound 0": lambda: CrossMoment(0.0),
    "bound negative": lambda: CrossMoment(-1.0),
}


def refused_quietly(ask, curator) -> bool:
    """The question is refused, the message shows no secret, nothing is paid or logged, and the noise is untouched."""
    with pytest.raises((ValueError, TypeError, AttributeError, RuntimeError)) as caught:
        ask(curator)
    assert tells_nothing(messages(caught.value))
    assert tells_nothing("".join(traceback.format_exception_only(caught.value)))
    assert curator.meter.events == []
    assert curator.trace == ()
    untouched = room().gradient(np.zeros(3), **QUESTION).value
    return np.array_equal(curator.gradient(np.zeros(3), **QUESTION).value, untouched)


@pytest.mark.parametrize("ask", WRONG.values(), ids=WRONG)
def test_a_wrong_question_is_refused_before_it_is_paid_and_its_message_shows_nothing(ask):
    assert refused_quietly(ask, room())


@pytest.mark.parametrize("what", LATE.values(), ids=LATE)
def test_a_statistic_with_a_wrong_field_is_refused_before_it_is_paid(what):
    assert refused_quietly(lambda c: c.statistic(what(), noise_multiplier=1.0), room())


def test_the_message_about_a_wrong_theta_of_a_statistic_does_not_name_the_number_of_rows():
    with pytest.raises((ValueError, RuntimeError)) as caught:
        room().statistic(NormAtMost(1.0, (0.0,) * 4), noise_multiplier=1.0)
    assert tells_nothing(messages(caught.value))


@pytest.mark.parametrize(
    "X, y, model",
    [
        (np.full((ROWS, 4), VALUE), np.ones(ROWS), Linear(3, Logistic())),
        (np.full(ROWS, VALUE), np.ones(ROWS), Linear(3, Logistic())),
        (np.full((ROWS, 3), VALUE), np.ones(ROWS - 1), Linear(3, Logistic())),
        (np.full((ROWS, 3), VALUE), np.ones((ROWS, 1)), MLP((3, 2, 1), Logistic())),
    ],
)
def test_records_of_the_wrong_shape_are_refused_without_showing_them(X, y, model):
    with pytest.raises(ValueError) as caught:
        with_purse(X, y, model=model, meter=Purse(), size=1000.0)
    assert tells_nothing(messages(caught.value))


@pytest.mark.parametrize("label", [123456, -1, -100])
def test_a_label_outside_the_classes_raises_nothing_once_the_curator_exists(label):
    y = np.ones(ROWS, np.int64)
    y[17] = label
    try:
        curator = room(Linear(3, Softmax(), 2), y)
    except ValueError as error:  # refused at the door, by a message that shows nothing
        assert tells_nothing(messages(error))
        return
    curator.gradient(np.zeros(6), **QUESTION)
    curator.choose([np.zeros(6)], loss_bound=1.0, epsilon=1.0)


# --- questions are plain data: nothing in them is called with records -------------------------------------------------


@pytest.mark.parametrize("theta", spies(np.zeros(3)), ids=["array", "tensor"])
def test_a_theta_with_code_in_it_does_not_see_the_records(theta):
    SEEN.clear()
    curator = room()
    for ask in (
        lambda: curator.gradient(theta, **QUESTION),
        lambda: curator.choose([theta], loss_bound=1.0, epsilon=1.0),
    ):
        try:
            ask()
        except TypeError:
            continue
    assert (ROWS, 3) not in SEEN


class Cheap(float):
    """A noise multiplier that is priced as it says and multiplies as nothing."""

    def __mul__(self, other):
        return 0.0

    __rmul__ = __mul__


@pytest.mark.parametrize("question", [{"noise_multiplier": Cheap(100.0)}, {"clip": Cheap(1.0)}], ids=["noise", "clip"])
def test_a_number_with_code_in_it_does_not_switch_the_noise_off(question):
    curator = room()
    try:
        answer = curator.gradient(np.zeros(3), **{"clip": 1.0, "noise_multiplier": 100.0, **question})
    except (TypeError, ValueError):
        return
    assert answer.noise_std == pytest.approx(100.0 / 1000.0)


class Late:
    """A threshold that is compared with every record's gradient norm."""

    seen: list = []  # noqa: RUF012

    def __ge__(self, norms):
        self.seen.append(norms)
        return norms <= 1.0


def test_a_threshold_with_code_in_it_does_not_see_the_records():
    Late.seen.clear()
    try:
        room().statistic(NormAtMost(Late(), (0.0,) * 3), noise_multiplier=1.0)
    except (TypeError, ValueError):
        return
    assert Late.seen == []


def test_statistics_are_frozen_and_hold_no_function():
    for what in (Count(), SecondMoment(), CrossMoment(), MinEigenvalue(), NormAtMost(1.0, (0.0,))):
        assert hash(what) == hash(copy.copy(what))
        for name in ("bound", "threshold", "theta"):
            if hasattr(what, name):
                with pytest.raises(AttributeError):
                    setattr(what, name, 1.0)


def test_changing_the_rows_afterwards_does_not_change_what_was_measured_of_them():
    """The lengths of the rows are measured once; rows that grow later would not be clipped to the clip."""
    model = MLP((3, 1), Logistic())
    X = np.ones((5, 3))
    curator = with_purse(X, np.ones(5), model=model, meter=Purse(), size=1.0, seed=0)
    X *= 1e6
    answer = curator.gradient(np.zeros(4), clip=1.0, noise_multiplier=1e-5)
    assert np.linalg.norm(answer.value) <= 5.001
