"""The online method in place of another: the same model, loss and budget, from where the other would have been."""

from __future__ import annotations

import pytest

import noisewise as nw
from noisewise.methods.descent import DeflatedDescent
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.nonprivate import NonPrivate
from noisewise.methods.online import OnlineDescent
from noisewise.tables.generated import census
from noisewise.tune.searches import online

TABLE = census(400)


def ready(method, **face):
    return nw.PrivateClassifier(1.0, 1e-6, method=method, schema=TABLE.schema, **face).ready(TABLE.X, TABLE.y)


def test_it_starts_where_the_method_would_have_been():
    before = ready(DeflatedDescent(steps=30, learning_rate=0.001, max_grad_norm=100.0, l2=0.01))
    after, words = online(before)
    assert after.method == OnlineDescent(steps=30, learning_rate=0.001, max_grad_norm=100.0, l2=0.01)
    assert (after.model, after.budget, after.labels, after.scaling) == (
        before.model,
        before.budget,
        before.labels,
        before.scaling,
    )
    assert after.settings["method"] == "online" and "released" in words


def test_steps_on_batches_are_not_steps_on_all_records():
    assert online(ready(DpSgd(steps=900, sampling=("poisson", 0.01))))[0].method.steps is None
    assert online(ready(DpSgd(steps=90)))[0].method.steps == 90
    mine = OnlineDescent(target_quantile=0.3)
    assert online(ready(mine))[0].method == mine


def test_it_runs_and_its_statement_names_it():
    made = ready(DeflatedDescent(steps=6), random_state=0)
    fitted = online(made)[0].run()
    assert fitted.statement.data["method"]["name"] == "online" and fitted.settings["method"] == "online"
    fit, _ = online(ready("auto", model="linear"))
    assert "chosen_by" not in fit.settings


def test_what_it_cannot_take_the_place_of_is_refused():
    with pytest.raises(ValueError, match="pass method='descent'"):
        online(ready("additive"))
    with pytest.raises(ValueError, match="pass a private method"):
        online(ready(NonPrivate()))
