"""The words of a privacy statement: what follows from its data, spelled out, and the whole as a text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import Any

from ..methods.preparation.choices import cost
from ..remote.federation import taken_for_granted, what_the_server_sees
from ..trusted.arithmetic import sentence
from ..trusted.events import Selection, from_dict, leaves, to_dict
from ..trusted.units import CLIENT, Unit, relation
from .search_price import covers, not_covered, private_search

# the second has words that follow from epsilon, the third also such of records that lie with clients
FORMATS = ("noisewise-statement/2", "noisewise-statement/3", "noisewise-statement/4", "noisewise-statement/5")
# by how the code of a method was kept apart from the records: what is trusted of it, and what that does not cover
TRUSTED = {
    "caller's own code": "; and the method, code of the caller's own that ran beside the records",
    "process": "; and the method, trusted not to look: it ran in a process of its own, which can open its user's files",
}
NOT_COVERED = {
    "sandbox": [
        "what the method, in its sandbox, notices of time: when an answer comes, to a tick, and how busy the machine is"
    ],
}
ALMOST, LIMIT, MILLION = 2.0, 10.0, 10**6  # up to which epsilon it is almost as likely, and a limit at all


def format_of(promise: Mapping[str, Any] | None, *, federated: bool = False, code: bool = False) -> str:
    """The format of a new statement: the older one wherever its words are true, which more versions can read."""
    if code:
        return FORMATS[3]
    if federated:
        return FORMATS[2]
    return FORMATS[0] if promise is None or promise["epsilon"] <= ALMOST else FORMATS[1]


def likely(data: Mapping[str, Any]) -> str:
    """How far one record can make anything more likely, in words; format 2 has the same words for every epsilon.

    >>> promise = {"adjacency": "add_remove", "unit": "one record"}
    >>> for epsilon in (1.0, 3.0, 100.0):
    ...     print(likely({"format": FORMATS[1], "promise": promise | {"epsilon": epsilon}}))
    almost as likely with or without any one record
    at most 20.1 times more or less likely with or without any one record
    possibly more than a million times more or less likely with or without any one record, which is hardly a limit
    """
    promise, related = data["promise"], relation(data["promise"])
    epsilon = promise["epsilon"]
    if data.get("format") not in FORMATS[1:] or epsilon <= ALMOST:
        return f"almost as likely {related}"
    odds = Context(prec=30).create_decimal(repr(float(epsilon))).exp(Context(prec=30))  # the same on every machine
    times = (
        "more than a million" if odds > MILLION else f"{float(Context(prec=3, rounding=ROUND_CEILING).plus(odds)):g}"
    )
    if epsilon <= LIMIT:
        return f"at most {times} times more or less likely {related}"
    return f"possibly {times} times more or less likely {related}, which is hardly a limit"


def derived_words(data: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the rest of a statement, spelled out for readers: setting, guarantee, accounting, coverage."""
    promise, preparation, federated = data["promise"], data["preparation"], data.get("federated")
    persons = promise is not None and Unit.of_words(promise["unit"]).persons
    covered = ["the trained parameters", "every answer on the way to them, as listed in the trace", *covers(data)]
    client = promise is not None and promise["unit"] == CLIENT
    if data["size"] == "bought":
        covered.append(f"the noisy number of {'clients' if client else 'rows that count' if persons else 'records'}")
    if preparation is not None:
        covered.append(f"what was bought before training: {preparation['what']}")
    return {
        "setting": "federated, trusted server" if federated else "central",
        "guarantee": "none"
        if promise is None
        else f"(epsilon, delta)-differential privacy: whatever is computed from what was released is {likely(data)}",
        "accounting": None if promise is None else _accounting(data, persons),
        "covers": [] if promise is None else covered,
        "does_not_cover": [
            "what is assumed to be public",
            *not_covered(data),
            "evaluations on private records, which are charged on top",
            "people with several clients: k clients get k times the effect"
            if client
            else "people under several ids: k ids get k times the effect"
            if persons
            else "people with several records: k records get k times the effect",
            *([] if federated is None else ["what the server sees, and whoever sees which clients it asks"]),
            *NOT_COVERED.get(data.get("isolation", ""), []),
            "side channels such as running time",
        ],
        "trusted": "the model and loss named here, and the noisewise curator"
        + TRUSTED.get(data.get("isolation", ""), "")
        + ("" if federated is None else f"; and {what_the_server_sees(federated)}"),
    }


def _accounting(data: Mapping[str, Any], persons: bool) -> dict[str, Any]:
    """How the price was computed, and what it takes for granted about the run."""
    meter, events = data["meter"], data["events"]
    client = data["promise"]["unit"] == CLIENT
    unit = "client" if client else "person" if persons else "record"
    plan = meter["meter"] == "plan"
    charged = leaves([from_dict(event) for event in ([item["event"] for item in meter["plan"]] if plan else events)])
    within = [leaf for event in charged if isinstance(event, Selection) for leaf in leaves(event.candidates)]
    kinds = {type(leaf).__name__ for leaf in (*charged, *within)}
    assumptions = [
        "what each run of the search may spend was fixed before the records were touched; all of it is charged"
        if private_search(data) is not None
        else "all noise levels, rates and counts were fixed before the records were touched; the whole plan is charged"
        if plan
        else "the cap was fixed before the records were touched; noise may have been chosen from earlier answers",
        f"every answer was charged before the records were touched, and one {unit}'s part of it is bounded",
        *([] if data.get("federated") is None else taken_for_granted(data["federated"])),
    ]
    if "Poisson" in kinds:
        assumptions.append(
            f"each {'client' if client else 'record'} joins each Poisson batch independently at the stated rate, as the sampler draws them"
        )
    if "FixedBatch" in kinds:
        assumptions.append("fixed-size batches are drawn without replacement, as the sampler draws them")
    if "Selection" in kinds:
        assumptions.append(
            "the number of runs of a selection was drawn at random as stated; it, the running time and every run but the best "
            "stay secret, and each run was stopped at its price"
        )
    if not kinds & {"Poisson", "FixedBatch", "AtOrder"}:
        assumptions.append(
            f"every answer used all {'clients' if client else 'records'}; nothing is gained from sampling"
        )
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
        f"is computed from this model is {likely(data)}.",
        *([f"This is a {account_text(data['account'])}."] if "account" in data else []),
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
    if data.get("prepared"):
        parts = "; ".join(f"{part['words']}: {cost(part)}" for part in data["prepared"])
        lines.append(f"Prepared, and what it cost: {parts}.")
    lines += [
        f"Covers: {'; '.join(data['covers'])}.",
        f"Does not cover: {'; '.join(data['does_not_cover'])}.",
        f"Method: {data['method']['name']}. Model: {data['model']['kind']} {data['model']['shape']}, "
        f"{data['model']['loss']} loss. Size of the data: {data['size']}.",
        f"Hyper-parameters: {data['hyper_parameters']}.",
        *([f"Search: {data['tuning']['words']}."] if "tuning" in data else []),
        "Assumed public: " + "; ".join(data["assumed"]) + ".",
        f"Trusted: {data['trusted']}. noisewise {data['software']['noisewise']}.",
    ]
    return "\n".join(lines)


def account_text(account: Mapping[str, Any]) -> str:
    """What the account of a run adds to its promise, in words."""
    total = f"({shown(account['epsilon'])}, {shown(account['delta'])}), {account['adjacency']}"
    return f"part of the account {account['dataset']!r}: at most (epsilon, delta) = {total}, for all its runs together"


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
