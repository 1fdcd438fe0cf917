"""Smoothing of effects: straight curves stay, rough ones lose, noise is followed through, the choice is paid."""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from noisewise.methods.additive import AdditiveDescent
from noisewise.methods.preparation.smooth import MIN_CLARITY, SMOOTHINGS, Smoothing, choice_share, smoothed, straight
from noisewise.trusted.events import BoundedRange, leaves
from noisewise.trusted.features import Codes, Hats, Product, even

SCALE = ((0.0, 1.0, 10.0), (0.0, 0.6, 1.0))
FINE, COARSE, CODES = Hats(0, *SCALE, 24), Hats(0, *SCALE, 8), Codes(1, (0, 1, 2))
SIDE = Hats(0, *SCALE, 3)
FEATURES = even((FINE, COARSE, CODES, Product(SIDE, CODES)))
SHARES = np.full(FEATURES.width - 1, 0.04)


def curve(effects):
    """The effect at the fine knots."""
    fine, coarse = effects[:, FEATURES.spans[0]][:, :24], effects[:, FEATURES.spans[1]][:, :8]
    at = np.linspace(0, 1, 24)
    return fine + np.stack([np.interp(at, np.linspace(0, 1, 8), row) for row in coarse])


def drawn(seed=0, outputs=2):
    return np.random.default_rng(seed).normal(size=(outputs, FEATURES.width - 1))


def smooth(effects, keep, pairs=1.0, variance=None):
    return smoothed(
        FEATURES, effects, np.ones_like(effects) if variance is None else variance, SHARES, Smoothing(keep, pairs)
    )


def test_the_first_smoothing_changes_nothing():
    effects = drawn()
    changed, variance = smoothed(FEATURES, effects, np.ones_like(effects), SHARES, SMOOTHINGS[0])
    assert np.array_equal(changed, effects) and np.array_equal(variance, np.ones_like(effects))


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("line", [lambda at, value: 3 + 2 * value, lambda at, value: at - 1])
def test_a_straight_effect_stays(keep, line):
    effects = np.zeros((1, FEATURES.width - 1))
    effects[0, :24] = line(np.linspace(0, 1, 24), FINE.knot_values())
    assert curve(smooth(effects, keep)[0]) == pytest.approx(curve(effects), abs=1e-9)


def test_a_rough_effect_loses_what_is_not_straight():
    effects = drawn()
    line = curve(effects) @ straight(FINE, SHARES[:24]).T
    assert curve(smooth(effects, 0.3)[0]) == pytest.approx(line + 0.3 * (curve(effects) - line))


def test_inputs_missing_values_and_categories_are_left_alone():
    effects = drawn()
    before = effects.copy()
    changed = smooth(effects, 0.0)[0]
    assert np.array_equal(effects, before)
    assert np.array_equal(changed[:, 24], effects[:, 24])  # missing
    assert np.array_equal(changed[:, FEATURES.spans[2]], effects[:, FEATURES.spans[2]])


def test_pairs_are_multiplied_and_so_is_their_noise():
    changed, variance = smooth(drawn(), 1.0, 0.5)
    span = FEATURES.spans[3]
    assert np.array_equal(changed[:, span], drawn()[:, span] / 2) and (variance[:, span] == 0.25).all()


def test_variance_is_that_of_many_smoothed_draws():
    draws = drawn(outputs=4000)
    changed, variance = smooth(draws, 0.3)
    assert changed[:, :24].var(0) == pytest.approx(variance[0, :24], rel=0.15)
    assert (variance[:, FEATURES.spans[1]][:, :8] == 0).all()


def test_nothing_is_chosen_where_n_mu_is_small():
    assert choice_share(MIN_CLARITY - 1) == 0 < choice_share(MIN_CLARITY)


def noisy_line(n=12_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 6))
    return X, np.clip(X @ [0.5, -0.4, 0.3, 0.2, 0, 0] + rng.normal(0, 0.6, n), -3, 3)


def fitted(smooth, seed):
    face = nw.PrivateRegressor(
        2.0, 1e-5, method=AdditiveDescent(smooth=smooth), bounds=(-1, 1), target_bounds=(-3, 3), random_state=seed
    )
    return face.fit(*noisy_line())


def test_smoothing_is_paid_for_and_pays_where_effects_are_weak():
    T, t = noisy_line(6000, seed=9)
    with_it, without = ([fitted(smooth, seed) for seed in range(3)] for smooth in (None, False))
    assert np.mean([f.score(T, t) for f in with_it]) > np.mean([f.score(T, t) for f in without]) + 0.005
    events = leaves([line.event for line in with_it[0].trace_])
    assert sum(isinstance(event, BoundedRange) for event in events) == 1
    assert 0.99 < with_it[0].trace_[-1].spent <= 1
    assert not any(isinstance(event, BoundedRange) for event in leaves([line.event for line in without[0].trace_]))


def test_a_classifier_chooses_none_unless_asked():
    X, y = noisy_line()
    face = nw.PrivateClassifier(2.0, 1e-5, method="additive", bounds=(-1, 1), random_state=0).fit(X, y > 0)
    assert "choose" not in {line.question for line in face.trace_}
    face = nw.PrivateClassifier(
        2.0, 1e-5, method=AdditiveDescent(smooth=True), bounds=(-1, 1), random_state=0, adjacency="replace_one"
    ).fit(X, y > 0)
    assert face.trace_[-1].question == "choose" and 0.99 < face.trace_[-1].spent <= 1
