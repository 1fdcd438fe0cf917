"""A record is rebuilt from its gradient without noise, and is not with the noise of a private run."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise import Budget, Curator
from noisewise.accounts import AdditiveMeter
from noisewise.evidence.audit.leakage import closed_form, inferred_label, leakage, released_gradient
from noisewise.tables.generated import digits
from noisewise.tables.rows import Scaling
from noisewise.trusted.losses import Logistic, Softmax, Squared
from noisewise.trusted.models import MLP, Linear

TABLE = digits()
PIXELS = TABLE.X.to_numpy()
SCALING = Scaling(np.zeros(64), np.full(64, 16.0), unit_rows=True)
ROWS = SCALING(PIXELS[:3])
BLIND = PIXELS[3:].mean(axis=0) / 16


def attacked(model, **settings):
    labels = TABLE.y[:3] if model.loss.task == "classes" else 2.0 * (TABLE.y[:3] % 2) - 1
    return leakage(model, model.start(), ROWS, labels, blind=BLIND, **settings)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "softplus"])
def test_a_gradient_without_noise_gives_the_record_away(activation):
    found = attacked(MLP((65, 8, 10), Softmax(), activation), noise_multipliers=(0.0,))
    assert all(one.psnr > 60 and one.similarity > 0.999 and one.label == one.label_guess for one in found.recovered)
    assert found.recovered[0].truth == pytest.approx((PIXELS[0] / 16).tolist(), abs=1e-6)


def test_the_noise_of_a_private_run_hides_it():
    found = attacked(MLP((65, 8, 10), Softmax()), noise_multipliers=(0.001, 1.0), steps=60)
    low, high, blind = found.rows()
    assert low["psnr"] > 35 and low["labels"] == 1.0
    assert high["psnr"] < blind["psnr"] and high["similarity"] < 0.4 < blind["similarity"]
    assert blind["noise_multiplier"] is None and blind["labels"] is None


def test_the_label_can_be_found_with_the_record():
    model = MLP((65, 8, 10), Softmax())
    settings = {"noise_multipliers": (0.0,), "label": "optimise", "steps": 150}
    found = leakage(model, model.start(), ROWS[:1], TABLE.y[:1], **settings)
    assert all(one.psnr > 40 and one.label == one.label_guess for one in found.recovered)


@pytest.mark.parametrize(
    "model",
    [Linear(65, Softmax(), 10), Linear(65, Logistic()), MLP((65, 8, 10), Softmax()), MLP((65, 8, 1), Logistic())],
)
@pytest.mark.parametrize("clip", [1e-3, 10.0])
def test_the_closed_form_is_exact_whatever_the_clip(model, clip):
    found = attacked(model, attack="closed", noise_multipliers=(0.0,), clip=clip)
    assert all(one.error < 1e-9 and one.label == one.label_guess for one in found.recovered)
    noisy = attacked(model, attack="closed", noise_multipliers=(1.0,), clip=clip)
    assert min(one.error for one in noisy.recovered) > 0.01


def test_errors_grow_with_the_noise():
    rows = attacked(Linear(65, Softmax(), 10), attack="closed", noise_multipliers=(0.0, 0.001, 0.01, 0.1, 1.0)).rows()
    errors = [row["error"] for row in rows[:-1]]
    assert errors == sorted(errors)
    assert errors[2] / errors[1] == pytest.approx(100, rel=0.6)  # ten times the noise, a hundred times the square


def test_the_gradient_is_the_one_a_curator_releases():
    model = MLP((65, 8, 10), Softmax())
    row, label = ROWS[0], TABLE.y[0]
    mine = released_gradient(model, model.start(), row, label, clip=0.5, noise_multiplier=0.0, seed=7)
    meter = AdditiveMeter(Budget(1e6, 1e-5), "gdp")
    curator = Curator(row[None], label[None], model=model, meter=meter, size=1, seed=7)
    answer = curator.gradient(model.start(), clip=0.5, noise_multiplier=1e-3)
    np.testing.assert_allclose(mine, answer.value, atol=0.5 * 6e-3)
    assert np.linalg.norm(mine) == pytest.approx(0.5, rel=1e-3)


def test_the_noise_has_the_stated_size():
    model = Linear(65, Softmax(), 10)

    def release(sigma, seed):
        return released_gradient(
            model, model.start(), ROWS[0], np.array(0), clip=0.5, noise_multiplier=sigma, seed=seed
        )

    noise = np.stack([release(3.0, seed) - release(0.0, seed) for seed in range(20)])
    assert noise.std() == pytest.approx(1.5, rel=0.03)


def test_signs_tell_the_label_and_nothing_of_a_regression():
    model = Linear(3, Softmax(), 2)
    assert inferred_label(model, np.array([0.1, 0.2, 0.5, -0.1, -0.2, -0.5])) == 1.0
    assert inferred_label(Linear(3, Logistic()), np.array([0.1, 0.2, -0.5])) == 1.0
    assert inferred_label(Linear(3, Squared()), np.array([0.1, 0.2, -0.5])) == 0.0
    assert closed_form(Linear(3, Logistic()), np.array([-0.6, 0.0, -0.8])) == pytest.approx([0.6, 0.0, 0.8])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attack": "magic"}, "attack is 'magic'"),
        ({"label": "ask"}, "label is 'ask'"),
        ({"noise_multipliers": (-1.0,)}, "noise_multiplier is -1.0"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"label": "optimise"}, "needs the softmax loss"),
    ],
)
def test_bad_settings_are_one_line(settings, message):
    with pytest.raises(ValueError, match=message):
        attacked(Linear(65, Logistic()), **settings)
