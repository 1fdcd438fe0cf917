"""What every member of the room has, and what a statement says each part of a preparation cost."""

from __future__ import annotations

import copy
import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import noisewise as nw
from noisewise.evidence.report.page import report_page
from noisewise.methods.dpsgd import DpSgd
from noisewise.methods.preparation.basis import Basis
from noisewise.methods.preparation.bounds import Bounds, Ranks
from noisewise.methods.preparation.choices import MEMBERS, cost, parts_of
from noisewise.statements.seal import reseal
from noisewise.trusted.events import Gaussian, to_dict
from noisewise.trusted.features import Hats, even
from noisewise.trusted.units import Released

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (4000, 3))
Y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
EXAMPLES = [
    Bounds(("age", "hours"), (0.0, 1.5), (90.0, 99.0)),
    Ranks(((0, ((0.0, 3.0, 10.0), (0.0, 0.5, 1.0))), (2, ((-1.0, 1.0), (0.0, 1.0)))), (1,)),
    Basis(RNG.normal(size=(3, 3)), 0.25),
    even((Hats(0, (0.0, 1.0), (0.0, 1.0), 4),)),
]


def fitted(method="auto", **settings):
    return nw.PrivateClassifier(**{"epsilon": 2.0, "delta": 1e-6, "bounds": (-1, 1), "method": method, **settings}).fit(
        X, Y
    )


@pytest.mark.parametrize("member", EXAMPLES, ids=lambda member: member.part)
def test_a_member_is_frozen_and_comes_back_from_json(member):
    again = type(member).from_dict(json.loads(json.dumps(member.to_dict())))
    assert again.to_dict() == member.to_dict() and type(again) is type(member)
    assert member.words and member.part and member.questions
    with pytest.raises(FrozenInstanceError):
        member.part = "something else"


def test_every_member_is_tried():
    assert {type(member) for member in EXAMPLES} == {*MEMBERS}
    assert len({member.part for member in MEMBERS}) == len(MEMBERS)


def test_parts_of_a_table_name_ranks_balance_and_pairs():
    clf = fitted("auto", epsilon=8.0)
    parts = {part["part"]: part for part in clf.statement_.data["prepared"]}
    assert list(parts) == ["size", "ranks", "features", "pairs"]
    of = {
        name: [row for row in clf.trace_ if row.question == name] for name in ("Count", "column levels", "FirstMoment")
    }
    for part, question in (("size", "Count"), ("ranks", "column levels"), ("features", "FirstMoment")):
        assert parts[part]["events"] == [to_dict(row.event) for row in of[question]]
        assert 0 < parts[part]["share"] < 0.2
    assert len(of["FirstMoment"]) == 2  # of effects, and of pairs
    assert parts["pairs"]["events"] == [] and parts["pairs"]["share"] == 0
    spent = sum(part["share"] for part in parts.values())
    steps = sum(row.spent - before.spent for before, row in zip(clf.trace_, clf.trace_[1:], strict=False) if row.question == "gradient")  # fmt: skip
    assert spent + steps == pytest.approx(1.0, abs=1e-4)
    assert "Prepared, and what it cost: the number of rows" in str(clf.statement_)


def test_a_basis_is_a_part_where_gradients_follow_and_a_plan_has_no_shares():
    parts = {part["part"]: part for part in fitted("descent").statement_.data["prepared"]}
    assert list(parts) == ["size", "basis"] and 0.04 < parts["basis"]["share"] < 0.12
    (size,) = fitted(DpSgd(steps=3)).statement_.data["prepared"]
    assert size["share"] is None and cost(size) == "a part of the plan"
    moments = [Released(name, Gaussian(3.0), None, 3.0, None, 0.5) for name in ("SecondMoment", "CrossMoment")]
    assert parts_of(moments, None) == []  # statistics that train


def test_what_is_bought_before_training_has_a_budget_of_its_own():
    before = {"epsilon": 0.1, "delta": 1e-7, "events": [to_dict(Gaussian(5.0))], "what": "bounds of 2 columns"}
    (part,) = parts_of([], None, bounds=before)
    assert part == {"part": "bounds", "words": before["what"], "events": before["events"], "share": None}
    assert cost(part) == "a budget of its own, before training"


def test_verify_finds_parts_that_nobody_paid_for(tmp_path):
    place = nw.save(fitted("auto"), tmp_path / "run")
    assert nw.verify(place).holds
    data = json.loads((place / "statement.json").read_text())
    wrong = copy.deepcopy(data)
    wrong["prepared"][0]["events"] = [to_dict(Gaussian(0.01))]
    verdict = nw.verify(wrong)
    assert not verdict.holds and "price of the size" in verdict.reason
    cheaper = copy.deepcopy(data)
    cheaper["prepared"][1]["share"] /= 2
    assert nw.verify(cheaper).holds  # a share needs the trace
    (place / "statement.json").write_text(json.dumps(cheaper))
    (place / "statement.txt").write_text(f"{nw.statement.Statement(cheaper)}\n")
    reseal(place)
    verdict = nw.verify(place)
    assert not verdict.holds and "said was prepared" in verdict.reason.replace("says", "said")


def test_an_older_statement_without_parts_still_verifies(tmp_path):
    place = nw.save(fitted("auto"), tmp_path / "run")
    data = json.loads((place / "statement.json").read_text())
    del data["prepared"]
    (place / "statement.json").write_text(json.dumps(data))
    (place / "statement.txt").write_text(f"{nw.statement.Statement(data)}\n")
    reseal(place)
    assert nw.verify(place).holds


def test_the_report_has_one_section_for_what_was_prepared(tmp_path):
    page = report_page(nw.save(fitted("auto", epsilon=8.0), tmp_path / "run"))
    section = page.split("<summary>What was prepared</summary>")[1].split("<summary>")[0]
    for word in ("ranks", "features", "pairs", "% of the training budget", "nothing"):
        assert word in section
    nonprivate = nw.save(fitted("nonprivate"), tmp_path / "plain")
    assert "What was prepared" not in report_page(nonprivate)
