"""Private records of a torch module: clipped sums of float passes, put into integers, under the core's exact noise.

Records are tensors of any shape. Passes run over chunks of at most ``model.chunk`` rows, each record alone in its own. No record can
raise, stop or steer anything: a gradient that is not finite counts as zero, a loss that is not finite as its bound, and where a
function raises in a pass, whatever the module made of that, its rows are tried in halves, until the one that it raises for is left out
alone. (A half in which nothing raised gives each of its records what a pass of its own would.)

*Grades.* "assumed": a record's part of a sum has norm at most the clip if floats are taken for real numbers, which float32
products are not; every engine does so. What is certain: factors leave a margin for the rounding of one record's own part
(``MARGIN``), chunks are added in double precision, and the one rounding to whole numbers is charged in full.

"bounded" charges the rounding itself. Chunks have one height h, from public facts, and are padded with rows that count as nothing.
One pass books every record's factors, and both its norm and its part of the sum are made of those numbers; what rounds otherwise
in the two is charged. Three kinds of books (:mod:`noisewise.trusted.engine.entries`):

* gradients themselves (``Direct``): norm and sum are of the same numbers, one term a record;
* dense layers without a sequence (``Outer``, one position): run in single precision, and what is normed and summed are products of
  the booked float32 numbers in double precision (u = 2^-53): one term a record;
* anything with positions (``Outer``, ``RowSums``, ``Windowed``): all runs in double precision, the norm comes from pairs of positions and
  the sum from one product over all of them. Terms may cancel, so a record's factor f also keeps f sum_t |a_t||b_t| <= K C, K = ``CAP``
  (for one position K = 1), summed over all entries of all parameters, tied and reused ones too.

A chunk sums at most h T terms of norm at most h K C in all (T positions in a record): it errs by at most u h T h K C, and n_max / h
chunks, whose sums are put into integers and add up exactly, by n_max u h T K C. Two neighbours err twice that: e = 2 n_max u h T K, in
clip norms. At several ranks (``world_size``) each has a last chunk of its own, which counts as one more, and where floats are taken for
reals each rounds its sum to whole numbers. Squared norms err by no more than (d + T^2 + 16) u K^2, four times which is added, and whole
numbers by sqrt(d) in each chunk. All of it is taken off the clip beforehand, for n_max = ``MAX_RECORDS`` records. That a row's own pass has the
same bits in every place of a chunk is an assumption; a self-test before the records are handed over looks for the contrary.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import Arithmetic
from ..engine import Tape, clip_factors
from ..engine.entries import Outer, squared_norms, weighted
from ..engine.torch_names import untested
from ..models.module import ModuleModel, TensorRows, flat, own_settings
from ..torch_extra import Tensor, torch
from .linear import cut_losses, ramp
from .protocol import HeldRecords
from .totals import Drawn, Floats, IntegerTotal

ONES = 1 << 36  # what a clip norm is in whole numbers
MAX_RECORDS = 10**8  # of a data set: ONES times as many fit into 63 bits
COUNT = 1 << 20  # units of a count or a loss that one record adds at most
MARGIN = 2.0**-14  # of the clip: rounding of one record's part in single precision
CAP = 8.0  # K
UNIT = 2.0**-53
ENDLESS = np.array([math.inf])  # the norm of a record for which a pass fails
NO_BITS = "AES is pseudo-random"
APART = (
    "torch's batching rules compute each record by itself: module and loss run on each record alone, with functions that were tested "
    "for it (docs/operations.md)"
)
ASSUMED = Arithmetic(
    "assumed",
    (
        NO_BITS,
        "sums of a torch module's clipped gradients in floating point are those of real numbers; pass arithmetic='bounded' for more",
        APART,
    ),
)
BOUNDED = Arithmetic(
    "bounded",
    (
        NO_BITS,
        APART,
        "a torch module's passes give a row the same bits in every place of a chunk of constant height, as a self-test with "
        "made-up rows found before the records were handed over",
        f"there are at most {MAX_RECORDS:,} records, for which the rounding of sums is charged",
        "functions of torch round each elementary operation as IEEE 754 does",
    ),
)
P = TypeVar("P")
R = TypeVar("R")
Coins = Callable[[int], NDArray[np.int64]]


def margin(dimension: int, world_size: int = 1) -> float:
    """The share of a clip norm that is set aside where floats are taken for real numbers: for rounding of one record's part, and of
    sums of vectors with ``dimension`` entries to whole numbers, once at every rank."""
    return MARGIN + math.sqrt(dimension) / ONES * world_size


class ModuleRecords(HeldRecords):
    """Records as tensors, and a copy of the module that no other code holds."""

    __slots__ = ("_coins", "_model", "_rows", "_seen")

    def __init__(self, rows: TensorRows, model: ModuleModel, coins: Coins) -> None:
        self._rows, self._model, self._coins = rows, model, coins
        self._seen: tuple[Drawn, Floats, list[Floats]] | None = None  # the norms of the last sum: a count may follow it

    @property
    def arithmetic(self) -> Arithmetic:
        own = BOUNDED if self._model.bounded else ASSUMED
        return own if (news := untested()) is None else own.assumed(news)

    @property
    def columns(self) -> int:
        return self._model.features

    def __len__(self) -> int:
        return len(self._rows)

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``; one that is not finite counts as zero."""
        return IntegerTotal(self._clipped(drawn, theta, clip), ONES, clip)

    def layered(self, drawn: Drawn, theta: Floats, clips: Sequence[float]) -> list[IntegerTotal]:
        """The same with a clip norm for each parameter, a total for each."""
        values, ends = self._clipped(drawn, theta, list(clips)), np.cumsum(self._model.groups)[:-1]
        return [IntegerTotal(part, ONES, clip) for part, clip in zip(np.split(values, ends), clips, strict=True)]

    def short(self, drawn: Drawn, theta: Floats, threshold: float, **seen: Any) -> IntegerTotal:
        """How many gradients are short, along a ramp; right after a sum over the same batch, from its norms."""
        seen_before, self._seen = self._seen, None
        if seen_before is not None and seen_before[0] is drawn and seen_before[1] is theta:
            lengths = seen_before[2]
        else:
            lengths = self._over(drawn, theta, self._pass, self._lengths, ENDLESS)
        total = sum(int(ramp(part, np.isfinite(part), threshold, COUNT).sum()) for part in lengths)
        return IntegerTotal(np.array([total], np.int64), COUNT, 0.5)

    def _lengths(self, tape: Tape, alive: int) -> Floats:
        squared = self._books(tape)[0]
        tape.free()
        return _norms(squared, alive)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound] at each theta; one that is not finite counts as the bound."""

        def cut(losses: Tensor, alive: int) -> int:
            values = losses.double()[:alive].cpu().numpy()
            return int(cut_losses(values, np.ones(len(values), bool), bound, COUNT).sum())

        totals = [sum(self._over(drawn, theta, self._model.values, cut, COUNT)) for theta in thetas]
        return IntegerTotal(np.array(totals, np.int64), COUNT, bound)

    def _clipped(self, drawn: Drawn, theta: Floats, clips: float | list[float]) -> NDArray[np.int64]:
        """Sums in whole numbers of which ``ONES`` stand for a clip norm, parameter by parameter."""
        sizes, bounded = torch.tensor(self._model.groups), self._model.bounded
        worth: Any = clips
        if isinstance(clips, list):
            margin = self.margin(int(sizes.max()))
            used: Any = [clip * (1 - margin) for clip in clips]
            worth = torch.tensor(clips, dtype=torch.float64).repeat_interleave(sizes)
        else:
            used = clips * (1 - self.margin(int(sizes.sum())))
        total = torch.zeros(int(sizes.sum()), dtype=torch.int64 if bounded else torch.float64)

        def add(tape: Tape, alive: int) -> Floats:
            squared, sums = self._books(tape)
            factors = self._factors(tape, squared, used)
            factors[..., alive:] = 0.0
            part = torch.nan_to_num(flat(sums(factors)) * (ONES / worth), posinf=0.0, neginf=0.0)
            lengths = _norms(squared, alive)
            tape.free()
            total.add_(part.trunc_().long() if bounded else part)  # last: what fails before it is tried again in halves
            return lengths

        self._seen = drawn, theta, self._over(drawn, theta, self._pass, add, ENDLESS)
        return np.asarray((total if bounded else total.trunc_().long()).numpy())

    def margin(self, dimension: int) -> float:
        """The share of a clip norm that is set aside for rounding in sums of vectors with ``dimension`` entries."""
        whole, world_size = math.sqrt(dimension) / ONES, self._model.world_size
        if not self._model.bounded:
            return margin(dimension, world_size)
        height, terms = self._model.chunk, self._model.layout.terms
        chunks = -(-MAX_RECORDS // height) + world_size
        cap = CAP if self._model.double else 1.0
        sums = 2 * (MAX_RECORDS + (world_size - 1) * height) * UNIT * height * terms * cap
        norms = 4 * (dimension + terms**2 + 16) * UNIT * cap**2
        return 1 - 1 / (1 + sums + norms + whole * chunks)

    def _books(self, tape: Tape) -> tuple[Tensor, Callable[[Tensor], Sequence[Tensor]]]:
        """Squared norms and weighted sums; where passes are in single precision and bounded, of books in double."""
        if self._model.bounded and not self._model.double:  # which has no tied weights: one entry each
            wide = [[in_double(entry) for entry in entries] for entries in tape.uses()]
            return torch.stack([squared_norms(entries) for entries in wide]), partial(_weighted, wide)
        return tape.squared_norms(), tape.sums

    def _factors(self, tape: Tape, squared: Tensor, clip: float | list[float]) -> Tensor:
        factors = clip_factors(squared, clip)
        if not self._model.double:
            return factors
        terms, most = tape.term_norms(), CAP * (min(clip) if isinstance(clip, list) else clip)
        capped = torch.where(terms <= most, 1.0, most / terms)  # false for NaN, whose factor is 0 already
        least = torch.minimum(factors, capped if factors.ndim == 1 else capped[None])
        return torch.where(torch.isfinite(least), least, 0.0)

    def _pass(self, rows: TensorRows) -> Tape:
        with torch.enable_grad():
            return self._model.booked(rows, int(self._coins(1)[0]))[0]

    def _over(
        self, drawn: Drawn, theta: Floats, run: Callable[[TensorRows], P], visit: Callable[[P, int], R], absent: R
    ) -> list[R]:
        """``visit`` of a ``run`` over every chunk of the batch; ``absent`` for a record for which a run fails."""
        count, found = drawn.count(len(self)), list[R]()
        numbers = None if drawn.rows is None else torch.from_numpy(drawn.rows)
        with self._chances(), own_settings(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._model.put(theta)
            for start in range(0, count, self._model.chunk):
                length = min(self._model.chunk, count - start)
                here = (
                    self._rows.narrow(start, length) if numbers is None else self._rows.take(numbers[start:][:length])
                )
                found += self._tried(here, lambda rows: visit(run(self._padded(rows)), len(rows)), absent)
        return found

    def _tried(self, rows: TensorRows, see: Callable[[TensorRows], R], absent: R) -> list[R]:
        """``see`` of these rows; in halves where that fails, and ``absent`` for a record for which it fails alone."""
        with suppress(Exception):
            return [see(rows)]
        half = len(rows) // 2
        if not half:
            return [absent]
        parts = rows.narrow(0, half), rows.narrow(half, len(rows) - half)
        return [one for part in parts for one in self._tried(part, see, absent)]

    @contextmanager
    def _chances(self) -> Iterator[None]:
        """A module or a loss draws from a secret seed in here; the generators of the caller stay as they were.

        How far they had advanced would show how many records there are.
        """
        seed, device, before = int(self._coins(1)[0]), self._model.device, (random.getstate(), np.random.get_state())
        devices = [device.index or 0] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            for generator in (torch.default_generator, *(torch.cuda.default_generators[one] for one in devices)):
                generator.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            try:
                yield
            finally:
                random.setstate(before[0])
                np.random.set_state(before[1])

    def _padded(self, rows: TensorRows) -> TensorRows:
        """Chunks of one height where that matters: the last row is repeated, and counts as nothing."""
        height = self._model.chunk
        if not self._model.bounded or len(rows) == height:
            return rows
        return rows.take(torch.arange(height).clamp_(max=len(rows) - 1))


def held_tensors(X: Sequence[Tensor], y: Sequence[Tensor], model: ModuleModel, coins: Coins | None) -> ModuleRecords:
    """Private records of a module; ``coins``: what the module's own draws (dropout) are seeded by."""
    if len(X[0]) > MAX_RECORDS:
        raise ValueError(f"more than {MAX_RECORDS:,} records do not fit; pass fewer")
    return ModuleRecords(TensorRows(tuple(X), tuple(y)), model, coins or _no_coins)


def _no_coins(many: int) -> NDArray[np.int64]:
    """For tests of modules that draw nothing."""
    return np.ones(many, np.int64)


def _norms(squared: Tensor, alive: int) -> Floats:
    """Of the records that count."""
    return np.asarray(squared.double().sum(0).sqrt()[:alive].cpu().numpy())


def in_double(entry: Any) -> Any:
    """What a dense layer without a sequence has booked, in double precision."""
    if isinstance(entry, Outer):
        return replace(entry, a=entry.a.double(), b=entry.b.double())
    return replace(entry, gradients=entry.gradients.double())


def _weighted(wide: Sequence[Sequence[Any]], factors: Tensor) -> list[Tensor]:
    """:meth:`Tape.sums` of these books."""
    each = factors if factors.ndim == 2 else factors.expand(len(wide), -1)
    return [weighted(entries, factor, factor == 0) for entries, factor in zip(wide, each, strict=True)]
