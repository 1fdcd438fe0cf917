"""Numbers and sentences of the report: right, checked against definitions, and never more certain than the mathematics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noisewise.accounts import AdditiveMeter, Budget, PlanMeter
from noisewise.evidence.report import sentences as words
from noisewise.evidence.report.markup import clean, escape, join, name_of, tag
from noisewise.trusted.accountants.gdp import epsilon_of
from noisewise.trusted.events import ApproximateDP, Gaussian


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05])
def test_the_coin_flip_bound_is_the_best_test_of_the_worst_pair(epsilon, delta):
    """The worst (epsilon, delta) pair has four outcomes; the best guess about a fair flip picks the likelier side."""
    other = (1 - delta) / (1 + math.exp(epsilon))
    mine = np.array([delta, (1 - delta) - other, other, 0.0])
    yours = mine[::-1]
    assert math.isclose(np.maximum(mine, yours).sum() / 2, words.guess(epsilon, delta), rel_tol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 60.0, 1e6])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_hits_are_the_two_inequalities_and_touch_the_coin_flip_bound(epsilon, delta):
    grid = np.linspace(0, 1, 101)
    curve = np.array([words.hits(x, epsilon, delta) for x in grid])
    assert np.all(np.diff(curve) >= -1e-12) and curve[-1] == 1 and curve[0] == pytest.approx(delta)
    if epsilon < 10:
        for x, y in zip(grid, curve, strict=True):
            assert y <= math.exp(epsilon) * x + delta + 1e-12
            assert 1 - x <= math.exp(epsilon) * (1 - y) + delta + 1e-12
        right = max((words.hits(x, epsilon, delta) + 1 - x) / 2 for x in np.linspace(0, 1, 20_001))
        assert right == pytest.approx(words.guess(epsilon, delta), abs=1e-4)


def test_a_belief_moves_by_the_factor_of_its_odds():
    for prior in (0.01, 0.5, 0.9):
        after = words.belief(prior, 0.7)
        assert after / (1 - after) == pytest.approx(math.exp(0.7) * prior / (1 - prior))


def a_statement(meter, **changes):
    budget = meter.budget
    promise = {"epsilon": budget.epsilon, "delta": budget.delta, "adjacency": budget.adjacency}
    return {"meter": meter.describe(), "promise": promise, "preparation": None} | changes


def test_the_gaussian_price_is_told_only_where_it_holds():
    budget = Budget(1.0, 1e-6)
    filtered = AdditiveMeter(budget, "gdp")
    mu = words.gaussian_mu(a_statement(filtered))
    assert epsilon_of(mu, 1e-6) == pytest.approx(1.0, rel=1e-6)
    planned = PlanMeter(budget, [Gaussian(50.0)] * 10, "gdp")
    assert words.gaussian_mu(a_statement(planned)) >= math.sqrt(10) / 50
    for other in (
        a_statement(AdditiveMeter(budget, "gdp", one_shot_delta=1e-7)),
        a_statement(AdditiveMeter(budget, "zcdp")),
        a_statement(PlanMeter(budget, [Gaussian(50.0)], "pld")),
        a_statement(PlanMeter(budget, [Gaussian(50.0), ApproximateDP(0.1, 1e-8)], "gdp")),
        a_statement(filtered, preparation={"epsilon": 0.1}),
        {"meter": None, "promise": None, "preparation": None},
    ):
        assert words.gaussian_mu(other) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "True"), (math.nan, "-"), (math.inf, "infinite"), (-math.inf, "-infinite"), (-0.5, "-0.5"), (12345.678, "12,350"),
        (10**12, "10¹²"), (1e-300, "10⁻³⁰⁰"), (-1e-7, "-10⁻⁷"), (99999.9, "100,000"), (9.99999, "10"), ("<b>", "<b>"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert words.number(value) == text


def test_a_chance_is_never_made_less_likely():
    for delta in (1e-6, 3e-6, 7e-5, 0.3, 1.5e-8):
        told = int(words.chance(delta).removeprefix("1 in ").replace(",", ""))
        assert 1 / told >= delta * (1 - 1e-9)
    assert words.chance(1e-12) == "10⁻¹²"


def test_a_factor_is_never_made_smaller():
    for epsilon in (0.01, 0.5, 1.0, 5.0):
        assert float(words.factor(epsilon)) >= math.exp(epsilon)
    for share in np.linspace(0.01, 0.998, 50):
        assert float(words.at_most(share).removesuffix("\u00a0%")) >= 100 * share - 1e-7


def test_unknown_questions_and_events_are_told_by_their_names():
    assert words.question_text("Median") == "Median" and "gradient" in words.question_text("gradient")
    assert words.mechanism({"kind": "Magic", "power": 3}) == "Magic (power 3)"
    assert "choice" in words.mechanism({"kind": "BoundedRange", "epsilon": 0.1})
    fixed = {"kind": "FixedBatch", "rate": 0.25, "event": {"kind": "Gaussian", "noise_multiplier": 2.0}}
    assert "fixed-size batches of 25" in words.mechanism(fixed)


def test_names_are_shortened_by_their_width():
    assert words.shorten("short", 10) == "short"
    for name in ("x" * 500, "年齢" * 40, "a\nb" * 50):
        short = words.shorten(name, 20)
        assert len(short) <= 21 and "\n" not in short and "…" in short
    assert len(words.shorten("年" * 40, 20)) <= 11, "wide characters count twice"


def test_everything_is_escaped_unless_it_was_made_by_tag():
    assert escape("<script>\"'&") == "&lt;script&gt;&quot;&#x27;&amp;"
    assert tag("p", "<b>", tag("b", "&")) == "<p>&lt;b&gt;<b>&amp;</b></p>"
    assert tag("a", title='"><script>') == '<a title="&quot;&gt;&lt;script&gt;"></a>'
    assert join("<", None, 3) == "&lt;3"
    assert name_of("<i>") == "<bdi>&lt;i&gt;</bdi>"
    assert not isinstance(tag("p", "x") + "<b>", type(tag("p"))), "adding text to markup gives text again"


def test_half_characters_and_direction_marks_become_visible():
    assert clean("a\ud800b").encode() == "a\ufffdb".encode()
    assert clean("a\u202eb\x07c\n") == "a\ufffdb\ufffdc\n"
    assert clean("می‌خواهم") == "می‌خواهم", "joiners belong to the script"
