"""The statement: what a released model promises, from which the price can be recomputed without the data.

It is plain JSON (``statement.schema.json``) and answers the usual reporting checklist for machine learning with
differential privacy (Ponomareva et al. 2023, How to DP-fy ML, section 5.3). ``verify`` needs no torch and no records: it
rebuilds the meter from the statement, replays the events, and compares what they cost with what was promised. Words
that follow from the rest (``derived_words``) are compared too, so a new wording needs a new format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .arithmetic import Arithmetic, sentence
from .budget import Budget, BudgetExhausted, Meter, meter_from
from .events import BoundedRange, Gaussian, Repeated, Selection, from_dict, leaves, to_dict
from .shapes import check_shape
from .units import relation, rows_of_unit, unit_of

if TYPE_CHECKING:
    from .tape import Trained

FORMAT = "noisewise-statement/2"
HYPER_PARAMETERS = (
    "chosen without the private records (defaults, rules that read released answers only, or the user's own choice); "
    "no tuning on the private records was charged, and none is covered"
)


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
    """Whether a promise follows from its events, and why (not); what is promised, None when nothing is.

    ``arithmetic``: the grade, None when an older statement does not say; ``seal``: "intact" or "broken" for a run
    folder, "none" for a statement by itself.
    """

    holds: bool
    reason: str
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    unit: str | None = None
    arithmetic: str | None = None
    seal: str = "none"

    def __str__(self) -> str:
        """The verdict for people; the promise is repeated only when the events pay for it."""
        text = f"{'yes' if self.holds else 'no'}: {self.reason}"
        if self.epsilon is None or self.delta is None:
            return text
        text += f"; (epsilon, delta) = ({shown(self.epsilon)}, {shown(self.delta)}), adjacency {self.adjacency}"
        return f"{text}, the unit is {self.unit}" + (
            "" if self.arithmetic is None else f"; arithmetic {self.arithmetic}"
        )


def make_statement(
    *,
    method: str,
    settings: Mapping[str, Any],
    run: Trained,
    model: Mapping[str, Any],
    assumed: Sequence[str],
    hyper_parameters: str = HYPER_PARAMETERS,
    preparation: Mapping[str, Any] | None = None,
    arithmetic: Arithmetic | None = None,
) -> Statement:
    """The statement of a finished run, made of released facts only.

    ``preparation`` is what was spent on these records before training, with the fields ``epsilon``, ``delta``,
    ``meter`` (a meter's ``describe()``), ``events`` and ``what`` it bought. The promise is the total of both.
    ``arithmetic`` is the grade of everything that the run computed; without it the statement does not say.
    """
    private = run.meter is not None
    size = "public" if run.facts.size_is_public else "bought" if private else "not needed"
    events = [] if run.meter is None else [to_dict(Repeated(leaf, n)) for leaf, n in run.meter.events.items()]
    data: dict[str, Any] = {
        "format": FORMAT,
        "promise": _promise(run.facts.budget, preparation, run.facts.rows_per_unit) if private else None,
        "simulation": run.simulation,
        "meter": None if run.meter is None else run.meter.describe(),
        "events": events,
        "preparation": dict(preparation) if private and preparation is not None else None,
        "size": size,
        "method": {"name": " ".join(str(method).split()), "settings": dict(settings)},  # one line, which adds no other
        "model": dict(model),
        "hyper_parameters": hyper_parameters,
        "assumed": list(assumed),
        "software": {"noisewise": __version__},
    }
    if arithmetic is not None:
        data["arithmetic"] = arithmetic.to_dict()
    return Statement(data | derived_words(data))


def _promise(training: Budget, preparation: Mapping[str, Any] | None, rows: int | None) -> dict[str, Any]:
    """The budget of training and what was spent before it, by basic composition; rounded up."""
    total = {"epsilon": training.epsilon, "delta": training.delta}
    if preparation is not None:
        total = {name: _total(value, preparation[name]) for name, value in total.items()}
    return {**total, "adjacency": training.adjacency, "unit": unit_of(rows)}


def _total(later: float, earlier: float) -> float:
    """The sum, to 12 digits if that covers both parts (0.1 + 0.9 is promised as 1), else rounded up."""
    total = float(f"{later + earlier:.12g}")
    if _less(total, earlier) < later:
        total = later + earlier
    while _less(total, earlier) < later:
        total = math.nextafter(total, math.inf)
    return total


def _less(total: float, part: float) -> float:
    """total - part, rounded down."""
    exact = Fraction(float(total)) - Fraction(float(part))
    value = float(exact)
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


def training_budget(total: Budget, preparation: Mapping[str, Any]) -> Budget:
    """What a promise leaves for training after its preparation, rounded down.

    >>> training_budget(Budget(1.0, 1e-6), {"epsilon": 0.25, "delta": 5e-7})
    Budget(epsilon=0.75, delta=5e-07, adjacency='add_remove')
    """
    epsilon, delta = (_less(getattr(total, name), preparation[name]) for name in ("epsilon", "delta"))
    if not (epsilon > 0 and delta > 0):
        raise ValueError(
            f"preparation takes ({preparation['epsilon']:g}, {preparation['delta']:g}) of ({total.epsilon:g}, "
            f"{total.delta:g}), which leaves nothing for training; spend less on it"
        )
    return Budget(epsilon, delta, adjacency=total.adjacency)


def derived_words(data: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the rest of a statement, spelled out for readers: setting, guarantee, accounting, coverage."""
    promise, preparation = data["promise"], data["preparation"]
    persons = None if promise is None else rows_of_unit(promise["unit"])
    covers = ["the trained parameters", "every answer on the way to them, as listed in the trace"]
    if data["size"] == "bought":
        covers.append(f"the noisy number of {'records' if persons is None else 'rows that count'}")
    if preparation is not None:
        covers.append(f"what was bought before training: {preparation['what']}")
    return {
        "setting": "central",
        "guarantee": "none"
        if promise is None
        else "(epsilon, delta)-differential privacy: whatever is computed from what was released is almost as likely "
        + relation(promise),
        "accounting": None if promise is None else _accounting(data["meter"], data["events"], persons),
        "covers": [] if promise is None else covers,
        "does_not_cover": [
            "what is assumed to be public",
            "choosing settings by trial runs on the private records",
            "evaluations on private records, which are charged on top",
            "people with several records: k records get k times the effect"
            if persons is None
            else "people under several ids: k ids get k times the effect",
            "side channels such as running time",
        ],
        "trusted": "the model and loss named here, and the noisewise curator",
    }


def _accounting(meter: Mapping[str, Any], events: Sequence[Mapping[str, Any]], persons: int | None) -> dict[str, Any]:
    """How the price was computed, and what it takes for granted about the run."""
    plan = meter["meter"] == "plan"
    charged = leaves([from_dict(event) for event in ([item["event"] for item in meter["plan"]] if plan else events)])
    within = [leaf for event in charged if isinstance(event, Selection) for leaf in leaves(event.candidates)]
    kinds = {type(leaf).__name__ for leaf in (*charged, *within)}
    assumptions = [
        "all noise levels, rates and counts were fixed before the records were touched; the whole plan is charged"
        if plan
        else "the cap was fixed before the records were touched; noise may have been chosen from earlier answers",
        "every answer was charged before the records were touched, and one "
        f"{'record' if persons is None else 'person'}'s part of it is bounded",
    ]
    if "Poisson" in kinds:
        assumptions.append(
            "each record joins each Poisson batch independently at the stated rate, as the sampler draws them"
        )
    if "FixedBatch" in kinds:
        assumptions.append("fixed-size batches are drawn without replacement, as the sampler draws them")
    if "Selection" in kinds:
        assumptions.append(
            "the number of runs of a selection was drawn at random as stated; it, the running time and every run but the best "
            "stay secret, and each run was stopped at its price"
        )
    if not kinds & {"Poisson", "FixedBatch", "AtOrder"}:
        assumptions.append("every answer used all records; nothing is gained from sampling")
    return {"type": _accounting_text(meter), "assumptions": assumptions}


def shown(value: float, digits: int = 6) -> str:
    """A budget in so many digits, rounded up: words must not promise more than numbers do.

    >>> shown(1.0), shown(1e-6), shown(1.0000004), shown(0.1 + 0.2)
    ('1', '1e-06', '1.00001', '0.300001')
    """
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(rounded):g}"


def text(data: Mapping[str, Any]) -> str:
    """The statement in plain words."""
    promise, before = data["promise"], data["preparation"]
    if promise is None:
        return "This model was trained without privacy. It promises nothing about the records."
    lines = []
    if data["simulation"]:
        lines.append(
            "NOT PRIVATE: this was a seeded simulation, its noise can be reproduced. A private run would promise:"
        )
    lines += [
        f"(epsilon, delta) = ({shown(promise['epsilon'])}, {shown(promise['delta'])}), adjacency {promise['adjacency']}: whatever "
        f"is computed from this model is almost as likely {relation(promise)}.",
        f"Setting: {data['setting']}; the unit is {promise['unit']}.",
        f"Accounting: {data['accounting']['type']}; {_events_text(data['events'])}.",
        f"Taken for granted: {'; '.join(data['accounting']['assumptions'])}.",
    ]
    if "arithmetic" in data:
        lines.append(f"Arithmetic: {sentence(data['arithmetic'])}.")
    if before is not None:
        lines.append(
            f"Before training, ({shown(before['epsilon'])}, {shown(before['delta'])}) of it bought {before['what']}: "
            f"{_accounting_text(before['meter'])}; {_events_text(before['events'])}."
        )
    lines += [
        f"Covers: {'; '.join(data['covers'])}.",
        f"Does not cover: {'; '.join(data['does_not_cover'])}.",
        f"Method: {data['method']['name']}. Model: {data['model']['kind']} {data['model']['shape']}, "
        f"{data['model']['loss']} loss. Size of the data: {data['size']}.",
        f"Hyper-parameters: {data['hyper_parameters']}.",
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
            case "AtOrder":
                return f"answers under an RDP filter at order {event['order']} with cap {event['rdp']:.4g}"
            case "Selection":
                kinds = dict.fromkeys(_events_text([inner]) for inner in event["candidates"])
                some = [*list(kinds)[:3], *([f"{len(kinds) - 3} other kinds"] if len(kinds) > 3 else [])]
                return f"the best of a secret number of runs ({_runs_text(event['repetitions'])}), each [{' | '.join(some)}]"
        return f"{event['kind']} with " + ", ".join(f"{key} {value}" for key, value in event.items() if key != "kind")

    counts: dict[str, int] = {}
    for event in events:
        for leaf, count in leaves(from_dict(event)).items():  # noise levels that differ in rounding only read as one
            name = one(to_dict(leaf))
            counts[name] = counts.get(name, 0) + count
    return "; ".join(f"{count} x {name}" for name, count in counts.items())


def _runs_text(law: Mapping[str, Any]) -> str:
    if law["kind"] == "PoissonRepetitions":
        return f"Poisson with mean {law['mean']:.4g}"
    return f"truncated negative binomial with eta {law['eta']:.4g}, gamma {law['gamma']:.4g}"


def verify_data(data: Any) -> Verdict:
    """The verdict on the content of a statement.json."""
    try:
        if isinstance(data, Mapping) and isinstance(other := data.get("format", FORMAT), str) and other != FORMAT:
            return Verdict(False, f"unknown format {other!r}; this version reads {FORMAT!r}")
        check_shape(data)
        return _verify(data)
    except BudgetExhausted as error:
        return Verdict(False, f"the events cost more than was promised: {error}")
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        return Verdict(False, f"the events do not support the promise: {error}")
    except RecursionError:
        return Verdict(False, "the events do not support the promise: they are nested beyond reason")


def _verify(data: Mapping[str, Any]) -> Verdict:
    promise, preparation = data["promise"], data["preparation"]
    if promise is None:
        return Verdict(False, "the model was trained without privacy and promises nothing")
    try:
        rows = rows_of_unit(promise["unit"])
    except ValueError as error:
        return Verdict(False, str(error))
    if data["meter"] is None:
        return Verdict(False, "there is a promise, but no meter that kept it")
    budget = Budget(promise["epsilon"], promise["delta"], adjacency=promise["adjacency"])
    meter = training_meter(data)
    if preparation is not None:
        before = Budget(preparation["epsilon"], preparation["delta"], adjacency=promise["adjacency"])
        if not (_replayed(before, preparation).events and preparation["what"].strip()):
            return Verdict(False, "preparation has a budget, but does not say what was bought with it")
    if not meter.events:
        return Verdict(False, "no event was paid for, so nothing can have been released")
    if reason := _odd_events(data, budget, meter, rows):
        return Verdict(False, reason)
    for name, value in derived_words(data).items():
        if data[name] != value:
            return Verdict(False, f"its {name.replace('_', ' ')} does not follow from the rest of the statement")
    if data["simulation"]:
        return _verdict(data, False, "the arithmetic holds, but a seeded simulation is not private")
    return _verdict(data, True, "the events cost no more than the promised budget")


def _verdict(data: Mapping[str, Any], holds: bool, reason: str) -> Verdict:
    grade = data["arithmetic"]["grade"] if "arithmetic" in data else None
    return Verdict(holds, reason, **data["promise"], arithmetic=grade)


def training_meter(data: Mapping[str, Any]) -> Meter:
    """The meter of the training, after paying for every event that is stated."""
    promise, preparation = data["promise"], data["preparation"]
    budget = Budget(promise["epsilon"], promise["delta"], adjacency=promise["adjacency"])
    return _replayed(budget if preparation is None else training_budget(budget, preparation), data)


def _replayed(budget: Budget, paid: Mapping[str, Any]) -> Meter:
    """The meter that is described beside the events, after paying for all of them."""
    if "plan" in paid["meter"]:
        check_shape(paid["meter"]["plan"], [{"event": dict, "count": int}], "the plan")
    meter = meter_from(budget, paid["meter"])
    for event in paid["events"]:
        meter.spend(from_dict(event))
    return meter


def _odd_events(data: Mapping[str, Any], budget: Budget, meter: Meter, rows: int | None) -> str | None:
    """What contradicts the word about the size (it is public, or bought by one full-batch Gaussian) or about persons."""
    size, single = data["size"], [leaf for leaf, n in meter.events.items() if n == 1]
    several = rows is not None and rows > 1
    if several and not all(isinstance(leaf, Gaussian | BoundedRange) for leaf in meter.events):
        return "an answer used a batch or a whole run in the room, which has no price for several rows per person"
    if size not in ("public", "bought"):
        return f"the size of the data is {size!r}; it is 'public' or 'bought'"
    if size == "bought" and budget.adjacency == "replace_one" and not several:
        return "the size cannot have been bought under replace_one, where it is public"
    if size == "bought" and not any(isinstance(leaf, Gaussian) for leaf in single):
        return "the size was bought, but no event pays for it"
    return None
