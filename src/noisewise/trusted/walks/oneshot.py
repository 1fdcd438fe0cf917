"""One-shot questions: a whole training run inside the curator, of which only the end is released.

For linear models: :class:`Descent` (output perturbation) and :class:`OnePass` (PNSGD) here, the perturbed objective in
:mod:`noisewise.trusted.walks.objective`. Each docstring proves its price. Common ground: rows are cut to
norm r = ``row_bound`` and real labels to [-1, 1] here, so that no proof rests on the caller; a record's gradient then
has norm <= L = lipschitz r and its Hessian norm <= M = smoothness r^2 (several outputs: slope times row, so the same
two products). For the squared loss, whose slope has no bound, theta is kept in a ball of radius R around the start:
L = smoothness (r (R + ||start||) + 1) r. Everything runs in double precision; ``ROUNDING`` widens what it could lose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import validate
from ..events import FULL, Adjacency, Gaussian
from ..facts import Facts
from ..models import Linear, Model
from ..noise import Stream
from ..question import WholeRun, checked_noise, plain, released
from ..stores import records_of
from ..stores.grid import power_of_two_above
from ..stores.totals import FloatRows, Floats, IntegerTotal
from .iterations import descent, one_by_one, rows_of

ROUNDING = 1 + 2.0**-20
ROUNDED = 2.0**-18  # of the noise: more than rounding can part the ends of two walks by, see `not_lost`
FINE_NOISE = 2.0**28  # the noise of a walk's end, in units of the grid that its end is put on
MAX_START_ENTRY = 1e3  # of an entry of a start: see `not_lost`, which keeps noise far above rounding


class Whole(WholeRun):
    """What one-shot questions share: they are asked once, of linear models with a smooth loss, for one row per person."""

    bounded: ClassVar[str] = "whole walks and minimisers run in double precision, with a margin"
    samplings: ClassVar[tuple[str, ...]] = ("full",)
    persons: ClassVar[int] = 1
    in_one_place: ClassVar[bool] = True

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        super().of_model(facts)
        if not facts.linear:
            raise ValueError(
                "model is not linear; its loss is not convex, which these proofs need: pass model='linear'"
            )
        if not math.isfinite(facts.smoothness):
            raise ValueError(f"loss {facts.loss!r} is not smooth; pass loss='huber_hinge', whose width says how smooth")


@dataclass(frozen=True, eq=False)
class Descent(Whole):
    """Plain descent on (w/N) sum of losses + l2/2 ||theta - start||^2, then Gaussian noise on the last iterate.

        theta <- project(theta - step_size gradient), ``steps`` times, onto the ball of ``radius`` around ``start``

    *Sensitivity*: C = (L/N) (1 - (1 - eta l2)^T) / l2 (L eta T / N without l2) for one record more or less, 2C for one
    replaced. Proof: let n be the number of records, in secret, and w n / N <= c = 2 (1/eta - l2) / M. The Hessian of
    the data term lies between 0 and c M, so the step's slope lies between 1 - eta l2 - eta c M = -(1 - eta l2) and
    1 - eta l2: two walks on the same records approach each other by that factor. Neighbouring records give steps that
    differ by at most eta times D: w 2L/N when one is replaced, since w depends on n alone. When one is added,
    D <= (L/N) (w(n+1) + n (w(n) - w(n+1))) <= L/N for the w of :func:`~noisewise.trusted.walks.iterations.weight`. Sum the geometric
    series; projections bring points no further apart. So N may be any public or released number: the weight, not a promise about n,
    keeps the walk a contraction, and step_size <= 1/(M + l2) makes it cost at most 1/8 of the gradient at n = N.

    Zhang, Zheng, Mou & Wang 2017, Efficient Private ERM for Smooth Objectives.
    """

    start: Floats
    steps: int
    step_size: float
    noise_multiplier: float
    l2: float = 0.0
    radius: float = math.inf
    words: ClassVar[str] = "where a whole walk ends"

    def __post_init__(self) -> None:
        validate.whole(steps=self.steps)
        object.__setattr__(self, "steps", int(self.steps))
        plain_fields(self, "step_size", "noise_multiplier", "l2", "radius")

    def event(self) -> Gaussian:
        return Gaussian(checked_noise(self.noise_multiplier))

    def noise_std(self, facts: Facts, size: float) -> float:
        return self.noise_multiplier * descent_unit(self, facts, size)

    def exact(self, model: Model, records: FloatRows, facts: Facts, size: float) -> Floats:
        """The last iterate. Private: never leaves without noise."""
        _, M = loss_constants(facts, self.radius, float(np.linalg.norm(self.start)))
        cap = 2 * (1 / self.step_size - self.l2) / M
        return descent(self, model, rows_of(records, facts.row_bound), cap, size, facts.budget.adjacency)

    def end(self, model: Model, records: FloatRows, facts: Facts, size: float, stream: Stream) -> Floats:
        exact = self.exact(model, records, facts, size)
        return noised_end(exact, self.noise_std(facts, size), self.noise_multiplier, stream)


@dataclass(frozen=True, eq=False)
class OnePass(Whole):
    """One private record a step, in their order, then ``passes`` times the public rows, noise at every step: PNSGD.

        theta <- project(theta - eta (gradient of one record + l2 (theta - start) + N(0, s^2)))

    *Guarantee*: 2/noise_multiplier-GDP under replace_one for s = noise_multiplier L / sqrt(K),
    (neighbours differ in the record at one place of that order),
    K = sum over j = 0..p of c^(-2j), p the number of public steps, c <= 1 the contraction of a step (K = p + 1 if
    c = 1). Proof: let X and X' walk on neighbours that differ at one private record, and let Y start where X' is just
    before it and take X's steps with the noise of X' plus a push m_t towards X', of length at most a_t. The two are
    2 eta L apart at most after the gradient step of that record, each push takes a_t off, each later step multiplies
    by c: with a_t = 2 eta L c^-k / K at the k-th step from there, Y has met X' at the end, after at least p more
    steps. Y is X's walk driven by Gaussian noise with means m_t that follow from the noise before them, so telling Y
    from X is an adaptive composition of (a_t / (eta s))-GDP answers: the squares add up to 4 L^2 / (s^2 K).
    (Bok, Su & Altschuler 2024 by another proof; Feldman et al. state the Renyi half of it, with K = p + 1.)

    Feldman, Mironov, Talwar & Thakurta 2018, Privacy Amplification by Iteration.
    """

    start: Floats
    public_rows: Floats
    public_labels: NDArray[Any]
    step_size: float
    noise_multiplier: float
    l2: float = 0.0
    radius: float = math.inf
    passes: int = 1
    words: ClassVar[str] = "one pass over the records"
    relations: ClassVar[tuple[Adjacency, ...]] = ("replace_one",)  # one record more would shift all the others
    persons: ClassVar[int] = 0  # the order of records is not one of persons

    def __post_init__(self) -> None:
        validate.whole(passes=self.passes)
        object.__setattr__(self, "passes", int(self.passes))
        object.__setattr__(self, "public_rows", plain(np.asarray(self.public_rows)))
        object.__setattr__(self, "public_labels", plain(np.asarray(self.public_labels)))
        plain_fields(self, "step_size", "noise_multiplier", "l2", "radius")
        if self.public_rows.ndim != 2 or self.public_labels.shape != self.public_rows.shape[:1]:
            raise ValueError("public_rows must be 2-d and public_labels 1-d with as many entries as there are rows")
        if len(self.public_rows) == 0:
            raise ValueError("public_rows is empty; pass public rows: the steps after the last private record hide it")

    def event(self) -> Gaussian:
        return Gaussian(checked_noise(self.noise_multiplier))

    def noise_std(self, facts: Facts, size: float) -> float:
        """Of the last step."""
        return self.step_size * pass_noise(self, facts)

    def walked(self, model: Model, records: FloatRows, facts: Facts, stream: Stream) -> Floats:
        """The last iterate, noise included: it may be released."""
        linear = Linear(model.features, model.loss, model.outputs)  # a table's rows are no cells by now
        public = rows_of(records_of(linear, self.public_rows, self.public_labels).float_rows(), facts.row_bound)
        batches = [rows_of(records, facts.row_bound), *[public] * self.passes]
        noises = stream.vectors(len(self.start), self.step_size * pass_noise(self, facts))
        return one_by_one(self, model, batches, noises)

    def end(self, model: Model, records: FloatRows, facts: Facts, size: float, stream: Stream) -> Floats:
        """Rounded to a power of two below std/32: what is released shows nothing finer."""
        grid = 2.0 ** math.floor(math.log2(self.noise_std(facts, size) / 32))
        return (np.rint(self.walked(model, records, facts, stream) / grid) * grid).astype(np.float32)


NoisyWalk = Descent | OnePass


def plain_fields(what: object, *names: str) -> None:
    """Make the fields plain numbers in range: a subclass of float could be priced as one number and multiply as another."""
    start = plain(np.asarray(what.start))  # type: ignore[attr-defined]
    if start.ndim != 1 or not float(np.abs(start).max(initial=0.0)) <= MAX_START_ENTRY:
        raise ValueError(
            f"start is not a finite vector or beyond {MAX_START_ENTRY:g}; pass a public starting point of usual size"
        )
    object.__setattr__(what, "start", start)
    for name in names:
        value = float(getattr(what, name))
        if name == "l2":
            validate.not_negative(l2=value)
        elif not (name == "radius" and value == math.inf):
            validate.positive(**{name: value})
        object.__setattr__(what, name, value)


def loss_constants(facts: Facts, radius: float = math.inf, start_norm: float = 0.0) -> tuple[float, float]:
    """(L, M) of one record from public facts; refused, with the reason, where there is none."""
    r, _ = facts.row_bound, Whole.refuse(facts.budget.adjacency, FULL, facts.unit)
    Whole.of_model(facts)
    if not 1e-100 <= r <= 1e100:
        raise ValueError("row_bound is infinite or unusual; pass rows of bounded norm and their bound")
    if math.isfinite(facts.lipschitz):
        return facts.lipschitz * r, facts.smoothness * r * r
    if facts.loss != "squared" or not math.isfinite(radius):
        raise ValueError(f"loss {facts.loss!r} has slopes without a bound; it needs a finite radius around the start")
    return facts.smoothness * (r * (radius + start_norm) + 1) * r, facts.smoothness * r * r


def descent_unit(walk: Descent, facts: Facts, size: float) -> float:
    """The C of :class:`Descent`; refused when the step is too long for the proof."""
    L, M = loss_constants(facts, walk.radius, float(np.linalg.norm(walk.start)))
    if 1 / walk.step_size - walk.l2 < M * (1 - 1e-9):  # so that the cap of `Descent.exact` is 2 or more
        raise ValueError(f"step_size is {walk.step_size:.6g}; pass at most 1/(M + l2) = {1 / (M + walk.l2):.6g}")
    shrink = walk.step_size * walk.l2
    if shrink < 1e-100:  # 1 - (1 - s)^T <= s T, without dividing numbers that have lost their digits
        unit = L * walk.step_size * walk.steps / size * ROUNDING
    else:
        series = 1.0 if shrink >= 1 else -math.expm1(walk.steps * math.log1p(-shrink))
        unit = L * series / walk.l2 / size * ROUNDING
    not_lost(walk, walk.noise_multiplier * unit, L, walk.steps)
    return unit * (1 + walk.noise_multiplier * ROUNDED)


def not_lost(walk: NoisyWalk, std: float, L: float, steps: float) -> None:
    """Refuse, from public facts, noise that is not a million times what rounding of a whole walk could amount to.

    Below that, a rounded walk could end in one of several places by the side it came from, and noise would not hide it.
    Above it rounding is still felt where noise is many times the sensitivity, so it is charged: ``ROUNDED`` of the noise
    is added to the sensitivity.
    """
    reach = min(walk.radius, L / walk.l2 if walk.l2 else math.inf, walk.step_size * L * steps)
    shrink = walk.step_size * walk.l2
    lasting = min(steps, 1 / shrink) if shrink else steps
    entry = float(np.abs(walk.start).max()) if len(walk.start) else 0.0
    if not 1e-100 < std < 1e100 or std < 2.0**-33 * math.sqrt(len(walk.start)) * (entry + reach) * lasting:
        advice = "pass more noise, a smaller start or l2, or fewer passes"
        raise ValueError(f"noise of standard deviation {std:.3g} would be lost to rounding on this walk; {advice}")


def pass_noise(walk: OnePass, facts: Facts) -> float:
    """The s of :class:`OnePass`; refused under add_remove and when a step would not contract."""
    OnePass.refuse(facts.budget.adjacency, FULL, facts.unit)
    if walk.public_rows.shape[1] != facts.features:
        raise ValueError(f"public_rows has {walk.public_rows.shape[1]} columns; pass {facts.features}")
    L, M = loss_constants(facts, walk.radius, float(np.linalg.norm(walk.start)))
    eta, l2 = walk.step_size, walk.l2
    contraction = max(1 - eta * l2, eta * (M + l2) - 1)
    if contraction > 1 + 1e-12 or eta * l2 >= 1:
        raise ValueError(f"step_size is {eta:.6g}; pass at most 2/(M + l2) = {2 / (M + l2):.6g}")
    growth = min(max(contraction, 1e-3), 1.0) ** -2
    public_steps = walk.passes * len(walk.public_rows)
    exponent = (public_steps + 1) * math.log(growth)  # K = (growth^(p+1) - 1) / (growth - 1)
    amplification = public_steps + 1 if growth == 1 else math.expm1(min(exponent, 20.0)) / (growth - 1)
    noise = walk.noise_multiplier * L / math.sqrt(amplification) * ROUNDING
    not_lost(walk, eta * noise, L, (facts.size or 1.0) + public_steps)
    return noise * (1 + walk.noise_multiplier * ROUNDED)


def noised_end(end: Floats, std: float, multiplier: float, stream: Stream) -> Floats:
    """The end of a float iteration with exact noise: it is put on a grid of about std 2^-28 first.

    The grid is a power of two, so that dividing by it is exact. Rounding moves each coordinate by at most half a step, so
    two neighbours by at most sqrt(d) steps more, which is charged: noise grows by the factor 1 + multiplier sqrt(d) 2^-28.
    """
    step = power_of_two_above(std / FINE_NOISE) / 2
    whole = np.rint(np.clip(end / step, -(2.0**62), 2.0**62)).astype(np.int64)
    wider = 1 + multiplier * math.sqrt(len(whole)) / FINE_NOISE
    return released(IntegerTotal(whole, 1, step), wider, std, stream).astype(np.float32)


def whole_numbers(kind: type[Any]) -> list[str]:
    """The names of its integer fields: steps, or passes."""
    return [field.name for field in fields(kind) if field.type == "int"]


def rebuilt_walk(walk: Any, dimension: int) -> Any:
    """The same walk or objective made anew from plain numbers and arrays."""
    found: dict[str, Any] = {field.name: plain(getattr(walk, field.name)) for field in fields(walk)}
    if found["start"].shape != (dimension,):
        raise ValueError(f"start has shape {found['start'].shape}; pass a flat vector of {dimension}")
    whole = {name: int(found[name]) for name in whole_numbers(type(walk))}
    return type(walk)(**(found | whole))
