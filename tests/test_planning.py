"""``nw.plan``: what to expect and what tuning costs follow size, budget and columns; nothing heavy is loaded."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import pytest

import noisewise as nw
from noisewise.faces.plan.expected import KEPT, clarity_for, expected
from noisewise.faces.plan.plans import SCORING, cheapest
from noisewise.tables.schema import Column, Schema
from noisewise.trusted.accountants import gdp
from noisewise.trusted.accountants.rdp import plan_epsilon
from noisewise.trusted.accountants.repetitions import chance_missed, mean_runs
from noisewise.trusted.accountants.selection import choose_repetitions, gaussian_worth
from noisewise.trusted.events import Selection, TruncatedNegativeBinomial

QUICK = {"steps": (10,), "rates": (), "candidates": (1,)}


def made(epsilon=1.0, delta=1e-6, **options):
    return nw.plan(epsilon, delta, **{"size": 5000, "columns": 10, **QUICK, **options})


@pytest.mark.parametrize("classes", [2, 4, None])
def test_more_records_and_more_budget_keep_more_and_more_columns_less(classes):
    sizes = [made(size=size, classes=classes).expected for size in (50, 200, 1000, 5000, 100_000)]
    budgets = [made(epsilon, size=2000, classes=classes).expected for epsilon in (0.05, 0.3, 1.0, 8.0)]
    columns = [made(size=2000, columns=columns, classes=classes).expected for columns in (120, 30, 8, 2)]
    for found in (sizes, budgets, columns):
        assert all(a.low <= b.low and a.mid <= b.mid and a.high <= b.high for a, b in pairwise(found))
        assert found[0].mid < found[-1].mid


@pytest.mark.parametrize("kind", sorted(KEPT))
def test_the_recorded_table_rises_and_every_range_holds_its_middle(kind):
    rows = KEPT[kind]
    assert len(rows) >= 5 and all(low <= mid <= high for _, low, mid, high in rows)
    assert all(a[0] < b[0] and all(x <= y for x, y in zip(a, b, strict=True)) for a, b in pairwise(rows))


def test_what_was_recorded_is_looked_up_and_beyond_its_ends_it_says_so():
    for point, low, mid, high in KEPT["classes"]:
        found = expected(point, 1, 2)
        assert (found.low, found.mid, found.high) == pytest.approx((low, mid, high)) and found.within
    first, last = KEPT["number"][0], KEPT["number"][-1]
    assert expected(first[0] / 10, 1, None).mid == first[2] and not expected(first[0] / 10, 1, None).within
    assert expected(last[0] * 10, 1, None).mid == last[2] and not expected(last[0] * 10, 1, None).within


def test_the_clarity_for_a_share_keeps_it_and_a_little_less_does_not():
    enough = clarity_for(0.8, 20, 2)
    assert expected(enough * 1.0001, 20, 2).mid >= 0.8 > expected(0.99 * enough, 20, 2).mid
    assert clarity_for(2.0, 20, 2) == math.inf


def test_persons_and_replaced_records_count_as_fewer():
    one = made()
    assert made(rows_per_unit=3).clarity == pytest.approx(one.clarity / 3)
    assert made(adjacency="replace_one").clarity == pytest.approx(one.clarity / 2)
    assert one.clarity == pytest.approx(5000 * gdp.mu_of(1.0, 1e-6))


def test_selection_is_priced_as_it_would_be_charged_and_the_others_by_their_formulas():
    plan = made(candidates=(1, 6, 30))
    whole = gdp.mu_of(1.0, 1e-6)
    none, selection, exponential, public, *rest = plan.tuning
    assert (none.candidates, none.how, none.mu, none.factor) == (1, "none", whole, 1.0)
    assert none.kept == public.kept == plan.expected and public.mu == whole
    assert exponential.mu == pytest.approx(whole * math.sqrt((1 - SCORING) / 6))
    law = TruncatedNegativeBinomial(1.0, 1 / 20)
    assert chance_missed(law, 6) == pytest.approx(0.2) and mean_runs(law) == pytest.approx(20)
    run = gaussian_worth(selection.mu / math.sqrt(1 - SCORING), "add_remove")
    assert 0.999 < plan_epsilon(Selection((run,), law), 1e-6, "add_remove") <= 1.0
    assert selection.factor == pytest.approx(whole / selection.mu) and 1 < selection.factor < rest[0].factor
    assert selection.kept.mid <= plan.expected.mid
    assert cheapest(plan.tuning, 6) == min((selection, exponential), key=lambda way: way.factor)


def test_a_budget_without_a_price_of_selection_still_has_a_plan():
    plan = made(0.001, candidates=(1, 4))
    assert [way.how for way in plan.tuning] == ["none", "exponential", "public"]
    assert "4 settings by the exponential mechanism" in plan.recommendation


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 2), (1.0, 64), (8.0, 8)])
def test_the_law_that_is_priced_is_nearly_the_best(epsilon, count):
    best = choose_repetitions(nw.Budget(epsilon, 1e-6), count).each.mu
    priced = made(epsilon, candidates=(count,)).tuning[0].mu / math.sqrt(1 - SCORING)
    assert 0.78 * best <= priced <= 1.03 * best  # the best for two is Poisson, which may not run at all


def test_the_recommendation_says_the_numbers_of_the_plan():
    plan = made(size=400, candidates=(1, 8))
    way = cheapest(plan.tuning, 8)
    told = plan.recommendation
    assert f"keep {plan.expected.mid:.2f} ({plan.expected.low:.2f} to {plan.expected.high:.2f})" in told
    assert f"costs a factor {way.factor:.2f} in noise" in told and "8 settings by private selection" in told
    assert f"expect {way.kept.mid:.2f} instead of {plan.expected.mid:.2f} kept" in told
    assert "records, or an epsilon of about" in told and "public rows" in told
    large = made(size=10**6, candidates=(1, 8)).recommendation
    assert "hardly matters here" in large and "It takes about" not in large
    assert "Tuning" not in made(candidates=(1,)).recommendation
    assert plan.recommendation in str(plan) and plan.why in str(plan)


def test_records_that_are_said_to_be_enough_are_enough():
    told = made(size=300).recommendation
    size = int(told.split("about ")[1].split(" records")[0].replace(",", ""))
    assert made(size=int(1.1 * size)).expected.mid >= 0.8 > made(size=int(0.9 * size)).expected.mid


def test_a_wide_table_has_prices_but_no_simulations():
    plan = made(columns=300, candidates=(1, 4))
    assert plan.method == "descent" and plan.expected is None and all(way.kept is None for way in plan.tuning)
    assert "not known" in plan.recommendation and plan.to_dict()["expected"] is None


def test_a_schema_says_columns_and_target():
    x, kind = Column("x", "number", 0.0, 1.0), Column("kind", "category", categories=("a", "b", "c"))
    label = made(columns=None, schema=Schema((x, kind), target="kind"), classes=None)
    number = made(columns=None, schema=Schema((x, kind), target="x"))
    assert (label.columns, label.classes, number.columns, number.classes) == (1, 3, 1, None)


def test_frames_and_a_picture(tmp_path):
    plan = made(candidates=(1, 4), steps=(10, 100))
    assert list(plan.to_frame()["steps"]) == [10, 100]
    assert list(plan.to_frame("tuning")["how"]) == ["none", "selection", "exponential", "public"]
    assert plan.to_frame("tuning")["kept_mid"][0] == plan.expected.mid
    with pytest.raises(ValueError, match="pass 'rows' or 'tuning'"):
        plan.to_frame("noise")
    plan.plot(tmp_path / "plan.png")
    made(columns=200, candidates=(1, 4)).plot(tmp_path / "wide.svg")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "wide.svg").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"columns": None}, "one of the two"),
        ({"schema": Schema((Column("x", "number", 0.0, 1.0),))}, "one of the two"),
        ({"columns": 0}, "columns is 0"),
        ({"size": 0}, "size is 0"),
        ({"classes": 1}, "classes is 1"),
        ({"candidates": ()}, "candidates is empty"),
        ({"candidates": (1, 0)}, "candidates is 0"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"adjacency": "none"}, "adjacency"),
        ({"columns": None, "schema": "none.toml"}, "no such file"),
    ],
)
def test_bad_input_is_one_clear_line(options, reason):
    with pytest.raises(ValueError, match=reason) as told:
        made(**options)
    assert "\n" not in str(told.value)


def test_planning_loads_no_torch():
    code = (
        "import noisewise as nw, sys; nw.plan(1.0, 1e-6, size=1000, columns=5, candidates=(1, 4)); "
        "print(*[name for name in ('torch', 'sklearn', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
