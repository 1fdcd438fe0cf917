"""The rules by which a curator refuses, applied to a statement and a trace: they find runs that cannot have happened.

Relation, unit, batches, model, grade and noise of a question are defined in its class (:mod:`noisewise.trusted.question`) and
are not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .._version import __version__
from ..accounts import Budget
from ..asking import KINDS
from ..guest.isolation import ISOLATIONS
from ..methods import shipped
from ..methods.additive import AdditiveDescent
from ..methods.preparation.choices import LEVELS
from ..trusted.accountants.common import sampling_of, unsampled
from ..trusted.arithmetic import GRADES, PSEUDO_RANDOM, Arithmetic
from ..trusted.events import AtOrder, Gaussian, Leaf, Selection, from_dict, leaves
from ..trusted.facts import Facts
from ..trusted.features import TableColumn
from ..trusted.losses import loss_named
from ..trusted.models import MLP, Additive, Linear, Model
from ..trusted.question import CLOSE, AnswerLine, HowAsked, Proved, checked_noise
from ..trusted.questions.columns import Histograms
from ..trusted.stores.totals import expected_size
from ..trusted.units import CLIENT, LOST, Unit
from ..trusted.walks.oneshot import Whole
from .network import Network
from .search_price import private_search, traced
from .statement import Verdict, verify_data

MODELS: dict[str, type[Model]] = {kind.__name__: kind for kind in (Linear, Additive, MLP)}  # all others are modules
OWN_LOOP = "make_private"  # the method of a loop of the user's own, which trains a module whatever its class is called
MAX_SIZE = 1e15  # of the records of a curator
NUMBER = (0.0, 1.0)  # stands for the scale of a number column, which no rule asks about


def verify_statement(data: Any) -> Verdict:
    """The verdict on the content of a statement.json: its arithmetic, and whether a curator would have answered."""
    verdict = verify_data(data)
    if verdict.epsilon is None:
        return verdict
    try:
        reason = _odd_statement(data)
    except (ValueError, TypeError, ArithmeticError) as error:
        reason = str(error)
    except LookupError:
        reason = "its model or method is not as noisewise writes them"
    return verdict if reason is None else Verdict(False, reason)


def _odd_statement(data: Mapping[str, Any]) -> str | None:
    """Why no run can have this statement; None where one can."""
    facts, before = facts_of_statement(data), data["preparation"]
    for event in _answers([*data["events"], *traced(data)["events"]]):
        if reason := _not_asked(event, facts, data):
            return reason
    for event in leaves([from_dict(event) for event in (before["events"] if before else ())]):
        if not Histograms.made(event):
            return "bounds are bought by histograms with Gaussian noise, which is not what was paid for"
        Histograms.refuse(facts.budget.adjacency, sampling_of(event), facts.unit)
    if reason := _odd_isolation(data):
        return reason
    method = shipped().get(data["method"]["name"])
    whole = None if method is None else method.whole
    if whole is not None:
        paid = _answers(traced(data)["events"])
        refuse(whole, next((event for event in paid if whole.made(event)), paid[0]), facts, data)
    return odd_grade(data, () if whole is None else (whole,))


def _odd_isolation(data: Mapping[str, Any]) -> str | None:
    """What contradicts the stated isolation of the method, or a search on rows that lie with clients."""
    name, isolation, search = data["method"]["name"], data.get("isolation"), private_search(data)
    if isolation in ISOLATIONS and name in shipped():
        return f"the method {name} is shipped, and a guest cannot have its name"
    if isolation not in (None, *ISOLATIONS) and ":" in name:
        return f"the method {name} is a guest's, and is not stated as one"
    if isolation in ISOLATIONS and search == "selection":
        return "a private selection hides its runs, which a guest would have seen"
    if data.get("federated") is not None and search is not None:
        return "settings were chosen on private rows, but that is done where all rows are, and not with clients"
    return None


def facts_of_statement(data: Mapping[str, Any], columns: int = 1) -> Facts:
    """The facts of a statement that rules need; ``columns``: how many number columns its table has."""
    promise, kind = data["promise"], _kind_of_model(data)
    network = None if kind is None else Network.from_dict(data["model"])
    loss = None
    with suppress(ValueError):
        loss = None if network is None else loss_named(network.loss_name)
    if network is not None and loss is not None:  # a model that does not exist is refused by its own check
        Linear(network.features, loss, network.outputs) if network.linear else MLP(network.sizes, loss)
    table = tuple(TableColumn(str(i), NUMBER, NUMBER) for i in range(columns)) or (TableColumn("a", groups=(0,)),)
    return Facts(
        size=None,
        size_is_public=data["size"] == "public",
        dimension=data["model"]["parameters"],
        features=1 if network is None else network.features,
        outputs=1 if network is None else network.outputs,
        row_bound=1.0,
        loss=data["model"]["loss"],
        task="" if loss is None else loss.task,
        lipschitz=math.inf if loss is None else loss.lipschitz,
        smoothness=math.inf if loss is None else loss.smoothness,
        budget=Budget(promise["epsilon"], promise["delta"], adjacency=promise["adjacency"]),
        groups=() if network is None else (1,) * (len(network.sizes) - 1),  # how many there are
        linear=kind is not None and kind.linear,
        coordinates=kind is not None and kind.coordinates,
        tensors=kind is None,
        table=table if kind is not None and kind.table else (),
        unit=Unit.of_words(promise["unit"]),
    )


def _kind_of_model(data: Mapping[str, Any]) -> type[Model] | None:
    """The class of a model; None for a torch module."""
    return None if data["method"]["name"] == OWN_LOOP else MODELS.get(data["model"]["kind"])


def refuse(kind: type[Proved], event: Leaf, facts: Facts, data: Mapping[str, Any]) -> None:
    """Refuse, as a curator does, a question that cannot have been asked or cannot have had this event."""
    if not kind.made(event):
        raise ValueError(f"{kind.name} is paid for as {kind.mechanism.__name__}, which is not what was paid for")
    kind.refuse(facts.budget.adjacency, sampling_of(event), facts.unit)
    kind.of_model(facts)
    if kind.in_one_place and data.get("federated") is not None:
        raise ValueError(f"{kind.name} needs all rows in one place, and they lay with clients")


def _not_asked(event: Leaf, facts: Facts, data: Mapping[str, Any]) -> str | None:
    """Why no question can have had this event; None where one can."""
    why = f"{type(event).__name__} is no event of a question"
    for kind in filter(lambda kind: kind.made(event), KINDS.values()):
        try:
            refuse(kind, event, facts, data)
            return None
        except (ValueError, TypeError) as error:
            why = str(error)
    return why


def _answers(events: Sequence[Mapping[str, Any]]) -> list[Leaf]:
    """The events of answers, those of a search's candidates included; a filter that was charged whole has none."""
    paid = leaves([from_dict(event) for event in events])
    within = leaves([event for leaf in paid if isinstance(leaf, Selection) for event in leaf.candidates])
    return [leaf for leaf in (*paid, *within) if not isinstance(leaf, Selection | AtOrder)]


def odd_grade(data: Mapping[str, Any], kinds: Sequence[type[Proved]]) -> str | None:
    """What contradicts the grade of the arithmetic, by the model and by the questions; an older statement has none."""
    stated = data.get("arithmetic")
    if stated is None:
        return None
    model = _kind_of_model(data) or Model
    grade = "exact" if data["promise"]["unit"] == CLIENT else model.grade  # a client is clipped in integers
    least = Arithmetic(grade, (PSEUDO_RANDOM,))
    for kind in kinds:
        least = kind.graded(least)
    order = list(GRADES)
    if order.index(stated["grade"]) < order.index(least.grade):
        best = f"{least.grade} at best for its model and questions"
        return f"its arithmetic is stated as {stated['grade']}, but is {best}"
    current = data["software"]["noisewise"] == __version__  # other versions have other words
    if current and {*least.assumptions} - {*stated["assumptions"]}:
        return "its arithmetic does not say what noise and questions take for granted"
    return None


def odd_answers(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> str | None:
    """What contradicts the lines of a trace, each by its own question; None where all fit."""
    numbers, open_ones = _number_columns(run)
    parts = open_ones * LEVELS if data["method"]["name"] == AdditiveDescent.name else None  # it asks about these alone
    facts, size = facts_of_statement(data, numbers), run.get("size")
    if size is not None and not 1 <= size <= MAX_SIZE:
        return f"no data has the size {size!r}"
    kinds = []
    for number, row in enumerate(rows, 1):
        event: Any = from_dict(row["event"])
        where = f"question {number} of trace.json"
        if row["question"] == LOST:
            if (row["clip"], row["noise_std"], row["norm"]) != (None, 0, None):
                return f"{where} was lost, and has an answer"
            continue
        if (kind := KINDS.get(row["question"])) is None:
            return f"{where} is none that a curator answers"
        kinds.append(kind)
        try:
            refuse(kind, event, facts, data)
        except (ValueError, TypeError) as error:
            return f"{where} cannot have been answered: {error}"
        line = AnswerLine(row["clip"], facts, data["method"]["settings"], parts)
        if size is None and kind.mean:
            size = _size_of(kind, row, event, line)
        if not _noise_fits(kind, row, event, line, size):
            return f"{where} has another noise or clip than its event"
    if not kinds:
        return "every answer of trace.json was lost, so nothing can have been released"
    return odd_grade(data, kinds) or _odd_walk(data, kinds, rows)


def _odd_walk(data: Mapping[str, Any], kinds: Sequence[type[Proved]], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the whole runs of a trace are not those of its shipped method; None where they are."""
    method = shipped().get(data["method"]["name"])
    if method is None or any(row["question"] == LOST for row in rows):
        return None
    asked = {kind for kind in kinds if issubclass(kind, Whole)}
    if asked != ({method.whole} if method.whole else set()):
        return f"the questions of trace.json are not those that {method.name} asks"
    return None


def _noise_fits(kind: type[Proved], row: Mapping[str, Any], event: Any, line: AnswerLine, size: float | None) -> bool:
    """Whether the standard deviation of the noise follows from event, clip and size, as the question computes it."""
    clip, std = line.clip, float(row["noise_std"])
    if not (0 < std < math.inf and math.isfinite(row["norm"] or 0.0)):
        return False
    takes_clip = hasattr(kind, "clip") or "clip" in kind.__annotations__
    if not (0 < clip < math.inf if takes_clip else clip is None):  # type: ignore[operator]
        return False
    return kind.fits(std, _how_asked(kind, event, line, size), line)


def _how_asked(kind: type[Proved], event: Any, line: AnswerLine, size: float | None) -> HowAsked:
    mechanism, sampling, facts = unsampled(event), sampling_of(event), line.facts
    noise = mechanism.noise_multiplier if isinstance(mechanism, Gaussian) else mechanism.epsilon  # type: ignore[union-attr]
    expected = expected_size(sampling, size) if kind.mean and size is not None else math.nan
    adjacency, persons = facts.budget.adjacency, facts.unit.most
    return HowAsked(adjacency, sampling, checked_noise(noise), expected, facts.features, persons)


def _size_of(kind: type[Proved], row: Mapping[str, Any], event: Any, line: AnswerLine) -> float | None:
    """The divisor of a line's sum, where the folder does not state the size: it applies to all other sums too."""
    if line.clip is None or not row["noise_std"] > 0:
        return None
    (low, _), *_ = kind.ranges(_how_asked(kind, event, line, 1.0), line)  # of a sum that is divided by 1
    divided, rate = low / row["noise_std"], sampling_of(event)[1:] or (1.0,)
    return min(max(float(math.ceil(divided / rate[0] * (1 - CLOSE**2))), 1.0), MAX_SIZE)


def _number_columns(run: Mapping[str, Any]) -> tuple[int, int]:
    """How many number columns the table of a run has, and how many of them declare no knots."""
    prepared = run.get("preprocessing") or {}
    schema = prepared.get("schema")
    if schema is None:
        bounded = len(prepared.get("low") or ())
        return bounded, bounded
    columns = (column for column in schema["columns"] if column["name"] != schema["target"])
    numbers = [column for column in columns if column["kind"] == "number"]
    return len(numbers), sum(not column.get("knots") for column in numbers)
