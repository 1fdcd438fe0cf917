"""Private records of a torch module: clipped sums of float passes, put into integers, under the core's exact noise.

Records are tensors of any shape. Passes run over chunks of at most ``model.chunk`` rows. No record can raise, stop or steer
anything: a gradient that is not finite counts as zero, a loss that is not finite as its bound, and where a pass fails its
rows are tried in halves, until the one that makes it fail is left out alone.

*Grades.* "assumed": a record's part of a sum has norm at most the clip if floats are taken for real numbers, which float32
products are not; every engine does so. What is certain: factors leave a margin for the rounding of one record's own part
(``MARGIN``), chunks are added in double precision, and the one rounding to whole numbers is charged in full.

"bounded" charges the rounding itself. Passes in double precision (u = 2^-53); chunks of one height h, padded with rows that
count as nothing; a record's factor f also keeps f sum_t |a_t||b_t| <= K C over the terms of its gradient, K = ``CAP``, so
that terms that cancel cannot hide; each chunk's sum is put into integers, which add up exactly. A chunk sums at most h T
terms of norm at most h K C in all (T positions in a record): it errs by at most u h T h K C, and n_max / h chunks by
n_max u h T K C. Two neighbours err twice that: e = 2 n_max u h T K, in clip norms. The norms themselves err by no more than
(d + T^2 + 16) u K^2 of the square, four times which is added, and whole numbers by sqrt(d) in each chunk. All of it is taken
off the clip beforehand, for n_max = ``MOST`` records. That a row's own pass has the same bits in every place of a chunk is an
assumption; a self-test at the start looks for the contrary.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import Arithmetic
from ..engine import Refused, Tape, clip_factors
from ..late import Tensor, torch
from ..models.module import ModuleModel, TensorRows, flat, own_settings
from .linear import cut_losses, ramp
from .totals import Drawn, Floats, IntegerTotal

ONES = 1 << 36  # what a clip norm is in whole numbers
MOST = 10**8  # records of a data set: ONES times as many fit into 63 bits
COUNT = 1 << 20  # units of a count or a loss that one record adds at most
MARGIN = 2.0**-14  # of the clip: rounding of one record's part in single precision
CAP = 8.0  # K
UNIT = 2.0**-53
NO_BITS = "AES is pseudo-random"
ASSUMED = Arithmetic(
    "assumed",
    (
        NO_BITS,
        "sums of a torch module's clipped gradients in floating point are those of real numbers, and a record's gradient does "
        "not depend on the others of its batch (the module was tested on made-up rows); pass arithmetic='bounded' for more",
    ),
)
BOUNDED = Arithmetic(
    "bounded",
    (
        NO_BITS,
        "a torch module's passes in double precision give a row the same bits in every place of a chunk of constant height, as "
        "a self-test with made-up rows found at the start",
        f"there are at most {MOST:,} records, for which the rounding of sums is charged",
        "functions of torch round each elementary operation as IEEE 754 does",
    ),
)
R = TypeVar("R")
Coins = Callable[[int], NDArray[np.int64]]


class ModuleRecords:
    """Records as tensors, and a module of which nobody else holds the copy."""

    __slots__ = ("_coins", "_model", "_rows")
    coordinates: ClassVar[bool] = False

    def __init__(self, rows: TensorRows, model: ModuleModel, coins: Coins) -> None:
        self._rows, self._model, self._coins = rows, model, coins

    @property
    def arithmetic(self) -> Arithmetic:
        return BOUNDED if self._model.double else ASSUMED

    @property
    def columns(self) -> int:
        return self._model.features

    def __len__(self) -> int:
        return len(self._rows)

    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal:
        """The sum of gradients, each clipped to norm ``clip``; one that is not finite counts as zero."""
        values = self._clipped(drawn, theta, clip, math.inf)
        return IntegerTotal(values, ONES, clip)

    def layered(self, drawn: Drawn, theta: Floats, clips: Sequence[float]) -> list[IntegerTotal]:
        """The same with a clip norm for each parameter, a total for each."""
        values, ends = self._clipped(drawn, theta, list(clips), min(clips)), np.cumsum(self._model.groups)[:-1]
        return [IntegerTotal(part, ONES, clip) for part, clip in zip(np.split(values, ends), clips, strict=True)]

    def short(self, drawn: Drawn, theta: Floats, threshold: float, **seen: Any) -> IntegerTotal:
        """How many gradients are short, along a ramp."""

        def count(rows: TensorRows, alive: int) -> int:
            tape, _ = self._pass(rows)
            lengths = tape.squared_norms().double().sum(0).sqrt()[:alive].cpu().numpy()
            tape.free()
            return int(ramp(lengths, np.isfinite(lengths), threshold, COUNT).sum())

        total = sum(self._over(drawn, theta, count, -COUNT))
        return IntegerTotal(np.array([total], np.int64), COUNT, 0.5)

    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal:
        """The sum of losses cut to [0, bound] at each theta; one that is not finite counts as the bound."""

        def cut(rows: TensorRows, alive: int) -> int:
            values = self._model.values(rows).double()[:alive].cpu().numpy()
            return int(cut_losses(values, np.ones(len(values), bool), bound, COUNT).sum())

        return IntegerTotal(
            np.array([sum(self._over(drawn, theta, cut, COUNT)) for theta in thetas], np.int64), COUNT, bound
        )

    def _clipped(
        self, drawn: Drawn, theta: Floats, clips: float | list[float], least: float
    ) -> NDArray[np.int64]:
        """Sums in whole numbers of which ``ONES`` stand for a clip norm, parameter by parameter."""
        each = isinstance(clips, list)
        sizes = torch.tensor(self._model.groups)
        margin = self.margin(int(sizes.max()) if each else int(sizes.sum()))
        used = [clip * (1 - margin) for clip in clips] if isinstance(clips, list) else clips * (1 - margin)
        worth = torch.tensor(clips, dtype=torch.float64).repeat_interleave(sizes) if each else clips
        total = torch.zeros(int(sizes.sum()), dtype=torch.int64 if self._model.double else torch.float64)

        def add(rows: TensorRows, alive: int) -> None:
            tape, _ = self._pass(rows)
            factors = self._factors(tape, used)
            factors[..., alive:] = 0.0
            part = torch.nan_to_num(flat(tape.sums(factors)) * (ONES / worth), posinf=0.0, neginf=0.0)
            tape.free()
            total.add_(part.trunc_().long() if self._model.double else part)

        self._over(drawn, theta, add, None)
        return np.asarray((total if self._model.double else total.trunc_().long()).numpy())

    def margin(self, dimension: int) -> float:
        """What is taken off a clip norm, as a share of it, for rounding in sums of vectors with so many entries."""
        model = self._model
        whole = math.sqrt(dimension) / ONES
        if not model.double:
            return MARGIN + whole
        terms, chunks = model.layout.terms, -(-MOST // model.chunk) + 1
        sums = 2 * MOST * UNIT * model.chunk * terms * CAP
        norms = 4 * (dimension + terms**2 + 16) * UNIT * CAP**2
        charged = sums + norms + whole * chunks
        return 1 - 1 / (1 + charged)

    def _factors(self, tape: Tape, clip: float | list[float]) -> Tensor:
        factors = clip_factors(tape.squared_norms(), clip)
        if not self._model.double:
            return factors
        terms, most = tape.term_norms(), CAP * (min(clip) if isinstance(clip, list) else clip)
        capped = torch.where(terms <= most, 1.0, most / terms)  # false for NaN, whose factor is 0 already
        least = torch.minimum(factors, capped) if factors.ndim == 1 else torch.minimum(factors, capped[None])
        return torch.where(torch.isfinite(least), least, 0.0)

    def _pass(self, rows: TensorRows) -> tuple[Tape, Tensor]:
        return self._model.booked(rows, int(self._coins(1)[0]))

    def _over(
        self, drawn: Drawn, theta: Floats, visit: Callable[[TensorRows, int], R], absent: R
    ) -> list[R]:
        """``visit`` of every chunk of the batch; ``absent`` for a record whose pass fails."""
        height, found = self._model.chunk, []
        numbers = None if drawn.rows is None else torch.from_numpy(drawn.rows)
        with own_settings(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._model.put(torch.from_numpy(np.ascontiguousarray(theta, dtype=np.float32)))
            for start in range(0, drawn.count(len(self)), height):
                length = min(height, drawn.count(len(self)) - start)
                here = self._rows.narrow(start, length) if numbers is None else self._rows.take(numbers[start:][:length])
                found += self._visited(here, visit, absent)
        return found

    def _visited(self, rows: TensorRows, visit: Callable[[TensorRows, int], R], absent: R) -> list[R]:
        count = len(rows)
        try:
            return [visit(self._padded(rows), count)]
        except Exception:
            if count == 1:
                return [absent]
        half = count // 2
        first, second = rows.narrow(0, half), rows.narrow(half, count - half)
        return [*self._visited(first, visit, absent), *self._visited(second, visit, absent)]

    def _padded(self, rows: TensorRows) -> TensorRows:
        """Chunks of one height where that matters: the last row is repeated, and counts as nothing."""
        lack = self._model.chunk - len(rows)
        if not self._model.double or lack == 0:
            return rows
        places = torch.arange(self._model.chunk).clamp_(max=len(rows) - 1)
        return rows.take(places)

    def _rows_alone(self, *_: object, **__: object) -> NoReturn:
        raise ValueError("a module's records are tensors, not rows of numbers; ask for gradients")

    vectors = row_sum = unit_rows = scored = float_rows = in_basis = _rows_alone


def held_tensors(X: Sequence[Tensor], y: Sequence[Tensor], model: ModuleModel, coins: Coins | None) -> ModuleRecords:
    """Private records of a module; ``coins``: what the module's own draws (dropout) are seeded by."""
    if len(X[0]) > MOST:
        raise ValueError(f"more than {MOST:,} records do not fit; pass fewer")
    if model.double:
        refuse_places(model)
    return ModuleRecords(TensorRows(tuple(X), tuple(y)), model, coins or _no_coins)


def _no_coins(many: int) -> NDArray[np.int64]:
    """For tests of modules that draw nothing."""
    return np.ones(many, np.int64)


def refuse_places(model: ModuleModel) -> None:
    """Refuse a module that gives one made-up row other losses or norms in other places of a chunk, or in other company."""
    generator = torch.Generator().manual_seed(0)
    places = torch.arange(model.chunk)
    some = TensorRows(
        tuple(_made_up(spec, model.chunk, generator) for spec in model.inputs),
        tuple(_made_up(spec, model.chunk, generator) for spec in model.targets),
    )
    seen = []
    with own_settings(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in (0, 1, model.chunk // 2):
            tape, losses = model.booked(some.take((places + turn) % model.chunk), 1)
            norms = tape.squared_norms()
            seen.append([torch.roll(part, turn, -1) for part in (losses, norms)])
            tape.free()
    if any(not torch.equal(one, other) for turned in seen[1:] for one, other in zip(seen[0], turned, strict=True)):
        raise Refused(
            "in this module a row's gradient depends on its place in a chunk (rounding, or something random like dropout), "
            "which arithmetic='bounded' excludes; pass arithmetic='assumed', or modules without randomness"
        )


def _made_up(spec: Any, rows: int, generator: torch.Generator) -> Tensor:
    shape = (rows, *spec.shape)
    if spec.dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(spec.dtype)
    return torch.randint(0, spec.high or 2, shape, generator=generator).to(spec.dtype)
