"""A method that runs as a guest, as the host holds it: its description, and a stand-in that speaks to its process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from ..accounts import BudgetExhausted, Terms
from ..asking import Curator, Facts, PublicCurator
from ..methods.base import Array, Method
from ..trusted import validate
from ..trusted.events import FULL, Sampling
from ..trusted.losses import loss_names
from .isolation import ISOLATIONS, Isolation, located, package_of, refuse_readable
from .running import Guest, GuestFailed, Served, borrowed, end_idle, printable
from .wire import facts_to, public_to, sampling_from, terms_from, vector_from

WORDS = {"title": 100, "summary": 1000, "paper": 1000}  # what a guest says of itself, and how long it may be
MAX_STEPS, MAX_SETTINGS, MAX_NAME = 10**9, 1000, 100
FLAGS = ("needs_public", "adaptive", "table", "walks")


@dataclass(frozen=True)
class About:
    """What a guest says of its method, checked by type."""

    title: str
    summary: str
    paper: str
    losses: tuple[str, ...]
    needs_public: bool
    adaptive: bool
    table: bool
    walks: bool
    settings: Mapping[str, Any]
    total_steps: int | None

    @classmethod
    def of(cls, said: Any) -> About:
        if type(said) is not dict or any(type(said.get(name)) is not bool for name in FLAGS):
            raise GuestFailed("the guest does not describe its method as noisewise.methods.Method has it")
        settings, steps, losses = said.get("settings"), said.get("total_steps"), said.get("losses")
        whole = steps is None or (type(steps) is int and 0 < steps < MAX_STEPS)
        if type(settings) is not dict or type(losses) is not tuple or not whole or not _settings(settings):
            raise GuestFailed("the guest does not describe its method as noisewise.methods.Method has it")
        words = {name: printable(said.get(name), most) for name, most in WORDS.items()}
        known = tuple(name for name in loss_names() if name in losses)
        flags = {name: said[name] for name in FLAGS}
        return cls(losses=known, settings=settings, total_steps=steps, **cast(Any, {**words, **flags}))


def _settings(said: dict[str, Any]) -> bool:
    """Whether settings have names that a statement can print, and plain values."""
    return all(name.isidentifier() and len(name) <= MAX_NAME for name in said) and _plain([*said.values()])


def _plain(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether settings are few and short numbers and texts, or lists of them."""
    return len(values) <= MAX_SETTINGS and all(
        _plain(value)
        if type(value) in (list, tuple)
        else value is None
        or type(value) in (bool, int)
        or (type(value) is float and math.isfinite(value))
        or (type(value) is str and value == printable(value, 1000))
        for value in values
    )


class _Described(Method):
    """What host and stand-in share: a method that is what a guest says of it."""

    about: About
    spec: str
    elsewhere = True

    summary = property(lambda self: self.about.summary)
    paper = property(lambda self: self.about.paper)
    losses = property(lambda self: self.about.losses)
    needs_public = property(lambda self: self.about.needs_public)
    adaptive = property(lambda self: self.about.adaptive)
    table = property(lambda self: self.about.table)

    @property
    def walks(self) -> bool:
        return self.about.walks

    @property
    def sampling(self) -> Sampling:
        said = self.about.settings.get("sampling")
        return FULL if said is None else sampling_from(said)

    def settings(self) -> dict[str, Any]:
        return dict(self.about.settings)

    def total_steps(self) -> int | None:
        return self.about.total_steps


@dataclass(frozen=True, eq=False)
class GuestMethod(_Described):
    """A method of another package, by ``package.module:Class``: never imported here, run in a process of its own.

    ``name``: how it is asked for, which a statement names too. ``changed``: settings other than the method's own defaults.
    """

    spec: str
    isolation: Isolation
    about: About = field(repr=False)
    changed: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""  # type: ignore[misc]

    @contextmanager
    def opened(self, *, simulation: bool = False) -> Iterator[Method]:
        with borrowed(self.spec, self.isolation, simulation) as guest:
            _made(guest, self.changed)
            yield _Running(self, guest)

    def with_settings(self, **changes: Any) -> GuestMethod:
        if unknown := sorted({*changes} - {*self.about.settings}):
            known = ", ".join(sorted(self.about.settings)) or "none"
            raise ValueError(f"{self.name} has no setting {unknown[0]!r}; it has {known}")
        changed = {**self.changed, **changes}
        with borrowed(self.spec, self.isolation) as guest:
            about = _made(guest, changed)
        return GuestMethod(self.spec, self.isolation, about, changed, self.name)

    def refuse_readable(self, files: Iterable[Path]) -> None:
        """Refuse private files that lie where the method can read in its sandbox."""
        if self.isolation == "sandbox":
            try:
                refuse_readable(located(package_of(self.spec)), files)
            except ValueError:  # by now it may have read them
                _about.cache_clear()
                end_idle()
                raise

    def terms(self, facts: Facts) -> Terms:
        with self.opened() as running:
            return running.terms(facts)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> NoReturn:
        raise RuntimeError(f"{self.name} runs in a process of its own; open it first: with method.opened() as running")

    step = init  # type: ignore[assignment]


class _Running(_Described):
    """The stand-in for a method that runs in a guest's process. Its state stays there; here it is a count of steps."""

    def __init__(self, method: GuestMethod, guest: Guest) -> None:
        self.spec, self.about, self.name = method.spec, method.about, method.name  # type: ignore[misc]
        self._guest, self._done = guest, False

    def terms(self, facts: Facts) -> Terms:
        return terms_from(self._guest.call({"do": "terms", "facts": facts_to(facts)}))

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> int:
        message = {"do": "init", "theta": theta, "facts": facts_to(facts), "public": public_to(public)}
        self._done = self._guest.call(message) is True
        return 0

    def step(self, state: int, private: Curator, public: PublicCurator | None) -> int:
        serve = Served(self._guest, private)
        message = {"do": "step", "simulation": bool(private.simulation)}
        try:
            found = self._guest.call(message, serve)
        except GuestFailed as error:
            raise (error if serve.refused is None else GuestFailed(f"{error} [{serve.refused}]")) from None
        if found == "exhausted":
            raise BudgetExhausted("the method asked for more than was left, and ended")
        self._done = found is True
        return state + 1

    def done(self, state: int) -> bool:
        return self._done

    def finish(self, state: int, public: PublicCurator | None) -> Array:
        return self._finite("theta", vector_from(self._guest.call({"do": "finish"})))

    def spread(self, state: int) -> Array | None:
        spread = self._optional("spread")
        return None if spread is None else self._finite("spread", spread, least=0.0)

    def shares(self, state: int) -> Array | None:
        return self._optional("shares")

    def _finite(self, what: str, value: Array, least: float = -math.inf) -> Array:
        """Refuse what no run folder can keep, and the run would be lost when it is paid for."""
        if not bool((np.isfinite(value) & (value >= least)).all()):
            raise GuestFailed(f"the {what} of the method {self.spec} is not finite, or not in range")
        return value

    def _optional(self, what: str) -> Array | None:
        found = self._guest.call({"do": what})
        return None if found is None else vector_from(found)


def _made(guest: Guest, changed: Mapping[str, Any]) -> About:
    return About.of(guest.call({"do": "make", "settings": dict(changed)}))


def described(spec: str, isolation: str = "sandbox", name: str | None = None) -> GuestMethod:
    """The method that ``spec`` names (``package.module:Class``), as its own process describes it."""
    validate.one_of(ISOLATIONS, isolation=isolation)
    package, colon, kind = spec.partition(":")
    if not colon or not kind.isidentifier() or not all(part.isidentifier() for part in package.split(".")):
        raise ValueError(f"method is {spec!r}; pass package.module:Class, e.g. 'my_package.mine:Mine'")
    where = cast(Isolation, isolation)
    return GuestMethod(spec, where, _about(spec, where), name=name or spec)


@cache
def _about(spec: str, isolation: Isolation) -> About:
    with borrowed(spec, isolation) as guest:
        return _made(guest, {})
