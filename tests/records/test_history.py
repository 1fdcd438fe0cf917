"""A place that lost its rows holds the same again after it heard what the one before it was told."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ranks import made_up

from noisewise.remote.holder import History, Holder, Holding, Request
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear
from noisewise.trusted.stores.totals import Drawn


def test_a_place_that_heard_the_history_answers_with_the_same_bits():
    X, y = made_up(30, 4)

    def made(*_):
        return Holding((0,), (30,), X, y)

    first, second, history = Holder({"rows": made}), Holder({"rows": made}), History()
    turn = np.linalg.qr(np.arange(16.0).reshape(4, 4) + np.eye(4))[0]
    told = [
        Request(1, "make", ("rows",)),
        Request(2, "hold", (1, Linear(4, Logistic()))),
        Request(3, "change", (1, 2, "in_basis", (turn,))),
        Request(4, "total", (2, "row_sum", Drawn(), (), {})),
        Request(5, "forget", ((1,),)),
    ]
    for request in told:
        assert first.reply(request).trouble is None
        history.note(request)
    for request in history.needed():
        assert second.reply(request).trouble is None
    assert sorted(second._held) == [2]
    question = Request(6, "total", (2, "gradients", Drawn(), (np.ones(4), 1.0), {}))
    assert np.array_equal(first.reply(question).value.values, second.reply(question).value.values)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=25))
def test_the_same_versions_are_held_and_no_others(steps):
    """Whatever is held, changed and forgotten: after the history, just what is still in use is held."""
    history, alive, new, number = History(), {}, 0, 1
    history.note(Request(number, "make", ("rows",)))
    for choice, forget in steps:
        number += 1
        if forget and alive:
            gone = sorted(alive)[choice % len(alive)]
            del alive[gone]
            history.note(Request(number, "forget", ((gone,),)))
            continue
        new += 1
        if choice and alive:
            of = sorted(alive)[choice % len(alive)]
            history.note(Request(number, "change", (of, new, "in_basis", ())))
            alive[new] = (*alive[of], new)
        else:
            history.note(Request(number, "hold", (new, None)))
            alive[new] = (new,)
    held = {}
    for request in history.needed():
        if request.act == "hold":
            held[request.arguments[0]] = (request.arguments[0],)
        elif request.act == "change":
            held[request.arguments[1]] = (*held[request.arguments[0]], request.arguments[1])
        elif request.act == "forget":
            for version in request.arguments[0]:
                del held[version]
    assert held == alive
