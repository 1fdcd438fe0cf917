"""The one loop: make the meter, build the curator, ask until done, release.

A method is not trusted with records, and one of another package runs in a process of its own. What is taken from it: terms, of which the meter is made here; a state, which is its own;
a theta. What it is given: facts, theta and public rows of its own, and the curator's answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .accounts import AdditiveMeter, Budget, BudgetExhausted, Meter, PlanMeter, Terms
from .accounts.account import Account, paying, private_fit_begins
from .accounts.purse import Purse
from .asking import Answer, Curator, CuratorWrapper, Facts, PublicCurator, array
from .methods import Method, makes_a_promise
from .methods.base import size_noise
from .methods.nonprivate import NonPrivate
from .protect.learned.private import unrolled
from .protect.learned.zoo import Learned, as_bytes, from_content
from .remote.transport import started_by_torchrun
from .trusted.arithmetic import Arithmetic
from .trusted.events import FULL, FixedBatch, Poisson, Sampling, leaves
from .trusted.facts import facts_of
from .trusted.features import Features
from .trusted.models import Additive, Model
from .trusted.stores import counted_of
from .trusted.stores.grid import Allocator, in_memory
from .trusted.stores.protocol import Elsewhere
from .trusted.units import RECORD, Released, Unit

if TYPE_CHECKING:
    from .accounts.journal import Journal

Array = NDArray[Any]
MAX_RECORDED_NUMBERS = 20_000_000  # numbers on a tape; a longer run has no standard errors
StepProgress = Callable[[int, int | None, float], None]
AT_ONCE = "training in one go"  # the name in a purse of a run without a journal, which is never resumed


class TapeEntry(NamedTuple):
    """One released answer: what was asked, where, and how noisy the answer is."""

    question: str
    value: Any
    noise_std: float
    below: float | None
    noise_multiplier: float
    spent: float
    theta: Array | None
    scale: Array | None
    basis: Array | None


@dataclass(frozen=True)
class RecordedAnswers:
    """All answers of a run, in order, and what was public when it began."""

    model: Model
    start: Array
    facts: Facts
    spent: float
    entries: tuple[TapeEntry, ...]


@dataclass(frozen=True)
class Trained:
    """What a run released: the parameters, the trace, and everything a statement needs."""

    theta: Array
    trace: tuple[Released, ...]
    facts: Facts
    meter: AdditiveMeter | PlanMeter | None
    simulation: bool
    steps: int
    arithmetic: Arithmetic | None = None  # how exact sums and noise were; None when nothing is promised
    tape: RecordedAnswers | None = (
        None  # released answers, from which standard errors are computed; None when there are none
    )
    features: Features | None = None  # what rows of a table were made of at the end
    spread: Array | None = None  # the deviation of the noise on theta, where the method knows it
    shares: Array | None = None  # of the records that have each coordinate of the features, as released
    protector: Any = None  # one that was trained on the records, from released answers (protect.learned.zoo.Learned)


class Recording(CuratorWrapper):
    """A curator that also keeps the answers that it released, from which standard errors are computed.

    *Guarantee*: nothing is spent here, and a tape holds released answers and where they were asked, no record.
    ``most``: how many numbers are kept; a run that releases more has no tape.
    """

    def __init__(self, curator: Curator, *, most: int = MAX_RECORDED_NUMBERS) -> None:
        super().__init__(curator)
        self._most, self._kept = most, 0
        self._entries: list[TapeEntry] = []
        self._facts, self._spent = curator.facts, curator.meter.spent_fraction

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        answer = super().ask(question, noise=noise, sampling=sampling)
        given = [getattr(question, name, None) for name in ("theta", "scale", "basis")]
        at = [part.astype(np.float32) if isinstance(part, np.ndarray) else None for part in given]
        return self._keep(kind_of(question), answer, float(noise), *at)

    def last_iterate(self, walk: Any) -> Answer:
        return self._keep("last_iterate", super().last_iterate(walk))

    def minimise(self, objective: Any) -> Answer:
        return self._keep("minimise", super().minimise(objective))

    def change_basis(self, matrix: Any) -> None:
        super().change_basis(matrix)
        self._keep("change_basis", Answer(np.asarray(array(matrix), np.float64), 0.0))

    def prepare(self, features: Features) -> None:
        super().prepare(features)
        self._keep("prepare", Answer(np.zeros(0), 0.0))

    def _keep(
        self,
        question: str,
        answer: Answer,
        noise: float = 0.0,
        theta: Array | None = None,
        scale: Array | None = None,
        basis: Array | None = None,
    ) -> Answer:
        self._kept += sum(part.size for part in (answer.value, theta, scale, basis) if part is not None)
        if self._kept > self._most:
            self._entries.clear()
            return answer
        value, spent = answer.value.copy(), self.meter.spent_fraction
        self._entries.append(
            TapeEntry(question, value, answer.noise_std, answer.below, noise, spent, theta, scale, basis)
        )
        return answer

    def tape(self, model: Model, start: Array) -> RecordedAnswers | None:
        """The kept answers, or None if there were too many."""
        if self._kept > self._most:
            return None
        return RecordedAnswers(deepcopy(model), start, self._facts, self._spent, tuple(self._entries))


def kind_of(question: Any) -> str:
    """The name of a question on a tape; a replay treats all statistics alike."""
    return question.name if question.name in ("gradient", "gradient_norm", "choose") else "statistic"


class NothingLeft(ValueError):
    """A stopped run lost an answer that it needs, and its budget has no room to buy it again."""

    def __init__(self) -> None:
        super().__init__(
            "what this run asks first was paid for and lost when it was stopped, and its budget has no room to ask again; "
            "what is written down stays spent: start anew, with a budget of its own"
        )


@dataclass(frozen=True, eq=False)
class Records:
    """Validated rows of the data holder with their labels, on the way to a curator.

    ``X`` and ``y`` are arrays, tuples of tensors for a model of tensors, or what stands for rows that lie elsewhere.
    ``size`` is None where the number of records is private; ``row_bound`` is infinite where no bound on rows is enforced.
    """

    X: Any
    y: Any
    size: float | None = None
    row_bound: float = math.inf
    store: Allocator = in_memory  # where rows are laid out
    unit: Unit = RECORD  # what is protected
    counted: NDArray[np.bool_] | None = None  # which rows of the table count, where a person has several

    def __repr__(self) -> str:
        return "Records(...)"


def train(
    method: Method,
    records: Records,
    *,
    model: Model,
    budget: Budget,
    public: PublicCurator | None = None,
    theta: Any = None,
    seed: int | None = None,
    progress: StepProgress | None = None,
    purse: Purse | Account | None = None,
    journal: Journal | None = None,
) -> Trained:
    """Run ``method`` on private records under ``budget`` from ``theta`` (default: the model's public start).

    All of ``budget`` is reserved in ``purse`` before a record is touched, and settled at the end, whatever that is;
    without one it comes from the account that is open (``noisewise.spending``), if there is any. ``journal``: where released
    answers are written down before they are used, and read from when a run is taken up again.
    """
    private_run = makes_a_promise(method)
    unit = records.unit
    if private_run:
        source, budget = paying(budget, purse, simulation=seed is not None, persons=unit.persons)
    facts = facts_of(model, budget, size=records.size, row_bound=records.row_bound, unit=unit)
    start = model.start() if theta is None else np.array(array(theta), np.float32)
    if start.shape != (model.dimension,):
        raise ValueError(f"theta has shape {start.shape}; pass a flat vector of {model.dimension}")
    if not private_run:
        # made anew, because this object may have been given a step of its own
        method = NonPrivate(**{field.name: getattr(method, field.name) for field in fields(NonPrivate)})
        handed_over = PublicCurator(*_with_labels(records, model), model=model, seed=seed)
        state = method.step(method.init(start, facts, None), None, handed_over)
        return Trained(_plain(method.finish(state, handed_over), model), (), facts, None, seed is not None, 1)

    opened = method.opened(simulation=seed is not None) if isinstance(method, Method) else nullcontext(method)
    with opened as running:
        terms = running.terms(replace(facts, budget=replace(budget)))
        refuse_batches(running, terms, unit)
        if method.needs_public and public is None:
            raise ValueError(f"public is missing; {method.name} needs public rows, pass them or take another method")
        if seed is None:
            if not isinstance(records.X, Elsewhere):
                refuse_every_rank(source)
            private_fit_begins(purse)
        if journal is None:
            with source.part(terms, budget, what=AT_ONCE) as part:  # settled whatever happens
                return _private_run(running, records, model, part.meter, start, public, seed, progress)
        from .accounts.journal import paid

        with paid(source, terms, budget, journal) as meter:
            return _private_run(running, records, model, meter, start, public, seed, progress, journal)


def _private_run(
    method: Method,
    records: Records,
    model: Model,
    meter: Meter,
    start: NDArray[np.float32],
    public: PublicCurator | None,
    seed: int | None,
    progress: StepProgress | None,
    journal: Journal | None = None,
) -> Trained:
    curator = Curator(
        records.X,
        records.y,
        model=model,
        meter=meter,
        size=records.size,
        row_bound=records.row_bound,
        seed=seed,
        store=records.store,
        rows_per_unit=records.unit.rows,
        unroll=unrolled,
    )
    asking = curator
    if journal is not None:
        from .accounts.journal import Journalled

        asking = cast(Curator, Journalled(curator, journal))
    try:
        for event in size_noise(curator.facts):
            asking.release_size(noise_multiplier=event.noise_multiplier)
    except BudgetExhausted:
        if journal is not None:
            raise NothingLeft from None
        raise
    private = Recording(asking, most=MAX_RECORDED_NUMBERS if model.linear and not model.table else 0)
    state = method.init(start, curator.facts, public)
    state, steps = follow(method, state, cast(Curator, private), public, progress)
    if not steps and journal is not None:
        raise NothingLeft
    features = curator.features
    spread, made = (method.spread(state), method.made(state)) if isinstance(method, Method) else (None, None)
    if features is not None and isinstance(model, Additive):
        model = model.of_width(features.width)
    theta, tape = _plain(method.finish(state, public), model), private.tape(model, start)
    noise = None if spread is None else _plain(spread, model)
    shares = None if features is None else _shares(method.shares(state), features.width)
    answered = (curator.trace, curator.facts, meter, curator.simulation, steps, curator.arithmetic)
    return Trained(theta, *answered, tape, features, noise, shares, _own(made))


def _with_labels(records: Records, model: Model) -> tuple[Any, Any]:
    """Rows with a label, for the method without privacy, which is handed the records."""
    there = counted_of(model, records.X, records.y)
    return (records.X, records.y) if there is None else (records.X[there], records.y[there])


def refuse_every_rank(source: Purse | Account | None) -> None:
    """Refuse a run that each process of torchrun would make for itself, with a budget that the others do not see."""
    if started_by_torchrun() and (source is None or not source.durable):
        raise RuntimeError(
            "this is one of several processes that torchrun started, and each would spend the whole budget; train on files "
            "with torchrun -m noisewise train, modules with noisewise.fit, or start one process"
        )


def refuse_batches(method: Method, terms: Terms, unit: Unit) -> None:
    """Refuse, before anything is reserved, a method that declares batches of rows where a person has several rows.

    A method that does not say so is refused by the curator when it asks.
    """
    if not unit.persons:
        return
    for event in leaves(list(terms.events)):
        if isinstance(event, Poisson | FixedBatch):
            unit.counted(("poisson", event.rate))
    unit.counted(getattr(method, "sampling", None) or FULL)


def _plain(theta: Any, model: Model) -> NDArray[Any]:
    """The parameters as a plain array of the library's own."""
    given = array(theta)
    plain = np.array(given) if isinstance(given, np.ndarray) else None
    if plain is None or plain.shape != (model.dimension,) or plain.dtype.kind != "f":
        raise TypeError(f"finish returned no theta; return a flat array of {model.dimension} floating-point numbers")
    return plain


def _own(made: Learned | None) -> Learned | None:
    """A copy of a protector that is made of plain data alone."""
    if made is None:
        return None
    if type(made) is not Learned:
        raise TypeError("made returned something else; return a protector that was read or made by noisewise, or None")
    return from_content(as_bytes(made))


def _shares(shares: Any, width: int) -> NDArray[Any] | None:
    given = array(shares)
    plain = np.array(given) if isinstance(given, np.ndarray) else None
    if shares is not None and (plain is None or plain.shape != (width,) or not ((plain >= 0) & (plain <= 1)).all()):
        raise TypeError(f"shares returned something else; return a flat array of {width} numbers from 0 to 1")
    return plain


def follow(
    method: Method, state: Any, private: Curator, public: PublicCurator | None, progress: StepProgress | None = None
) -> tuple[Any, int]:
    """Ask until the method is done or the budget is exhausted; returns the last state and the number of steps."""
    steps = 0
    try:
        while not method.done(state):
            state = method.step(state, private, public)
            steps += 1
            if progress is not None:
                progress(steps, method.total_steps(), private.meter.spent_fraction)
    except BudgetExhausted:
        pass  # an adaptive run ends when the next step no longer fits; what was released so far stands
    return state, steps
