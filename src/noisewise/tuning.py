"""What a statement says of a search for settings, and whether what was charged covers the run that was released.

A search on private rows is charged as a whole, as events fixed before the first run; the released run has a meter and events
of its own, to which its trace belongs. ``tuning.run`` has them; it is null where settings were found without private rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .accounting.base import currency
from .accounting.selection import whole_of
from .budget import AdditiveMeter, Budget, PlanMeter, meter_from
from .events import Event, Leaf, Selection, from_dict, leaves
from .shapes import TUNED_RUN, check_shape

CHARGED = ("selection", "exponential")
TRIALS = "choosing settings by trial runs on the private records"


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
    if tuning["run"] is None:
        return None
    run, promise = tuning["run"], data["promise"]
    spent = whole_event(run, Budget(run["epsilon"], run["delta"], adjacency=promise["adjacency"]))
    charged = [from_dict(event) for event in data["events"]]
    if not any(not spent - leaves(one) for one in alternatives(charged)):
        return "the released run may have spent more than its search was charged for"
    if tuning["price"] != {"epsilon": promise["epsilon"], "delta": promise["delta"]} and data["preparation"] is None:
        return "the price of its search is not what is promised"
    return None


def alternatives(charged: list[Event]) -> list[Any]:
    """What a single run may have cost: one of a selection's candidates, or everything where all runs are charged."""
    selections = [leaf for leaf in leaves(charged) if isinstance(leaf, Selection)]
    return [candidate for one in selections for candidate in one.candidates] or [charged]


def whole_event(run: Mapping[str, Any], promise: Budget) -> Counter[Leaf]:
    """All that the meter of a run lets through, as priced, after checking that its events fit into it."""
    check_shape(run, TUNED_RUN, "tuning.run")
    meter = meter_from(promise, run["meter"])
    most = Counter(meter.remaining) if isinstance(meter, PlanMeter) else Counter[Leaf]()
    for event in run["events"]:
        meter.spend(from_dict(event))
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
