"""The statement: the promise of a released model, from which the price can be recomputed without the data.

It is plain JSON (``statement.schema.json``) and answers the usual reporting checklist for machine learning with
differential privacy (Ponomareva et al. 2023, How to DP-fy ML, section 5.3). ``verify`` needs no torch and no records: it
rebuilds the meter from the statement, replays the events, and compares their cost with the promise. Words that follow from
the rest (``derived_words``) are compared too, so a new wording needs a new format.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .._version import __version__
from ..accounts import Budget, BudgetExhausted, Meter, meter_from
from ..accounts.account import name_is_plain
from ..accounts.replay import replayed
from ..asking import KINDS
from ..methods.preparation.choices import odd_part, parts_of
from ..remote.federation import Federated
from ..trusted.arithmetic import Arithmetic
from ..trusted.events import Gaussian, Repeated, from_dict, leaves, to_dict
from ..trusted.question import Proved, WholeRun
from ..trusted.stores.protocol import SUMS
from ..trusted.units import CLIENT, UNIT, Unit
from .reading_list import RunKind, code_of, files_of, odd_code
from .seal import check_shape
from .search_price import traced, uncovered
from .wording import FORMATS, derived_words, format_of, shown, text
from .wording import account_text as account_text

if TYPE_CHECKING:
    from ..train import Trained

FORMAT = FORMATS[0]


def _home(kind: type[Proved]) -> str:
    """The file of a question, then the files of the sums that it asks for."""
    sums = {found.total for found in SUMS.values()}
    functions = [each for each in vars(sys.modules[kind.__module__]).values() if isinstance(each, FunctionType)]
    asked = [each for each in functions if getattr(each, "__wrapped__", None) in sums]
    modules = dict.fromkeys([kind.__module__, *(each.__module__ for each in asked)])
    return " ".join(module.removeprefix("noisewise.").replace(".", "/") for module in modules)


HOMES = {name: _home(kind) for name, kind in KINDS.items()}
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
    """Whether a promise follows from its events, the reason, and the promise (None when there is none).

    ``arithmetic``: the grade, None where an older statement has none; ``seal``: "intact" or "broken" for a run folder,
    "none" for a statement by itself.
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
        grade = "" if self.arithmetic is None else f"; arithmetic {self.arithmetic}"
        return f"{text}, the unit is {self.unit}{grade}"


def make_statement(
    *,
    method: str,
    settings: Mapping[str, Any],
    run: Trained,
    model: Mapping[str, Any],
    assumed: Sequence[str],
    preparation: Mapping[str, Any] | None = None,
    arithmetic: Arithmetic | None = None,
    account: Mapping[str, Any] | None = None,
    federated: Federated | None = None,
    isolation: str = "caller's own code",
    source: str = "arrays",
) -> Statement:
    """The statement of a finished run, made of released facts only.

    ``preparation``: the budget spent on these records before training, with the fields ``epsilon``, ``delta``, ``meter``
    (a meter's ``describe()``), ``events`` and ``what`` it bought. The promise is the total of both.
    ``arithmetic``: the grade of everything that the run computed, left out of the statement where it is None.
    ``account``: the account that the run's budget is a part of: ``dataset``, ``epsilon``, ``delta``, ``adjacency``.
    ``federated``: how clients were asked, where they hold the records. ``isolation``: how the method's code was isolated from
    the records (``seal.ISOLATIONS``). ``source``: where the records came from (``reading_list.SOURCES``).
    """
    private = run.meter is not None
    size = "public" if run.facts.size_is_public else "bought" if private else "not needed"
    events = [] if run.meter is None else [to_dict(Repeated(leaf, n)) for leaf, n in run.meter.events.items()]
    data: dict[str, Any] = {
        "format": FORMAT,  # until it has words
        "promise": promised(run.facts.budget, preparation, run.facts.unit) if private else None,
        "simulation": run.simulation,
        "meter": None if run.meter is None else run.meter.describe(),
        "events": events,
        "preparation": dict(preparation) if private and preparation is not None else None,
        "size": size,
        "method": {"name": " ".join(str(method).split()), "settings": dict(settings)},  # one line, which adds no other
        "model": dict(model),
        "hyper_parameters": HYPER_PARAMETERS,
        "assumed": list(assumed),
        "software": {"noisewise": __version__},
    }
    if arithmetic is not None:
        data["arithmetic"] = arithmetic.to_dict()
    if private:
        data["isolation"] = isolation
    if account is not None:
        data["account"] = dict(account)
    if federated is not None:
        data["federated"] = federated.to_dict()
        if federated.unit == "client":
            data["promise"]["unit"] = CLIENT
    plan = private and data["meter"]["meter"] == "plan"
    if private and (prepared := parts_of(run.trace, run.features, bounds=data["preparation"], plan=plan)):
        data["prepared"] = prepared
    if private:
        data["code"] = code_of(files_of(_kind(run, data, source), HOMES))
    return worded(data)


def _kind(run: Trained, data: Mapping[str, Any], source: str) -> RunKind:
    """The properties of a run that decide on which code its promise depends."""
    facts, questions = run.facts, frozenset(line.question for line in run.trace)
    asked = [KINDS[name] for name in questions if name in KINDS]
    plain = "linear" if facts.linear else "perceptron"
    uses = {
        "walk": any(issubclass(kind, WholeRun) for kind in asked),
        "bought bounds": data["preparation"] is not None,
        "shards": any(kind.sharded for kind in asked),
        "guest": data["isolation"] in ("sandbox", "process"),
        "ledger": "account" in data,
        "clients": "federated" in data,
    }
    return RunKind(
        "modules" if facts.tensors else "tables" if facts.table else plain,
        facts.loss,
        data["meter"],
        questions,
        source,
        frozenset(use for use, used in uses.items() if used),
    )


def worded(data: Mapping[str, Any]) -> Statement:
    """A new statement of these data, with the words that follow from them."""
    data = {**data, "format": format_of(data["promise"], federated="federated" in data, code="code" in data)}
    return Statement(data | derived_words(data))


def promised(training: Budget, preparation: Mapping[str, Any] | None, unit: Unit) -> dict[str, Any]:
    """The budget of training and what was spent before it, by basic composition; rounded up."""
    total = {"epsilon": training.epsilon, "delta": training.delta}
    if preparation is not None:
        total = {name: _total(value, preparation[name]) for name, value in total.items()}
    return {**total, "adjacency": training.adjacency, "unit": unit.words}


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


def verify_data(data: Any) -> Verdict:
    """The verdict on the content of a statement.json."""
    try:
        if isinstance(data, Mapping) and isinstance(other := data.get("format", FORMAT), str) and other not in FORMATS:
            return Verdict(False, f"unknown format {other!r}; this version reads {' and '.join(map(repr, FORMATS))}")
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
        unit = Unit.of_words(promise["unit"])
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
    if "account" in data and (reason := _odd_account(data)):
        return Verdict(False, reason)
    if reason := _odd_clients(data) or _odd_code(data):
        return Verdict(False, reason)
    own = traced(data)
    if reason := uncovered(data) or _odd_events(own, budget, meter if own is data else training_meter(own), unit):
        return Verdict(False, reason)
    before_too = [*own["events"], *([] if preparation is None else preparation["events"])]
    paid, what = leaves([from_dict(event) for event in before_too]), preparation and preparation["what"]
    if reason := odd_part(data.get("prepared", ()), paid, what):
        return Verdict(False, reason)
    for name, value in derived_words(data).items():
        if data[name] != value:
            return Verdict(False, f"its {name.replace('_', ' ')} does not follow from the rest of the statement")
    reason = "the events cost no more than the promised budget"
    if data["simulation"]:
        reason = "the arithmetic holds, but a seeded simulation is not private"
    grade = data["arithmetic"]["grade"] if "arithmetic" in data else None
    return Verdict(not data["simulation"], reason, **promise, arithmetic=grade)


def training_meter(data: Mapping[str, Any]) -> Meter:
    """The meter of the training, after paying for every event that is stated."""
    promise, preparation = data["promise"], data["preparation"]
    budget = Budget(promise["epsilon"], promise["delta"], adjacency=promise["adjacency"])
    return _replayed(budget if preparation is None else training_budget(budget, preparation), data)


def _replayed(budget: Budget, paid: Mapping[str, Any]) -> Meter:
    """The meter that is described beside the events, after paying for all of them."""
    if "plan" in paid["meter"]:
        check_shape(paid["meter"]["plan"], [{"event": dict, "count": int}], "the plan")
    return replayed(meter_from(budget, paid["meter"]), map(from_dict, paid["events"]))


def _odd_account(data: Mapping[str, Any]) -> str | None:
    """Why a run cannot be part of its account; the ledger shows whether the account's other runs kept to it."""
    account, promise = data["account"], data["promise"]
    whole = Budget(account["epsilon"], account["delta"], adjacency=account["adjacency"])
    own = training_meter(data).budget
    if own.epsilon > whole.epsilon and own.delta >= whole.delta:
        _replayed(whole, data)  # a filter takes a plan by its events, whatever it promised; nothing else fits
    if account["adjacency"] != promise["adjacency"]:
        return f"the account is under {account['adjacency']}, the run under {promise['adjacency']}"
    return None if name_is_plain(account["dataset"]) else "the account has a name that is not one line"


def _odd_code(data: Mapping[str, Any]) -> str | None:
    """What contradicts the list of code, which goes with one format and has paths of the package and digests."""
    if ("code" in data) != (data.get("format") == FORMATS[3]):
        return f"the code that ran is listed in the format {FORMATS[3]!r}, and in no other"
    return odd_code(data["code"]) if "code" in data else None


def _odd_clients(data: Mapping[str, Any]) -> str | None:
    """What contradicts the statement about clients: the way they were asked goes with the unit and with the format."""
    federated, client = data.get("federated"), data["promise"]["unit"] == CLIENT
    if data.get("format") not in (FORMATS[2:] if federated else (*FORMATS[:2], FORMATS[3])):
        formats = f"{FORMATS[2]!r} and {FORMATS[3]!r}"
        return f"records that lie with clients are stated in the formats {formats}, and nothing else is in the first"
    if federated is None:
        return "the unit is a client, but nothing says how clients were asked" if client else None
    Federated(**federated)
    if data["preparation"] is not None:
        return "bounds were bought, but that is done where all rows are, and not with clients"
    asked_by = CLIENT if federated["unit"] == "client" else UNIT
    return None if data["promise"]["unit"] == asked_by else "the unit is not the one that clients were asked by"


def _odd_events(data: Mapping[str, Any], budget: Budget, meter: Meter, unit: Unit) -> str | None:
    """What contradicts the stated size: it is public, or bought by one full-batch Gaussian."""
    size, single = data["size"], [leaf for leaf, n in meter.events.items() if n == 1]
    if size not in ("public", "bought"):
        return f"the size of the data is {size!r}; it is 'public' or 'bought'"
    if size == "bought" and budget.adjacency == "replace_one" and unit.most <= 1:
        return "the size cannot have been bought under replace_one, where it is public"
    if size == "bought" and not any(isinstance(leaf, Gaussian) for leaf in single):
        return "the size was bought, but no event pays for it"
    return None
