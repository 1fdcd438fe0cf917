"""A model gives classes back; a class of one is given back without privacy and kept with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisewise import PrivateClassifier, PrivateRegressor
from noisewise.evidence.audit.inversion import class_means, inversion, scaled_inputs, with_a_class_of_one
from noisewise.methods.nonprivate import NonPrivate
from noisewise.tables.generated import digits
from noisewise.tables.rows import Scaling

TABLE = digits()
PIXELS, LABELS = TABLE.X.to_numpy(), TABLE.y
PERSON = PIXELS[5]
X, Y = with_a_class_of_one(np.delete(PIXELS, 5, axis=0)[:900], np.delete(LABELS, 5)[:900], PERSON, 10)


def fitted(**settings):
    return PrivateClassifier(bounds=(0, 16), model=(12,), random_state=0, **settings).fit(X, Y)


@pytest.fixture(scope="module")
def models():
    return fitted(method=NonPrivate(l2=1e-4)), fitted(epsilon=1.0, delta=1e-5)


def test_a_class_of_one_is_given_back_only_without_privacy(models):
    plain, private = (inversion(model, compare=(X, Y), shape=(8, 8)) for model in models)
    assert plain.of(10).similarity > 0.5 and private.of(10).similarity < 0.35
    assert [one.label for one in plain.inputs] == list(range(11))


def test_a_class_of_many_is_given_back_by_both(models):
    for model in models:
        found = inversion(model, labels=[0], compare=(X, Y), shape=(8, 8))
        assert found.of(0).similarity > 0.25 and found.similarity == found.of(0).similarity


def test_what_is_found_is_what_the_model_believes(models):
    found = inversion(models[0], labels=[0, 3], steps=100)
    rows = np.array([one.row for one in found.inputs])
    assert ((rows >= 0) & (rows <= 16)).all() and found.similarity is None
    own = models[0].predict_proba(rows)[[0, 1], [0, 3]]
    assert [one.probability for one in found.inputs] == pytest.approx(own.tolist(), abs=1e-6)
    assert (own > 0.8).all()
    assert (own > models[0].predict_proba(np.zeros((2, 64)))[[0, 1], [0, 3]]).all()


def test_two_classes_with_one_score_are_inverted_too():
    names = np.where(LABELS == 0, "zero", "other")
    model = PrivateClassifier(bounds=(0, 16), method="nonprivate").fit(PIXELS, names)
    found = inversion(model, compare=(PIXELS, names), steps=100)
    assert found.of("zero").probability > 0.9 and found.of("other").probability > 0.9
    assert found.of("zero").similarity > 0.3
    assert found.to_dict()["classes"][1]["label"] == "zero"


@pytest.mark.parametrize("unit", [True, False])
def test_scaling_with_a_graph_is_the_estimators(unit):
    scaling = Scaling(np.array([0.0, -2.0, 1.0]), np.array([4.0, 2.0, 3.0]), unit)
    shares = np.random.default_rng(0).random((5, 3))
    rows = scaling.low + shares * (scaling.high - scaling.low)
    assert scaled_inputs(scaling, torch.from_numpy(shares)).numpy() == pytest.approx(scaling(rows))


def test_class_means():
    assert class_means([[1.0], [3.0], [5.0]], [0, 0, 1]) == {0: [2.0], 1: [5.0]}


def test_bad_input_is_one_line(models):
    with pytest.raises(ValueError, match="labels has 77; pass classes of the model"):
        inversion(models[0], labels=[77])
    with pytest.raises(ValueError, match="rows have 64 columns"):
        inversion(models[0], shape=(7, 8))
    with pytest.raises(ValueError, match="pass a fitted PrivateClassifier"):
        inversion(PrivateRegressor())
    with pytest.raises(ValueError, match="in y already"):
        with_a_class_of_one(PIXELS, LABELS, PERSON, 3)
    with pytest.raises(ValueError, match="label is 99; pass one of 0"):
        inversion(models[0], labels=[0], steps=1).of(99)
