"""What a question costs when it comes from a guest: the same method as an object and in a sandbox, without the tick."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.accounts import Budget, Terms
from noisewise.asking import Curator, Facts, PublicCurator
from noisewise.guest import method_named
from noisewise.guest.running import Guest
from noisewise.methods import Method
from noisewise.train import Records, train
from noisewise.trusted.losses import Logistic
from noisewise.trusted.models import Linear

SPEC = "noisewise_lab.guests:Asking"


class State(NamedTuple):
    step: int
    theta: Any


@dataclass(frozen=True)
class Asking(Method):
    """Asks for gradients and does nothing with them."""

    steps: int = 200
    name: ClassVar[str] = "asking"
    adaptive: ClassVar[bool] = True

    def total_steps(self) -> int:
        return self.steps

    def terms(self, facts: Facts) -> Terms:
        return Terms.adaptive("gdp")

    def init(self, theta: NDArray[Any], facts: Facts, public: PublicCurator | None) -> State:
        return State(0, theta)

    def step(self, state: State, private: Curator, public: PublicCurator | None) -> State:
        private.gradient(state.theta, clip=1.0, noise_multiplier=1e3)
        return State(state.step + 1, state.theta)


def guest_rows(columns: int = 1000, *, questions: int = 200, rounds: int = 5) -> list[dict[str, Any]]:
    """Milliseconds by the clock for each question, as an object and as a guest, medians over rounds in turns."""
    methods = {"object": Asking(questions), "guest": method_named(SPEC).with_settings(steps=questions)}
    taken: dict[str, list[float]] = {name: [] for name in methods}
    with _without_tick():
        for _ in range(rounds):
            for name, method in methods.items():
                taken[name].append(_milliseconds(method, columns, questions))
    own = median(taken["object"])
    return [
        {"method": name, "milliseconds": median(values), "more": median(values) - own} for name, values in taken.items()
    ]


def _milliseconds(method: Method, columns: int, questions: int) -> float:
    """A question's part of a long run, less that of a short one: what a run takes besides does not count."""
    rows = Records(np.zeros((64, columns), np.float32), np.ones(64, np.float32), 64.0, 1.0)
    seconds = []
    for steps in (questions, 1):
        started = time.perf_counter()
        asked = method.with_settings(steps=steps)
        train(asked, rows, model=Linear(columns, Logistic()), budget=Budget(1.0, 1e-6), seed=1)
        seconds.append(time.perf_counter() - started)
    return (seconds[0] - seconds[1]) / (questions - 1) * 1e3


@contextmanager
def _without_tick() -> Iterator[None]:
    tick = Guest.tick
    Guest.tick = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Guest.tick = tick  # type: ignore[method-assign]
