"""The curator holds the private records and answers paid questions about them.

Every answer is charged before the records are touched; a refused charge releases nothing. No record can raise, stop
or steer anything: gradients that are not finite count as zero, a loss that is not finite counts as its bound, an
empty batch is answered with noise, and sums are divided by an expected size, never by a realised one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, NoReturn, SupportsFloat

import numpy as np
import torch
from torch import Tensor

from ..budget import AdditiveMeter, Budget, MeterView, PlanMeter, checked_meter
from ..events import FULL, ApproximateDP, BoundedRange, Event, Gaussian, Leaf, Sampling, rebuilt, sampled
from ..gradients import Batch, Linear, Model, clipped_sum_and_count
from ..gradients.batches import Store, in_memory, in_new_basis
from .noise import Stream
from .objective import PerturbedObjective, minimiser, terms
from .oneshot import Descent, NoisyWalk, OnePass, descend, descent_unit, pass_noise, walk_once
from .options import Options, checked_options
from .sampling import draw, expected_size
from .statistics import Count, Statistic, evaluate, fits, shaped, unit

LEAST_CLIP = (
    1e-4  # rounding of scores does not shrink with the clip norm, so a smaller one would not keep its sensitivity
)


@dataclass(frozen=True)
class Facts:
    """What anyone may know: declared, public or released. ``size`` is None until it is declared or bought."""

    size: float | None
    size_is_public: bool
    dimension: int
    features: int
    outputs: int
    row_bound: float
    loss: str
    task: str
    lipschitz: float
    smoothness: float
    budget: Budget
    groups: tuple[int, ...] = ()


def facts_of(model: Model, budget: Budget, *, size: float | None, row_bound: float) -> Facts:
    """The facts of a run before anything is released."""
    return Facts(
        size=None if size is None else float(size),
        size_is_public=size is not None,
        dimension=model.dimension,
        features=model.features,
        outputs=model.outputs,
        row_bound=row_bound,
        loss=model.loss.name,
        task=model.loss.task,
        lipschitz=model.loss.lipschitz,
        smoothness=model.loss.smoothness,
        budget=budget,
        groups=model.groups,
    )


class Answer(NamedTuple):
    """What was released, and the standard deviation of the noise known to be on each coordinate of it.

    For a gradient in other coordinates: of each coordinate in which records were clipped.
    """

    value: Tensor
    noise_std: float
    below: float | None = None  # a gradient with a count: the released share of records whose gradient is short


class Released(NamedTuple):
    """One line of a trace: a question that was answered, described by released facts only."""

    question: str
    event: Event
    clip: float | None
    noise_std: float
    norm: float | None
    spent: float


class Curator:
    """Holds the private records, the model and its loss; every answer is charged before it is computed.

    ``size``: the number of records when that is public (always so under replace_one); None when it is private, to be
    bought with :meth:`release_size`. It is never compared with the number of rows.
    ``row_bound``: a public bound on the norm of every row that the data holder has enforced; infinite if none.
    ``seed``: makes the run a simulation; without it all randomness comes from the operating system.
    ``store``: where laid out rows are kept, in memory or (``Mapped``) in a file without a name.
    """

    __slots__ = ("__batch", "__model", "__stream", "_basis", "_facts", "_meter", "_store", "_trace", "_view")

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        *,
        model: Model,
        meter: AdditiveMeter | PlanMeter,
        size: float | None,
        row_bound: float = math.inf,
        seed: int | None = None,
        store: Store = in_memory,
    ) -> None:
        if X.ndim != 2 or X.shape[1] != model.features or y.ndim != 1 or len(X) != len(y):
            raise ValueError(
                f"X must be 2-d with {model.features} columns and y 1-d with as many entries as X has rows"
            )
        budget = checked_meter(meter).budget
        if size is None and budget.adjacency == "replace_one":
            raise ValueError("size is missing; under replace_one the size is public, pass it")
        if size is not None and not 1 <= size <= 1e15:
            raise ValueError(f"size is {size!r}; pass the public number of records, from 1 to 1e15, or None to buy it")
        if not row_bound > 0:
            raise ValueError(f"row_bound is {row_bound!r}; pass a bound > 0 on the norm of every row, or infinity")
        self._store = store
        self.__batch = model.lay_out(X, y, store)
        self.__model = model
        self.__stream = Stream(seed)
        self._basis: Tensor | None = None
        self._meter, self._view = meter, MeterView(meter)
        self._trace: list[Released] = []
        self._facts = facts_of(model, budget, size=size, row_bound=row_bound)

    @property
    def facts(self) -> Facts:
        """What is public or already released: a copy, so that nothing done to it reaches the curator."""
        return replace(self._facts, budget=replace(self._facts.budget))

    @property
    def meter(self) -> MeterView:
        """A view of the meter that every question is charged to; only the curator spends."""
        return self._view

    @property
    def trace(self) -> tuple[Released, ...]:
        """Every answered question, described by released facts; copies too."""
        return tuple(line._replace(event=rebuilt(line.event)) for line in self._trace)

    @property
    def simulation(self) -> bool:
        """Whether the noise can be reproduced from a seed, which is not private."""
        return self.__stream.simulation

    def gradient(
        self,
        theta: Tensor,
        *,
        clip: float,
        noise_multiplier: float,
        sampling: Sampling = FULL,
        scale: Tensor | None = None,
        basis: Tensor | None = None,
        quantile_at: float | None = None,
        count_noise_multiplier: float | None = None,
    ) -> Answer:
        """The mean gradient at theta, each record's clipped to norm ``clip``.

        Releases (sum over the batch of g_i min(1, clip/||g_i||) + noise) / (expected batch size), noise of standard
        deviation noise_multiplier * clip on each coordinate.
        *Sensitivity* of the sum: each term has norm <= clip, so adding or removing a record moves it by at most clip,
        replacing one by at most 2 clip: the event Gaussian(noise_multiplier). Dividing by a released or public
        number is post-processing.

        ``scale``, positive numbers, one per parameter (Pichapati et al. 2019): g_i / scale is what is clipped, summed
        and noised, and the answer is multiplied by scale. *Sensitivity*: the terms of the sum are clipped in the new
        coordinates, so it is as above there; going back is post-processing. Linear models only. (The paper also
        subtracts a running mean before the clip; single records are spread far more widely than their mean, so that
        earns little, and it is left out.)

        ``basis``, orthonormal columns, one row per parameter (Zhou, Wu & Banerjee 2020): B^T g_i is what is clipped,
        summed and noised, and the answer is B times it. The same argument in the subspace, where the noise has as many
        coordinates as B has columns, and nothing is clipped for what lies outside. A perceptron's gradients are
        clipped and noised whole and the answer is projected, B B^T times it: post-processing.

        ``quantile_at``, a norm, with ``count_noise_multiplier`` (Andrew et al. 2021): from the same batch, also
        releases how many gradients are shorter, as the sum of h_i + noise of standard deviation
        count_noise_multiplier / 2, where h_i goes from 1/2 (norm at most 0.9 quantile_at) to -1/2 (at least 1.1) along
        a ramp. ``below`` is that sum / (expected batch size) + 1/2. *Sensitivity*: |h_i| <= 1/2, so adding or removing
        a record moves the count by at most 1/2, replacing one by at most 1. Divide the two sums by their own noise:
        what is released is their concatenation with independent unit noise. A record's own part of it has norm
        at most ((clip / (sigma clip))^2 + ((1/2) / (tau/2))^2)^(1/2) = (sigma^-2 + tau^-2)^(1/2) with the two noise
        multipliers sigma and tau; replacing it moves the concatenation by at most twice that. So both together are
        one event, Gaussian((sigma^-2 + tau^-2)^(-1/2)), under both relations and on any batch.
        What these options hold is public or released, and fixed before the batch is drawn.
        """
        theta, clip, sampling = self._checked(theta), _plain_clip(clip), _plain_sampling(sampling)
        size, sigma = expected_size(sampling, self._known_size()), float(noise_multiplier)
        if not (scale is None and basis is None and quantile_at is None and count_noise_multiplier is None):
            options = checked_options(self.__model, scale, basis, quantile_at, count_noise_multiplier)
            return self.__rich_gradient(theta, clip, sigma, sampling, size, options)
        event = _noised(sampling, sigma)
        self._meter.spend(event)
        total = self.__model.clipped_sum(theta, self.__draw(sampling), clip)
        std = sigma * clip
        value = self.__stream.noised(total, std, scale=1 / size, dtype=torch.float32)
        self._log("gradient", event, clip, std / size, _length(value))
        return Answer(value, std / size)

    def __rich_gradient(
        self, theta: Tensor, clip: float, sigma: float, sampling: Sampling, size: float, options: Options
    ) -> Answer:
        event = _noised(sampling, options.event_noise(sigma))
        self._meter.spend(event)
        total, count = clipped_sum_and_count(
            self.__model,
            theta,
            self.__draw(sampling),
            clip,
            threshold=options.quantile_at,
            **options.before_the_clip(self.__model),
        )
        std = sigma * clip
        value = options.back(self.__stream.noised(total, std, scale=1 / size), self.__model)
        below = None
        if count is not None and options.count_noise_multiplier is not None:
            below = 0.5 + float(self.__stream.noised(count, options.count_noise_multiplier / 2, scale=1 / size)[0])
        self._log("gradient", event, clip, std / size, _length(value))
        return Answer(value, std / size, below)

    def gradient_norm(
        self, theta: Tensor, *, clip: float, noise_multiplier: float, sampling: Sampling = FULL, squared: bool = False
    ) -> Answer:
        """The norm of the mean clipped gradient at theta, or its square.

        *Sensitivity* of the norm of the sum: by the triangle inequality at most that of the sum, clip for add_remove
        and 2 clip for replace_one. It draws its own batch: choosing the noise of a gradient from a norm measured on
        the same batch has no known price.

        ``squared``: min(s, m C)^2 / m^2 is released, with s the norm of the sum and m the expected batch size.
        *Sensitivity*: t -> min(t, m C)^2 has slope at most 2 m C, so its value moves by at most 2 m C times what s
        moves, however many records there really are. (Hong et al. 2021 take (2 m - 1) C^2, which needs m to be the
        realised number of records; that is not public here, so the cap does the work.)
        """
        theta, clip, sampling = self._checked(theta), _plain_clip(clip), _plain_sampling(sampling)
        size, sigma = expected_size(sampling, self._known_size()), float(noise_multiplier)
        event = _noised(sampling, sigma)
        self._meter.spend(event)
        norm = torch.linalg.vector_norm(self.__model.clipped_sum(theta, self.__draw(sampling), clip).double())
        exact, std, scale = norm[None], sigma * clip, 1 / size
        if squared:
            exact, std, scale = exact.clamp(max=size * clip).square(), 2 * size * clip * std, scale / size
        value = self.__stream.noised(exact, std, scale=scale, dtype=torch.float32)[0]
        self._log("gradient_norm", event, clip, std * scale, float(value))
        return Answer(value, std * scale)

    def choose(self, thetas: Sequence[Tensor], *, loss_bound: float, epsilon: float, sampling: Sampling = FULL) -> int:
        """The index of a candidate with a small loss: the exponential mechanism on sums of clipped losses.

        Minimises sum over the batch of min(loss_i, B) plus Gumbel noise of scale B/epsilon (add_remove) or 2B/epsilon
        (replace_one); a loss that is not finite counts as B.
        *Sensitivity*: losses lie in [0, B]. Adding a record raises every candidate's sum by 0 to B, all in one
        direction, so the log-odds of two candidates move within an interval of length epsilon at scale B/epsilon.
        Replacing one moves them by up to B in either direction, which needs twice the scale. Both are BoundedRange.
        """
        if not thetas:
            raise ValueError("thetas is empty; pass at least one candidate")
        checked = [self._checked(theta) for theta in thetas]
        loss_bound, epsilon, sampling = _plain_clip(loss_bound, "loss_bound"), float(epsilon), _plain_sampling(sampling)
        event = sampled(sampling, BoundedRange(epsilon))
        self._meter.spend(event)
        batch = self.__draw(sampling)
        sums = torch.stack([self.__clipped_losses(theta, batch, loss_bound).sum() for theta in checked])
        scale = loss_bound / epsilon * (2 if self._facts.budget.adjacency == "replace_one" else 1)
        winner = int(np.argmin(sums.numpy() - scale * self.__stream.gumbel(len(sums))))
        self._log("choose", event, loss_bound, scale, None)
        return winner

    def statistic(self, what: Statistic, *, noise_multiplier: float, sampling: Sampling = FULL) -> Answer:
        """One of the statistics of :mod:`noisewise.curator.statistics`, as a noised sum over the batch.

        *Sensitivity*: argued in each statistic's docstring; the noise on each coordinate has standard deviation
        noise_multiplier times :func:`unit`, which makes the event Gaussian(noise_multiplier).
        """
        if not isinstance(what, Statistic):
            raise TypeError(f"{type(what).__name__} is not a statistic; pass frozen data such as Count()")
        if not fits(what, self.__model):
            raise ValueError(f"theta of {type(what).__name__} must have {self._facts.dimension} entries")
        sampling, sigma = _plain_sampling(sampling), float(noise_multiplier)
        event = _noised(sampling, sigma)
        self._meter.spend(event)
        exact = evaluate(what, self.__draw(sampling), self.__model)
        std = sigma * unit(what, self._facts.budget.adjacency, sampling)
        noisy = self.__stream.noised(exact, std)
        self._log(type(what).__name__, event, None, std, None)
        return Answer(shaped(what, noisy, self._facts.features), std)

    def last_iterate(self, walk: NoisyWalk) -> Answer:
        """The end of a whole walk: :class:`Descent` (noise at the end) or :class:`OnePass` (noise at every step).

        *Guarantee*: argued in their docstrings; both are the event Gaussian(walk.noise_multiplier), Descent under both
        relations, OnePass under replace_one. ``noise_std`` is that of the last step for OnePass.
        """
        if type(walk) not in (Descent, OnePass):
            raise TypeError(f"{type(walk).__name__} is not a walk; pass frozen data, Descent(...) or OnePass(...)")
        model, size, event = self.__model, self._known_size(), Gaussian(walk.noise_multiplier)
        walk = replace(walk, start=self._checked(walk.start))
        std = (
            event.noise_multiplier * descent_unit(walk, self._facts, size)
            if isinstance(walk, Descent)
            else walk.step_size * pass_noise(walk, self._facts)
        )
        assert isinstance(model, Linear)  # others were refused by now
        self._meter.spend(event)
        if isinstance(walk, Descent):
            exact = descend(walk, model, self.__batch, self._facts, size)
            value = self.__stream.noised(exact, std, dtype=torch.float32)
        else:
            value = walk_once(walk, model, self.__batch, self._facts, self.__stream).float()
        self._log(type(walk).__name__, event, None, std, _length(value))
        return Answer(value, std)

    def minimise(self, objective: PerturbedObjective) -> Answer:
        """The minimiser of a randomly perturbed objective; ``noise_std`` is that of the small noise on top of it.

        *Guarantee*: argued in :class:`PerturbedObjective`; one event ApproximateDP(epsilon, delta).
        """
        if type(objective) is not PerturbedObjective:
            raise TypeError(f"{type(objective).__name__} is not an objective; pass PerturbedObjective(...)")
        model, start = self.__model, self._checked(objective.start)
        event, chosen = (
            ApproximateDP(objective.epsilon, objective.delta),
            terms(objective, self._facts, self._known_size()),
        )
        assert isinstance(model, Linear)  # others were refused by now
        self._meter.spend(event)
        b = self.__stream.noised(torch.zeros(len(start), dtype=torch.float64), chosen.noise_std)
        found = minimiser(b, chosen, start, model, self.__batch, self._facts)
        value = self.__stream.noised(found, chosen.output_std, dtype=torch.float32)
        self._log("PerturbedObjective", event, None, chosen.output_std, _length(value))
        return Answer(value, chosen.output_std)

    def release_size(self, *, noise_multiplier: float) -> float:
        """Buy the number of records, at least 1; from then on sums are divided by it."""
        answer = self.statistic(Count(), noise_multiplier=noise_multiplier)
        size = max(float(answer.value), 1.0)
        self._facts = replace(self._facts, size=size)
        return size

    def change_basis(self, matrix: Tensor) -> None:
        """From now on every row x is x @ matrix, a public square matrix; theta is asked about in the new basis.

        *Sensitivity*: nothing is released. The matrix is data that was public or released before, applied to each row
        by itself, so a neighbouring data set still differs in one record; what is asked later is clipped anew.
        The bound on the rows grows by the matrix's spectral norm.
        """
        features = self._facts.features
        if matrix.shape != (features, features) or not bool(torch.isfinite(matrix).all()):
            raise ValueError(f"matrix must be a finite {features} x {features} matrix")
        plain = matrix.detach().as_subclass(Tensor).double()
        if type(plain) is not Tensor or not bool(plain.any()):
            raise ValueError("matrix must be a plain tensor that is not all zero")
        rows = in_new_basis(self.__model.rows, self.__batch, plain)
        self.__batch = self.__model.lay_out(rows, self.__batch.y, self._store)
        self._basis = plain if self._basis is None else self._basis @ plain
        norm = float(torch.linalg.matrix_norm(plain, 2))
        self._facts = replace(self._facts, row_bound=self._facts.row_bound * norm)

    def in_first_basis(self, theta: Tensor) -> Tensor:
        """The theta that scores rows as they came as the given one scores them now; made of released facts."""
        return theta if self._basis is None else self.__model.in_old_basis(theta, self._basis)

    def __draw(self, sampling: Sampling) -> Batch:
        rows = draw(sampling, len(self.__batch), self.__stream)
        return self.__batch if rows is None else self.__batch.take(rows)

    def __clipped_losses(self, theta: Tensor, batch: Batch, bound: float) -> Tensor:
        losses = self.__model.losses(theta, batch).double()
        usable = torch.isfinite(losses)
        if batch.valid is not None:
            usable &= batch.valid
        return torch.where(usable, losses, bound).clamp_(0, bound)

    def _known_size(self) -> float:
        if self._facts.size is None:
            raise RuntimeError("the size of the data is private; buy it first with release_size(noise_multiplier=...)")
        return self._facts.size

    def _checked(self, theta: Tensor) -> Tensor:
        if theta.shape != (self._facts.dimension,):
            raise ValueError(f"theta has shape {tuple(theta.shape)}; pass a flat vector of {self._facts.dimension}")
        if type(theta) is Tensor and theta.dtype == torch.float32 and not theta.requires_grad:
            return theta
        plain = theta.detach().as_subclass(Tensor).float()  # a subclass could see the records it meets
        if type(plain) is not Tensor:
            raise TypeError("theta must be a plain tensor")
        return plain

    def _log(self, question: str, event: Event, clip: float | None, noise_std: float, norm: float | None) -> None:
        self._trace.append(Released(question, event, clip, noise_std, norm, self._meter.spent_fraction))

    def __repr__(self) -> str:
        return f"Curator({self._facts})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("a curator holds private records and is never copied or saved; save the released model instead")

    __copy__ = __deepcopy__ = __reduce_ex__ = __getstate__ = _refuse


@lru_cache(maxsize=64)
def _noised(sampling: Sampling, noise_multiplier: float) -> Leaf:
    return sampled(sampling, Gaussian(noise_multiplier))


def _length(value: Tensor) -> float:
    flat = value.numpy()
    return math.sqrt(float(np.dot(flat, flat)))


def _plain_clip(value: float, name: str = "clip") -> float:
    """A plain float (a subclass could be priced as one number and multiply as another), far from overflow."""
    plain = value if type(value) is float else float(value) if isinstance(value, SupportsFloat) else math.nan
    if not LEAST_CLIP <= plain <= 1e12:
        raise ValueError(f"{name} is {value!r}; pass a number from {LEAST_CLIP} to 1e12")
    return plain


def _plain_sampling(sampling: Sampling) -> Sampling:
    """The same sampling made of a plain string and float; anything else is refused."""
    if sampling is FULL or [type(part) for part in sampling] == [str, float]:  # plain already; priced or refused later
        return sampling
    match sampling:
        case ("full",):
            return FULL
        case ("poisson" | "fixed" as kind, rate):
            return ("poisson" if kind == "poisson" else "fixed", float(rate))
    raise ValueError(f'sampling is {sampling!r}; pass ("full",), ("poisson", rate) or ("fixed", rate)')
