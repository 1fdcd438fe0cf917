"""What was done to the private records, as frozen plain data.

An event says what a mechanism did, never what it found: every field is public. Two adjacency relations are in use:

* ``add_remove``: neighbouring data sets differ in one record being there or not;
* ``replace_one``: they have the same size and one record differs.

An event does not carry the relation, the budget does. What an event means under each relation is written in its
docstring, completely enough to write an accountant from it alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

Adjacency = Literal["add_remove", "replace_one"]
ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace_one")

Sampling = tuple[Literal["full"]] | tuple[Literal["poisson", "fixed"], float]
FULL: Sampling = ("full",)


class InvalidEvent(ValueError):
    """An event with a field outside its range."""


MIN_NOISE = 1e-6  # less is no noise, and its price would overflow
MAX_EPSILON = 500.0  # more is no promise
MIN_RATE = 2.0**-40  # a batch is drawn from that many bits; a rarer event would not have its probability
MAX_COUNT = 10**15
MIN_ETA, MAX_ETA = 1e-6, 100.0  # nearer to 0 or to -1 nothing changes but the digits of a price
MIN_GAMMA = 2.0**-40
MAX_RUNS = 1e9
MAX_DEPTH = 50  # of events in each other, in a document
MAX_RDP = 1e6
MIN_ORDER, MAX_ORDER = 2, 1024  # of Renyi


def _number(value: object) -> bool:
    """Whether it is a real number that a float can hold (not a bool, not NaN, not infinite)."""
    if type(value) is float:
        return math.isfinite(value)
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:
        return False


def _samples(rate: object) -> bool:
    """Whether it is a rate that a batch can be drawn at."""
    return _number(rate) and MIN_RATE <= rate <= 1  # type: ignore[operator]


def _worth(epsilon: object) -> bool:
    """Whether it is an epsilon that promises something."""
    return _number(epsilon) and 0 < epsilon <= MAX_EPSILON  # type: ignore[operator]


def _require(holds: bool, event: object, field: str, what: str) -> None:
    if not holds:
        raise InvalidEvent(f"{type(event).__name__}.{field} is {getattr(event, field)!r}; pass {what}")


@dataclass(frozen=True, slots=True)
class Gaussian:
    """A vector-valued sum over all records was released with independent Gaussian noise on every coordinate.

    One record moves the sum by at most C in Euclidean norm when it is added or removed, and by at most 2C when it is
    replaced; the noise has standard deviation ``noise_multiplier * C``. So the worst pair of outputs is
    N(0, sigma^2) against N(1, sigma^2) under add_remove and against N(2, sigma^2) under replace_one.
    For sums whose two sensitivities are not in that ratio, C is the larger of (add_remove sensitivity) and
    (replace_one sensitivity) / 2 that the relation in force asks for.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        sigma = self.noise_multiplier
        _require(_number(sigma) and sigma >= MIN_NOISE, self, "noise_multiplier", "a finite number >= 1e-6")


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """One of several public candidates was chosen by the exponential mechanism with Gumbel noise.

    The privacy loss of every outcome lies in an interval of length ``epsilon`` that contains 0 (Dong et al. 2020),
    under the relation in force, and also when a record is added or removed (which sampling needs). It implies
    epsilon-DP and epsilon^2/8-zCDP. Laplace or exponential noise does not have this property.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _require(_worth(self.epsilon), self, "epsilon", "a number in (0, 500]")


@dataclass(frozen=True, slots=True)
class ApproximateDP:
    """A mechanism known only to be (epsilon, delta)-DP under the relation in force; ``delta = 0`` is pure DP."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _require(_worth(self.epsilon), self, "epsilon", "a number in (0, 500]")
        _require(_number(self.delta) and 0 <= self.delta < 1, self, "delta", "a number in [0, 1)")


Mechanism = Gaussian | BoundedRange | ApproximateDP


@dataclass(frozen=True, slots=True)
class Poisson:
    """``event`` ran on a random batch: each record joins independently with probability ``rate``; the batch is secret.

    One draw, one event: a second question about the same batch is not a second ``Poisson``.
    """

    rate: float
    event: Mechanism

    def __post_init__(self) -> None:
        _require(_samples(self.rate), self, "rate", "a sampling probability from 2^-40 to 1")
        _require(isinstance(self.event, Mechanism), self, "event", "a Gaussian, BoundedRange or ApproximateDP")


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """``event`` ran on a secret batch of a fixed size, ``rate`` times the data, drawn without replacement.

    Known under replace_one only: the size of the data must be the same for neighbours, or the batch would not be a
    fixed share of both.
    """

    rate: float
    event: Mechanism

    def __post_init__(self) -> None:
        _require(_samples(self.rate), self, "rate", "a share of the data from 2^-40 to 1")
        _require(isinstance(self.event, Mechanism), self, "event", "a Gaussian, BoundedRange or ApproximateDP")


@dataclass(frozen=True, slots=True)
class AtOrder:
    """Answers known only to be (``order``, ``rdp``)-RDP under the relation in force: all that an RDP filter lets through.

    At smaller orders the divergence is no larger; at larger ones nothing is known.
    """

    order: int
    rdp: float

    def __post_init__(self) -> None:
        whole = isinstance(self.order, int) and not isinstance(self.order, bool)
        _require(whole and MIN_ORDER <= self.order <= MAX_ORDER, self, "order", "a whole number from 2 to 1024")
        _require(_number(self.rdp) and 0 < self.rdp <= MAX_RDP, self, "rdp", "a number in (0, 10^6]")


@dataclass(frozen=True, slots=True)
class TruncatedNegativeBinomial:
    """A number of runs K >= 1 with P(K = k) proportional to (1 - gamma)^k Gamma(k + eta) / k! (``eta`` = 0: (1 - gamma)^k / k).

    ``eta`` = 1 is geometric, 0 logarithmic; ``gamma`` = 1 is one run.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        eta = self.eta
        inside = _number(eta) and (eta == 0 or abs(eta) >= MIN_ETA) and -1 + MIN_ETA <= eta <= MAX_ETA
        _require(inside, self, "eta", "a number above -1, at most 100; 0, or at least 1e-6 away from 0 and -1")
        _require(_number(self.gamma) and MIN_GAMMA <= self.gamma <= 1, self, "gamma", "a number from 2^-40 to 1")


@dataclass(frozen=True, slots=True)
class PoissonRepetitions:
    """A Poisson number of runs; when it is 0, what is released does not depend on the records."""

    mean: float

    def __post_init__(self) -> None:
        _require(
            _number(self.mean) and 1 / MAX_RUNS <= self.mean <= MAX_RUNS, self, "mean", "a number from 1e-9 to 1e9"
        )


Repetitions = TruncatedNegativeBinomial | PoissonRepetitions


@dataclass(frozen=True, slots=True)
class Selection:
    """The best of a secret random number of runs was released, and nothing else (Papernot & Steinke 2022).

    K is drawn as ``repetitions`` says and stays secret. Each of K independent runs draws one of ``candidates``, with
    replacement and with probabilities fixed and public, and does what that event says; its score is part of its output.
    The best output is released, among equals one at random (or the first); how outputs are ranked is fixed beforehand.
    Neither the other outputs nor K, the running time or a failure gets out. With K = 0 (Poisson) the release does not
    depend on the records. So it is the mechanism of a run, a mixture of its candidates, repeated K times: under each
    relation in force the Renyi divergence of a run is at most the largest of its candidates'.
    """

    candidates: tuple[Event, ...]
    repetitions: Repetitions

    def __post_init__(self) -> None:
        if type(self.candidates) is not tuple or not self.candidates:
            raise InvalidEvent("Selection.candidates is no tuple or empty; pass a tuple of at least one event")
        for event in dict.fromkeys(self.candidates):
            if not isinstance(event, Event) or any(isinstance(leaf, Selection) for leaf in leaves(event)):
                kind = type(event).__name__
                raise InvalidEvent(
                    f"a candidate of a Selection is a {kind} or holds another Selection; pass plain events"
                )
        _require(isinstance(self.repetitions, Repetitions), self, "repetitions", "their distribution")


Leaf = Mechanism | Poisson | FixedBatch | AtOrder | Selection


@dataclass(frozen=True, slots=True)
class Repeated:
    """``event`` happened ``count`` times, each with fresh randomness; later ones may depend on earlier answers."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        whole = isinstance(self.count, int) and not isinstance(self.count, bool) and 0 <= self.count <= MAX_COUNT
        _require(whole, self, "count", "a whole number from 0 to 10^15")
        _require(isinstance(self.event, Event), self, "event", "an event")


@dataclass(frozen=True, slots=True)
class Composed:
    """All of ``events`` happened, in this order; later ones may depend on earlier answers."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        several = type(self.events) is tuple and all(isinstance(one, Event) for one in self.events)
        _require(several, self, "events", "a tuple of events")


Event = Leaf | Repeated | Composed
_BY_NAME: dict[str, type[Any]] = {kind.__name__: kind for kind in (*get_args(Leaf), Repeated, Composed)}
_LAWS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Repetitions)}


def leaves(events: Event | Iterable[Event]) -> Counter[Leaf]:
    """Every mechanism that ran, with how often: the only place in the library that multiplies counts.

    >>> leaves([Gaussian(2.0), Repeated(Composed((Gaussian(2.0), BoundedRange(0.1))), 3)])
    Counter({Gaussian(noise_multiplier=2.0): 4, BoundedRange(epsilon=0.1): 3})
    """
    counts: Counter[Leaf] = Counter()
    todo: list[tuple[Any, int]] = [(events, 1)]
    while todo:
        event, times = todo.pop()
        match event:
            case Repeated(inner, count):
                if count:
                    todo.append((inner, times * count))
            case Composed(inner_events):
                todo.extend((inner, times) for inner in inner_events)
            case Gaussian() | BoundedRange() | ApproximateDP() | Poisson() | FixedBatch() | AtOrder() | Selection():
                counts[event] += times
            case _ if isinstance(event, Iterable) and not isinstance(event, str | bytes | Mapping):
                todo.extend((inner, times) for inner in event)
            case _:
                raise TypeError(f"{event!r} is not an event; pass one of {', '.join(_BY_NAME)}")
    return counts


def rebuilt(event: object) -> Event:
    """The same event made anew from plain numbers and checked again: an untrusted event is read once, here.

    Exact types only. A subclass could give one number to the price and another to the records, and code that still holds a
    frozen object can change it (``object.__setattr__``); no other code holds the copy.

    >>> rebuilt(Repeated(Gaussian(2), 3))
    Repeated(event=Gaussian(noise_multiplier=2.0), count=3)
    """
    match event:
        case Repeated() if type(event) is Repeated:
            return Repeated(rebuilt(event.event), _plain(event.count, int))
        case Composed() if type(event) is Composed and type(event.events) is tuple:
            return Composed(tuple(rebuilt(inner) for inner in event.events))
    return rebuilt_leaf(event)


def rebuilt_leaf(event: object) -> Leaf:
    """:func:`rebuilt` for one mechanism, sampled or not."""
    match event:
        case Poisson() | FixedBatch() if type(event) in (Poisson, FixedBatch):
            return type(event)(_plain(event.rate, float), _rebuilt_mechanism(event.event))
        case Selection() if type(event) is Selection and type(event.candidates) is tuple:
            return Selection(tuple(map(rebuilt, event.candidates)), _rebuilt_repetitions(event.repetitions))
        case AtOrder() if type(event) is AtOrder:
            return AtOrder(_plain(event.order, int), _plain(event.rdp, float))
    return _rebuilt_mechanism(event)


def _rebuilt_repetitions(law: object) -> Repetitions:
    kind = type(law)
    if kind is TruncatedNegativeBinomial or kind is PoissonRepetitions:
        return kind(*(_plain(getattr(law, field.name), float) for field in fields(kind)))
    raise TypeError(f"{kind.__name__} is not a number of runs; pass exactly one of {', '.join(_LAWS)}, not a subclass")


def _rebuilt_mechanism(event: object) -> Mechanism:
    kind = type(event)
    if kind is Gaussian or kind is BoundedRange or kind is ApproximateDP:
        return kind(*(_plain(getattr(event, field.name), float) for field in fields(kind)))
    raise TypeError(f"{kind.__name__} is not an event; pass exactly one of {', '.join(_BY_NAME)}, not a subclass")


def _plain(value: Any, kind: type[Any]) -> Any:
    if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
        raise TypeError(f"an event holds a {type(value).__name__}; pass a plain number")
    return kind(value)


def plain_sampling(sampling: Sampling) -> Sampling:
    """The same sampling made of a plain string and float; anything else is refused."""
    match sampling:
        case ("full",):
            return FULL
        case ("poisson" | "fixed" as kind, rate) if _number(rate):
            return ("poisson" if kind == "poisson" else "fixed", float(rate))
    raise ValueError('sampling must be ("full",), ("poisson", rate) or ("fixed", rate)')


def sampled(sampling: Sampling, event: Mechanism) -> Leaf:
    """The event that ``event`` becomes when it runs on a batch: the one place where sampling meets accounting.

    >>> sampled(("poisson", 0.01), Gaussian(1.0))
    Poisson(rate=0.01, event=Gaussian(noise_multiplier=1.0))
    """
    match sampling:
        case ("full",):
            return event
        case ("poisson", float() | int() as rate):
            return Poisson(float(rate), event)
        case ("fixed", float() | int() as rate):
            return FixedBatch(float(rate), event)
    raise ValueError(f'sampling is {sampling!r}; pass ("full",), ("poisson", rate) or ("fixed", rate)')


def to_dict(event: Event | Repetitions) -> dict[str, Any]:
    """An event as plain JSON data, for a statement.

    >>> to_dict(Repeated(Gaussian(2.0), 3))
    {'kind': 'Repeated', 'event': {'kind': 'Gaussian', 'noise_multiplier': 2.0}, 'count': 3}
    """
    data: dict[str, Any] = {"kind": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, tuple):
            data[field.name] = [to_dict(inner) for inner in value]
        else:
            data[field.name] = to_dict(value) if type(value).__name__ in (*_BY_NAME, *_LAWS) else value
    return data


def from_dict(data: Mapping[str, Any]) -> Event:
    """The event that :func:`to_dict` wrote; anything else is refused by name."""
    return _made(data, _BY_NAME)  # type: ignore[no-any-return]


def _made(data: Any, known: Mapping[str, type[Any]], depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidEvent(f"an event is nested more than {MAX_DEPTH} deep; pass what to_dict wrote")
    if not isinstance(data, Mapping):
        raise InvalidEvent(f"an event is a {type(data).__name__}; pass what to_dict wrote")
    kind = known.get(str(data.get("kind")))
    if kind is None:
        raise InvalidEvent(f"unknown event kind {data.get('kind')!r}; known: {', '.join(known)}")
    names = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if extra := set(data) - names - {"kind"}:
        raise InvalidEvent(f"{kind.__name__} has no field {sorted(extra)[0]!r}; its fields are {sorted(names)}")
    values: dict[str, Any] = {name: value for name, value in data.items() if name != "kind"}
    if lacking := sorted(needed - set(values)):
        raise InvalidEvent(f"{kind.__name__} lacks the field {lacking[0]!r}; its fields are {sorted(names)}")
    if "event" in values:
        values["event"] = _made(values["event"], _BY_NAME, depth + 1)
    for several in ("events", "candidates"):
        if several in values:
            if not isinstance(values[several], list | tuple):
                raise InvalidEvent(f"{kind.__name__}.{several} is no list; pass a list of events")
            values[several] = tuple(_made(inner, _BY_NAME, depth + 1) for inner in values[several])
    if "repetitions" in values:
        values["repetitions"] = _made(values["repetitions"], _LAWS)
    return kind(**values)
