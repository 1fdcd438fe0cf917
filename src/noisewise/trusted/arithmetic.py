"""Which arithmetic a run had: a guarantee on real numbers is not one on floats, so a statement names its grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
