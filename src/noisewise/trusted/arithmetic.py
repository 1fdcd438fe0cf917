"""The arithmetic of a run: a guarantee for real numbers is not one for floats, so a statement names the grade."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from . import validate

PSEUDO_RANDOM = "AES is pseudo-random"  # what every run takes for granted
GRADES = {  # best first
    "exact": "sums in integers, noise rounded onto a public grid",
    "bounded": "sums in floats, their rounding error charged",
    "assumed": "floats taken for real numbers",
}


@dataclass(frozen=True)
class Arithmetic:
    """The grade of a computation, one of ``GRADES``, and what it takes for granted."""

    grade: str
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.grade not in GRADES:
            raise ValueError(f"grade is {self.grade!r}; pass one of {', '.join(GRADES)}")
        if type(self.assumptions) is not tuple or not all(isinstance(one, str) and one for one in self.assumptions):
            raise ValueError("assumptions must be a tuple of sentences, e.g. ('AES is pseudo-random',)")

    def bounded(self, assumption: str) -> Arithmetic:
        """The same with a part whose rounding is bounded, not exact."""
        return together(self, Arithmetic("bounded", (assumption,)))

    def assumed(self, assumption: str) -> Arithmetic:
        """The same with a part that takes floats for real numbers."""
        return together(self, Arithmetic("assumed", (assumption,)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a statement."""
        return {"grade": self.grade, "assumptions": list(self.assumptions)}


def together(*parts: Arithmetic) -> Arithmetic:
    """Several computations as one: the worst grade, and every assumption once; nothing at all is exact.

    >>> together(Arithmetic("exact", ("a",)), Arithmetic("assumed", ("b", "a")), Arithmetic("bounded"))
    Arithmetic(grade='assumed', assumptions=('a', 'b'))
    """
    grade = max((part.grade for part in parts), key=list(GRADES).index, default="exact")
    return Arithmetic(grade, tuple(dict.fromkeys(one for part in parts for one in part.assumptions)))


def sentence(arithmetic: Mapping[str, Any]) -> str:
    """The entry of a statement in words.

    >>> sentence(Arithmetic("exact", ("AES is pseudo-random",)).to_dict())
    'exact (sums in integers, noise rounded onto a public grid), assuming that AES is pseudo-random'
    """
    assumed = "; ".join(arithmetic["assumptions"])
    return f"{arithmetic['grade']} ({GRADES[arithmetic['grade']]})" + (f", assuming that {assumed}" if assumed else "")


# --- the generalized exponential mechanism: candidates whose scores have their own sensitivities ---
#
# The ordinary mechanism adds noise for the largest sensitivity to every score. Raskhodnikova & Smith 2016 (Lipschitz extensions
# for node-private graph statistics and the generalized exponential mechanism) compare the candidates in pairs instead: with
# small q_i better, and sensitivity D_i > 0 of q_i,
#
# s_i = max over j of ((q_i + t D_i) - (q_j + t D_j)) / (D_i + D_j),      t = 2 log(k / beta) / epsilon,
#
# and choose i with probability proportional to exp(-epsilon s_i / 2). With probability at least 1 - beta the chosen one has
# q_i <= min over j of (q_j + 2 t D_j): a candidate is held to its own sensitivity.
#
# *Sensitivity*: 1 under the relation that the D_i are for. For each j the numerator moves by at most D_i + D_j, so the quotient
# by at most 1 (j = i gives 0 always), and a maximum of functions that move by at most 1 moves by at most 1. Scores move in
# either direction, so they are not monotone: log-odds of two candidates move by up to epsilon under add_remove as under
# replace_one, and the Gumbel noise of the same choice has scale 2/epsilon. It is one ``BoundedRange(epsilon)`` event.


Exact = Fraction | int


def generalized_scores(
    scores: Sequence[Exact], sensitivities: Sequence[Exact], *, epsilon: float, beta: float = 0.05
) -> tuple[Fraction, ...]:
    """s_i of the module's text: of sensitivity 1, at least 0, small is good. For scores to maximise, pass their negatives.

    Exact: scores and sensitivities are whole numbers or fractions, and t is the fraction that a double is.

    >>> [str(score) for score in generalized_scores([5, 3, 4], [1, 1, 4], epsilon=1.0, beta=0.5)][:2]
    ['1', '0']
    """
    validate.positive(epsilon=epsilon)
    validate.open_unit(beta=beta)
    if not scores or len(scores) != len(sensitivities):
        raise ValueError("scores and sensitivities differ in number or are empty; pass one sensitivity for each score")
    if not all(type(value) in (int, Fraction) for value in (*scores, *sensitivities)):
        raise TypeError("scores and sensitivities must be whole numbers or fractions: a float is not exact")
    if not all(sensitivity > 0 for sensitivity in sensitivities):
        raise ValueError("a sensitivity is not above 0; pass how far one record can move each score")
    t = Fraction(2 * math.log(len(scores) / beta) / float(epsilon))
    moved = [Fraction(q) + t * d for q, d in zip(scores, sensitivities, strict=True)]
    return tuple(
        max((mine - other) / (d + e) for other, e in zip(moved, sensitivities, strict=True))
        for mine, d in zip(moved, sensitivities, strict=True)
    )
