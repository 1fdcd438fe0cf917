"""What a question is: frozen data, never a function, because a function run on records could keep them.

Everything about a question stands in its class: its exact total over a batch, its unit with the proof, the shape of its
answer, its words in a report, and cases for the laws that every question must pass. The unit is the C of the event
Gaussian(noise std / C): the most that one record moves the total by under add_remove, half of the most that replacing one
does under replace_one. A Poisson batch may hold the record or not, whatever the relation, so there a record's own part
must not exceed the unit either.

*Persons*. Where a person has up to k rows that count, every unit is k times that of one row, and a clip C of gradients is
C/k for each row. Proof: which rows of a person count depends on that person's rows and coins alone, so neighbours differ
in at most k rows, at most k more when the person is replaced. A person's part of a sum is a sum of k parts, of norm at most
k times that of one, and of two persons twice that (triangle inequality); norms and eigenvalues of sums move no further, and
parts within [0, 1] add up to [0, k], all in one direction. Parts that have inner products >= 0, as counts in bins and
x x^T have, add up to such parts: ||A - B||^2 <= ||A||^2 + ||B||^2 <= 2 k^2. So `moves` holds with both its numbers times k.
Batches are of rows, not of persons, so a batch and k > 1 are refused; whole runs in the room are proved for one row.

A question is answered only if its type is registered here, exactly; it is rebuilt from plain numbers before it is priced,
and only that copy is used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from .accountants.common import unsampled
from .arithmetic import Arithmetic
from .events import ADJACENCIES, Adjacency, ApproximateDP, Gaussian, Leaf, Mechanism, Sampling
from .facts import Answer, Facts
from .models import Model
from .noise import Stream
from .stores.protocol import HeldRecords
from .stores.totals import Drawn, FloatRows, Floats, IntegerTotal
from .units import MAX_ROWS_PER_PERSON, Unit

CLOSE = 1e-3  # of noise that is rounded onto grids: more than a forger's statement can be off by
ANY = ((math.ulp(0.0), math.inf),)  # of noise whose unit is not in the trace


class AnswerLine(NamedTuple):
    """The entries of a trace and a statement for an answer; ``parts``: how many parts of a count hold a record, if known."""

    clip: float | None
    facts: Facts
    settings: Mapping[str, Any] = MappingProxyType({})
    parts: int | None = None


class Proved:
    """A kind of question: its name and words, its mechanism, and all that its proof covers. The curator and ``verify`` refuse the rest."""

    name: ClassVar[str] = ""
    words: ClassVar[str] = ""
    mechanism: ClassVar[type[Mechanism]] = Gaussian
    relations: ClassVar[tuple[Adjacency, ...]] = ADJACENCIES
    samplings: ClassVar[tuple[str, ...]] = ("full", "poisson", "fixed")
    persons: ClassVar[int] = MAX_ROWS_PER_PERSON  # how many rows of a person may count; 0: proved for records alone
    mean: ClassVar[bool] = False  # whether the answer is divided by the number of records
    of_tensors: ClassVar[bool] = False  # whether a module's records have it, which are not rows of numbers
    sharded: ClassVar[bool] = False  # whether it is asked of shards of all records
    in_one_place: ClassVar[bool] = False  # whether rows that lie with several clients are refused
    bounded: ClassVar[str] = ""  # what is not exact about the answer, but charged for
    assumed: ClassVar[str] = ""  # what is not exact about it, and taken for granted

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", cls.__name__)

    @classmethod
    def refuse(cls, adjacency: str, sampling: Sampling, unit: Unit) -> int:
        """How many rows of a person count at most; a relation, batch or unit without a proof is refused."""
        if adjacency not in cls.relations:
            raise ValueError(f"{cls.name} is proved for adjacency={cls.relations[0]!r} alone; pass that")
        if sampling[0] not in cls.samplings:
            raise ValueError(f"{cls.name} is proved for all records, not for such batches; pass sampling ('full',)")
        if unit.persons and not cls.persons:
            raise ValueError(f"{cls.name} is proved for records, not for persons; take another method")
        return unit.counted(sampling, most=cls.persons)

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        """Refuse a model that no question of this kind can be asked of."""
        if facts.tensors and not cls.of_tensors:
            raise ValueError(
                f"{cls.name} is about rows of numbers, and a module's records are tensors; ask for gradients"
            )

    @classmethod
    def graded(cls, before: Arithmetic) -> Arithmetic:
        """How exact a run is after an answer to such a question."""
        after = before.bounded(cls.bounded) if cls.bounded else before
        return after.assumed(cls.assumed) if cls.assumed else after

    @classmethod
    def ranges(cls, how: Any, line: AnswerLine) -> Iterable[tuple[float, float]]:
        """The ranges in which the noise of an answer may lie, given its line; ``how`` has the event's noise."""
        return ANY

    @classmethod
    def fits(cls, std: float, how: Any, line: AnswerLine) -> bool:
        """Whether noise of this deviation is that of an answer to such a question."""
        return any(low * (1 - CLOSE) <= std <= high * (1 + CLOSE) for low, high in cls.ranges(how, line))

    @classmethod
    def made(cls, event: Leaf) -> bool:
        """Whether it is an event of such a question."""
        return type(unsampled(event)) is cls.mechanism


@dataclass(frozen=True, slots=True)
class HowAsked:
    """How a question is asked: the relation, the batch, the noise, how many records are expected, how many columns, and
    how many rows of one person count at most."""

    adjacency: Adjacency
    sampling: Sampling
    noise: float
    size: float
    features: int
    rows: int = 1

    def unit(self, added: float, replaced: float) -> float:
        """The C of Gaussian(noise std / C), from the most that a record added and a record replaced moves a total by."""
        if self.adjacency == "add_remove":
            return self.rows * added
        return self.rows * (max(added, replaced / 2) if self.sampling[0] == "poisson" else replaced / 2)

    def row(self, clip: float) -> float:
        """A row's share of what a person's gradients are clipped to, or measured by."""
        return clip / self.rows


MAX_NOISE = 2.0**26  # a larger noise multiplier would leave nothing of any answer
CLIP_RANGE = 1e-4, 1e12  # of a clip norm or a bound on losses
NORM_RANGE = 1e-30, 1e30  # of a threshold for norms

Q = TypeVar("Q", bound=type[Any])
_known: dict[str, type[Question]] = {}
_closed: list[bool] = []
QUESTIONS: Mapping[str, type[Question]] = MappingProxyType(_known)
_fields: dict[type[Any], tuple[str, ...]] = {}  # of the registered questions


def question(kind: Q) -> Q:
    """Register a question. It must say how much one record moves it, and bring cases for the laws."""
    for needed in ("moves", "total", "words", "cases"):
        own = getattr(kind, needed, None)
        if not own or own is getattr(Question, needed, None):
            raise TypeError(f"{kind.__name__} has no {needed}; a question brings everything about itself")
    if not kind.cases(2):
        raise TypeError(f"{kind.__name__} has no cases; the laws would pass it by")
    if _closed or not kind.__module__.startswith("noisewise.trusted.questions."):
        raise TypeError(f"{kind.__name__} is not defined in the curator's room; a question lives there, with its proof")
    _known[kind.__name__] = kind
    _fields[kind] = tuple(field.name for field in fields(kind))
    return kind


def close() -> None:
    """Register no question from now on: called when all modules are imported."""
    _closed.append(True)


def rebuilt(asked: object) -> Question:
    """The same question made anew from plain numbers; what is not exactly a registered type is refused by name.

    A subclass could say one bound to the clamp and another to the noise, and so could a number that is not a plain one.
    """
    kind: type[Any] = type(asked)
    if QUESTIONS.get(kind.__name__) is not kind:
        raise TypeError(f"{kind.__name__} is not a question; pass frozen data, one of {', '.join(QUESTIONS)}")
    own: Question = kind(*[plain(getattr(asked, name)) for name in _fields[kind]])
    return own


def plain(value: Any) -> Any:
    """A plain float, bool, tuple or array of floats; a copy, which no other code holds."""
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if isinstance(value, np.ndarray):
        entries = value if kind is np.ndarray else np.asarray(value)
        if entries.dtype.kind not in "fiub":  # objects would run code, and complex ones lose a part
            raise TypeError("an array of other things than real numbers is not plain data; pass one of floats")
        return np.array(entries, dtype=np.float32 if entries.dtype == np.float32 else np.float64)
    if isinstance(value, float | int | np.number):
        return float(value)
    if type(value) in (tuple, list):
        return tuple(plain(entry) for entry in value)
    raise TypeError(f"{type(value).__name__} is not plain data; pass numbers, arrays or tuples of them")


def released(
    total: IntegerTotal, multiplier: float, unit: float, stream: Stream, *, over: float = 1.0, dtype: Any = np.float64
) -> Floats:
    """The total with Gaussian noise of standard deviation multiplier * unit, rounded onto a public grid, exactly.

    In integers: ``unit`` is unit/one * ones, and what is added has at least multiplier times that as its deviation
    (the products, and those that made the unit, round by less than 2^-50, and the last factor is more). ``over``: what the answer is divided by.
    """
    std = multiplier * (unit / total.one) * total.ones * (1 + 2.0**-49)
    return stream.released(total.values, std, total.worth / over, dtype)


class Question(Proved, ABC):
    """A question about the records, answered by one noised sum: frozen data, with everything about itself in its class."""

    shape: ClassVar[tuple[int, ...]] = ()  # of the answer

    @abstractmethod
    def moves(self, how: HowAsked) -> tuple[float, float]:
        """The most that one record added, and one replaced, moves the total by; the class's text has the proof."""

    @abstractmethod
    def total(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> IntegerTotal:
        """The exact total over the batch. Private."""

    @classmethod
    @abstractmethod
    def cases(cls, dimension: int) -> Sequence[Question]:
        """Questions of this kind, for the laws."""

    def check(self, facts: Facts) -> None:
        """Refuse, from public facts, what cannot be asked of this model: rows of tensors, a theta of another one."""
        self.of_model(facts)
        theta = getattr(self, "theta", None)
        if theta is not None and len(theta) != facts.dimension:
            raise ValueError(f"theta has shape {np.shape(theta)}; pass a flat array of {facts.dimension}")

    def numbers(self, facts: Facts) -> float:
        """How many are kept to answer it, where these are more than were sent and than a theta has."""
        return 0.0

    @classmethod
    def like(cls, line: AnswerLine) -> Sequence[Question]:
        """Questions of this kind, one for each unit that an answer with such a line may have."""
        return cls.cases(1)[:1]

    @classmethod
    def ranges(cls, how: HowAsked, line: AnswerLine) -> Iterable[tuple[float, float]]:
        return [(std, std) for std in (asked.noise_std(how) for asked in cls.like(line))]

    def event(self, noise: float) -> Mechanism:
        return Gaussian(noise)

    def unit(self, how: HowAsked) -> float:
        """The C of its event, from what the question says about one record."""
        return how.unit(*self.moves(how))

    def noise_std(self, how: HowAsked) -> float:
        """The standard deviation of the noise on each coordinate of what is released."""
        return how.noise * self.unit(how)

    def noised(self, totals: Sequence[IntegerTotal], how: HowAsked, stream: Stream) -> Sequence[Floats]:
        return [released(totals[0], how.noise, self.unit(how), stream)]

    def totals(self, records: HeldRecords, drawn: Drawn, how: HowAsked) -> Sequence[IntegerTotal]:
        return [self.total(records, drawn, how)]

    def answer(self, noisy: Sequence[Floats], facts: Facts, how: HowAsked) -> Answer:
        return Answer(noisy[0].reshape(self.shape), self.noise_std(how))

    def flat(self, answer: Answer, facts: Facts, how: HowAsked) -> Floats:
        """A released answer as the vector that was noised: what an auditor compares with :meth:`exact`."""
        return np.asarray(answer.value, np.float64).reshape(-1)

    def exact(self, totals: Sequence[IntegerTotal], how: HowAsked) -> Floats:
        """Totals as that vector without noise. Private, unless whoever asks knows the records anyway."""
        return totals[0].values.astype(np.float64) * totals[0].worth


class WholeRun(Proved, ABC):
    """A training run at the data, of which only the end is released; :mod:`noisewise.trusted.walks` has them."""

    @abstractmethod
    def event(self) -> Gaussian | ApproximateDP:
        """What it is to an accountant."""

    @abstractmethod
    def noise_std(self, facts: Facts, size: float) -> float:
        """The deviation of the noise on what is released."""

    @abstractmethod
    def end(self, model: Model, records: FloatRows, facts: Facts, size: float, stream: Stream) -> Floats:
        """Where it ends, with noise."""


def always(added: float, replaced: float) -> Any:
    """``moves`` of a question that one record added, and one replaced, moves by the same, however it is asked."""
    return lambda self, how: (added, replaced)


def itself(kind: type[Any], dimension: int) -> list[Any]:
    """``cases`` of a question that has nothing to vary."""
    return [kind()]


def vector(name: str, theta: object) -> None:
    """Refuse what is not a flat vector of numbers below 1e30 (NaN is not)."""
    entries = theta if isinstance(theta, np.ndarray) else np.array(theta if type(theta) is tuple else [math.nan])
    low, high = (entries.item(entries.argmin()), entries.item(entries.argmax())) if entries.size else (0.0, 0.0)
    if entries.ndim != 1 or not (low > -1e30 and high < 1e30):  # NaN is found at either end
        raise ValueError(f"{name} must be a flat vector of finite numbers below 1e30, e.g. tuple(theta.tolist())")


def flat(name: str, theta: object) -> None:
    """Refuse what is not an array, a flat vector of usual numbers."""
    if not isinstance(theta, np.ndarray):
        raise ValueError(f"{name} is no array; pass a flat one")
    vector(name, theta)


def between(name: str, value: object, least: float, most: float) -> None:
    if type(value) not in (float, int) or not least <= value <= most:  # type: ignore[operator]
        raise ValueError(f"{name} is not a plain number from {least:g} to {most:g}; pass one that is")


def checked_noise(noise: Any) -> float:
    """A plain number that noise can have."""
    value = plain(noise)
    if type(value) is not float or not 0 < value <= MAX_NOISE:
        raise ValueError(f"noise is {value!r}; pass a noise multiplier (or epsilon) above 0, at most {MAX_NOISE:g}")
    return value
