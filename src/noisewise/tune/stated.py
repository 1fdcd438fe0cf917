"""The statement of a search's winner: what was charged for the whole search, how settings were chosen, and its own run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..accounts import Budget, Meter
from ..methods.preparation.parts import parts_of
from ..statements.reading_list import USES, also
from ..statements.statement import promised, worded
from ..tables.fit.build import SETTINGS
from ..tables.fit.fitted import Fitted
from ..trusted.arithmetic import Arithmetic
from ..trusted.events import Repeated, to_dict
from .candidates import Candidate
from .price import Agreed

LISTED = "the list of candidate settings, written down without the private rows"
CHOSEN = {
    "selection": "chosen among candidates by private selection on the private records, whose price is part of the promise",
    "exponential": "chosen among candidates by the exponential mechanism on the private records, all runs charged",
    "public": "chosen on public rows, which costs nothing",
    "online": "moved during the run from what it had released, which its meter covers",
    "none": "the first candidate's; no search was made",
}


@dataclass(frozen=True, eq=False)
class Bill:
    """How settings were chosen, among which candidates, and the meter that paid for all of it; None: for nothing."""

    how: str
    settings: tuple[str, ...]
    budget: Budget
    words: str
    meter: Meter | None = None
    account: Mapping[str, Any] | None = None


def in_words(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """The settings of each candidate, as a statement lists them."""
    return tuple(json.dumps(dict(candidate.settings), default=str, sort_keys=True) for candidate in candidates)


def stated(
    fitted: Fitted, bill: Bill, candidates: Sequence[Candidate], best: int, agreed: Agreed | None = None
) -> Fitted:
    """The model with the statement of the search that found it."""
    data: dict[str, Any] = dict(fitted.statement.data)
    candidate = candidates[best]
    tuning: dict[str, Any] = {
        "how": bill.how,
        "candidates": len(bill.settings),
        "settings": list(bill.settings),
        "price": None,
        "words": bill.words,
        "run": None,
    }
    if bill.meter is not None and agreed is not None:
        before = candidate.fit.preparation
        tuning["price"] = {"epsilon": bill.budget.epsilon, "delta": bill.budget.delta}
        tuning["run"] = {
            "epsilon": agreed.promise.epsilon,
            "delta": agreed.promise.delta,
            "meter": data["meter"],
            "events": data["events"],
        }
        data |= {
            "promise": promised(bill.budget, before, candidate.fit.unit),
            "preparation": None if before is None else dict(before),
            "meter": bill.meter.describe(),
            "events": [to_dict(Repeated(leaf, count)) for leaf, count in bill.meter.events.items()],
        }
        if bill.account is not None:
            data["account"] = dict(bill.account)
        plan = tuning["run"]["meter"]["meter"] == "plan"
        if prepared := parts_of(fitted.trace, fitted.made, bounds=before, plan=plan):
            data["prepared"] = prepared
        if "arithmetic" in data:
            data["arithmetic"] = _arithmetic(data["arithmetic"], candidates)
        data["assumed"] = [LISTED if words == SETTINGS else words for words in data["assumed"]]
    data |= {"tuning": tuning, "hyper_parameters": CHOSEN[bill.how]}
    if "code" in data and bill.how in USES:
        data["code"] = also(data["code"], bill.how)
    settings = {**fitted.settings, **_asked(candidate, bill.budget)}
    return replace(fitted, statement=worded(data), settings=settings)


def _arithmetic(own: Mapping[str, Any], candidates: Sequence[Candidate]) -> dict[str, Any]:
    """The grade of the winner, or a worse one that a run of another candidate may have had: by the list, which is public."""
    arithmetic = Arithmetic(own["grade"], tuple(own["assumptions"]))
    for fit in (candidate.fit for candidate in candidates):
        if not (fit.model.linear or fit.model.table) or fit.method.whole is not None:
            arithmetic = arithmetic.bounded(
                "runs of other candidates, not released, had parts in floats, with a margin"
            )
    return arithmetic.to_dict()


def _asked(candidate: Candidate, budget: Budget) -> dict[str, Any]:
    """What a run folder says was asked for: the promise of the whole search."""
    whole = candidate.fit.budget if candidate.fit.preparation is not None else budget
    return {"epsilon": whole.epsilon, "delta": whole.delta}
