"""How code that is not trusted asks: the shapes of questions, answered from private records or from public ones.

:class:`Curator` is the trusted curator with these shapes. :class:`PublicCurator` answers the same questions on public rows, free of
charge. :class:`CuratorWrapper` stands in front of a curator: to keep what it released, to write it down, to show it to an auditor.

Callers who hold torch tensors: what they pass becomes plain arrays, and their answers become tensors again. torch is never
imported here, because whoever holds a tensor has imported it. *Guarantee*: none is needed. All of this runs before a question is
made, or after its answer has been released.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from .trusted import curator
from .trusted import curator as columns
from .trusted.events import FULL, Sampling
from .trusted.facts import Answer, Facts
from .trusted.features import Features
from .trusted.gate import draw
from .trusted.models import Linear, Model, leading_subspace
from .trusted.models.batches import in_new_basis
from .trusted.noise import Stream
from .trusted.question import CLIP_RANGE, Proved, plain
from .trusted.questions import QUESTIONS
from .trusted.questions.at_theta import Correct, ErrorMoments, NormAtMost, ScoreHistogram, SquaredError
from .trusted.questions.choice import Choice
from .trusted.questions.gradient import Gradient, GradientNorm
from .trusted.questions.layered_gradient import LayeredGradient
from .trusted.questions.moments import Count, CrossMoment, FirstMoment, MinEigenvalue, SecondMoment, SquaredLength
from .trusted.stores.totals import expected_size
from .trusted.walks import WHOLE
from .trusted.walks.objective import PerturbedObjective
from .trusted.walks.oneshot import Descent, NoisyWalk, OnePass


def is_tensor(value: object) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)  # None while another thread imports it: there are none yet
    return isinstance(kind, type) and isinstance(value, kind)


def array(value: Any) -> Any:
    """A tensor as an array that shares no memory with it; everything else as it is."""
    return entries(value) if is_tensor(value) else value


def entries(value: Any) -> np.ndarray[Any, Any]:
    """A copy of a tensor's entries. No code of the caller runs: no subclass, overridden method or mode of torch."""
    torch = sys.modules["torch"]
    kind, refusal = torch.Tensor, TypeError("pass a plain, real torch.Tensor, not a subclass")
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        if kind.layout.__get__(value) is not torch.strided or kind.is_nested.__get__(value):
            raise refusal  # no storage to see as a plain tensor
        own = kind.as_subclass(kind.detach(value), kind)
        last = own.storage_offset() + sum((n - 1) * step for n, step in zip(own.shape, own.stride(), strict=True)) + 1
        held = own.untyped_storage().nbytes() >= last * own.element_size() and own.data_ptr()
        if type(own) is not kind or own.is_complex() or (own.numel() and not held):
            raise refusal  # beyond its storage numpy would show whatever lay in memory before
        plain = own.float() if own.dtype in (torch.bfloat16, torch.float16) else own
        return np.array(plain.resolve_conj().resolve_neg().cpu().numpy())


def in_kind(like: object, value: Any) -> Any:
    """An array as a tensor where ``like`` is one; everything else as it is."""
    if is_tensor(like) and isinstance(value, np.ndarray):
        return sys.modules["torch"].from_numpy(value.copy())  # which takes no reversed or read-only array
    return value


class GradientOptions(TypedDict, total=False):
    """Options of a gradient: see :class:`~noisewise.trusted.questions.gradient.Gradient`."""

    scale: Any
    basis: Any
    quantile_at: float | None
    count_noise_multiplier: float | None


class Asking(ABC):
    """Answers questions. Each answer draws its own batch and is charged before it is computed."""

    __slots__ = ()

    @abstractmethod
    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        """The answer to one question; ``noise`` is the noise multiplier, or the epsilon of a choice."""

    def gradient(
        self,
        theta: Any,
        *,
        clip: float,
        noise_multiplier: float,
        sampling: Sampling = FULL,
        **options: Unpack[GradientOptions],
    ) -> Answer:
        """The noised mean of clipped gradients at theta: :class:`~noisewise.trusted.questions.gradient.Gradient`."""
        given = {name: array(option) for name, option in options.items()}
        asked = Gradient.of(array(theta), clip, **given)
        return _as(theta, self.ask(asked, noise=noise_multiplier, sampling=sampling))

    def layered_gradient(
        self,
        theta: Any,
        *,
        clips: Sequence[float],
        noise_multiplier: float,
        sampling: Sampling = FULL,
        shares: Sequence[float] | None = None,
    ) -> Answer:
        """The gradient with a clip norm for each layer: :class:`~noisewise.trusted.questions.layered_gradient.LayeredGradient`."""
        asked = LayeredGradient.of(array(theta), clips, shares)
        return _as(theta, self.ask(asked, noise=noise_multiplier, sampling=sampling))

    def gradient_norm(
        self, theta: Any, *, clip: float, noise_multiplier: float, sampling: Sampling = FULL, squared: bool = False
    ) -> Answer:
        """Its norm, or the square: :class:`~noisewise.trusted.questions.gradient.GradientNorm`."""
        question = GradientNorm(plain(array(theta)), plain(clip), bool(squared))
        return _as(theta, self.ask(question, noise=noise_multiplier, sampling=sampling))

    def choose(self, thetas: Sequence[Any], *, loss_bound: float, epsilon: float, sampling: Sampling = FULL) -> int:
        """The index of a candidate with a small loss: :class:`~noisewise.trusted.questions.choice.Choice`."""
        question = Choice(tuple(plain(array(theta)) for theta in thetas), plain(loss_bound))
        return int(self.ask(question, noise=epsilon, sampling=sampling).value)

    def statistic(self, what: Any, *, noise_multiplier: float, sampling: Sampling = FULL) -> Answer:
        """One of the statistics of :mod:`noisewise.trusted.questions`, as a noised sum over the batch."""
        return self.ask(what, noise=noise_multiplier, sampling=sampling)


class CuratorWrapper(Asking):
    """Stands between a method and a curator and passes everything on; a subclass says what it changes.

    What the loop alone does with a curator (``release_size``, ``take_up``, ``forfeit``) is not passed on. *Guarantee*: there is no
    way around the gate here: a wrapper holds no record, no meter that can be charged and no stream, so whatever it
    answers was released by the curator that it wraps, or made of what was. It keeps nobody out: code in the same process
    can reach the curator itself, which charges all the same; untrusted methods run in a process of their own.
    """

    facts = property(attrgetter("_asked.facts"))
    meter = property(attrgetter("_asked.meter"))
    trace = property(attrgetter("_asked.trace"))
    simulation = property(attrgetter("_asked.simulation"))
    arithmetic = property(attrgetter("_asked.arithmetic"))
    features = property(attrgetter("_asked.features"))

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        answer: Answer = self._asked.ask(question, noise=noise, sampling=sampling)
        return answer

    def last_iterate(self, walk: Any) -> Answer:
        answer: Answer = self._asked.last_iterate(walk)
        return answer

    def minimise(self, objective: Any) -> Answer:
        answer: Answer = self._asked.minimise(objective)
        return answer

    def change_basis(self, matrix: Any) -> None:
        self._asked.change_basis(matrix)

    def prepare(self, features: Features) -> None:
        self._asked.prepare(features)

    def centre(self, centre: Any, scale: float) -> None:
        self._asked.centre(centre, scale)

    def in_first_basis(self, theta: Any) -> Any:
        return self._asked.in_first_basis(theta)


def _as(theta: Any, answer: Answer) -> Answer:
    """The answer in the array type of ``theta``."""
    value = in_kind(theta, answer.value)
    return answer if value is answer.value else answer._replace(value=value)


class Curator(curator.Curator, Asking):
    """The curator with the shapes in which methods ask; rows and thetas are arrays, or torch tensors."""

    __slots__ = ()

    def __init__(self, X: Any, y: Any, **known: Any) -> None:
        super().__init__(array(X), array(y), **known)

    def change_basis(self, matrix: Any) -> None:
        super().change_basis(array(matrix))

    def centre(self, centre: Any, scale: float) -> None:
        super().centre(array(centre), scale)

    def in_first_basis(self, theta: Any) -> Any:
        return in_kind(theta, super().in_first_basis(array(theta)))


class PublicCurator:
    """Public rows behind the curator's questions, so that a method treats both alike. Never hand it private rows.

    Rows and thetas are arrays, or torch tensors, which are answered in tensors.
    """

    def __init__(self, X: Any, y: Any, *, model: Model, seed: int | None = None) -> None:
        X, y = array(X), array(y)
        self.model = deepcopy(model)  # methods hold it, and nothing that they do to it may reach another run
        self.cells = X if self.model.table else None
        self.given = X, y
        self.batch = self.model.lay_out(np.ones((len(y), 1)) if self.model.table else X, y)
        self.stream = Stream(seed)

    @property
    def size(self) -> int:
        return len(self.batch)

    def gradient(
        self,
        theta: Any,
        *,
        clip: float = math.inf,
        noise_multiplier: float = 0.0,
        sampling: Sampling = FULL,
        **options: Unpack[GradientOptions],
    ) -> Answer:
        """The mean gradient at theta; without clip and noise it is the plain one."""
        answer = self._gradient(
            array(theta), clip, noise_multiplier, sampling, {k: array(v) for k, v in options.items()}
        )
        return answer._replace(value=in_kind(theta, answer.value))

    def _gradient(
        self, theta: NDArray[Any], clip: float, noise_multiplier: float, sampling: Sampling, options: dict[str, Any]
    ) -> Answer:
        rows = draw(sampling, self.batch, self.stream)
        batch = self.batch if rows is None else self.batch.take(rows)
        size, std = expected_size(sampling, self.size), noise_multiplier * clip if noise_multiplier else 0.0
        if all(option is None for option in options.values()):
            total = self.model.clipped_sum(theta, batch, clip)
            if not noise_multiplier:
                return Answer((total / size).astype(np.float32), 0.0)
            return Answer(self.stream.noised(total, std, scale=1 / size, dtype=np.float32), std / size)
        threshold, tau = options.get("quantile_at"), options.get("count_noise_multiplier")
        if threshold is not None and not tau:
            options["count_noise_multiplier"] = 1.0  # free here, but a question without it is refused
        asked = Gradient.of(theta, clip if math.isfinite(clip) else CLIP_RANGE[1], **options)
        coordinates = self.model.coordinates
        asked.check_options(self.model.dimension, coordinates=coordinates)
        scale, basis = options.get("scale"), options.get("basis") if coordinates else None
        total, count = self.model.clipped_sum_and_count(
            theta, batch, clip, threshold=threshold, scale=scale, basis=basis
        )
        value = asked.back(self.stream.noised(total, std, scale=1 / size), coordinates=coordinates)
        if count is None:
            return Answer(value, std / size)
        noisy = self.stream.noised(count, (tau or 0.0) / 2, scale=1 / size)
        return Answer(value, std / size, 0.5 + float(noisy[0]))

    def gradient_subspace(self, theta: Any, rank: int) -> Any:
        """Orthonormal columns that span the ``rank`` leading directions of the records' gradients at theta."""
        return in_kind(theta, leading_subspace(self.model.per_record(array(theta), self.batch), rank))

    def in_basis(self, matrix: Any) -> PublicCurator:
        """The same public records with every row x replaced by x @ matrix."""
        return PublicCurator(in_new_basis(self.model.rows, self.batch, array(matrix)), self.batch.y, model=self.model)

    def prepared(self, features: Features, centre: Any, scale: float) -> PublicCurator:
        """Public rows of a table as rows of features, less a centre, times a scale."""
        cells, model = np.asarray(self.cells, np.float64), self.model
        places, values = features(cells)
        rows = np.zeros((len(cells), features.width))
        rows[np.arange(len(cells))[:, None], places] = values
        X = (scale * (rows - np.asarray(array(centre), np.float64))).astype(np.float32)
        return PublicCurator(X, self.batch.y, model=Linear(features.width, model.loss, model.outputs))

    def loss(self, theta: Any) -> float:
        """Mean loss at theta."""
        return float(self.model.losses(array(theta), self.batch).mean(dtype=np.float64))

    def norms(self, theta: Any) -> Any:
        """Gradient norm of each record at theta."""
        return in_kind(theta, self.model.norms(array(theta), self.batch))


#: every kind of question by the name that a trace has, whole runs in the room included
KINDS: dict[str, type[Proved]] = {kind.name: kind for kind in QUESTIONS.values()}
KINDS |= WHOLE
__all__ = ["KINDS", "Answer", "Asking", "Curator", "Facts", "PublicCurator", "columns"]
__all__ += [
    "QUESTIONS",
    "Choice",
    "Descent",
    "Gradient",
    "GradientNorm",
    "LayeredGradient",
    "NoisyWalk",
    "OnePass",
    "PerturbedObjective",
]
__all__ += ["Count", "CrossMoment", "FirstMoment", "MinEigenvalue", "SecondMoment", "SquaredLength"]
__all__ += ["Correct", "ErrorMoments", "NormAtMost", "ScoreHistogram", "SquaredError"]
