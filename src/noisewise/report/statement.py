"""The statement: what a released model promises, from which the price can be recomputed without the data.

It is plain JSON. ``verify`` needs no torch and no records: it rebuilds the meter from the statement, replays the
events, and compares what they cost with what was promised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..budget import Budget, BudgetExhausted, meter_from
from ..events import Gaussian, Leaf, Repeated, from_dict, to_dict

if TYPE_CHECKING:
    from ..train import Trained

FORMAT = "noisewise-statement/1"
UNIT = "one record"


@dataclass(frozen=True)
class Statement:
    """A privacy statement as JSON data, with a text for people."""

    data: Mapping[str, Any]

    def to_json(self) -> str:
        return json.dumps(self.data, indent=2, default=_plain)

    def __str__(self) -> str:
        return text(self.data)


def _plain(value: Any) -> Any:
    """numpy numbers and other odd values as JSON has them."""
    return value.item() if hasattr(value, "item") else str(value)


@dataclass(frozen=True)
class Verdict:
    """Whether a statement's promise follows from its own events, and why (not)."""

    holds: bool
    reason: str
    epsilon: float | None


def make_statement(
    *, method: str, settings: Mapping[str, Any], run: Trained, model: Mapping[str, Any], assumed: Sequence[str]
) -> Statement:
    """The statement of a finished run, made of released facts only."""
    budget = run.facts.budget
    private = run.meter is not None
    size = "public" if run.facts.size_is_public else "bought" if private else "not needed"
    promise = {"epsilon": budget.epsilon, "delta": budget.delta, "adjacency": budget.adjacency, "unit": UNIT}
    events = [] if run.meter is None else [to_dict(Repeated(leaf, n)) for leaf, n in run.meter.events.items()]
    return Statement(
        {
            "format": FORMAT,
            "promise": promise if private else None,
            "simulation": run.simulation,
            "meter": None if run.meter is None else run.meter.describe(),
            "events": events,
            "size": size,
            "method": {"name": method, "settings": dict(settings)},
            "model": dict(model),
            "assumed": list(assumed),
            "trusted": "the model and loss named here, and the noisewise curator",
            "software": {"noisewise": __version__},
        }
    )


def text(data: Mapping[str, Any]) -> str:
    """The statement in plain words."""
    promise = data["promise"]
    if promise is None:
        return "This model was trained without privacy. It promises nothing about the records."
    relation = {
        "add_remove": "with or without any one record",
        "replace_one": "with any one record replaced by any other",
    }[promise["adjacency"]]
    lines = []
    if data["simulation"]:
        lines.append(
            "NOT PRIVATE: this was a seeded simulation, its noise can be reproduced. A private run would promise:"
        )
    lines += [
        f"(epsilon, delta) = ({promise['epsilon']:g}, {promise['delta']:g}), adjacency {promise['adjacency']}: whatever "
        f"is computed from this model is almost as likely {relation}.",
        f"Accounting: {_accounting_text(data['meter'])}; {_events_text(data['events'])}.",
        f"Method: {data['method']['name']}. Model: {data['model']['kind']} {data['model']['shape']}, "
        f"{data['model']['loss']} loss. Size of the data: {data['size']}.",
        "Assumed public: " + "; ".join(data["assumed"]) + ".",
        f"Trusted: {data['trusted']}. noisewise {data['software']['noisewise']}.",
    ]
    return "\n".join(lines)


def _accounting_text(meter: Mapping[str, Any]) -> str:
    if meter["meter"] == "plan":
        return f"a plan fixed beforehand, priced by {meter['accountant'].upper()}"
    order = f" at order {meter['order']}" if meter.get("order") else ""
    return f"a {meter['name'].upper()} filter{order}, which covers noise chosen while running"


def _events_text(events: Sequence[Mapping[str, Any]]) -> str:
    def one(event: Mapping[str, Any]) -> str:
        match event["kind"]:
            case "Gaussian":
                return f"Gaussian noise of {event['noise_multiplier']:.4g} times the clip norm"
            case "Poisson":
                return f"{one(event['event'])} on Poisson batches of rate {event['rate']:.4g}"
            case "FixedBatch":
                return f"{one(event['event'])} on fixed batches of rate {event['rate']:.4g}"
        return f"{event['kind']} with " + ", ".join(f"{key} {value}" for key, value in event.items() if key != "kind")

    counts: dict[str, int] = {}
    for event in events:  # noise levels that differ in rounding only read as one
        name = one(event["event"])
        counts[name] = counts.get(name, 0) + event["count"]
    return "; ".join(f"{count} x {name}" for name, count in counts.items())


def verify(statement: Statement | Mapping[str, Any]) -> Verdict:
    """Recompute the promise of a statement from its events alone.

    It checks arithmetic, not honesty: whether the software ran as stated is not in the document.
    """
    data = statement.data if isinstance(statement, Statement) else statement
    try:
        _check_shape(data)
        return _verify(data)
    except BudgetExhausted as error:
        return Verdict(False, f"the events cost more than was promised: {error}", None)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        return Verdict(False, f"the events do not support the promise: {error}", None)
    except RecursionError:
        return Verdict(False, "the events do not support the promise: they are nested beyond reason", None)


SHAPE: dict[str, Any] = {
    "format": str,
    "promise": {"epsilon": float, "delta": float, "adjacency": str, "unit": str},
    "simulation": bool,
    "meter": dict,
    "events": list,
    "size": str,
    "method": {"name": str, "settings": dict},
    "model": {"kind": str, "shape": list, "loss": str, "parameters": int},
    "assumed": list,
    "trusted": str,
    "software": {"noisewise": str},
}


def _check_shape(data: Any, shape: Any = None, place: str = "the statement") -> None:
    """Exactly the fields a statement has, each of its kind: what nobody checks, nobody should read."""
    shape = SHAPE if shape is None else shape
    if isinstance(shape, type):
        kinds = (float, int) if shape is float else (shape,)
        if not isinstance(data, kinds) or (isinstance(data, bool) and shape is not bool):
            raise ValueError(f"{place} is not a {shape.__name__}")
        return
    if not isinstance(data, Mapping):
        raise ValueError(f"{place} is not a document with the fields {', '.join(shape)}")
    if odd := set(shape) ^ set(data):
        what = "lacks" if sorted(odd)[0] in shape else "has an unknown field"
        raise ValueError(f"{place} {what} {sorted(odd)[0]!r}")
    for name, inner in shape.items():
        if not (name in ("promise", "meter") and data["promise"] is None):
            _check_shape(data[name], inner, f"{place}.{name}")


def _verify(data: Mapping[str, Any]) -> Verdict:
    if data["format"] != FORMAT:
        return Verdict(False, f"unknown format {data['format']!r}; this version reads {FORMAT!r}", None)
    promise = data["promise"]
    if promise is None:
        return Verdict(False, "the model was trained without privacy and promises nothing", None)
    if promise["unit"] != UNIT:
        return Verdict(False, f"the unit is {promise['unit']!r}; prices are for {UNIT!r}", None)
    budget = Budget(promise["epsilon"], promise["delta"], adjacency=promise["adjacency"])
    meter = meter_from(budget, data["meter"])
    for event in data["events"]:
        meter.spend(from_dict(event))
    if not meter.events:
        return Verdict(False, "no event was paid for, so nothing can have been released", None)
    if reason := _odd_size(data["size"], budget, [leaf for leaf, n in meter.events.items() if n == 1]):
        return Verdict(False, reason, None)
    if data["simulation"]:
        return Verdict(False, "the arithmetic holds, but a seeded simulation is not private", budget.epsilon)
    return Verdict(True, "the events cost no more than the promised budget", budget.epsilon)


def _odd_size(size: str, budget: Budget, single: Sequence[Leaf]) -> str | None:
    """What contradicts the word about the size: it is public, or bought by one full-batch Gaussian."""
    if size not in ("public", "bought"):
        return f"the size of the data is {size!r}; it is 'public' or 'bought'"
    if size == "bought" and budget.adjacency == "replace_one":
        return "the size cannot have been bought under replace_one, where it is public"
    if size == "bought" and not any(isinstance(leaf, Gaussian) for leaf in single):
        return "the size was bought, but no event pays for it"
    return None
