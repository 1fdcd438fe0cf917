"""Random modules against the engine: no record may move a clipped sum by more than the clip, whatever the module does.

A program is the text of a module and a loss, made from a number alone: some of its steps are usual layers, others mix records,
keep things, decide by values or catch errors on purpose. What the rehearsal accepts is run on usual and on hostile records:

    wrong norm, wrong sum   not those of a plain loop over single records (in double precision, usual records)
    too long                a record's own part of the sum is longer than the clip
    others moved            one record was replaced, and the sum of all others is another one
    sum moved               one record was left out or replaced, and the sum moved by more than the clip, or twice that
    kept                    one record was replaced, and the *next* batch gives another sum
    raised                  a batch cannot be run though each of its records can, or a usual record cannot

``python tests/engine/fuzz_modules.py --programs 20000 --seed 1 --jobs 1`` counts and prints what it finds.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import torch
from fuzz_programs import Program, program
from torch import Tensor, nn

from noisewise.trusted.engine import Layout, Refused, Spec, clip_factors, passed, rehearsed

USUAL, CLIPS = "usual", (0.01, 0.3, 3.0)
HOSTILE = ("nan", "inf", "huge", "large", "tiny", "zero", "constant", "far", "below", "ignored")
OVER, ROUND = 1e-4, 1e-6  # of the clip: what float32 may be over it, and what rounding may move in double precision


@dataclass
class Counts:
    """What was found; ``violations`` are (number of the program, what is wrong)."""

    refused: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    correct: int = 0
    raised: Counter[str] = field(default_factory=Counter)
    excess: float = 0.0
    violations: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.refused += other.refused
        self.accepted += other.accepted
        self.correct += other.correct
        self.raised += other.raised
        self.excess = max(self.excess, other.excess)
        self.violations += other.violations


class Wrong(Exception):
    """The engine broke its promise."""


@contextmanager
def numbers_of(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


Record = list[Tensor]  # each input and target of one record


def record(specs: Sequence[Spec], draw: random.Random, kind: str) -> Record:
    """One record of these shapes, in double precision."""
    made = torch.Generator().manual_seed(draw.randrange(2**31))
    return [_value(spec, draw, made, kind) for spec in specs]


def _value(spec: Spec, draw: random.Random, made: torch.Generator, kind: str) -> Tensor:
    if spec.dtype == torch.int64:
        values = torch.randint(spec.high or 2, spec.shape, generator=made)
        wild = {"far": draw.choice([3, 5, 10**6, 2**62]), "below": draw.choice([-1, -5, -(2**62)]), "ignored": -100}
        if kind in wild and draw.random() < 0.6:
            values.view(-1)[draw.randrange(values.numel())] = wild[kind]
        return torch.zeros_like(values) if kind in ("zero", "constant") else values
    values = torch.randn(spec.shape, generator=made, dtype=torch.float64)
    some = torch.rand(spec.shape, generator=made) < draw.choice([0.3, 1.0])
    if kind in ("nan", "inf"):
        return values.masked_fill(some, draw.choice([float(kind), -float(kind)]))
    if kind in ("zero", "constant"):
        return values * 0 + (draw.choice([-1, 0.7, 1e4]) if kind == "constant" else 0)
    by = {"huge": 1e30, "large": 1e4, "tiny": 1e-30}.get(kind, 1.0)
    return torch.where(some, values * by, values)


def vector(values: Sequence[Tensor]) -> Tensor:
    return torch.cat([value.detach().double().reshape(-1) for value in values])


@dataclass
class Case:
    """An accepted program with its layout, run in one kind of numbers from one seed."""

    program: Program
    layout: Layout
    clip: float
    kind: torch.dtype = torch.float64
    raised: Counter[str] = field(default_factory=Counter)  # what passes of several records failed with

    def fresh(self) -> tuple[nn.Module, Any]:
        with numbers_of(self.kind):
            built = self.program.built()
            if "KEPT[" in self.program.text or "KEPT." in self.program.text:  # as a rehearsal leaves it
                with suppress(Refused):
                    rehearsed(built[0], self.program.inputs, self.program.targets, built[1])
        return built

    def stacked(self, records: Sequence[Record]) -> tuple[list[Tensor], list[Tensor]]:
        columns = [torch.stack(column) for column in zip(*records, strict=True)]
        columns = [column.to(self.kind) if column.is_floating_point() else column for column in columns]
        return columns[:2], columns[2:]

    def parts(self, built: tuple[nn.Module, Any], records: Sequence[Record], usual: Sequence[bool]) -> Tensor:
        """Each record's part of the clipped sum, (records, dimension), and that their sum is the sum of all."""
        try:
            return self._passed(built, records)[1]
        except Exception as error:
            return self._one_by_one(built, records, usual, error)

    def _passed(self, built: tuple[nn.Module, Any], records: Sequence[Record]) -> tuple[Tensor, Tensor]:
        """Squared norms and each record's part."""
        with numbers_of(self.kind):
            tape, _ = passed(*built, *self.stacked(records), self.layout, seed=5)
        squared = tape.squared_norms()
        factors = clip_factors(squared, self.clip)
        own = torch.stack([vector(tape.sums(one)) for one in torch.diag(factors)])
        total = vector(tape.sums(factors))
        if not bool(torch.isfinite(total).all()):
            raise Wrong("too long: the sum is not finite")
        if float((total - own.sum(0)).norm()) > self.clip * (ROUND if self.kind == torch.float64 else OVER) * len(own):
            raise Wrong("too long: the sum is not that of its records' parts")
        return squared, own

    def _one_by_one(self, built: Any, records: Sequence[Record], usual: Sequence[bool], error: Exception) -> Tensor:
        """What those do who run a failed pass again: a record that fails alone counts as zero."""
        if isinstance(error, Wrong):
            raise error
        self.raised[f"{type(error).__name__} {error}".splitlines()[0][:80]] += 1
        found: list[Tensor | None] = []
        for one, as_usual in zip(records, usual, strict=True):
            try:
                found.append(self._passed(built, [one])[1][0])
            except Wrong:
                raise
            except Exception as again:
                if as_usual:
                    raise Wrong(f"raised: a usual record, {type(again).__name__}: {again}") from again
                found.append(None)
        if all(one is not None for one in found):
            raise Wrong(f"raised: {type(error).__name__}: {error}; each of its {len(records)} records runs alone")
        return torch.stack([torch.zeros(self.layout.dimension).double() if one is None else one for one in found])


def check(one: Program, number: int = 0) -> Counts:
    """What comes of one program."""
    counts, draw = Counts(), random.Random(number)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try:
            with numbers_of(torch.float64):
                module, loss = one.built()
            layout = rehearsed(module, one.inputs, one.targets, loss)
        except Refused as error:
            counts.refused[reason(str(error))] += 1
            return counts
        counts.accepted = 1
        case = Case(one, layout, draw.choice(CLIPS))
        try:
            _neighbours(case, draw, counts)
            _in_single_precision(Case(one, layout, case.clip, torch.float32), draw, counts)
            if not one.drawn:
                _like_a_loop(case, draw)
                counts.correct = 1
        except Wrong as error:
            after = f" (passes failed: {', '.join(case.raised)})" if case.raised else ""
            counts.violations.append((number, f"{error}{after}"))
        counts.raised = Counter([*case.raised])
    return counts


def _some(case: Case, draw: random.Random) -> tuple[list[Record], list[bool]]:
    usual = [draw.random() < 0.5 for _ in range(draw.randint(1, 9))]
    specs = [*case.program.inputs, *case.program.targets]
    return [record(specs, draw, USUAL if plain else draw.choice(HOSTILE)) for plain in usual], usual


def _neighbours(case: Case, draw: random.Random, counts: Counts) -> None:
    """A batch, the same with one record replaced, and without it; the last again after each of the others."""
    (records, usual), limit = _some(case, draw), case.clip * (1 + ROUND)
    at, specs = draw.randrange(len(records)), [*case.program.inputs, *case.program.targets]
    changed, plain = [*records], [*usual]
    plain[at] = draw.random() < 0.2
    changed[at] = record(specs, draw, USUAL if plain[at] else draw.choice(HOSTILE))
    less, rest = [*records[:at], *records[at + 1 :]], [*usual[:at], *usual[at + 1 :]]
    first, second = case.fresh(), case.fresh()
    before, after = case.parts(first, records, usual), case.parts(second, changed, plain)
    for found in (before, after):
        longest = float(found.norm(dim=1).max())
        counts.excess = max(counts.excess, longest / case.clip - 1)
        if not longest <= limit:
            raise Wrong(f"too long: {longest / case.clip:.6g} clips in double precision")
    if case.program.drawn and case.raised:  # records that are run again draw other numbers
        return
    others = torch.arange(len(records)) != at
    moved = float((before - after)[others].norm())
    if not moved <= case.clip * ROUND:
        raise Wrong(f"others moved: by {moved / case.clip:.3g} clips when record {at} of {len(records)} is replaced")
    if float((before.sum(0) - after.sum(0)).norm()) > 2 * limit + case.clip * ROUND * len(records):
        raise Wrong("sum moved: by more than two clips when a record is replaced")
    if not less:
        return
    later, also = case.parts(first, less, rest), case.parts(second, less, rest)
    if not float((later - also).norm()) <= case.clip * ROUND:
        raise Wrong(f"kept: the next batch moved by {float((later - also).norm()) / case.clip:.3g} clips")
    if not case.program.drawn:
        moved = float((before.sum(0) - case.parts(case.fresh(), less, rest).sum(0)).norm())
        if moved > limit + case.clip * ROUND * len(records):
            raise Wrong(f"sum moved: by {moved / case.clip:.6g} clips when record {at} of {len(records)} is left out")


def _in_single_precision(case: Case, draw: random.Random, counts: Counts) -> None:
    found = case.parts(case.fresh(), *_some(case, draw))
    longest = float(found.norm(dim=1).max())
    counts.excess = max(counts.excess, longest / case.clip - 1)
    if not longest <= case.clip * (1 + OVER):
        raise Wrong(f"too long: {longest / case.clip:.6g} clips in single precision")


def _like_a_loop(case: Case, draw: random.Random) -> None:
    """Norms and clipped parts of three usual records against plain autograd on each."""
    records = [record([*case.program.inputs, *case.program.targets], draw, USUAL) for _ in range(3)]
    squared, own = case._passed(case.fresh(), records)
    module, loss = case.fresh()
    parameters = case.layout.parameters(module)
    for row, one in enumerate(records):
        with numbers_of(case.kind):
            inputs, targets = case.stacked([one])
            value = _plain_loss(loss, module(*inputs), targets)
        slopes = (
            torch.autograd.grad(value, parameters, allow_unused=True)
            if value.requires_grad
            else [None] * len(parameters)
        )
        right = [torch.zeros_like(p) if slope is None else slope for p, slope in zip(parameters, slopes, strict=True)]
        wanted = torch.stack([slope.square().sum() for slope in right])
        size = float(wanted.sum())
        if not size < 1e200:
            continue
        if not torch.allclose(squared[:, row], wanted, rtol=1e-8, atol=1e-8 * size + 1e-290):
            raise Wrong(f"wrong norm: {squared[:, row].tolist()} for {wanted.tolist()}")
        clipped = vector(right) * min(1.0, case.clip / max(size**0.5, 1e-300))
        if not float((own[row] - clipped).norm()) <= 1e-8 * max(float(clipped.norm()), 1e-100):
            raise Wrong(f"wrong sum: off by {float((own[row] - clipped).norm() / clipped.norm()):.3g} of it")


def _plain_loss(loss: Any, outputs: Tensor, targets: Sequence[Tensor]) -> Tensor:
    how = getattr(loss, "reduction", None)
    if how is None:
        return loss(outputs, *targets).reshape(())
    single = copy.copy(loss)
    single.reduction = "none"
    entries = single(outputs, *targets)
    return entries.mean() if how == "mean" else entries.sum()


def reason(said: str) -> str:
    """A refusal in a few words, the same for all of its kind."""
    said = said.partition("alone as a batch of one: ")[2] or said
    return " ".join("".join(c if c.isalpha() or c in "_'." else " " for c in said).split()[:9])


def run(numbers: Sequence[int], show: bool = True) -> Counts:
    """Programs of these numbers, one after the other."""
    torch.set_num_threads(1)
    counts = Counts()
    for number in numbers:
        found = check(program(number), number)
        counts.add(found)
        for _, what in found.violations if show else ():
            print(f"--- program {number}: {what}\n{program(number).text}\n", flush=True)
    return counts


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--programs", type=int, default=2000)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=1)
    asked.add_argument("--only", type=int, help="the number of one program, which is printed and run")
    given = asked.parse_args()
    if given.only is not None:
        print(program(given.only).text)
        print(run([given.only]))
        return 0
    began, first = time.monotonic(), given.seed * 10**9
    parts = [range(first + job, first + given.programs, given.jobs) for job in range(given.jobs)]
    counts = Counts()
    if given.jobs == 1:
        counts.add(run(parts[0]))
    else:
        with get_context("fork").Pool(given.jobs) as pool:
            for found in pool.imap_unordered(run, parts):
                counts.add(found)
    for words, count in counts.raised.most_common():
        print(f"{count:7,} accepted, but some records fail: {words}")
    for words, count in counts.refused.most_common():
        print(f"{count:7,} refused: {words}")
    print(
        f"{given.programs:,} programs in {time.monotonic() - began:.0f} s: {sum(counts.refused.values()):,} refused, "
        f"{counts.accepted:,} accepted, {counts.correct:,} like a loop; worst excess over the clip {counts.excess:.2g}; "
        f"{len(counts.violations):,} violations"
    )
    return 1 if counts.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
