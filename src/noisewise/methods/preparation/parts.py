"""What the members of this room have in common, and what each of them cost a run.

A member turns declared columns into rows, or is a part of that: bounds, ranks, a basis, features. It is frozen data, the
same rule for each row. It is free, because it is declared, public or made of what was released before, or named questions
pay for it on the run's own purse. Which events those were is read from the trace of the run, never from what a method says.

A moment of the rows prepares where gradients follow; where none do, it is the training itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from ...trusted.events import Event, Leaf, from_dict, leaves, to_dict
from ...trusted.features.features import Features, Product
from ...trusted.questions.gradient import Gradient
from ...trusted.questions.moments import Count
from .basis import Basis
from .bounds import Bounds
from .quantiles import Ranks

SIZE, PAIRS = "size", "pairs"
COUNT = (Count.name,)
SIZE_WORDS = "the number of rows, which sums are divided by"
PAIRS_WORDS = "which columns are paired, from effects that were released"
TRAINING = Gradient.name  # the question that trains on what was prepared


class Preparation(Protocol):
    """A member: what a report calls it, the questions that pay for it (none where it is free), and itself as plain data."""

    part: ClassVar[str]
    questions: ClassVar[tuple[str, ...]]

    @property
    def words(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self: ...


MEMBERS: tuple[type[Preparation], ...] = (Bounds, Ranks, Features, Basis)


class PaidLine(Protocol):
    """What is needed of a line of a trace."""

    @property
    def question(self) -> str: ...

    @property
    def event(self) -> Event: ...

    @property
    def spent(self) -> float: ...


@dataclass(frozen=True)
class PreparedPart:
    """Something that was prepared, the events that paid for it, and their share of the budget of the training.

    ``share`` is 0 for what was free, and None where shares have no meaning: in a plan, which is priced as a whole, and
    for what was bought before training with an epsilon and a delta of its own.
    """

    part: str
    words: str
    events: tuple[Event, ...] = ()
    share: float | None = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As a statement has it."""
        events = [to_dict(event) for event in self.events]
        return {"part": self.part, "words": self.words, "events": events, "share": self.share}


def parts_of(
    trace: Sequence[PaidLine], features: Features | None, *, bounds: Mapping[str, Any] | None = None, plan: bool = False
) -> list[dict[str, Any]]:
    """Everything that a run prepared, as a statement has it; ``bounds``: what was bought before it, ``plan``: no shares."""
    found = [] if bounds is None else [{**PreparedPart(Bounds.part, bounds["what"]).to_dict(), **_before(bounds)}]
    named: list[tuple[str, str, tuple[str, ...]]] = [(SIZE, SIZE_WORDS, COUNT)]
    if any(line.question == TRAINING for line in trace):
        members: tuple[type[Ranks | Features | Basis], ...] = (Basis,) if features is None else (Ranks, Features)
        named += [(member.part, member.words, member.questions) for member in members]
    found += [part.to_dict() for part in (_paid(trace, *one, plan=plan) for one in named) if part.events]
    if features is not None and any(isinstance(block, Product) for block in features.blocks):
        found.append(PreparedPart(PAIRS, PAIRS_WORDS).to_dict())
    return found


def _before(bounds: Mapping[str, Any]) -> dict[str, Any]:
    return {"events": [dict(event) for event in bounds["events"]], "share": None}


def _paid(trace: Sequence[PaidLine], part: str, words: str, questions: tuple[str, ...], *, plan: bool) -> PreparedPart:
    """What such questions cost together."""
    before = [0.0, *(line.spent for line in trace)]
    own = [
        (line, line.spent - earlier) for line, earlier in zip(trace, before, strict=False) if line.question in questions
    ]
    share = None if plan else float(f"{sum(cost for _, cost in own):.6g}")
    return PreparedPart(part, words, tuple(line.event for line, _ in own), share)


def cost(part: Mapping[str, Any]) -> str:
    """What a part cost, in words.

    >>> cost({"part": "ranks", "share": 0.1, "events": [{}]}), cost({"part": "pairs", "share": 0.0, "events": []})
    ('10 % of the training budget', 'nothing')
    """
    if not part["events"]:
        return "nothing"
    if part["share"] is not None:
        return f"{100 * part['share']:.2g} % of the training budget"
    return "a budget of its own, before training" if part["part"] == Bounds.part else "a part of the plan"


def odd_part(parts: Sequence[Mapping[str, Any]], paid: Counter[Leaf], bounds: str | None) -> str | None:
    """What is wrong with the parts of a statement: a name or words that no part has, or events that nobody paid for.

    ``bounds``: what was bought before training, in words. Shares follow from the trace, which a statement does not hold.
    """
    known = {SIZE: SIZE_WORDS, PAIRS: PAIRS_WORDS, Bounds.part: bounds}
    known |= {member.part: member.words for member in (Ranks, Features, Basis)}
    left = Counter(paid)
    for part in parts:
        name, share = part["part"], part["share"]
        if part["words"] != known.get(name, None) or bool(part["events"]) == (name == PAIRS):
            return "it says that something was prepared which noisewise does not know so"
        if share is not None and not (0 < share <= 1 if part["events"] else share == 0):
            return f"the share that the {name} took of the budget is none"
        left.subtract(leaves([from_dict(event) for event in part["events"]]))
        if any(count < 0 for count in left.values()):
            return f"the events that are said to have paid for the {name} are not among those that were paid"
    return None
