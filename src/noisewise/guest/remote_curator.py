"""Inside a guest: a curator whose questions go to the host over the pipe."""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn

from ..accounts import Budget, BudgetExhausted
from ..asking import Answer, Asking, Facts, array, in_kind
from ..trusted.events import FULL, Event, Leaf, Sampling, from_dict, plain_sampling, to_dict
from ..trusted.features import Features
from ..trusted.units import Released
from .wire import Wire, answer_from, facts_from, question_to, trace_from, walk_to

ERRORS = {
    "refused": "the curator refused this; the host says why when the run has ended",
    "unknown": "there is no such request",
}


class RequestRefused(ValueError):
    """A request that the host refused."""


class Remote(Asking):
    """The curator that a guest sees; every question goes to the host."""

    def __init__(self, wire: Wire, *, simulation: bool) -> None:
        self._wire, self.simulation = wire, simulation
        self._facts: Facts | None = None  # as they are since rows were changed last
        self.meter = RemoteMeter(self)

    def asked(self, what: str, **request: Any) -> Any:
        """The host's answer to one request."""
        self._wire.send({"ask": what, **request})
        found = self._wire.receive()
        if "error" in found:
            _raised(found["error"])
        return found["answer"]

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            self._facts = facts_from(self.asked("facts"))
        return self._facts

    @property
    def trace(self) -> tuple[Released, ...]:
        return trace_from(self.asked("trace"))

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        request = {**question_to(question), "noise": float(noise), "sampling": plain_sampling(sampling)}
        return answer_from(self.asked("question", **request))

    def last_iterate(self, walk: Any) -> Answer:
        return answer_from(self.asked("last_iterate", **walk_to(walk)))

    def minimise(self, objective: Any) -> Answer:
        return answer_from(self.asked("minimise", **walk_to(objective)))

    def prepare(self, features: Features) -> None:
        self._changed("prepare", features=features.to_dict())

    def centre(self, centre: Any, scale: float) -> None:
        self._changed("centre", centre=array(centre), scale=float(scale))

    def change_basis(self, matrix: Any) -> None:
        self._changed("change_basis", matrix=array(matrix))

    def in_first_basis(self, theta: Any) -> Any:
        return in_kind(theta, self.asked("in_first_basis", theta=array(theta)))

    def _changed(self, what: str, **request: Any) -> None:
        self._facts = None
        self.asked(what, **request)


class RemoteMeter:
    """The meter that a guest sees."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @property
    def budget(self) -> Budget:
        return self._remote.facts.budget

    @property
    def spent_fraction(self) -> float:
        return float(self._remote.asked("spent_fraction"))

    @property
    def events(self) -> Counter[Leaf]:
        return Counter({from_dict(leaf): count for leaf, count in self._remote.asked("events")})  # type: ignore[misc]

    def noise_for(self, share: float, sampling: Sampling = FULL) -> float:
        return float(self._remote.asked("noise_for", share=float(share), sampling=plain_sampling(sampling)))

    def share_after(self, event: Event) -> float:
        return float(self._remote.asked("share_after", event=to_dict(event)))


def _raised(word: str) -> NoReturn:
    if word == "exhausted":
        raise BudgetExhausted("the budget has no room for this")
    raise RequestRefused(ERRORS.get(word, "the host failed"))
