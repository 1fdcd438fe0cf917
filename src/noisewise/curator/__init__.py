"""The room: the only code that holds private records. Everything else asks it questions and pays for the answers."""

from __future__ import annotations

from .curator import Answer, Curator, Facts
from .public import PublicCurator
from .statistics import Count, CrossMoment, MinEigenvalue, NormAtMost, SecondMoment, Statistic

__all__ = [
    "Answer",
    "Count",
    "CrossMoment",
    "Curator",
    "Facts",
    "MinEigenvalue",
    "NormAtMost",
    "PublicCurator",
    "SecondMoment",
    "Statistic",
]
