"""What a statement says of a search for settings, and whether what was charged covers the run that was released.

A search on private rows is charged as a whole, as events fixed before the first run; the released run has a meter and events
of its own, to which its trace belongs. ``tuning.run`` has them; it is null where settings were found without private rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..accounts import AdditiveMeter, Budget, PlanMeter, meter_from
from ..accounts.replay import replayed
from ..trusted.accountants.base import currency
from ..trusted.accountants.selection import whole_of
from ..trusted.events import BoundedRange, Gaussian, Leaf, Selection, from_dict, leaves
from ..trusted.units import Unit
from .seal import TUNED_RUN, check_shape

CHARGED = ("selection", "exponential")
TRIALS = "choosing settings by trial runs on the private records"
UNPAID = "the released run may have spent more than its search was charged for"


def private_search(data: Mapping[str, Any]) -> str | None:
    """How settings were chosen on private rows, by the statement; None where they were not."""
    tuning = data.get("tuning")
    return None if tuning is None or tuning["run"] is None else str(tuning["how"])


def traced(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The statement of the released run alone: what the trace of a search's winner belongs to."""
    if private_search(data) is None:
        return data
    run = data["tuning"]["run"]
    promise = {**data["promise"], "epsilon": run["epsilon"], "delta": run["delta"]}
    return {**data, "promise": promise, "preparation": None, "meter": run["meter"], "events": run["events"]}


def uncovered(data: Mapping[str, Any]) -> str | None:
    """Why the charge for a search does not cover the run that was released; None where it does, or there is no search."""
    tuning = data.get("tuning")
    if tuning is None:
        return None
    if (tuning["how"] in CHARGED) != (tuning["run"] is not None):
        return f"its search was by {tuning['how']!r}, which does not go with the run that is stated"
    if not 1 <= tuning["candidates"] == len(tuning["settings"]):
        return "its search lists other settings than it says there were candidates"
    if not all(words.isprintable() for words in (tuning["words"], *tuning["settings"])):
        return "the words of its search are not one line"
    if tuning["run"] is None:
        return None
    run, promise, before = tuning["run"], data["promise"], data["preparation"]
    spent = whole_event(run, Budget(run["epsilon"], run["delta"], adjacency=promise["adjacency"]))
    charged = leaves([from_dict(event) for event in data["events"]])
    if tuning["how"] == "selection":
        reason = _not_selected(charged, spent, together=Unit.of_words(promise["unit"]).most > 1)
    else:
        reason = _not_chosen(charged, spent, tuning["candidates"])
    if reason is not None:
        return reason
    for name in ("epsilon", "delta"):
        rest = promise[name] - (0.0 if before is None else before[name])
        if tuning["price"] is None or not math.isclose(tuning["price"][name], rest, rel_tol=1e-9):
            return "the price of its search is not what is promised"
    return None


def _not_selected(charged: Counter[Leaf], spent: Counter[Leaf], *, together: bool) -> str | None:
    """What a charge lacks for a private selection: one event, one of whose candidates is the run and one the score.

    ``together``: a person's rows may be trained on and scored on, so that a candidate is both.
    """
    (selection, times), *others = charged.items()
    if not isinstance(selection, Selection) or times != 1 or others:
        return "a private selection is charged as one Selection and nothing else, which is not what was charged"
    runs = [leaves(candidate) for candidate in selection.candidates]
    covering = [one for one in runs if not spent - one]
    if not covering:
        return UNPAID
    rest = [one - spent for one in covering] if together else [one for one in runs if sum(one.values()) == 1]
    if not any(isinstance(leaf, Gaussian) for one in rest for leaf in one):
        return "the score that its search compared runs by was not charged"
    return None


def _not_chosen(charged: Counter[Leaf], spent: Counter[Leaf], candidates: int) -> str | None:
    """What a charge lacks for the exponential mechanism: the run, every other run, and the choice."""
    rest = charged - spent
    if spent - charged or any(isinstance(leaf, Selection) for leaf in charged):
        return UNPAID
    if not any(isinstance(leaf, BoundedRange) for leaf in rest):
        return "the choice among its candidates was not charged"
    return None if sum(rest.values()) >= candidates else "its search was not charged for every candidate"


def whole_event(run: Mapping[str, Any], promise: Budget) -> Counter[Leaf]:
    """All that the meter of a run lets through, as priced, after checking that its events fit into it."""
    check_shape(run, TUNED_RUN, "tuning.run")
    meter = meter_from(promise, run["meter"])
    most = Counter(meter.remaining) if isinstance(meter, PlanMeter) else Counter[Leaf]()
    replayed(meter, map(from_dict, run["events"]))
    if isinstance(meter, AdditiveMeter):
        own = meter.currency
        return leaves(whole_of(currency(promise, own.name, order=own.order)))
    return most


def covers(data: Mapping[str, Any]) -> list[str]:
    """What a search adds to what the promise covers."""
    how = private_search(data)
    if how is None:
        return []
    score = ", and its score" if how == "selection" else ""
    return [f"which of {data['tuning']['candidates']} candidate settings was chosen{score}"]


def not_covered(data: Mapping[str, Any]) -> list[str]:
    """What the promise does not say about trial runs."""
    how = private_search(data)
    if how is None:
        return [TRIALS]
    further = "further trial runs on the private records"
    return (
        [further, "the number of runs of the search, if its running time is seen"] if how == "selection" else [further]
    )
