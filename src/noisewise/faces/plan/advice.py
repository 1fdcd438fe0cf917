"""A recommendation in plain words, made of the numbers of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from ...trusted.accountants import gdp
from ...trusted.accountants.terms import Budget
from .expected import Expected, clarity_for
from .tuning import WORDS, Tuning, cheapest

MIN_KEPT_SHARE = 0.8  # kept by the middle of simulations: below this, say what would be enough
LITTLE = 0.01  # of what is kept: what tuning costs is lost in the noise of a test
USUAL = 8  # settings: what the recommendation speaks of, if the plan has it


def recommendation(
    budget: Budget,
    size: int,
    columns: int,
    classes: int | None,
    clarity: float,
    kept: Expected | None,
    ways: Sequence[Tuning],
) -> str:
    """What to do: whether the budget is enough, and whether to spend a part of it on tuning."""
    told = ["Use auto with the whole budget."]
    if kept is not None:
        told = [f"Use auto with the whole budget: {kept_in_words(kept)}."]
        if kept.mid < MIN_KEPT_SHARE:
            told.append(_more(budget, size, columns, classes, clarity))
    else:
        told.append("No simulations stand for a table that wide: what to expect is not known.")
    return " ".join([*told, *_tuning(ways, kept)])


def kept_in_words(kept: Expected) -> str:
    """What to expect, with its range."""
    share = f"{kept.mid:.2f} ({kept.low:.2f} to {kept.high:.2f})"
    if kept.mid <= 0:
        return f"expect no more than always giving one answer gives; of what a model without privacy gains, {share} is kept"
    return f"expect to keep {share} of what a model without privacy gains over always giving one answer"


def _more(budget: Budget, size: int, columns: int, classes: int | None, clarity: float) -> str:
    """Records, or an epsilon, that would be enough."""
    times = clarity_for(MIN_KEPT_SHARE, columns, classes) / clarity
    epsilon = gdp.epsilon_of(times * gdp.mu_of(budget.epsilon, budget.delta), budget.delta)
    return (
        f"It takes about {_rounded(times * size)} records, or an epsilon of about {epsilon:.2g}, to keep {MIN_KEPT_SHARE:g}; fewer "
        "columns help as well."
    )


def _tuning(ways: Sequence[Tuning], kept: Expected | None) -> list[str]:
    counts = sorted({way.candidates for way in ways if way.candidates > 1})
    if not counts:
        return []
    count = USUAL if USUAL in counts else counts[0]
    way = cheapest(ways, count)
    price = f"Tuning {count} settings by {WORDS[way.how]} costs a factor {way.factor:.2f} in noise"
    if kept is None or way.kept is None:
        told = f"{price}; it pays only if the default setting is worse than that much noise."
    elif kept.mid - way.kept.mid < LITTLE:
        told = f"{price}, which hardly matters here ({way.kept.mid:.2f} instead of {kept.mid:.2f} kept)."
    else:
        told = (
            f"{price}: expect {way.kept.mid:.2f} instead of {kept.mid:.2f} kept; it pays only if the default setting "
            "loses more than that."
        )
    return [told, "Tune on public rows if you have any: that costs no privacy."]


def _rounded(count: float) -> str:
    """Two digits are enough.

    >>> _rounded(12_345.0)
    '12,000'
    """
    return f"{float(f'{count:.2g}'):,.0f}"
