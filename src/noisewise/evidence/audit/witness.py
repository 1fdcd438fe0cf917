"""What the answers of a run reveal: the likelihood ratio of an attacker who knows all records but one.

A method is wrapped so that a witness sees every answer. The witness knows both data sets, so it knows the exact answer in
both worlds and the noise that was claimed, and adds up the log-likelihood ratio of "with" to "without":

    noised sum a, full batch:     (||a - f_0||^2 - ||a - f_1||^2) / (2 s^2)
    sampled with probability q:   log of ((1-q) N(a; f, s^2) + q N(a; f_1, s^2)) over the same with f_0
                                  (f the sum without the record; exact when the other records add nothing)
    choice of candidate j:        log of softmax(-losses_1 / scale)_j over softmax(-losses_0 / scale)_j
    perturbed objective, theta:   the density of b = -(gradients + Lambda (theta - start)), times det of the Hessian

No test is better than one on this number while the claims are true (Neyman & Pearson). In case they are not, there are four
more scores: theta along the canary's direction, the number of answers, the size of the residuals a - f_0, and how much they
change from one gradient to the next. Any score is fair: an audit can only miss a violation, never accuse wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from ...accounts import Terms
from ...asking import (
    Answer,
    Count,
    Curator,
    CuratorWrapper,
    Descent,
    Facts,
    Gradient,
    OnePass,
    PerturbedObjective,
    PublicCurator,
    array,
)
from ...methods import Method
from ...methods.base import Array, size_noise
from ...trusted.events import FULL, BoundedRange, Sampling
from ...trusted.features import Features
from ...trusted.noise import Stream
from ...trusted.question import HowAsked, rebuilt
from ...trusted.stores import records_of
from ...trusted.stores.totals import Drawn, expected_size, fixed_size
from ...trusted.walks.iterations import gradient_sum, rows_of
from ...trusted.walks.objective import ObjectiveTerms, objective_terms
from ...trusted.walks.oneshot import pass_noise
from .canaries import Neighbours

Floats = npt.NDArray[np.float64]
SCORES = ("likelihood ratio", "theta", "number of answers", "residuals", "changes")


class Centres(NamedTuple):
    """An exact answer in the world without the record, with it, and on the common rows alone."""

    without: Floats
    with_it: Floats
    common: Floats


def laid_out(worlds: Neighbours) -> list[Any]:
    """The records of both worlds and, for replace_one, those that they share."""
    rows = list(zip(worlds.X, worlds.y, strict=True))
    if len(worlds.y[0]) > worlds.common:
        rows.append((worlds.X[0][: worlds.common], worlds.y[0][: worlds.common]))
    return [records_of(worlds.model, X, y) for X, y in rows]


class Witness:
    """Adds up the evidence that the answers of one run give for either world."""

    def __init__(self, worlds: Neighbours, records: Sequence[Any] | None = None) -> None:
        self.model, self.common = worlds.model, worlds.common
        self.records = list(records or laid_out(worlds))
        self.ratio = self.residual = self.change = 0.0
        self.answers = 0
        self._last: Floats | None = None

    def noised(self, answer: Floats, centres: Centres, std: float, sampling: Sampling = FULL) -> None:
        """A vector with independent noise of standard deviation ``std`` around one of the centres."""
        away = [(answer - centre) / std for centre in centres]
        self._weigh([-float(part @ part) / 2 for part in away], sampling)
        self.residual += float(away[0] @ away[0])

    def gradient(self, answer: Floats, centres: Centres, std: float, sampling: Sampling) -> None:
        """The same for gradients, whose residuals are also compared with those of the one before."""
        self.noised(answer, centres, std, sampling)
        here = (answer - centres.without) / std
        if self._last is not None and self._last.shape == here.shape:
            self.change += float((here - self._last) @ (here - self._last))
        self._last = here

    def chosen(self, winner: int, losses: Sequence[Floats], scale: float, sampling: Sampling) -> None:
        """The candidate that a noisy minimum chose."""
        self._weigh([float(log_softmax(-sums / scale)[winner]) for sums in losses], sampling)

    def centres(self, exact: Any) -> Centres:
        """``exact(records)`` in the three data sets; with one record less, the common rows are all there are."""
        centres = [np.asarray(exact(records), dtype=np.float64) for records in self.records]
        return Centres(centres[0], centres[1], centres[-1] if len(centres) == 3 else centres[0])

    def move(self, matrix: Any) -> None:
        """The rows in another basis, as the curator has them from now on."""
        self.records = [records.in_basis(np.asarray(array(matrix), np.float64)) for records in self.records]

    def _weigh(self, densities: Sequence[float], sampling: Sampling) -> None:
        """Add the log-likelihood ratio of one answer, by its log-density in the order of :class:`Centres`."""
        without, with_it, common = densities
        self.ratio += self._mixed(with_it, common, sampling) - self._mixed(without, common, sampling)
        self.answers += 1

    def _mixed(self, joined: float, apart: float, sampling: Sampling) -> float:
        """The log-density where the record is in the batch with some probability."""
        match sampling:
            case ("poisson", rate):
                q = rate
            case ("fixed", rate):
                q = fixed_size(rate, self.common + 1) / (self.common + 1)
            case _:
                q = 1.0
        if not 0 < q < 1:
            return joined if q >= 1 else apart
        return float(np.logaddexp(math.log1p(-q) + apart, math.log(q) + joined))


class Watched(CuratorWrapper):
    """A curator whose answers the witness sees, and which is otherwise unchanged."""

    def __init__(self, curator: Curator, witness: Witness) -> None:
        super().__init__(curator)
        self._witness = witness

    def ask(self, question: Any, *, noise: float, sampling: Sampling = FULL) -> Answer:
        answer = super().ask(question, noise=noise, sampling=sampling)
        facts, asked = self.facts, rebuilt(question)
        rows = facts.unit.counted()
        how = HowAsked(facts.budget.adjacency, sampling, float(noise), self._size(sampling), facts.features, rows)

        def exact(records: Any) -> Floats:
            return asked.exact(asked.totals(records, Drawn(None, how.size), how), how)

        centres = self._witness.centres(exact)
        if asked.mechanism is BoundedRange:
            self._witness.chosen(int(answer.value), centres, answer.noise_std, sampling)
            return answer
        released, std = asked.flat(answer, facts, how), how.noise * asked.unit(how)
        if type(asked) is Gradient:
            self._witness.gradient(released, centres, std, sampling)
        else:
            self._witness.noised(released, centres, std, sampling)
        return answer

    def last_iterate(self, walk: Descent | OnePass) -> Answer:
        answer = super().last_iterate(walk)
        model, facts, size, std = self._witness.model, self.facts, self._size(FULL), answer.noise_std
        if isinstance(walk, Descent):
            centres = self._witness.centres(lambda records: walk.exact(model, records.float_rows(), facts, size))
        else:
            quiet = cast(Stream, _Quiet())
            centres = self._witness.centres(lambda records: walk.walked(model, records.float_rows(), facts, quiet))
            steps = self._witness.common + 1 + walk.passes * len(walk.public_rows)
            std = walk.step_size * pass_noise(walk, facts) * math.sqrt(steps)
        self._witness.noised(answer.value.astype(np.float64), centres, std)
        return answer

    def minimise(self, objective: PerturbedObjective) -> Answer:
        answer = super().minimise(objective)
        numbers = (objective.epsilon, objective.delta, objective.l2)
        chosen = _terms(numbers, tuple(objective.start.tolist()), self.facts)
        model, theta, start = self._witness.model, answer.value.astype(np.float64), array(objective.start)

        def log_density(records: Any) -> float:
            rows, labels = rows_of(records.float_rows(), self.facts.row_bound)
            b = gradient_sum(model, theta, rows, labels) + chosen.strong_convexity * (theta - start)
            scores, slope, h = model.scores(theta, rows), model.loss.row_slope, 1e-5
            curvature = np.maximum(slope(scores + h, labels) - slope(scores - h, labels), 0) / (2 * h)
            hessian = rows.T @ (rows * curvature[:, None]) + chosen.strong_convexity * np.eye(len(theta))
            return float(np.linalg.slogdet(hessian)[1] - b @ b / (2 * chosen.noise_std**2))

        without, with_it = (log_density(records) for records in self._witness.records[:2])
        self._witness.ratio += with_it - without
        self._witness.answers += 1
        return answer

    def change_basis(self, matrix: Any) -> None:
        super().change_basis(matrix)
        self._witness.move(matrix)

    def prepare(self, features: Features) -> None:
        super().prepare(features)
        self._witness.records = [records.prepared(features) for records in self._witness.records]

    def centre(self, centre: Any, scale: float) -> None:
        super().centre(centre, scale)
        middle = np.asarray(array(centre), np.float64)
        self._witness.records = [records.centred(middle, scale) for records in self._witness.records]

    def _size(self, sampling: Sampling) -> float:
        return expected_size(sampling, self.facts.size or 1.0)


class Overheard(Method):
    """The method under audit, unchanged but for a witness that sees its curator's answers.

    ``terms`` and ``state``: the method's terms and first state, where they were computed beforehand.
    """

    def __init__(self, method: Method, witness: Witness, terms: Terms | None = None, state: Any = None) -> None:
        self.method, self.witness = method, witness
        self._terms, self._state = terms, state
        self.name, self.needs_public = method.name, method.needs_public  # type: ignore[misc]

    @contextmanager
    def opened(self, *, simulation: bool = False) -> Iterator[Method]:
        with self.method.opened(simulation=simulation) as method:
            yield Overheard(method, self.witness, self._terms, self._state)

    def terms(self, facts: Facts) -> Terms:
        return self._terms or self.method.terms(facts)

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> Any:
        for event in size_noise(facts):  # the loop has bought the size, which is in the facts
            counts, rows = self.witness.centres(lambda records: [float(len(records))]), facts.unit.counted()
            how = HowAsked(facts.budget.adjacency, FULL, event.noise_multiplier, math.nan, facts.features, rows)
            self.witness.noised(np.array([facts.size]), counts, Count().noise_std(how))
        return self.method.init(theta, facts, public) if self._state is None else self._state

    def step(self, state: Any, private: Curator, public: PublicCurator | None) -> Any:
        return self.method.step(state, cast(Curator, Watched(private, self.witness)), public)

    def done(self, state: Any) -> bool:
        return self.method.done(state)

    def finish(self, state: Any, public: PublicCurator | None) -> Array:
        return self.method.finish(state, public)


@lru_cache(maxsize=8)
def _terms(numbers: tuple[float, ...], start: tuple[float, ...], facts: Facts) -> ObjectiveTerms:
    return objective_terms(PerturbedObjective(np.array(start), *numbers), facts, facts.size or 1.0)


class _Quiet:
    """A stream of zeros: it gives the path of a walk without noise."""

    def vectors(self, dimension: int, std: float) -> Iterator[Floats]:
        return repeat(np.zeros(dimension))
