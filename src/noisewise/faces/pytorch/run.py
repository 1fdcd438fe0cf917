"""One private run in a loop of the user's own: batches, clipped sums, and the noise that a step adds.

*One batch, one event.* A batch is paid for and drawn with the noise and the clip of that moment. Its rows are handed out in
one or several pieces; each piece goes through the module once, forward and backward, and adds its clipped sum. A step adds
the noise, once, and ends the batch. So each record has a part of norm at most the clip in each batch, and every batch that
got into a gradient has its own noise in it: that of the event which was paid.

* A second pass over a piece, a second step on a batch, a step without a batch: refused.
* Noise or clip changed after the draw: refused, as the loop has seen the batch by then.
* A batch drawn while an earlier one waits for its step (accumulation): the earlier one gets its own noise at once, and the
  step takes the sum of both, which is post-processing.
* A batch that never went through the module is dropped; it stays paid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..._version import __version__
from ...statements.reading_list import RunKind, code_of, files_of
from ...statements.statement import FORMAT, HYPER_PARAMETERS, Statement, promised
from ...statements.wording import FORMATS, derived_words
from ...trusted.arithmetic import Arithmetic
from ...trusted.counts import NotCopied
from ...trusted.engine import Layout, Refused, Tape, clip_factors, in_units
from ...trusted.engine.torch_names import untested
from ...trusted.events import Repeated, to_dict
from ...trusted.process import hide_memory
from ...trusted.stores.modules import APART, ONES, margin
from ...trusted.stores.totals import IntegerTotal
from ...trusted.tickets import Ticket
from ...trusted.torch_extra import Tensor, torch
from ...trusted.units import RECORD
from .loop_meter import LoopMeter

MAX_GRID_UNITS = float(1 << 61)
NUMBERS_PER_CALL = 1 << 21  # that get their noise in one call
ClipNorm = float | tuple[float, ...]


@dataclass
class PaidBatch:
    """A batch that was paid for, and what went through the module of it."""

    ticket: Ticket
    noise: float
    clip: ClipNorm
    last: bool = False  # whether the piece at hand is the last one
    rows: int = 0  # of the piece at hand
    stage: Literal["handed", "passed", "stepped"] = "stepped"  # of the piece at hand
    fresh: list[Tensor] = field(default_factory=list)  # the clipped sums of the piece at hand
    sums: list[Tensor] = field(default_factory=list)  # those of pieces before it
    any: bool = False  # whether a piece went through the module
    mark: object = None  # of the piece at hand: a pass counts for the piece that it began with, whose rows carry it


class EngineRun(NotCopied):
    """What the loader, the hooks of the module and the optimizer share. Nobody else holds the stream."""

    def __init__(
        self,
        ledger: LoopMeter,
        layout: Layout,
        parameters: Sequence[Tensor],
        *,
        noise: float,
        clip: ClipNorm,
        expected: float,
        mean: bool,
    ) -> None:
        super().__init__()
        hide_memory()
        self.ledger, self.layout, self.sampling = ledger, layout, ledger.sampling
        self.parameters = tuple(parameters)
        self._noise, self._clip = noise, clip
        self.expected, self.mean = expected, mean
        self._batch: PaidBatch | None = None
        self._waiting: list[Tensor] = []  # released gradients of batches whose step is still to come
        self._waits = 0  # how many they are
        self.marks = False  # whether rows that were handed out carry marks
        self.stepping: object = None  # the optimizer that makes a step with a released gradient right now
        self._groups = _together(self.parameters)
        self._room = np.empty(max(_numbers(self.parameters[some]) for some in self._groups), np.int64)
        self.steps = 0

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a private run is not copied or pickled: the copy would spend the same budget, or draw the same noise, twice; "
            "copy the module, or save a checkpoint"
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    @property
    def noise(self) -> float:
        """The noise multiplier of the next batch."""
        return self._noise

    @noise.setter
    def noise(self, value: float) -> None:
        value = float(value)
        with self._lock:
            if value != self._noise:
                if not (math.isfinite(value) and 0 < value <= 2.0**20):
                    raise ValueError(f"noise_multiplier is {value!r}; pass a finite number > 0")
                self.ledger.may_change(value)
                self._noise = value

    @property
    def clip(self) -> ClipNorm:
        """The clip of the next batch: one norm, or one for each parameter."""
        return self._clip

    @clip.setter
    def clip(self, value: ClipNorm) -> None:
        self._clip = checked_clip(value, len(self.parameters), isinstance(self._clip, tuple))

    def words(self) -> int:
        """A fresh secret number, for what is random inside of the module."""
        return self.ledger.gate.word()

    # -- batches ---------------------------------------------------------------------------------------------------

    def draw(self, records: Any) -> tuple[PaidBatch, NDArray[np.int64]]:
        """Pay for a batch and draw its secret row numbers. When it is refused, no batch is left to step on."""
        self._check_process()
        with self._lock:
            before, self._batch = self._batch, None
            if before is not None:
                self._wait(before)
            ticket = self.ledger.draw(self._noise, records)
            batch = self._batch = PaidBatch(ticket, self._noise, self._clip)
            return batch, ticket.rows

    def hand_out(self, batch: PaidBatch, rows: int, *, last: bool) -> object:
        """A piece of the batch goes to the loop, with this mark; records of another batch would count twice in this one."""
        with self._lock:
            if batch is not self._batch:
                raise RuntimeError("another batch was drawn while this one was handed out; use one iterator at a time")
            self._take(batch)
            batch.mark, batch.rows, batch.last = object(), rows, last
            batch.stage = "handed"  # last: rows with an earlier mark are refused by then
            return batch.mark

    def mark(self) -> object | None:
        """What a pass of the module counts for: the piece that was handed out last; None when its step was made."""
        return None if self._batch is None or self._batch.stage == "stepped" else self._batch.mark

    def waits_for_nothing(self) -> bool:
        """Whether the piece at hand is empty."""
        return self._batch is not None and not self._batch.rows

    def passed_nothing(self) -> None:
        """An empty piece went through the module."""
        batch = self._batch
        if batch is not None and batch.stage == "handed":
            if batch.rows:
                raise Refused(OTHER_ROWS)
            batch.stage = "passed"

    def passed(self, tape: Tape, rows: int, mark: object) -> None:
        """A backward pass has ended: add the clipped sum of its rows."""
        clip = self._passing(rows, mark).clip
        share = 1 - margin(_numbers(self.parameters))
        used = [one * share for one in clip] if isinstance(clip, tuple) else clip * share
        fresh = [part.detach() for part in tape.sums(clip_factors(tape.squared_norms(), used))]
        with self._lock:  # another thread may have been as far, or further
            batch = self._passing(rows, mark)
            batch.fresh, batch.stage = fresh, "passed"

    def _passing(self, rows: int, mark: object) -> PaidBatch:
        """The batch of which a piece may count now, for the first time."""
        batch = self._batch
        if batch is None or batch.mark is not mark:
            raise Refused(
                "a backward pass over records of an earlier batch; go back through a batch before the next one"
            )
        if batch.stage != "handed":
            raise Refused(
                "a second backward pass over the same records: each of them counts once in a step; add up the losses "
                "first, call the module once, or call optimizer.zero_grad() to forget the first pass"
            )
        if rows != batch.rows:
            raise Refused(OTHER_ROWS)
        if batch.clip != self._clip:
            raise RuntimeError(CHANGED.format("max_grad_norm"))
        return batch

    def forget(self) -> None:
        """What ``zero_grad`` does: the pass over the piece at hand, and released gradients that wait, are dropped."""
        with self._lock:
            self._waiting, self._waits = [], 0
            if self._batch is not None and self._batch.stage == "passed" and self._batch.rows:
                self._batch.fresh, self._batch.stage = [], "handed"

    # -- steps -----------------------------------------------------------------------------------------------------

    def step(self) -> list[Tensor] | None:
        """The noisy gradient of the batch, one tensor for each parameter; None when further pieces of it are to come."""
        self._check_process()
        with self._lock:
            batch = self._batch
            if batch is None or batch.stage == "stepped":
                raise RuntimeError(
                    "there is no batch to step on: one batch, one step. Draw the next one from the data loader that "
                    "make_private returned"
                )
            if batch.stage == "handed":
                raise RuntimeError(
                    "the batch has not gone through the module: call the module that make_private returned in train mode, "
                    "then loss.backward(), then optimizer.step(); for an empty batch, too"
                )
            if batch.noise != self._noise:
                raise RuntimeError(CHANGED.format("noise_multiplier"))
            if batch.clip != self._clip:
                raise RuntimeError(CHANGED.format("max_grad_norm"))
            self._take(batch)
            if not batch.last:
                return None
            self._wait(batch)
            self._batch = None
            released, self._waiting, many, self._waits = self._waiting, [], self._waits, 0
            self.steps += 1
        return [part / many for part in released] if self.mean and many > 1 else released

    def _take(self, batch: PaidBatch) -> None:
        """Add the piece at hand to those before it: in double precision, as soon as there are two."""
        fresh, batch.any = batch.fresh, batch.any or batch.stage == "passed"
        batch.fresh, batch.stage = [], "stepped"  # first: whatever ends this early, a piece counts once
        if fresh and batch.sums:
            batch.sums = [one.double() + more for one, more in zip(batch.sums, fresh, strict=True)]
        elif fresh:
            batch.sums = fresh

    def _wait(self, batch: PaidBatch) -> None:
        """Give a batch its noise; what waits is the sum of such gradients."""
        self._take(batch)
        if not batch.any:
            return
        released = self._released(batch)
        if self._waits:
            released = [one + more for one, more in zip(self._waiting, released, strict=True)]
        self._waiting, self._waits = released, self._waits + 1

    def _released(self, batch: PaidBatch) -> list[Tensor]:
        """The clipped sum with exact noise, over the expected number of records if losses are means."""
        norm = math.hypot(*batch.clip) if isinstance(batch.clip, tuple) else batch.clip
        released: list[Tensor] = []
        noisy = batch.ticket.release(self._totals(batch, norm), over=self.expected if self.mean else 1.0)
        for some, values in zip(self._groups, noisy, strict=True):
            parameters = self.parameters[some]
            parts = torch.from_numpy(values).split([parameter.numel() for parameter in parameters])
            released += [
                part.view(parameter.shape).to(parameter.device, parameter.dtype)
                for part, parameter in zip(parts, parameters, strict=True)
            ]
        return released

    def _totals(self, batch: PaidBatch, norm: float) -> Iterator[tuple[IntegerTotal, Any]]:
        """The clipped sum in whole numbers of which ``ONES`` stand for the clip, and the kind of floats it comes in."""
        for some in self._groups:
            parameters = self.parameters[some]
            if batch.sums:
                values = in_units(batch.sums[some], ONES / norm, MAX_GRID_UNITS, self._room)
            else:
                values = np.zeros(_numbers(parameters), np.int64)
            double = any(parameter.dtype == torch.float64 for parameter in parameters)
            yield IntegerTotal(values, ONES, norm), np.float64 if double else np.float32


def _numbers(parameters: Sequence[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _together(parameters: Sequence[Tensor]) -> list[slice]:
    """Neighbouring parameters that get their noise at once: few calls for small ones, little memory for large ones."""
    starts, room = [0], NUMBERS_PER_CALL
    for place, parameter in enumerate(parameters):
        if parameter.numel() > room and place > starts[-1]:
            starts.append(place)
            room = NUMBERS_PER_CALL
        room -= parameter.numel()
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(parameters)], strict=True)]


CHANGED = (
    "{} was changed after the batch was drawn; it was paid for as it was: set it back, or change it between a step and "
    "the next batch"
)
OTHER_ROWS = (
    "the module was given other rows than the data loader handed out, which are priced; give it the whole batch, once, the "
    "batch dimension first. For smaller pieces use BatchMemoryManager"
)


def checked_clip(value: Any, parameters: int, each: bool) -> ClipNorm:
    """One clip, or with ``each`` one for every parameter; a single number is dealt out evenly."""
    several = isinstance(value, list | tuple)
    numbers = [float(one) for one in value] if several else [float(value)]
    if not all(1e-12 <= one <= 1e12 for one in numbers):
        raise ValueError(f"max_grad_norm is {value!r}; pass a number from 1e-12 to 1e12")
    if not each:
        if several:
            raise ValueError("max_grad_norm is a list; pass one number, or clipping='per_layer'")
        return numbers[0]
    if not several:
        return (numbers[0] / math.sqrt(parameters),) * parameters
    if len(numbers) != parameters:
        raise ValueError(f"max_grad_norm has {len(numbers)} numbers; pass one for each of {parameters} parameters")
    return tuple(numbers)


# The privacy statement of a run in a loop of the user's own.


ARITHMETIC = Arithmetic(
    "assumed",
    (
        "sums of gradients, norms and clips in floats are as on real numbers, as every engine for modules takes them",
        APART,
        "AES is pseudo-random",
    ),
)
LOOP = (
    "the training loop, which sees the records: it gives each batch to the module as it comes, empty or not, trains by "
    "loss.backward() and optimizer.step() of this run alone, and what it prints or keeps otherwise (losses, accuracies, sizes of batches) is not "
    "covered",
    "the data set and its collate_fn: a row of a batch depends on its record alone, not on its company",
)
OWN_LOSS = "the loop's loss is a mean or sum of each record's own (pass criterion= to make_private, and it is so by construction)"
NO_CAP = "the number of steps: nothing capped it, and stopping by looking at results is not covered"
RESUMED = "the run was resumed: what was trained after the checkpoint it continues was thrown away unseen"


def statement_of(run: EngineRun, words: Mapping[str, Any], *, own_loss: bool, delta: float | None) -> Statement:
    """What the parameters promise at this moment; nothing when no batch was drawn, or without noise."""
    stated = run.ledger.stated(delta)
    assumed = [words["size"], *LOOP, *([OWN_LOSS] if own_loss else [])]
    if run.layout.frozen:
        assumed.append("parameters that do not train: " + ", ".join(run.layout.frozen[:20]))
    if run.ledger.kind == "counter":
        assumed.append(NO_CAP)
    if run.ledger.resumed:
        assumed.append(RESUMED)
    parameters = [parameter.numel() for parameter in run.parameters]
    data: dict[str, Any] = {
        "format": FORMAT,
        "promise": None if stated is None else promised(stated[0], None, RECORD),
        "simulation": False,
        "meter": None if stated is None else stated[1].describe(),
        "events": [] if stated is None else [to_dict(Repeated(leaf, n)) for leaf, n in run.ledger.events.items()],
        "preparation": None,
        "size": "public" if stated is not None else "not needed",
        "method": {"name": "make_private", "settings": words["settings"]},
        "model": {"kind": words["model"], "shape": parameters, "loss": words["loss"], "parameters": sum(parameters)},
        "hyper_parameters": HYPER_PARAMETERS,
        "assumed": assumed,
        "software": {"noisewise": __version__},
        "arithmetic": (ARITHMETIC if (news := untested()) is None else ARITHMETIC.assumed(news)).to_dict(),
    }
    if stated is not None:
        data["isolation"] = "caller's own code"
        data["code"] = code_of(files_of(RunKind("modules", "", data["meter"], source="loop"), {}))
        data["format"] = FORMATS[3]
    if run.ledger.account is not None and stated is not None:
        data["account"] = run.ledger.account.describe()
    return Statement(data | derived_words(data))
