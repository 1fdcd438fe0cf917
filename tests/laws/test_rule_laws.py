"""What the curator refuses from public facts, ``verify`` refuses too, and nothing else: every question, relation, unit, batch and grade."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from noisewise._version import __version__
from noisewise.accounts import AdditiveMeter, Budget, BudgetExhausted
from noisewise.curator import KINDS, QUESTIONS, Curator, Descent, OnePass, PerturbedObjective
from noisewise.statements.rules import odd_answers, verify_statement
from noisewise.statements.statement import worded
from noisewise.trusted.accountants.common import Unpriceable
from noisewise.trusted.arithmetic import GRADES, Arithmetic
from noisewise.trusted.events import ADJACENCIES, Gaussian, Repeated, sampled, to_dict
from noisewise.trusted.facts import facts_of
from noisewise.trusted.features import TableColumn
from noisewise.trusted.losses import LOSSES
from noisewise.trusted.meter import PlanMeter
from noisewise.trusted.models import MLP, Additive, Linear
from noisewise.trusted.question import HowAsked
from noisewise.trusted.stores import records_of
from noisewise.trusted.units import Unit

N, NOISE = 20, 10.0
X = np.full((N, 3), 0.1)
Y = np.where(np.arange(N) % 2 == 0, 1.0, -1.0)
LOSS = LOSSES["logistic"]
TABLE = tuple(TableColumn(f"x{i}", (-1.0, 1.0), (0.0, 1.0)) for i in range(3))
MODELS = {"Linear": Linear(3, LOSS), "Additive": Additive(1, LOSS, 1, columns=TABLE), "MLP": MLP((3, 2, 1), LOSS)}
UNITS = (None, 1, 3)
SAMPLINGS = (("full",), ("poisson", 0.5), ("fixed", 0.5))
WALKS = {
    "Descent": lambda start: Descent(start, 2, 0.1, NOISE),
    "OnePass": lambda start: OnePass(start, X[:5, : len(start)], Y[:5], 0.1, NOISE),
    "PerturbedObjective": lambda start: PerturbedObjective(start, 1.0, 1e-6),
}


class Reached(Exception):
    """Records were asked shard by shard: nothing had refused."""


def unrolled(*_, **__):
    raise Reached


def case_of(kind, model):
    if kind in WALKS:
        return WALKS[kind](np.zeros(model.dimension))
    return KINDS[kind].cases(model.dimension)[0]


def event_of(kind, model, sampling):
    case = case_of(kind, model)
    return sampled(sampling, case.event() if kind in WALKS else case.event(NOISE))


def refused_by_curator(kind, model, adjacency, unit, sampling):
    """Whether it refuses, by anything but the price of the meter."""
    meter = AdditiveMeter(Budget(400.0, 0.1, adjacency), "rdp", order=2, one_shot_delta=0.01)
    rows, size = (X.astype(np.float32) if model.table else X), float(N)
    try:
        own = Curator(rows, Y, model=model, meter=meter, size=size, row_bound=1.0, rows_per_unit=unit, unroll=unrolled)
        if kind == "PerturbedObjective":
            own.minimise(case_of(kind, model))
        elif kind in WALKS:
            own.last_iterate(case_of(kind, model))
        else:
            own.ask(case_of(kind, model), noise=NOISE, sampling=sampling)
    except (Unpriceable, BudgetExhausted) as error:
        raise AssertionError("the law asks for what has a price") from error
    except (ValueError, TypeError):
        return True
    except Reached:
        return False
    return False


def stated(kind, model, adjacency, unit, event, grade="assumed"):
    """A statement of one answer, with every word as the library writes it; and the rest of a folder."""
    budget = Budget(400.0, 0.1, adjacency)
    meter = PlanMeter(budget, [event], "rdp" if hasattr(event, "rate") else "gdp")
    words = () if kind is None else KINDS[kind].graded(Arithmetic("exact")).assumptions
    data = {
        "promise": {"epsilon": 400.0, "delta": 0.1, "adjacency": adjacency, "unit": Unit(unit).words},
        "simulation": False,
        "meter": meter.describe(),
        "events": [to_dict(Repeated(event, 1))],
        "preparation": None,
        "size": "public",
        "method": {"name": "a stranger's", "settings": {}},
        "model": {
            "kind": type(model).__name__,
            "shape": list(model.shape),
            "loss": "logistic",
            "parameters": model.dimension,
        },
        "hyper_parameters": "none",
        "assumed": [],
        "software": {"noisewise": __version__},
        "arithmetic": {"grade": grade, "assumptions": ["AES is pseudo-random", *words]},
    }
    columns = [{"name": column.name, "kind": "number"} for column in TABLE]
    return worded(data).data, {"size": N, "preprocessing": {"schema": {"columns": columns, "target": "y"}}}


def row_of(kind, model, adjacency, unit, sampling):
    """The line of a trace that the answer would have."""
    case = case_of(kind, model)
    how = HowAsked(adjacency, sampling, NOISE, N * (sampling[1] if len(sampling) > 1 else 1), 3, unit or 1)
    std = 1.0 if kind in WALKS else case.noise_std(how)
    event = to_dict(event_of(kind, model, sampling))
    return {
        "question": kind,
        "event": event,
        "clip": getattr(case, "clip", None),
        "noise_std": std,
        "norm": None,
        "spent": 1.0,
    }


def refused_by_verify(kind, model, adjacency, unit, sampling, grade="assumed"):
    event = event_of(kind, model, sampling)
    data, run = stated(kind, model, adjacency, unit, event, grade)
    verdict = verify_statement(data)
    found = odd_answers(data, [row_of(kind, model, adjacency, unit, sampling)], run)
    return found is not None or not verdict.holds, f"{verdict.reason}; {found}"


def priced(adjacency, sampling):
    """Fixed-size batches have no price under add_remove, and the meter refuses them on both sides."""
    return adjacency == "replace_one" or sampling[0] != "fixed"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_verify_refuses_what_the_curator_refuses_and_nothing_else(kind, model):
    for adjacency, unit, sampling in product(ADJACENCIES, UNITS, SAMPLINGS):
        if priced(adjacency, sampling) and not (kind in WALKS and sampling[0] != "full"):
            asked = (kind, MODELS[model], adjacency, unit, sampling)
            found, why = refused_by_verify(*asked)
            assert found == refused_by_curator(*asked), (asked, why)


@pytest.mark.parametrize("sampling", SAMPLINGS[1:], ids=lambda sampling: sampling[0])
@pytest.mark.parametrize("kind", WALKS)
def test_a_whole_walk_on_a_batch_is_refused(kind, sampling):
    """The curator has no words to ask for one."""
    assert refused_by_verify(kind, MODELS["Linear"], "replace_one", None, sampling)[0]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "histograms"])
def test_a_grade_that_is_better_than_model_and_question_is_refused(kind):
    adjacency, grades = KINDS[kind].relations[-1], list(GRADES)
    for model in MODELS.values():
        asked = (kind, model, adjacency, None, ("full",))
        if refused_by_verify(*asked)[0]:
            continue
        rows = X.astype(np.float32) if model.table else X
        best = KINDS[kind].graded(records_of(model, rows, Y).arithmetic).grade  # as the curator grades it
        for grade in grades:
            found, why = refused_by_verify(*asked, grade)
            assert found == (grades.index(grade) < grades.index(best)), (kind, grade, why)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_graded_as_its_records_are(name):
    model = MODELS[name]
    assert records_of(model, X.astype(np.float32) if model.table else X, Y).arithmetic.grade == model.grade


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.97, 1.03, 2.0, math.nan, math.inf])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "histograms"])
def test_the_noise_of_every_question_is_computed_anew(kind, factor):
    """Whole walks and label bounds are not in a trace; a gradient may share its price with a count, at most by half."""
    loose = {*WALKS, "CrossMoment", "layered_gradient"} if 0 < factor < math.inf else set()
    model = MODELS["Additive" if kind == "column levels" else "Linear"]
    adjacency = KINDS[kind].relations[-1]
    data, run = stated(kind, model, adjacency, None, event_of(kind, model, ("full",)))
    row = row_of(kind, model, adjacency, None, ("full",))
    assert odd_answers(data, [row], run) is None
    row["noise_std"] *= factor
    fits = odd_answers(data, [row], run) is None
    shared = kind == "gradient" and 1 < factor < math.sqrt(2)
    counted = kind == "column levels" and factor in (0.5, 2.0)  # of a quarter, or four times as many cells
    assert fits == (kind in loose or shared) or counted


def test_every_question_says_what_it_is():
    for kind in KINDS.values():
        assert kind.words and kind.relations and kind.samplings and kind.mechanism and kind.name in KINDS
    assert {kind.name for kind in QUESTIONS.values()} | {*WALKS} == {*KINDS}


def test_facts_of_a_statement_are_those_of_the_run():
    from noisewise.statements.rules import facts_of_statement

    for name, model in MODELS.items():
        data, _ = stated(None, model, "add_remove", 3, Gaussian(NOISE))
        found, real = facts_of_statement(data, 3), facts_of(model, Budget(400.0, 0.1), size=None, row_bound=1.0)
        for field in ("dimension", "features", "outputs", "task", "smoothness", "linear", "tensors"):
            assert getattr(found, field) == getattr(real, field), (name, field)
        assert bool(found.table) == bool(real.table) and found.unit == Unit(3) and found.rows_per_unit == 3
