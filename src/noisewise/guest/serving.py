"""The host's side of a guest's questions: each is parsed as plain data, asked of the curator, and answered as plain data.

What a guest sends is never executed and never kept, but for copies of its numbers: a question is made anew of them by its own
registered class, and the curator checks, prices and answers that copy as it does any other. Errors reach the guest as one of a
few fixed words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..accounts import BudgetExhausted
from ..asking import Curator
from ..trusted.events import from_dict, to_dict
from ..trusted.features.features import Features
from .running import Guest
from .wire import answer_to, facts_to, question_from, sampling_from, trace_to, vector_from, walk_from

EXHAUSTED, REFUSED, UNKNOWN = "exhausted", "refused", "unknown"  # all that a guest is told of an error
OF_THE_REQUEST = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)  # of what was parsed

MAX_NUMBERS = 1 << 26  # half a gigabyte
MAX_BLOCKS = 32  # of features, for each column of a table

Parsed = Callable[[], Any]


class Served:
    """Answers one guest's requests about one run."""

    def __init__(self, guest: Guest, private: Curator) -> None:
        self._guest, self._private = guest, private
        self.refused: Exception | None = None  # the last refusal, for who runs the method: a guest is told one word

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request.get("ask")
        parse = PARSED.get(name) if type(name) is str else None
        if parse is None:
            return {"error": UNKNOWN}
        try:
            ask = parse(self._private, request)
        except Exception as error:  # nothing is touched by then, so it is about what was sent
            self.refused, found = error, {"error": REFUSED}
        else:
            found = self._asked(ask)
        if name not in FREE:
            self._guest.tick()
        return found

    def _asked(self, ask: Parsed) -> dict[str, Any]:
        try:
            return {"answer": ask()}
        except BudgetExhausted:
            return {"error": EXHAUSTED}
        except OF_THE_REQUEST as error:
            self.refused = error
            return {"error": REFUSED}


def _question(private: Curator, request: dict[str, Any]) -> Parsed:
    question, noise, sampling = question_from(request), _number(request["noise"]), sampling_from(request["sampling"])
    if question.numbers(private.facts) > MAX_NUMBERS:
        raise ValueError(f"the answer to this takes more than {MAX_NUMBERS:,} numbers, which are too many for a guest")
    return lambda: answer_to(private.ask(question, noise=noise, sampling=sampling))


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("this is no number")
    return float(value)


def _last_iterate(private: Curator, request: dict[str, Any]) -> Parsed:
    walk = walk_from(request)
    return lambda: answer_to(private.last_iterate(walk))


def _minimise(private: Curator, request: dict[str, Any]) -> Parsed:
    objective = walk_from(request)
    return lambda: answer_to(private.minimise(objective))


def _prepare(private: Curator, request: dict[str, Any]) -> Parsed:
    features = Features.from_dict(request["features"])
    if len(features.blocks) > MAX_BLOCKS * (1 + len(private.facts.table)):  # each is a column of every row
        raise ValueError("there are too many blocks of features for a table of so few columns")
    return lambda: private.prepare(features)


def _centre(private: Curator, request: dict[str, Any]) -> Parsed:
    centre, scale = vector_from(request["centre"]), _number(request["scale"])
    return lambda: private.centre(centre, scale)


def _change_basis(private: Curator, request: dict[str, Any]) -> Parsed:
    matrix = vector_from(request["matrix"])
    return lambda: private.change_basis(matrix)


def _in_first_basis(private: Curator, request: dict[str, Any]) -> Parsed:
    theta = vector_from(request["theta"])
    if theta.shape != (private.facts.dimension,):
        raise ValueError("theta is of another model")
    return lambda: private.in_first_basis(theta)


def _noise_for(private: Curator, request: dict[str, Any]) -> Parsed:
    share, sampling = _number(request["share"]), sampling_from(request["sampling"])
    return lambda: private.meter.noise_for(share, sampling)


def _share_after(private: Curator, request: dict[str, Any]) -> Parsed:
    event = from_dict(request["event"])
    return lambda: private.meter.share_after(event)


PARSED: dict[str, Callable[[Curator, dict[str, Any]], Parsed]] = {
    "question": _question,
    "last_iterate": _last_iterate,
    "minimise": _minimise,
    "prepare": _prepare,
    "centre": _centre,
    "change_basis": _change_basis,
    "in_first_basis": _in_first_basis,
    "noise_for": _noise_for,
    "share_after": _share_after,
    "facts": lambda private, _: lambda: facts_to(private.facts),
    "spent_fraction": lambda private, _: lambda: private.meter.spent_fraction,
    "events": lambda private, _: lambda: [[to_dict(leaf), count] for leaf, count in private.meter.events.items()],
    "trace": lambda private, _: lambda: trace_to(private.trace),
}
FREE = {"in_first_basis", "noise_for", "share_after", "facts", "spent_fraction", "events", "trace"}  # touch no record
