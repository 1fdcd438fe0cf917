"""A client as one record: its vector is of its own rows, clipped once, in integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from crowds import CLIENT, a_fit, client_files, on_clients, totals_of
from hypothesis import given
from hypothesis import strategies as st
from ranks import made_up

from noisewise.remote.clients.one_record import OneRecord, Together
from noisewise.remote.clients.server import DirectCarrier
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear
from noisewise.trusted.process import own_settings
from noisewise.trusted.stores.totals import Drawn

MODELS = (Linear(4, Logistic()), Linear(4, Softmax(), 3), Linear(4, Squared()), MLP((4, 3, 1), Logistic()))


def one(model, rows=9, steps=1, rate=1.0, there=True):
    X, y = made_up(rows, 4, classes=3 if model.outputs == 3 else None)
    return Together(X, y, steps, rate, there).held(model, lambda *shape: np.empty(shape[:2], *shape[2:])), X, y


def mean_gradient(model, theta, X, y):
    at = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    rows, labels = torch.tensor(X, dtype=torch.float64), torch.tensor(y)
    scores = rows @ at.view(model.outputs, -1).T if model.linear else model.scored(at, rows)
    value = (
        model.loss.value(scores, labels) if model.outputs > 1 else model.loss.value(scores.flatten(), labels.double())
    )
    (gradient,) = torch.autograd.grad(value.mean(), at)
    return gradient.numpy()


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_its_vector_is_the_mean_gradient_of_its_rows(model):
    record, X, y = one(model)
    theta = np.linspace(-0.5, 0.5, model.dimension)
    total = record.gradients(Drawn(), theta, 50.0)
    assert total.values * total.worth == pytest.approx(
        mean_gradient(model, theta, X, y), abs=2e-4 if model.linear else 2e-3
    )
    short = record.gradients(Drawn(), theta, 1e-3)
    assert (short.values**2).sum() <= short.ones**2
    assert np.linalg.norm(short.values * short.worth) == pytest.approx(1e-3, rel=1e-4)


def test_local_steps_give_the_mean_gradient_on_the_way():
    model, theta, rate = MODELS[0], np.full(4, 0.3), 0.7
    record, X, y = one(model, steps=3, rate=rate)
    at, on_the_way = theta, []
    for _ in range(3):
        on_the_way.append(mean_gradient(model, at, X, y))
        at = at - rate * on_the_way[-1]
    total = record.gradients(Drawn(), theta, 50.0)
    assert total.values * total.worth == pytest.approx(np.mean(on_the_way, 0), abs=2e-4)
    assert total.values * total.worth == pytest.approx((theta - at) / (3 * rate), abs=2e-4)


def test_other_coordinates_short_ones_and_losses():
    model, theta = MODELS[0], np.full(4, 0.1)
    record, X, y = one(model)
    gradient, scale, basis = mean_gradient(model, theta, X, y), np.array([1.0, 2.0, 3.0, 4.0]), np.eye(4)[:, :2]
    scaled = record.vectors(Drawn(), theta, 9.0, scale=scale, basis=None)
    assert scaled.values * scaled.worth == pytest.approx(gradient / scale, abs=2e-4)
    within = record.vectors(Drawn(), theta, 9.0, scale=None, basis=basis)
    assert within.values * within.worth == pytest.approx(gradient[:2], abs=2e-4)
    norm = float(np.linalg.norm(gradient))
    assert [
        int(record.short(Drawn(), theta, norm * by).values[0]) / record.short(Drawn(), theta, 1.0).ones
        for by in (2, 0.5)
    ] == [1, -1]
    losses = record.losses(Drawn(), [theta, theta * 0], 4.0)
    assert losses.values[1] * losses.worth == pytest.approx(np.log(2), abs=1e-6)


def test_statistics_are_of_its_first_row():
    record, X, _ = one(MODELS[0])
    total = record.row_sum(Drawn())
    assert total.values * total.worth == pytest.approx(X[0], abs=1e-3)
    with pytest.raises(ValueError, match="no rows of numbers"):
        record.float_rows()


def test_nobody_and_a_client_without_rows_are_zero():
    model = MODELS[0]
    for record in (one(model, rows=0, there=False)[0], one(model, rows=0)[0], one(model)[0]):
        drawn = Drawn(np.empty(0, np.int64)) if len(record.rows) else Drawn()
        for total in (
            record.gradients(drawn, np.ones(4), 1.0),
            record.short(drawn, np.ones(4), 1.0),
            record.losses(drawn, [np.ones(4)], 1.0),
            record.row_sum(drawn),
        ):
            assert not total.values.any()
    assert [len(one(model, rows=0, there=there)[0]) for there in (False, True)] == [0, 1]


@given(st.lists(st.floats(width=32), min_size=4, max_size=4), st.floats(1e-4, 1e6), st.integers(1, 4))
def test_no_rows_and_no_theta_break_the_bound(theta, clip, steps):
    record = OneRecord(one(MODELS[2])[0].rows, MODELS[2], steps, 1e6)
    with own_settings():  # as a holder asks it
        total = record.gradients(Drawn(), np.array(theta), clip)
    assert sum(int(value) ** 2 for value in total.values) <= total.ones**2


def test_one_client_more_moves_a_sum_by_one_clipped_vector(tmp_path):
    paths = client_files(tmp_path)
    fit = a_fit(tmp_path, "dpsgd")
    for clip in (1e-3, 0.1, 10.0):
        theta = np.full(fit.model.dimension, 0.2)
        every, fewer = (
            totals_of(fit, some, CLIENT, DirectCarrier(some), "gradients", theta, clip)[0]
            for some in (paths, paths[:-1])
        )
        assert sum(int(step) ** 2 for step in every.values - fewer.values) <= every.ones**2


def test_a_client_counts_once_whatever_the_number_of_its_rows(tmp_path):
    paths = client_files(tmp_path)
    fit = a_fit(tmp_path, "dpsgd", size_is_public=False, seed=2)
    few = on_clients(fit, paths, CLIENT)
    for path in paths:  # every row three times: the same means
        head, *rows = path.read_text().splitlines()
        path.write_text("\n".join([head, *rows, *rows, *rows]) + "\n")
    many = on_clients(fit, paths, CLIENT)
    assert few.size == many.size and np.allclose(few.theta, many.theta, atol=1e-5)
