"""The curator holds the private records and answers paid questions about them.

Every answer is charged before the records are touched; a refused charge releases nothing. No record can raise, stop
or steer anything: gradients that are not finite count as zero, a loss that is not finite counts as its bound, an
empty batch is answered with noise, and sums are divided by an expected size, never by a realised one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from operator import index
from typing import Any, NoReturn

import numpy as np

from .arithmetic import Arithmetic
from .events import FULL, Sampling, plain_sampling
from .facts import Answer, Facts, Released, facts_of, facts_of_columns, resized, shown, shown_trace
from .features import Features, even, features_anew
from .gate import Desk, secret
from .meter import AdditiveMeter, PlanMeter
from .models import Additive, Model
from .opening import MeterView, checked_meter
from .process import own_settings
from .question import HowAsked, checked_noise, plain, rebuilt
from .questions.columns import Histograms
from .questions.moments import Count
from .stores import counted_of, records_of
from .stores.grid import Allocator, in_memory
from .stores.shards import Shards, Unroll
from .stores.tables import ColumnRecords
from .stores.totals import Floats, expected_size
from .units import Unit
from .walks.objective import PerturbedObjective
from .walks.oneshot import Descent, NoisyWalk, OnePass, rebuilt_walk


class Curator:
    """Holds the private records, the model and its loss; every answer is charged before it is computed.

    ``size``: the number of records when that is public (always so under replace_one); None when it is private, to be
    bought with :meth:`release_size`. It is never compared with the number of rows.
    A record whose label is ``NO_LABEL`` or ``NO_CLASS`` keeps its place and is in no answer (:mod:`.gate`).
    ``row_bound``: a public bound on the norm of every row that the data holder has enforced; infinite if none.
    ``seed``: makes the run a simulation; without it all randomness comes from the operating system.
    ``store``: where laid out rows are kept, in memory or (``Mapped``) in a file without a name.
    ``rows_per_unit``: the unit is a person with at most that many rows here; None: the unit is a row.
    ``unroll``: trusted code that trains inside a shard; without it nothing is asked of shards.
    """

    __slots__ = ("__basis", "__desk", "__facts", "__features", "__model", "__shards", "__store")

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        model: Model,
        meter: AdditiveMeter | PlanMeter,
        size: float | None,
        row_bound: float = math.inf,
        seed: int | None = None,
        store: Allocator = in_memory,
        rows_per_unit: int | None = None,
        unroll: Unroll | None = None,
    ) -> None:
        model = deepcopy(model)  # of its own: one who holds the same model could give it another loss
        meter = checked_meter(meter)
        unit = Unit(rows_per_unit)
        unit.counted()  # refused if it is none
        if size is None and unit.fixes_size(meter.budget.adjacency):
            raise ValueError("size is missing; under replace_one the size is public, pass it")
        if size is not None and not 1 <= size <= 1e15:
            raise ValueError(f"size is {size!r}; pass the public number of records, from 1 to 1e15, or None to buy it")
        if not row_bound > 0:
            raise ValueError(f"row_bound is {row_bound!r}; pass a bound > 0 on the norm of every row, or infinity")
        self.__store = store
        coins = secret(seed, "module").words if model.tensors else None
        with own_settings():  # a method has named its terms by now, and may have left something behind
            model.refuse_rows(X, y)
            records = records_of(model, X, y, store, coins)
            self.__desk = Desk(meter, seed, records, counted_of(model, X, y))
        self.__model = model
        self.__shards = None if unroll is None else Shards(deepcopy(model), unroll, secret(seed, "shards"))
        self.__basis: Floats | None = None
        self.__features = even(()) if isinstance(model, Additive) else None  # as its records were laid out
        self.__facts = facts_of(model, meter.budget, size=size, row_bound=float(row_bound), unit=unit)

    @property
    def facts(self) -> Facts:
        """What is public or already released: a copy, so that changing it changes no price."""
        return shown(self.__facts)

    @property
    def meter(self) -> MeterView:
        """A view of the meter that every question is charged to."""
        return self.__desk.view

    @property
    def trace(self) -> tuple[Released, ...]:
        """Every answered question, described by released facts."""
        return shown_trace(self.__desk.trace)

    @property
    def arithmetic(self) -> Arithmetic:
        """The grade of the sums and the noise of all answers so far."""
        return self.__desk.arithmetic

    @property
    def simulation(self) -> bool:
        """Whether the noise can be reproduced from a seed, and so is not private."""
        return self.__desk.stream.simulation

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        """Check, spend, total, noise, log: the one way to an answer.

        *Guarantee*: the question's own; see its class. ``noise`` is the noise multiplier, or the epsilon of a choice.
        """
        asked, plainly, multiplier = rebuilt(question), plain_sampling(sampling), checked_noise(noise)
        records, facts = self.__desk.records, self.__facts  # code that changes both does so in the opposite order
        asked.check(facts)
        known = self.__known_size() if asked.mean else facts.size
        size = math.nan if known is None else expected_size(plainly, known)
        rows = asked.refuse(facts.budget.adjacency, plainly, facts.unit)
        how = HowAsked(facts.budget.adjacency, plainly, multiplier, size, facts.features, rows)
        if asked.sharded and self.__shards is None:
            raise ValueError("shards are asked of in a run of noisewise.train alone")
        shards = self.__shards if asked.sharded else None
        return self.__desk.release(asked, how, facts, records, shards)

    def last_iterate(self, walk: NoisyWalk) -> Answer:
        """The end of a whole walk: :class:`Descent` (noise at the end) or :class:`OnePass` (noise at every step).

        *Guarantee*: argued in their docstrings; both are the event Gaussian(walk.noise_multiplier), Descent under both
        relations, OnePass under replace_one. ``noise_std`` is that of the last step for OnePass.
        """
        if type(walk) not in (Descent, OnePass):
            raise TypeError(f"{type(walk).__name__} is not a walk; pass frozen data, Descent(...) or OnePass(...)")
        return self.__ended(walk)

    def minimise(self, objective: PerturbedObjective) -> Answer:
        """The minimiser of a randomly perturbed objective; ``noise_std`` is that of the small noise on top of it.

        *Guarantee*: argued in :class:`PerturbedObjective`; one event ApproximateDP(epsilon, delta).
        """
        if type(objective) is not PerturbedObjective:
            raise TypeError(f"{type(objective).__name__} is not an objective; pass PerturbedObjective(...)")
        return self.__ended(objective)

    def __ended(self, asked: Any) -> Answer:
        """The end of a whole run: rebuilt, priced from public facts, paid for, run, noised."""
        with own_settings():
            records, facts = self.__desk.records, self.__facts
            asked.refuse(facts.budget.adjacency, FULL, facts.unit)
            asked.of_model(facts)
            whole, size = rebuilt_walk(asked, facts.dimension), self.__known_size()
        return self.__desk.end(whole, self.__model, facts, size, records)

    def release_size(self, *, noise_multiplier: float) -> float:
        """Buy the number of records, at least 1; from then on sums are divided by it."""
        answer = self.ask(Count(), noise=noise_multiplier)
        return self.__sized(float(answer.value))

    def __sized(self, size: float) -> float:
        with self.__desk:  # a basis that changed meanwhile would lose its bound on rows
            self.__facts = replace(self.__facts, size=max(size, 1.0))
        return max(size, 1.0)

    def take_up(self, line: Released, asked: Any = None, size: float | None = None) -> None:
        """Charge for an answer that an earlier process of this run requested, and add it to the trace.

        ``size``: what :meth:`release_size` released then, at least 1 here too: another question may have been the one
        that was answered. *Sensitivity*: nothing is drawn and no record is touched.
        """
        kind: type[Any] = type(asked)
        if asked is not None and kind not in (Descent, OnePass, PerturbedObjective):
            kind = type(rebuilt(asked))  # refused if it is no question
        self.__desk.take_up(line, None if asked is None else kind)
        if size is not None:
            self.__sized(float(size))

    def forfeit(self, share: float) -> None:
        """Give up the budget up to this share: an earlier process of this run may have spent it on answers that are lost."""
        self.__desk.forfeit(share)

    def change_basis(self, matrix: Floats) -> None:
        """From now on every row x is x @ matrix, a public square matrix; theta is asked about in the new basis.

        *Sensitivity*: nothing is released. The matrix is data that was public or released before, applied to each row
        by itself, so a neighbouring data set still differs in one record; what is asked later is clipped anew.
        The bound on the rows grows by the matrix's spectral norm.
        """
        if isinstance(self.__model, Additive):
            raise TypeError("rows of a table are made by features; ask for others with prepare, not for another basis")
        self.__about_rows("another basis")
        features, entries = self.__facts.features, plain(matrix)
        square = isinstance(entries, np.ndarray) and entries.shape == (features, features)
        if not square or not np.isfinite(entries).all() or not 1e-15 <= np.abs(entries).max() <= 1e15:
            raise ValueError(f"matrix must be a {features} x {features} matrix with a largest entry from 1e-15 to 1e15")
        step = entries.astype(np.float64)
        norm = float(np.linalg.norm(step, 2)) * (1 + 2.0**-20)
        with self.__desk:  # nothing after this can fail: rows, basis and bound change together
            basis = step if self.__basis is None else self.__basis @ step
            records = self.__desk.records.in_basis(step, self.__store)
            self.__basis, self.__facts = basis, replace(self.__facts, row_bound=self.__facts.row_bound * norm)
            self.__desk.records = records  # last, as in `prepare`

    @property
    def features(self) -> Features | None:
        """The features that rows of a table are made of: a copy."""
        return None if self.__features is None else features_anew(self.__features)

    def prepare(self, features: Features) -> None:
        """From now on rows are made from the table's cells by ``features``; theta has ``features.width`` entries.

        *Sensitivity*: nothing is released. Features are frozen data that was public or released before, made anew from
        plain numbers, and applied to each row by itself; what is asked later is clipped anew.
        """
        if not isinstance(self.__model, Additive):
            raise TypeError("there is no table to make features of; train on a table with declared columns")
        own = features_anew(features)
        own.check(self.__facts.table)
        model = self.__model.of_width(own.width)
        with self.__desk:
            records, self.__model, self.__features = self.__desk.records.prepared(own, self.__store), model, own
            self.__facts = resized(self.__facts, model, row_bound=1.0)
            self.__desk.records = records

    def centre(self, centre: Floats, scale: float) -> None:
        """From now on every row x of a table, as prepared, is scale (x - centre), both public.

        *Sensitivity*: nothing is released; see :meth:`prepare`.
        """
        if not isinstance(self.__model, Additive):
            raise TypeError("rows can be centred when they are made of a table; use change_basis for others")
        middle, times = np.asarray(plain(centre), np.float64), float(plain(scale))
        with self.__desk:
            records = self.__desk.records.centred(middle, times, self.__store)
            self.__facts = replace(self.__facts, row_bound=times * (1 + float(np.linalg.norm(middle)) + 2.0**-4))
            self.__desk.records = records

    def in_first_basis(self, theta: Floats) -> Floats:
        """The theta that scores original rows as the given one scores the rows now; from released facts."""
        return theta if self.__basis is None else self.__model.in_old_basis(theta, self.__basis)

    def __about_rows(self, what: str) -> None:
        if self.__facts.tensors:
            raise ValueError(f"{what} is for rows of numbers, and a module's records are tensors; ask for gradients")

    def __known_size(self) -> float:
        if self.__facts.size is None:
            raise RuntimeError("the size of the data is private; buy it first with release_size(noise_multiplier=...)")
        return self.__facts.size

    def __repr__(self) -> str:
        return f"Curator({self.__facts})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a curator holds private records and is never copied or saved; save the released model instead")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse


class ColumnCurator:
    """Answers :class:`Histograms` about columns as they come from a file, before there are bounds to scale them by.

    ``pieces`` reads the private columns; every answer is charged before it is computed.
    """

    __slots__ = ("__columns", "__desk", "__rows")

    def __init__(
        self,
        pieces: Callable[[], Iterable[Floats]],
        columns: int,
        *,
        meter: AdditiveMeter | PlanMeter,
        seed: int | None = None,
        rows_per_unit: int | None = None,
    ) -> None:
        if (columns := index(columns)) < 1:
            raise ValueError(f"columns is {columns!r}; pass at least one")
        meter = checked_meter(meter)
        self.__columns, self.__rows = columns, Histograms.refuse(meter.budget.adjacency, FULL, Unit(rows_per_unit))
        self.__desk = Desk(meter, seed, ColumnRecords(pieces, columns))

    @property
    def meter(self) -> MeterView:
        """A view of the meter that every question is charged to."""
        return self.__desk.view

    @property
    def trace(self) -> tuple[Released, ...]:
        """Every answered question, described by released facts."""
        return shown_trace(self.__desk.trace)

    def histograms(self, edges: Floats, *, noise_multiplier: float) -> tuple[Floats, float]:
        """How many values lie between the edges of every column, and the noise's deviation: :class:`Histograms`."""
        asked = Histograms(plain(edges))  # of plain copies, and so not rebuilt
        if len(asked.edges) != self.__columns:
            raise ValueError(f"edges must be {self.__columns} rows of at least two finite, growing numbers")
        adjacency, noise = self.__desk.view.budget.adjacency, checked_noise(noise_multiplier)
        facts = facts_of_columns(self.__desk.view.budget, self.__columns)
        how = HowAsked(adjacency, FULL, noise, math.nan, self.__columns, self.__rows)
        answer = self.__desk.release(asked, how, facts, self.__desk.records)
        return answer.value, answer.noise_std

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a curator holds private records and is never copied or saved")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse
