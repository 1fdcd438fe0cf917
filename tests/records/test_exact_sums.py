"""The compiled kernels give the bits of the reference, and both keep the laws that privacy rests on, in integers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest

from noisewise.trusted import elementwise as plain
from noisewise.trusted.fast.kernels import VARIABLE
from noisewise.trusted.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.models import Linear
from noisewise.trusted.stores import grid, linear
from noisewise.trusted.stores.grid import BOUND
from noisewise.trusted.stores.linear import FINE, LinearRecords
from noisewise.trusted.stores.totals import Drawn, clipped

pytest.importorskip("numba")
compiled = import_module("noisewise.trusted.fast.rows_compiled")

LOSSES = {
    "logistic": (Logistic(), 1), "hinge": (Hinge(), 1), "huber": (HuberHinge(), 1), "narrow": (HuberHinge(1e-3), 1),
    "squared": (Squared(), 1), "weighted": (ClassWeighted(Logistic(), (0.3, 2.0)), 1),
    "softmax": (Softmax(), 7), "weighted softmax": (ClassWeighted(Softmax(), tuple(range(1, 8))), 7),
    "two classes": (Softmax(), 2), "heavy": (ClassWeighted(Softmax(), (1e12, 0.0)), 2),
}  # fmt: skip
SHAPES = ((300, 17), (33, 123), (5, 300), (1, 1), (0, 4))


def using(monkeypatch, which):
    monkeypatch.setenv(VARIABLE, which)


def data(n, d, outputs, seed=0, hostile=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = rng.integers(0, outputs, n) if outputs > 1 else np.sign(rng.normal(size=n))
    if hostile and n > 20:
        X[3], X[4], X[5], X[6], X[7] = math.nan, 1e-40, 1e11, 1e30, 0.0
        X[8, 0], X[9] = math.inf, 0.0
        X[9, -1] = 1e12
        X[10] = 1e-5
        X[10, 0] = 3e7
        if outputs == 1:
            y[11], y[12], y[13] = math.nan, 3e38, -math.inf
        else:
            y[11], y[12] = -1, outputs
    return X, y


def laid_out(X, y, outputs):
    return grid.lay_out(X, y, columns=X.shape[1], classes=outputs if outputs > 1 else None)


def records_for(loss, outputs, n, d, seed=0, hostile=True):
    X, y = data(n, d, outputs, seed, hostile)
    return LinearRecords(laid_out(X, y, outputs), loss, outputs)


def thetas(dimension, seed=1):
    theta = np.random.default_rng(seed).normal(size=dimension)
    spike = np.full(dimension, 1e-9)
    spike[0] = 1e29
    return [0 * theta, 0.1 * theta, 10 * theta, 1e20 * theta, 1e-161 * theta, 5e-324 * np.sign(theta), spike]


@pytest.mark.parametrize("shape", [*SHAPES, (70000, 2)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_rows_are_laid_out_alike(monkeypatch, shape, outputs):
    X, y = data(*shape, outputs)
    found = []
    for which in ("reference", "compiled"):
        using(monkeypatch, which)
        rows = laid_out(X, y, outputs)
        found.append((rows, grid.in_new_basis(rows, 1e3 * np.random.default_rng(2).normal(size=(shape[1], shape[1])))))
    for first, second in zip(*found, strict=True):
        for name in ("X", "reach", "squares", "most", "y", "alive"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_alike_for_any_kernel_and_number_of_threads(monkeypatch, name, shape):
    loss, outputs = LOSSES[name]
    records, n = records_for(loss, outputs, *shape), shape[0]
    chosen = np.sort(np.random.default_rng(3).choice(n, n // 2, replace=False)) if n else None
    for theta in thetas(shape[1] * outputs):
        for clip in (1e-4, 0.7, 1e12):
            for rows in (None, chosen):
                using(monkeypatch, "reference")
                expected = records.gradients(Drawn(rows), theta, clip).values
                using(monkeypatch, "compiled")
                assert np.array_equal(records.gradients(Drawn(rows), theta, clip).values, expected)
                with monkeypatch.context() as many:
                    many.setattr(linear, "MIN_PARALLEL_ENTRIES", 1)
                    for threads in "24":
                        many.setenv("OMP_NUM_THREADS", threads)
                        assert np.array_equal(records.gradients(Drawn(rows), theta, clip).values, expected)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kernels", ["reference", "compiled"])
def test_a_record_adds_its_own_part_of_norm_at_most_the_bound(monkeypatch, name, kernels):
    """In Python's integers: each part is short, and the total of any batch in any order is the sum of the parts."""
    using(monkeypatch, kernels)
    loss, outputs = LOSSES[name]
    records = records_for(loss, outputs, 40, 19)
    for theta in thetas(19 * outputs):
        for clip in (1e-4, 0.7, 1e12):
            parts = [records.gradients(Drawn(np.array([i])), theta, clip).values for i in range(40)]
            for part in parts:
                assert sum(int(entry) ** 2 for entry in part) <= BOUND**2
            exact = [sum(int(part[j]) for part in parts) for j in range(19 * outputs)]
            assert records.gradients(Drawn(), theta, clip).values.tolist() == exact
            shuffled = np.random.default_rng(4).permutation(40)
            assert records.gradients(Drawn(shuffled), theta, clip).values.tolist() == exact


@pytest.mark.parametrize("name", ["logistic", "squared", "softmax", "heavy"])
@pytest.mark.parametrize("seen", ["scale", "basis"])
def test_parts_in_other_coordinates_are_short_and_add_up(name, seen):
    loss, outputs = LOSSES[name]
    records, d = records_for(loss, outputs, 40, 19), 19 * outputs
    rng = np.random.default_rng(5)
    options = {"scale": None, "basis": None}
    options[seen] = 10 ** rng.uniform(-6, 6, d) if seen == "scale" else np.linalg.qr(rng.normal(size=(d, 5)))[0]
    for theta in thetas(d):
        for clip in (1e-4, 0.7, 1e12):
            parts = [records.vectors(Drawn(np.array([i])), theta, clip, **options).values for i in range(40)]
            assert all(sum(int(entry) ** 2 for entry in part) <= FINE**2 for part in parts)
            exact = [sum(int(part[j]) for part in parts) for j in range(len(parts[0]))]
            assert records.vectors(Drawn(), theta, clip, **options).values.tolist() == exact
            counts = [int(records.short(Drawn(np.array([i])), theta, clip, **options).values[0]) for i in range(40)]
            assert all(abs(count) <= FINE for count in counts)
            assert int(records.short(Drawn(), theta, clip, **options).values[0]) == sum(counts)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_norms_are_bounded_and_add_up(name):
    loss, outputs = LOSSES[name]
    records = records_for(loss, outputs, 40, 19)
    for theta in thetas(19 * outputs):
        for bound in (1e-4, 1.0, 1e12):
            parts = [int(records.losses(Drawn(np.array([i])), [theta], bound).values[0]) for i in range(40)]
            assert all(0 <= part <= FINE for part in parts)
            assert int(records.losses(Drawn(), [theta], bound).values[0]) == sum(parts)
            counts = [int(records.short(Drawn(np.array([i])), theta, bound).values[0]) for i in range(40)]
            assert all(abs(count) <= FINE for count in counts)
            assert int(records.short(Drawn(), theta, bound).values[0]) == sum(counts)


@pytest.mark.parametrize("name", ["logistic", "huber", "squared", "weighted", "softmax", "weighted softmax"])
def test_sums_agree_with_single_precision(name):
    loss, outputs = LOSSES[name]
    X, y = data(500, 17, outputs, hostile=False)
    model, theta = Linear(17, loss, outputs), np.random.default_rng(6).normal(size=17 * outputs) * 0.1
    floats = model.clipped_sum(theta, model.lay_out(X, y), 0.7)
    total = LinearRecords(laid_out(X, y, outputs), loss, outputs).gradients(Drawn(), theta, 0.7)
    assert np.linalg.norm(floats - total.values * total.worth) <= 1e-3 * np.linalg.norm(floats)


def test_tiny_thetas_count_as_zero(monkeypatch):
    """Squares of such numbers vanish, so a grid made from them would be wrong: they are flushed first."""
    d = 4000
    theta = np.full(d, 1.5e-162)
    theta[0] = 2e-162
    records = records_for(Logistic(), 1, 3, d, hostile=False)
    assert not records.scores(slice(None), theta).any()
    for kernels in ("reference", "compiled"):
        monkeypatch.setenv("NOISEWISE_KERNELS", kernels)
        at_zero = records.gradients(Drawn(), np.zeros(d), 0.5).values
        assert np.array_equal(records.gradients(Drawn(), theta, 0.5).values, at_zero)


def test_a_vector_that_is_not_finite_counts_as_zero():
    vectors = np.array([[math.nan, 1.0], [math.inf, 1.0], [3.0, 4.0], [-math.inf, math.nan]])
    with np.errstate(all="ignore"):
        whole = clipped(vectors, plain.lengths(vectors), 1.0, FINE)
    assert np.abs(whole).max() < FINE and all(sum(int(e) ** 2 for e in row) <= FINE**2 for row in whole)


def test_weights_beyond_all_reason_are_refused():
    for weight in (math.inf, math.nan, -1.0, 1e300):
        with pytest.raises(ValueError, match="weights"):
            ClassWeighted(Logistic(), (1.0, weight))


@pytest.mark.parametrize("name", ["exp", "log"])
def test_plain_functions_are_alike_entry_by_entry(monkeypatch, name):
    rng = np.random.default_rng(8)
    x = -(10 ** rng.uniform(-300, 4, 5000)) if name == "exp" else 10 ** rng.uniform(-300, 300, 5000)
    x = np.append(x, [-0.0, -1e300, -700.0, -math.inf] if name == "exp" else [1.0, 0.5, 2.0, math.nextafter(1, 0)])
    function = getattr(plain, name)
    using(monkeypatch, "reference")
    expected = function(x)
    assert np.array_equal(expected, np.concatenate([function(x[i : i + 1]) for i in range(len(x))]))
    using(monkeypatch, "compiled")
    assert np.array_equal(function(x), expected)
    with np.errstate(all="ignore"):
        assert np.allclose(
            expected, getattr(np, name)(np.maximum(x, -700) if name == "exp" else x), rtol=1e-10, atol=1e-12
        )


@dataclass(frozen=True)
class Foreign:
    """The logistic loss without a kernel."""

    name: ClassVar[str] = "foreign"
    task: ClassVar[str] = "binary"
    kernel: ClassVar[int | None] = None
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    def row_slope(self, z, y):
        return Logistic().row_slope(z, y)

    def row_value(self, z, y):
        return Logistic().row_value(z, y)


@dataclass(frozen=True)
class Broken(Foreign):
    """A loss that is not finite where a score is positive."""

    value: float = math.nan

    def row_slope(self, z, y):
        return np.where(z > 0, self.value, 1.0)

    row_value = row_slope


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("outputs", [1, 3])
def test_a_loss_that_is_not_finite_moves_nothing_by_more_than_the_bound(value, outputs):
    records, theta = records_for(Broken(value), outputs, 40, 19), np.random.default_rng(10).normal(size=19 * outputs)
    with np.errstate(all="ignore"):
        for i in range(40):
            drawn = Drawn(np.array([i]))
            part = records.gradients(drawn, theta, 0.5).values
            assert sum(int(entry) ** 2 for entry in part) <= BOUND**2
            part = records.vectors(drawn, theta, 0.5, scale=np.ones(19 * outputs), basis=None).values
            assert sum(int(entry) ** 2 for entry in part) <= FINE**2
            assert abs(int(records.short(drawn, theta, 0.5).values[0])) <= FINE
            if outputs == 1:
                assert 0 <= int(records.losses(drawn, [theta], 0.5).values[0]) <= FINE


def test_a_loss_without_a_kernel_goes_through_the_reference(monkeypatch):
    using(monkeypatch, "compiled")
    theta = np.random.default_rng(9).normal(size=17)
    own, foreign = (records_for(loss, 1, 300, 17).gradients(Drawn(), theta, 0.5) for loss in (Logistic(), Foreign()))
    assert np.array_equal(own.values, foreign.values)


FIT = """
import os, sys
import numpy as np, noisewise as nw
nw.PrivateClassifier
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (300, 4)); y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)

def fit(which):
    os.environ["NOISEWISE_KERNELS"] = which
    for model in ("linear", (5,)):
        for target in (y, np.minimum(y, 1)):
            fitted = nw.PrivateClassifier(3.0, 1e-5, bounds=(-1, 1), classes=np.unique(target).tolist(), method="dpsgd",
                                          random_state=3, model=model).fit(X, target)
            print(fitted.fitted_.theta.astype(float).tobytes().hex())
    kernels = [name for name in sys.modules if name.startswith("noisewise.") and name.endswith(("compiled", "kernels"))]
    print(which, *sorted(set(kernels) - {"noisewise.trusted.fast.kernels"}), flush=True)

assert "numba" not in sys.modules
for which in ("reference", "compiled"):
    if (child := os.fork()) == 0:  # each as a process begins, but for imports that take long
        try:
            fit(which)
        except BaseException as error:
            print(repr(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_seeded_run_is_the_same_with_either_arithmetic():
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, timeout=300)
    *reference, which = done.stdout.splitlines()[:5]
    *compiled, other = done.stdout.splitlines()[5:]
    assert which == "reference" and other.startswith("compiled noisewise."), done.stdout + done.stderr
    assert len(reference) == 4 and reference == compiled


@pytest.mark.parametrize("columns", [1, 3, 40])
def test_chunks_of_unit_rows_are_so_short_that_sums_of_their_squares_are_exact(columns):
    """2^18 squares of 36 bits have 54, one more than a double: a sum of longer chunks would depend on their order."""
    n = 1 << 18
    X = np.repeat(np.linspace(0.5, 1.0, n)[:, None] / columns**0.5, columns, axis=1)
    rows = grid.lay_out(X, np.ones(n), columns=columns, classes=None)
    chunks = [chunk for chunk, _, _ in LinearRecords(rows, Logistic()).unit_rows(Drawn())]
    assert sum(map(len, chunks)) == n
    assert max(map(len, chunks)) * linear.ROW**2 <= 2**53
    assert max(map(len, chunks)) * linear.ROW * linear.LABEL <= 2**53
