"""What a kind of question is proved for: said once, in its class. The curator refuses the rest, and so does ``verify``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from .accountants.common import unsampled
from .arithmetic import Arithmetic
from .events import ADJACENCIES, Adjacency, Gaussian, Leaf, Mechanism, Sampling
from .facts import Facts
from .units import MAX_ROWS_PER_PERSON, Unit

CLOSE = 1e-3  # of noise that is rounded onto grids: more than a forger's statement can be off by
ANY = ((math.ulp(0.0), math.inf),)  # of noise whose unit a trace does not tell


class AnswerLine(NamedTuple):
    """What a trace and a statement say of an answer; ``parts``: of a count, in which a record is, where that is known."""

    clip: float | None
    facts: Facts
    settings: Mapping[str, Any] = MappingProxyType({})
    parts: int | None = None


class Proved:
    """A kind of question: its name and words, what it is to an accountant, and all that its proof covers."""

    name: ClassVar[str] = ""
    words: ClassVar[str] = ""
    mechanism: ClassVar[type[Mechanism]] = Gaussian
    relations: ClassVar[tuple[Adjacency, ...]] = ADJACENCIES
    samplings: ClassVar[tuple[str, ...]] = ("full", "poisson", "fixed")
    persons: ClassVar[int] = (
        MAX_ROWS_PER_PERSON  # how many rows of one person may count; 0: it is proved for records alone
    )
    mean: ClassVar[bool] = False  # whether the answer is divided by the number of records
    of_tensors: ClassVar[bool] = False  # whether a module's records have it, which are not rows of numbers
    sharded: ClassVar[bool] = False  # whether it is asked of shards of all records
    in_one_place: ClassVar[bool] = False  # whether rows that lie with several clients are refused
    bounded: ClassVar[str] = ""  # what is not exact about the answer, but charged for
    assumed: ClassVar[str] = ""  # what is not exact about it, and taken for granted

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", cls.__name__)

    @classmethod
    def refuse(cls, adjacency: str, sampling: Sampling, unit: Unit) -> int:
        """How many rows of a person count at most; a relation, batch or unit without a proof is refused."""
        if adjacency not in cls.relations:
            raise ValueError(f"{cls.name} is proved for adjacency={cls.relations[0]!r} alone; pass that")
        if sampling[0] not in cls.samplings:
            raise ValueError(f"{cls.name} is proved for all records, not for such batches; pass sampling ('full',)")
        if unit.persons and not cls.persons:
            raise ValueError(f"{cls.name} is proved for records, not for persons; take another method")
        return unit.counted(sampling, most=cls.persons)

    @classmethod
    def of_model(cls, facts: Facts) -> None:
        """Refuse a model that no question of this kind can be asked of."""
        if facts.tensors and not cls.of_tensors:
            raise ValueError(
                f"{cls.name} is about rows of numbers, and a module's records are tensors; ask for gradients"
            )

    @classmethod
    def graded(cls, before: Arithmetic) -> Arithmetic:
        """How exact a run is after an answer to such a question."""
        after = before.bounded(cls.bounded) if cls.bounded else before
        return after.assumed(cls.assumed) if cls.assumed else after

    @classmethod
    def ranges(cls, how: Any, line: AnswerLine) -> Iterable[tuple[float, float]]:
        """From where to where the noise of an answer may lie, by what is said of it; ``how`` has the event's noise."""
        return ANY

    @classmethod
    def fits(cls, std: float, how: Any, line: AnswerLine) -> bool:
        """Whether noise of this deviation is that of an answer to such a question."""
        return any(low * (1 - CLOSE) <= std <= high * (1 + CLOSE) for low, high in cls.ranges(how, line))

    @classmethod
    def made(cls, event: Leaf) -> bool:
        """Whether it is an event of such a question."""
        return type(unsampled(event)) is cls.mechanism
