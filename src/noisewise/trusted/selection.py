"""The secret draws of a search: how many runs there are, of which candidates, and on which records they are compared."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import validate
from .arithmetic import generalized_scores
from .events import FULL, Repetitions
from .features import Features, features_anew
from .gate import Gate, secret
from .meter import AdditiveMeter, PlanMeter
from .models import Model
from .opening import checked_meter
from .question import CLIP_RANGE, between, plain, vector
from .questions.choice import Choice
from .stores import counted_of, records_of
from .stores.grid import Allocator, in_memory
from .stores.linear import FINE
from .stores.sums import right_less_wrong, squared_errors
from .stores.totals import Drawn, IntegerTotal
from .units import Unit

SCORED = 0.15  # the share of records on which candidates are compared, and not trained
DEALING, DRAWING = 1 << 65, 1 << 68  # added to a simulation's seed: each use has its own draws


def drawn_runs(law: Repetitions, candidates: int, seed: int | None) -> list[int]:
    """The candidate of each run of a private selection, uniformly, with replacement; even their number is secret.

    *Guarantee*: number and candidates are independent of the records, and never leave the search.
    """
    stream = secret(None if seed is None else seed + DRAWING)
    return [int(stream.subset(1, candidates)[0]) for _ in range(stream.runs(law))]


def coins(records: int, *, seed: int | None, share: float = SCORED) -> NDArray[np.bool_]:
    """The records on which candidates are compared: each with probability ``share``, by its own secret coin.

    *Guarantee*: the coins do not depend on the records, are drawn under a fresh key and never shown; a record's coin goes by
    its place. Given the coins, neighbours differ in one record of one part, so whatever is private for each part by itself
    is private at the price of the dearer one (the mixture over coins is no further apart than the parts are: divergences are
    jointly quasi-convex). Searches here charge at least that.
    """
    picked = np.zeros(records, dtype=bool)
    stream = secret(None if seed is None else seed + DEALING)
    picked[stream.each_with_probability(share, records)] = True
    return picked


# --- the best of several finished models: one exponential mechanism over all of them ---
#
# Candidates of a search have their own features and losses, so the records of one model do not serve them all. The same private
# rows are laid out for each, a bounded loss is added up in integers, and one is chosen; no sum is released.

SCORINGS = ("error", "loss")


class Entrant(NamedTuple):
    """A finished model with its theta, and the private rows in its form."""

    model: Model
    theta: tuple[float, ...]
    X: NDArray[Any]
    y: NDArray[Any]
    features: Features | None = None
    loss_bound: float = 2.0

    def __repr__(self) -> str:
        return "Entrant(...)"


def choose_best(
    entrants: Sequence[Entrant],
    *,
    epsilon: float,
    meter: AdditiveMeter | PlanMeter,
    scoring: str = "error",
    seed: int | None = None,
    store: Allocator = in_memory,
    rows_per_unit: int | None = None,
) -> int:
    """The number of an entrant with a small loss on the rows, for one ``BoundedRange(epsilon)`` paid before they are read.

    ``scoring="error"``: 1 for a wrong answer, or (prediction - target)^2/4 with both clamped to [-1, 1]: each in [0, 1].
    ``"loss"``: the model's own loss cut to [0, B], each entrant with a bound B of its own.

    *Sensitivity*. All entrants see the same records. Losses lie in [0, B]: one record more raises every entrant's sum by 0
    to B, all in one direction, so entrant i with probability proportional to exp(-S_i epsilon/B) under add_remove, and
    exp(-S_i epsilon/(2B)) under replace_one, is BoundedRange(epsilon) (:class:`~noisewise.trusted.questions.choice.Choice`
    has the same proof). A person with k rows: k times B. Bounds that differ: generalized scores, of sensitivity 1 in either
    direction, exp(-s_i epsilon/2) under both relations; D_i is k B_i, the most that S_i moves by added, removed or replaced.
    A row that is not finite counts as the largest loss, one without a label for nothing.
    """
    rows = Choice.refuse(adjacency := checked_meter(meter).budget.adjacency, FULL, Unit(rows_per_unit))
    validate.one_of(SCORINGS, scoring=scoring)
    validate.positive(epsilon=(epsilon := plain(epsilon)))  # once, as every entrant: what is checked is what is used
    if not (entrants := [_own(one) for one in entrants]):
        raise ValueError("there is nothing to choose from; pass at least one entrant")
    for entrant in entrants:
        vector("theta", entrant.theta)
        between("loss_bound", entrant.loss_bound, *CLIP_RANGE)
    bounds = [Fraction(rows) * (1 if scoring == "error" else Fraction(one.loss_bound)) for one in entrants]
    half, gate = Fraction(epsilon) / 2, Gate(meter, seed)

    def sums() -> list[Fraction]:
        return [_sum(entrant, scoring, store) for entrant in entrants]

    if len({*bounds}) == 1:
        return gate.choose(epsilon, sums, half * (1 if adjacency == "replace_one" else 2) / bounds[0])
    return gate.choose(epsilon, lambda: generalized_scores(sums(), bounds, epsilon=epsilon), half)


def _own(entrant: Entrant) -> Entrant:
    """A copy made of plain numbers, which no other code holds."""
    own = Entrant(*entrant)
    return own._replace(theta=plain(own.theta), loss_bound=plain(own.loss_bound))


def _sum(entrant: Entrant, scoring: str, store: Allocator) -> Fraction:
    """The exact sum of bounded losses over all rows, up to a constant that all entrants share. Private."""
    model = entrant.model
    everyone = Drawn().only(counted_of(model, entrant.X, entrant.y))
    records = records_of(model, entrant.X, entrant.y, store)
    if entrant.features is not None:
        records = records.prepared(features_anew(entrant.features), store)
    theta = np.array(entrant.theta)
    if scoring == "loss":
        total: IntegerTotal = records.losses(everyone, [theta], entrant.loss_bound)
        return Fraction(int(total.values[0])) * Fraction(total.one) / total.ones
    if model.loss.task == "regression":
        return Fraction(int(squared_errors(records, everyone, theta)[0]), 2 * FINE)
    return Fraction(-int(right_less_wrong(records, everyone, theta)[0]), 2)
