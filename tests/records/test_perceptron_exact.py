"""Laws of the exact sums of perceptrons, checked with Python's integers."""

import itertools
import math

import numpy as np
import pytest
import torch

from noisewise.trusted.losses import ClassWeighted, Hinge, HuberHinge, Logistic, Softmax, Squared
from noisewise.trusted.models import MLP
from noisewise.trusted.stores import perceptron, records_of
from noisewise.trusted.stores import perceptron_passes as passes
from noisewise.trusted.stores import perceptron_reference as reference
from noisewise.trusted.stores.perceptron import COUNT
from noisewise.trusted.stores.totals import Drawn

MODELS = [
    MLP((5, 3, 2), Softmax(), "tanh"),
    MLP((5, 4, 3, 1), Hinge(), "relu"),
    MLP((5, 3, 1), Squared(), "softplus"),
    MLP((5, 7, 1), Logistic(), "sigmoid"),
    MLP((5, 1), HuberHinge(), "relu"),
    MLP((5, 8, 3), ClassWeighted(Softmax(), (1.0, 3.0, 0.5)), "relu"),
]
LARGER = MLP((100, 64, 3), Softmax(), "relu")  # whose first product is one of single precision
named = pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.activation}-{model.loss.name}")


def records(model, n, seed=0, hostile=True):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, model.features), np.float32)
    if hostile:
        kinds = rng.integers(12, size=n)
        for kind, value in enumerate([math.nan, math.inf, 1e-40, 1e11, 0.0, 1e30, 1e-20]):
            X[kinds == kind, seed % model.features] = value
        X[kinds == 7] *= 1e9
        X[kinds == 8] = 0.0
    if model.loss.task == "classes":
        y = rng.integers(-hostile, model.outputs + hostile, size=n)
    elif model.loss.task == "binary":
        y = rng.choice([-1.0, 1.0], n)
    else:
        y = rng.normal(size=n) * 1e3
    return X, y


def thetas(model, seed=0):
    usual = model.start() + np.float32(0.3) * np.random.default_rng(seed + 100).standard_normal(
        model.dimension, np.float32
    )
    return {
        "usual": usual,
        "far": usual * 1e6,
        "farther": usual * 1e30,
        "zero": np.zeros(model.dimension),  # every unit of a relu exactly at its kink
        "tiny": usual * 1e-30,
    }


def drawn(rows, expected, indices=None):
    """The records that a question sees, about ``expected`` of them: that public number decides how passes run."""
    return Drawn(np.arange(len(rows)) if indices is None else indices, expected)


def total(rows, theta, clip, expected, indices=None):
    found = rows.gradients(drawn(rows, expected, indices), theta, clip)
    return found.values, found.ones


def short(rows, theta, threshold, expected, indices=None):
    found = rows.short(drawn(rows, expected, indices), theta, threshold)
    return int(found.values[0]), found.ones


def loss(rows, theta, bound, expected):
    found = rows.losses(drawn(rows, expected), [theta], bound)
    return int(found.values[0]), found.ones


def scores(rows, theta, expected, indices=None):
    parts = [part for part, _, _ in rows.scored(drawn(rows, expected, indices), theta)]
    return np.concatenate(parts) if parts else np.zeros(0)


def ask(model, theta, X, y, clip=1.0, expected=16):
    return total(records_of(model, X, y), theta, clip, expected)


def squared(vector):
    return sum(int(entry) ** 2 for entry in vector)


@pytest.mark.sample(12)
@named
@pytest.mark.parametrize("kind", ["usual", "far", "farther", "zero", "tiny"])
def test_a_sum_is_that_of_its_records_alone_and_none_is_longer_than_the_bound(model, kind):
    theta = thetas(model)[kind]
    for seed, clip in enumerate([1.0, 1e-3, 30.0]):
        X, y = records(model, 40, seed)
        alone = [ask(model, theta, X[i : i + 1], y[i : i + 1], clip) for i in range(40)]
        bound = alone[0][1]
        assert all(squared(part) <= bound**2 for part, _ in alone)
        for n in range(41):
            values, same = ask(model, theta, X[:n], y[:n], clip)
            assert same == bound
            assert values.tolist() == [sum(int(part[j]) for part, _ in alone[:n]) for j in range(model.dimension)]


@pytest.mark.parametrize("sizes", [(784, 20, 2), (784, 256, 256, 10)])
@pytest.mark.parametrize("times", [1.0, 1e3])
def test_far_thetas_and_kinks_do_not_let_company_in(sizes, times):
    """Float sums moved by 22 clip norms here: a product of 15 rows rounds differently from one of 16."""
    model = MLP(sizes, Softmax(), "relu")
    X, y = records(model, 34, 1, hostile=False)
    theta = model.start() * times
    alone = np.stack([ask(model, theta, X[i : i + 1], y[i : i + 1], 1.0, 256)[0] for i in range(34)])
    for n in (1, 2, 15, 16, 17, 31, 32, 33, 34):
        assert np.array_equal(ask(model, theta, X[:n], y[:n], 1.0, 256)[0], alone[:n].sum(axis=0))


@pytest.mark.parametrize("model", [*MODELS[:2], LARGER], ids=["tanh", "hinge", "larger"])
def test_one_record_more_less_or_other_moves_a_sum_by_one_bound_or_two(model):
    theta = thetas(model)["usual"]
    for n, expected in itertools.product([1, 15, 16, 17, 31, 33, 64, 65, 511, 512, 513], [16, 1000]):
        X, y = records(model, n + 1, n)
        with_last, bound = ask(model, theta, X, y, 0.5, expected)
        without, _ = ask(model, theta, X[:n], y[:n], 0.5, expected)
        first_gone, _ = ask(model, theta, X[1:], y[1:], 0.5, expected)
        assert squared(with_last - without) <= bound**2
        assert squared(with_last - first_gone) <= bound**2
        assert squared(without - first_gone) <= (2 * bound) ** 2


@pytest.mark.parametrize("model", [MODELS[1], LARGER], ids=["small", "larger"])
def test_order_places_and_threads_do_not_matter(model, monkeypatch):
    X, y = records(model, 130, 3)
    theta, rows = thetas(model)["usual"], records_of(model, X, y)
    chosen = np.arange(0, 130, 2)
    expected, bound = ask(model, theta, X[chosen], y[chosen], 1.0, 40)
    rng, before = np.random.default_rng(0), torch.get_num_threads()
    for threads in (1, 2, 4):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        torch.set_num_threads(threads)
        try:
            mixed = rng.permutation(chosen)
            assert np.array_equal(total(rows, theta, 1.0, 40, mixed)[0], expected)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    moved = np.concatenate([np.zeros(3, np.float32), theta])[3:]  # at another address
    assert np.array_equal(total(rows, moved.astype(np.float64), 1.0, 40, chosen)[0], expected)
    assert squared(expected) > bound  # something was summed


def test_threads_share_a_full_batch_without_changing_it(monkeypatch):
    X, y = records(LARGER, 1100, 4)
    theta = thetas(LARGER)["usual"]
    rows, answers, before = records_of(LARGER, X, y), [], torch.get_num_threads()
    for threads in (1, 2, 4):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        torch.set_num_threads(threads)
        try:
            sums = total(rows, theta, 1.0, 40)[0].tolist(), short(rows, theta, 1.0, 40), loss(rows, theta, 1.0, 40)
            answers.append((*sums, np.nan_to_num(scores(rows, theta, 40), nan=7.0).tolist()))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    assert len(rows) // passes.height_for(40) >= 4 * perceptron.CHUNKS_PER_THREAD
    assert answers[0] == answers[1] == answers[2]


def test_a_thread_that_flushes_tiny_numbers_gives_the_same_sum():
    model = MLP((5, 4, 1), Squared(), "relu")
    X, y = records(model, 30, 1, hostile=False)
    theta = thetas(model)["usual"]
    theta[:20] *= 1e-20
    theta[20:24] = 0.0  # so that hidden units are tiny, and on one side of the kink if they are not flushed
    right = ask(model, theta, 1e-20 * X, y)[0]
    if not torch.set_flush_denormal(True):
        return  # a machine that cannot
    try:
        assert np.array_equal(ask(model, theta, 1e-20 * X, y)[0], right)
        assert passes.SUBNORMAL * passes.HALF == 0  # as before
    finally:
        torch.set_flush_denormal(False)


def numbers(rows):
    """All rows as the passes see them."""
    found = np.empty((len(rows), rows.columns), np.float32)
    perceptron._fill(None, rows._rows, slice(None), found)
    return found


@pytest.mark.parametrize("sizes", [(784, 20, 2), (784, 256, 256, 10)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("clip", [0.1, 8.0])
def test_sums_agree_with_floats_to_less_than_a_hundredth(sizes, activation, clip):
    rng, model = np.random.default_rng(0), MLP(sizes, Softmax(), activation)
    X = np.where(rng.random((256, 784)) < 0.2, rng.random((256, 784)), 0.0)
    y, theta = rng.integers(sizes[-1], size=256), model.start()
    rows = records_of(model, X, y)
    right = model.clipped_sum(theta, model.lay_out(numbers(rows), y), clip)  # as they are on the grid
    values, bound = total(rows, theta, clip, 256)
    found = values * clip / bound
    assert np.linalg.norm(found - right) < 0.006 * np.linalg.norm(right)
    assert abs(1 - found @ right / (right @ right)) < 0.002  # and no bias to speak of


def test_short_gradients_are_not_lost_to_rounding():
    """Gradients of a hundredth of the clip norm that all point one way: a grid that is too coarse would drop them."""
    model = MLP((784, 256, 10), Softmax())
    X = np.tile(np.random.default_rng(0).standard_normal(784, np.float32), (256, 1))
    y, theta = np.zeros(256, np.int64), model.start()
    norm = model.norms(theta, model.lay_out(X[:1], y[:1])).item()
    right = model.clipped_sum(theta, model.lay_out(X, y), math.inf)
    values, bound = ask(model, theta, X, y, 100 * norm, 256)
    found = values * 100 * norm / bound
    assert np.linalg.norm(found - right) < 0.05 * np.linalg.norm(right)


def test_compiled_kernels_give_the_integers_of_the_reference(monkeypatch):
    pytest.importorskip("numba")
    for model, seed in itertools.product([*MODELS, LARGER, MLP((5000, 4, 1), Logistic())], range(3)):
        X, y = records(model, 60, seed)
        for theta in thetas(model, seed).values():
            answers = []
            for choice in ("compiled", "reference"):
                monkeypatch.setenv("NOISEWISE_KERNELS", choice)
                rows = records_of(model, X, y)
                values, bound = total(rows, theta, 0.7, 40)
                kept = rows._rows.squares.tolist(), rows._rows.alive.tolist()
                answers.append([*kept, values.tolist(), bound, short(rows, theta, 2.0, 40)])
            assert answers[0] == answers[1]


def test_compiled_blocks_and_shrunken_records_are_those_of_the_reference():
    pytest.importorskip("numba")
    from noisewise.trusted.fast import perceptron_kernels as kernels

    for name in ("MARGIN", "LIMIT", "MAX_EXACT_INTEGER", "HIGH", "LOW", "WIDE"):
        assert getattr(kernels, name) == getattr(reference, name)
    model, n, clip = MLP((6, 5, 2), Softmax()), 400, 1e-3
    g = np.random.default_rng(0)
    desk = passes.Workspace(model, n)
    desk.inputs.copy_(
        torch.from_numpy(g.standard_normal(len(desk.inputs)) * 10.0 ** g.integers(-3, 3, len(desk.inputs)))
    )
    desk.slopes.copy_(
        torch.from_numpy(g.standard_normal(len(desk.slopes)) * 10.0 ** g.integers(-3, 3, len(desk.slopes)))
    )
    views, bound = desk.views(n), 1 << 23
    a, b = [part.numpy() for part in views.inputs], [part.numpy() for part in views.slopes]
    alive, biases, norms, blocks = np.arange(n) % 7 > 0, np.zeros(7, np.int64), np.zeros(n), np.zeros((2, n), np.int64)
    first = reference.squared_lengths(a[0]) * np.where(
        np.arange(n) % 2, 1.0, 0.9
    )  # some are told too short: to be shrunk
    right = reference.whole_parts(a, b, first, alive, clip, bound)
    kernels.whole_parts(n, *desk.arrays, first, alive, clip, bound, biases, norms, blocks)
    for found, wanted in zip((*views.inputs, *views.slopes), (*right[0], *right[1]), strict=True):
        assert np.array_equal(found.numpy().astype(np.int64), wanted)
    assert np.array_equal(biases, right[2])
    assert np.array_equal(norms, right[3])
    assert np.array_equal(blocks, right[4])
    assert right[4].sum() > 20
    for i in range(n):  # in Python's integers; the bias of one record is not kept, so the weights only
        assert sum(squared(x[i]) * squared(s[i]) for x, s in zip(right[0], right[1], strict=True)) <= bound**2


def test_products_are_exact_whatever_the_blocks(monkeypatch):
    X, y = records(LARGER, 600, 1)
    theta = thetas(LARGER)["usual"]
    assert perceptron.MAX_DOUBLE_ENTRIES < 100 * 64
    answers = []
    for blocks, hold in [(6, True), (1000, True), (0, True), (6, False)]:
        monkeypatch.setattr(perceptron, "MAX_BLOCKS", blocks)
        monkeypatch.setattr(passes, "whole_products_hold", lambda *_, hold=hold: hold)
        answers.append(ask(LARGER, theta, X, y, 0.1, 600)[0])
    assert all(np.array_equal(answers[0], answer) for answer in answers[1:])


def without_float_passes(monkeypatch):
    plain = passes.steady
    monkeypatch.setattr(passes, "steady", lambda *key: key[3] and plain(*key))


@pytest.mark.parametrize("model", [*MODELS, LARGER], ids=lambda model: f"{model.activation}-{model.loss.name}")
def test_passes_in_whole_numbers_are_lawful_and_close(model, monkeypatch):
    X, y = records(model, 40, 5)
    clean = records(model, 40, 6, hostile=False)
    theta = thetas(model)["usual"]
    floats, bound = ask(model, theta, *clean)
    already = passes.way(
        model, passes.height_for(16)
    )  # on some processors float passes are not steady for small models
    without_float_passes(monkeypatch)
    assert passes.way(model, 32)
    whole, _ = ask(model, theta, *clean)
    assert np.array_equal(whole, floats) == already
    assert squared(whole - floats) < (0.02 * bound * 40) ** 2
    for where in thetas(model).values():
        alone = [ask(model, where, X[i : i + 1], y[i : i + 1])[0] for i in range(40)]
        assert all(squared(part) <= bound**2 for part in alone)
        for n in (1, 15, 16, 17, 39, 40):
            assert np.array_equal(ask(model, where, X[:n], y[:n])[0], np.sum(alone[:n], axis=0))


def test_products_that_are_told_to_be_quick_are_not_used(monkeypatch):
    monkeypatch.setattr(passes, "usual_precision", lambda: False)
    assert passes.way(MODELS[0], 32)


def test_a_machine_on_which_company_matters_is_refused(monkeypatch):
    monkeypatch.setattr(passes, "steady", lambda *_: False)
    with pytest.raises(RuntimeError, match="linear model"):
        ask(MODELS[0], MODELS[0].start(), *records(MODELS[0], 3))


def test_a_height_that_fails_is_not_used(monkeypatch):
    model, plain = MODELS[0], passes.steady
    X, y = records(model, 20)
    right, _ = ask(model, model.start(), X, y, expected=100)
    tried = []
    monkeypatch.setattr(passes, "steady", lambda *key: tried.append(key[2]) or (key[2] not in (32, 48) and plain(*key)))
    assert passes.height_for_rows(model, 20, 144, False) == 64
    assert np.array_equal(ask(model, model.start(), X, y, expected=100)[0], right)
    assert {32, 48, 64} <= set(tried)


@pytest.mark.parametrize("fault", ["place", "company", "height", "tail"])
def test_the_self_test_notices_a_record_that_depends_on_its_company(fault, monkeypatch):
    model, plain = MLP((5, 3, 2), Softmax()), passes._float_product
    assert passes.steady.__wrapped__(model, 48, 32, False)

    def faulty(rows, layer, into):
        plain(rows, layer, into)
        if fault == "place":
            into[-1] *= 1 + 2.0**-22
        elif fault == "company":
            into += 1e-5 * rows[0].nan_to_num(0, 0, 0).clamp(-1, 1).sum()
        elif fault == "height" and len(rows) == 32:
            into *= 1 + 2.0**-22
        elif fault == "tail":
            into[5] = (rows[5].double() @ layer[1].double()).float()

    monkeypatch.setattr(passes, "_float_product", faulty)
    assert not passes.steady.__wrapped__(model, 48, 32, False)


def test_the_self_test_notices_products_that_round(monkeypatch):
    assert passes.whole_products_hold.__wrapped__((30, 20, 2), 64)
    plain = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: plain(a.bfloat16(), b.bfloat16()).to(a.dtype) if a.dtype == torch.float32 else plain(a, b))  # fmt: skip
    assert not passes.whole_products_hold.__wrapped__((30, 20, 2), 64)


@named
def test_counts_losses_and_scores_are_those_of_each_record_alone(model):
    X, y = records(model, 50, 2)
    rows, single = records_of(model, X, y), [records_of(model, X[i : i + 1], y[i : i + 1]) for i in range(50)]
    for theta in thetas(model).values():
        shorts = [short(row, theta, 1.0, 16)[0] for row in single]
        losses = [loss(row, theta, 2.0, 16)[0] for row in single]
        assert all(-COUNT <= one <= COUNT for one in shorts)
        assert all(0 <= one <= COUNT for one in losses)
        assert short(rows, theta, 1.0, 16, np.arange(3, 50, 2)) == (sum(shorts[3::2]), COUNT)
        assert short(rows, theta, 1.0, 16) == (sum(shorts), COUNT)
        assert loss(rows, theta, 2.0, 16) == (sum(losses), COUNT)
        alone = np.concatenate([scores(row, theta, 16) for row in single])
        assert np.array_equal(scores(rows, theta, 16), alone, equal_nan=True)


def test_counts_and_losses_agree_with_floats():
    model = MODELS[0]
    X, y = records(model, 200, 1, hostile=False)
    theta, batch, rows = thetas(model)["usual"], model.lay_out(X, y), records_of(model, X, y)
    norms = model.norms(theta, batch)
    median = float(np.median(norms))
    ramp = ((median - norms) / (0.2 * median)).clip(-0.5, 0.5).sum()
    count, unit = short(rows, theta, median, 200)
    assert count / (2 * unit) == pytest.approx(ramp, abs=0.5)
    lost, unit = loss(rows, theta, 0.9, 200)
    assert lost / unit * 0.9 == pytest.approx(model.losses(theta, batch).clip(max=0.9).sum(), rel=1e-4)
    assert np.allclose(scores(rows, theta, 200), model.scores(theta, numbers(rows)), atol=1e-5)


def test_records_that_cannot_be_used_count_as_nothing_short_or_long():
    model = MODELS[0]
    X = np.array([[math.nan] * 5, [math.inf] * 5, [1e13] * 5, [1.0] * 5, [1.0] * 5])
    rows, theta = records_of(model, X, np.array([0, 1, 0, 2, -1])), model.start()
    assert not rows._rows.alive.any()
    assert not rows._rows.X.any()
    assert not total(rows, theta, 1.0, 16)[0].any()
    assert short(rows, theta, 1.0, 16)[0] == -5 * COUNT
    assert loss(rows, theta, 1.0, 16)[0] == 5 * COUNT
    assert np.isnan(scores(rows, theta, 16)).all()
    X[:] = 1.0
    assert not rows._rows.X.any() and not rows._rows.reach.any()  # a copy


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan, 1e-30])
def test_a_clip_norm_without_a_grid_is_refused(clip):
    with pytest.raises(ValueError, match="pass a number between"):
        ask(MODELS[0], MODELS[0].start(), *records(MODELS[0], 3), clip)


def test_rows_come_from_a_source_and_an_empty_batch_is_zero():
    X, y = records(MODELS[0], 30)
    rows = records_of(MODELS[0], lambda start, length: X[start : start + length].astype(np.float64), y)
    assert np.array_equal(numbers(rows), numbers(records_of(MODELS[0], X, y)))
    none = np.zeros(0, np.int64)
    assert not total(rows, MODELS[0].start(), 1.0, 16, none)[0].any()
    assert len(scores(rows, MODELS[0].start(), 16, none)) == 0
