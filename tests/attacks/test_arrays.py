"""Arrays and tensors that lie, share memory or make numpy speak, and things that are called torch: tables need none of it."""

from __future__ import annotations

import contextlib
import math
import threading
import traceback
import types
import warnings
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from noisewise.asking import array
from noisewise.budget import AdditiveMeter, Budget
from noisewise.curator import (
    Choice,
    Count,
    CrossMoment,
    Curator,
    Descent,
    FirstMoment,
    Gradient,
    GradientNorm,
    MinEigenvalue,
    NormAtMost,
    OnePass,
    SecondMoment,
    SquaredLength,
)
from noisewise.guest.running import Served
from noisewise.train import Recording
from noisewise.trusted import process as settings
from noisewise.trusted.accountants.gdp import root_of
from noisewise.trusted.features import Hats, TableColumn, even
from noisewise.trusted.losses import Logistic, Softmax, loss_named, loss_names
from noisewise.trusted.models import Additive, Linear
from noisewise.trusted.question import plain
from noisewise.trusted.stores.threads import threads

pytestmark = pytest.mark.guard("found when arrays took the place of tensors, before they reached a commit")
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, (50, 3)).astype(np.float32)
Y = np.sign(X[:, 0])
SECRET = "4242.4242"


def room(rows=X, labels=Y, model=None, adjacency="add_remove", **more):
    meter = AdditiveMeter(Budget(1e6, 1e-6, adjacency), "gdp")
    known = {"size": float(len(X)), "row_bound": 1.0, "seed": 1, **more}
    return Curator(rows, labels, model=model or Linear(3, Logistic()), meter=meter, **known)


def answered(private, theta=(0.3, -0.2, 1.0)):
    return private.gradient(np.array(theta), clip=1.0, noise_multiplier=2.0).value


def answered_elsewhere(private):
    """The same from another thread, which finds a gate that was left locked."""
    found = []
    other = threading.Thread(target=lambda: found.append(answered(private)), daemon=True)
    other.start()
    other.join(10)
    return found


# --- things that are called torch -------------------------------------------------------------------------------------


def half_imported():
    module = types.ModuleType("torch")
    module.__spec__, module._C = ModuleSpec("torch", None), torch._C
    module.__spec__._initializing = True  # as importlib has it meanwhile
    return module


def of_a_file():
    module = types.ModuleType("torch")
    module.__spec__ = ModuleSpec("torch", None)
    return module


@pytest.fixture
def named_torch(monkeypatch):
    """Something else is called torch, in a process in which nothing of ours has imported it."""

    def put(module):
        monkeypatch.delitem(settings.sys.modules, "noisewise.trusted.torch_extra", raising=False)
        monkeypatch.setitem(settings.sys.modules, "torch", module)

    return put


@pytest.mark.parametrize("other", [lambda: types.ModuleType("torch"), half_imported, of_a_file])
def test_a_torch_that_is_not_whole_neither_locks_the_gate_nor_leaves_settings(other, named_torch):
    private, usual = room(), np.geterr()
    named_torch(other())
    assert answered(private).shape == (3,) and np.geterr() == usual
    assert answered_elsewhere(private) and private.meter.events.total() == 2


def test_a_torch_whose_settings_fail_charges_nothing_and_opens_the_gate_again(named_torch, monkeypatch):
    def fail():
        raise RuntimeError("no such settings")

    private, usual, odd = room(), np.geterr(), of_a_file()
    odd._C = SimpleNamespace(DisableTorchFunction=fail)
    named_torch(odd)
    with pytest.raises(RuntimeError, match="no such settings"):
        answered(private)
    assert private.meter.spent_fraction == 0 and not private.trace and np.geterr() == usual
    monkeypatch.undo()
    assert answered_elsewhere(private)


def test_a_torch_that_goes_away_during_a_question_leaves_nothing_behind(monkeypatch):
    usual = np.geterr()
    with settings.own_settings():
        monkeypatch.delitem(settings.sys.modules, "torch")
    assert np.geterr() == usual and not settings._inside and not settings._usual


def test_a_question_that_fails_gives_back_every_setting():
    usual, private = np.geterr(), room()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ZeroDivisionError), settings.own_settings():
            assert torch.get_default_dtype() is torch.float32 and np.geterr()["over"] == "ignore"
            math.fmod(1, 1 // 0)
        assert torch.get_default_dtype() is torch.float64 and np.geterr() == usual
    finally:
        torch.set_default_dtype(torch.float32)
    assert answered_elsewhere(private)


# --- tensors without entries ------------------------------------------------------------------------------------------


class Wrapper(torch.Tensor):
    """Shows a shape and has no entries of its own."""

    @staticmethod
    def __new__(cls, inner, **how):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, **how)

    @classmethod
    def __torch_dispatch__(cls, *_, **__):
        raise AssertionError("code of a subclass runs")


def fake():
    with FakeTensorMode():
        return torch.ones(3)


def emptied(left=0):
    given = torch.ones(3)
    given.untyped_storage().resize_(left)
    return given


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Wrapper(torch.ones(3)),
        lambda: Wrapper(torch.ones(5000)),
        lambda: Wrapper(torch.ones(3), device="meta"),
        fake,
        emptied,
        lambda: emptied(4),
        lambda: nested(torch.strided),
        lambda: nested(torch.jagged),
        lambda: torch.ones(3, device="meta"),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.ones(3).to_mkldnn(),
    ],
)
@pytest.mark.filterwarnings("ignore")  # torch, of layouts that may change
def test_a_tensor_without_entries_shows_no_memory_of_this_process(made):
    private = room()
    with pytest.raises(TypeError, match="pass a plain, real"):
        array(made())
    with pytest.raises(TypeError):
        private.gradient(made(), clip=1.0, noise_multiplier=2.0)
    assert private.meter.spent_fraction == 0 and not private.trace


# --- arrays of other things than numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [Linear(3, Logistic()), Linear(3, Softmax(), 2)], ids=["signs", "classes"])
def test_a_cell_that_is_no_number_is_refused_and_not_quoted(model):
    texts, objects = np.full(len(X), f"{SECRET}x"), Y.astype(object)
    objects[3] = f"{SECRET}x"
    spoilt = X.astype(object)
    spoilt[7, 1] = f"{SECRET}x"
    others = np.zeros(X.shape, [("a", np.float32)]), np.zeros(X.shape, "M8[s]"), X + 1j, X.astype("S9")
    cases = [
        (X, texts),
        (X, objects),
        (spoilt, Y),
        (np.full(X.shape, f"{SECRET}x"), Y),
        *((rows, Y) for rows in others),
    ]
    for rows, labels in cases:
        with pytest.raises(TypeError, match="real numbers") as caught:
            room(rows, labels, model)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


class Number:
    looks = 0

    def __float__(self):
        Number.looks += 1
        return float(Number.looks)


@pytest.mark.parametrize(
    "theta",
    [
        np.array([Number(), Number(), Number()], object),
        np.array(["1", "2", "3"]),
        np.ones(3) + 1j,
        np.zeros(3, [("a", np.float64)]),
        np.zeros(3, "M8[s]"),
    ],
    ids=["objects", "texts", "complex", "records", "dates"],
)
def test_a_theta_of_other_things_than_numbers_runs_nothing_and_is_refused(theta):
    private = room()
    with pytest.raises((TypeError, ValueError)):
        private.gradient(theta, clip=1.0, noise_multiplier=2.0)
    assert private.meter.spent_fraction == 0 and not Number.looks


class Lying(np.ndarray):
    """Looks short and finite to whoever asks it."""

    def __array_finalize__(self, given):
        seen.append("finalized")

    def __array_ufunc__(self, *_, **__):
        return seen.append("ufunc")

    def __array_function__(self, *_, **__):
        return seen.append("function")

    def item(self, *_):
        return 0

    dot = argmin = argmax = item


seen: list[str] = []


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 1e31, -1e300])
def test_an_array_that_says_it_is_small_is_measured_by_numpy(entry):
    private, lies = room(), np.array([0.0, entry, 0.0]).view(Lying)
    asked = Gradient(lies, 1.0)
    seen.clear()
    with pytest.raises(ValueError, match="finite numbers"):
        private.ask(asked, noise=2.0)
    assert private.meter.spent_fraction == 0 and type(plain(lies)) is np.ndarray and not seen


# --- what numpy says --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["raise", "call"])
def listening(request):
    """numpy raises, or calls, at every overflow, and every warning is an error."""
    heard = []
    usual, caller = np.seterr(all=request.param), np.seterrcall(lambda *what: heard.append(what))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield heard
    np.seterr(**usual), np.seterrcall(caller)


@pytest.mark.parametrize("theta", [np.full(3, 3e29, np.float32), np.full(3, 9e29)])
def test_a_long_theta_is_measured_without_an_overflow(theta, listening):
    assert room().gradient(theta, clip=1.0, noise_multiplier=2.0).value.shape == (3,)
    for far in (np.full(3, 3e38, np.float32), np.full(3, 1e300)):
        with pytest.raises(ValueError, match="finite numbers"):
            room().gradient(far, clip=1.0, noise_multiplier=2.0)
    assert not listening


EXTREME = [0.0, 1.0, 3e38, -3e38, math.inf, -math.inf, math.nan, 1e-45, 1e-38, 2e19, 1e300, -1e300, 5e-324]


@pytest.mark.parametrize("loss", loss_names())
def test_no_row_is_heard_through_numpy(loss, listening):
    chosen, made = loss_named(loss), np.random.default_rng(3)
    outputs = 2 if chosen.task == "classes" else 1
    rows = made.choice(EXTREME, (60, 3))
    labels = made.choice([0, 1, -5, 7, 1 << 40], 60) if outputs > 1 else made.choice([1.0, -1.0, *EXTREME], 60)
    private, d = room(rows, labels, Linear(3, chosen, outputs), "replace_one"), 3 * outputs
    asked = [
        Gradient(np.full(d, 1e14), 1e-4),
        Gradient(np.ones(d), 1.0, scale=np.full(d, 0.5)),
        Gradient(np.ones(d), 1.0, basis=np.eye(d)[:, :2]),
        *(Count(), FirstMoment(), SecondMoment(), SquaredLength(), GradientNorm(np.ones(d), 1.0), CrossMoment(1.0)),
        *(MinEigenvalue(), Choice((np.zeros(d), np.full(d, 1e20)), 1.0), NormAtMost(1.0, (1e20,) * d)),
    ]
    for question in asked:
        for sampling in [("full",), ("poisson", 0.3), ("poisson", 1e-9)]:
            with contextlib.suppress(ValueError):  # by a rule for all rows; an overflow is an error of arithmetic
                private.ask(question, noise=5.0, sampling=sampling)
    assert len(private.trace) >= 20
    if math.isfinite(chosen.lipschitz) and math.isfinite(chosen.smoothness) and outputs == 1:
        private.last_iterate(Descent(np.zeros(3), 5, 0.1, 2.0, l2=0.1, radius=1.0))
        private.last_iterate(OnePass(np.zeros(3), np.zeros((2, 3)), np.zeros(2), 0.1, 2.0, 0.01, 1.0))
    assert not listening


# --- memory that is shared --------------------------------------------------------------------------------------------


def mapped(path, given):
    own = np.memmap(path, given.dtype, "w+", shape=given.shape)
    own[:] = given
    return own


@pytest.mark.parametrize("kind", ["array", "tensor", "shared tensor", "mapped", "columns first"])
def test_rows_stay_what_they_were_when_the_caller_changes_them(kind, tmp_path):
    rows, labels = X.copy(), Y.copy()
    if kind == "mapped":
        rows, labels = mapped(tmp_path / "X", X), mapped(tmp_path / "y", Y)
    if kind == "columns first":
        rows = np.asfortranarray(rows)
    given = (torch.from_numpy(rows), torch.from_numpy(labels)) if "tensor" in kind else (rows, labels)
    private = room(*(np.asarray(part) for part in given) if kind == "shared tensor" else given)
    rows[:], labels[:] = 0.0, 1.0
    assert np.array_equal(answered(private), answered(room()))


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_so_do_cells_of_a_table_that_features_are_made_of_later(kind):
    column = TableColumn("a", (-1.0, 1.0), (0.0, 1.0))

    def sums(change):
        cells, labels = X[:, :1].copy(), Y.copy()
        private = room(kind(cells), kind(labels), Additive(1, Logistic(), columns=(column,)))
        if change:
            cells[:], labels[:] = 0.0, 1.0
        private.prepare(even([Hats(0, (-1.0, 1.0), (0.0, 1.0), 2)]))
        return private.ask(CrossMoment(1.0), noise=2.0).value

    assert np.array_equal(sums(change=True), sums(change=False))


def test_an_answer_that_is_changed_changes_nothing_that_was_kept(tmp_path):
    private = room()
    recorded = Recording(private)
    asked = Gradient(theta := np.array([0.3, -0.2, 1.0]), 1.0)
    answer = recorded.ask(asked, noise=2.0)
    was, trace = answer.value.copy(), private.trace
    answer.value[:], theta[:] = 7.0, 8.0
    (kept,) = recorded.tape(Linear(3, Logistic()), np.zeros(3)).entries
    assert np.array_equal(kept.value, was) and kept.theta.tolist() == np.float32([0.3, -0.2, 1.0]).tolist()
    assert private.trace == trace
    again = recorded.gradient(torch.zeros(3), clip=1.0, noise_multiplier=2.0)
    again.value.fill_(9.0)
    kept = recorded.tape(Linear(3, Logistic()), np.zeros(3)).entries[1]
    assert not (kept.value == 9.0).any()


@pytest.mark.parametrize(
    "asked", [Gradient(np.ones(3), 1.0), Count(), FirstMoment(), SecondMoment(), GradientNorm(np.ones(3), 1.0)]
)
def test_an_answer_is_no_view_of_anything_larger(asked):
    private = room()
    values = [private.ask(asked, noise=2.0).value for _ in range(2)]
    assert not np.shares_memory(*values)
    for value in values:
        whole = value
        while whole.base is not None:
            whole = whole.base
        assert whole.nbytes == value.nbytes


# --- threads, prices, guests ------------------------------------------------------------------------------------------


def test_any_number_of_threads_gives_the_same_bits_and_nothing_said_is_a_crash(monkeypatch):
    many = np.random.default_rng(1).uniform(-1, 1, (20_000, 3)).astype(np.float32)
    labels, found = np.sign(many[:, 1]), set()
    for said in ("1", "2", "", "0", "-3", "999999", "9" * 5000, "4,2", " 2", "1e3", "\u00b2", "\u0663"):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert 1 <= threads() <= 256
        found.add(answered(room(many, labels)).tobytes())
    assert len(found) == 1


def test_a_root_at_an_end_is_that_end():
    assert root_of(lambda x: x - 1, 1.0, 3.0) == 1.0 and root_of(lambda x: x - 3, 1.0, 3.0) == 3.0


ODD = [
    np.ones(shape, kind) for kind in ("f4", "f8", ">f8", "f2", "i8", "?", "c8") for shape in ((), (0,), (3, 1), (2,))
]
ODD += [np.full(3, value) for value in (math.nan, math.inf, 1e31)] + [np.ones(3, kind) for kind in (">f8", "f2", "c8")]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{odd.dtype}{odd.shape}{odd.sum()}")
def test_an_odd_array_of_a_guest_is_refused_unpaid(odd, listening):
    private = room()
    served = Served(SimpleNamespace(tick=lambda: None), private)
    full = {"noise": 2.0, "sampling": ["full"]}
    for request in (
        {"ask": "question", "question": "Gradient", "values": [odd, 1.0, None, None, None, None], **full},
        {"ask": "question", "question": "Gradient", "values": [np.ones(3), 1.0, odd, None, None, None], **full},
        {"ask": "question", "question": "Gradient", "values": [np.ones(3), 1.0, None, odd, None, None], **full},
        {"ask": "question", "question": "Choice", "values": [[np.ones(3), odd], 1.0], **full},
        {"ask": "last_iterate", "walk": "Descent", "values": {"start": odd, "steps": 2.0, "step_size": 0.1}},
        {"ask": "change_basis", "matrix": odd},
    ):
        assert "error" in served(request)
    assert private.meter.spent_fraction == 0 and not private.trace and not listening
