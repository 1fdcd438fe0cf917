"""Plain words and numbers for the report: what a budget means for a person, and numbers as people read them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ...asking import KINDS
from ...statements.statement import shown
from ...trusted.accountants import special
from ...trusted.accountants.gdp import mu_of
from ...trusted.units import LOST
from .markup import clean

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MECHANISMS = {
    "Gaussian": "Gaussian noise",
    "BoundedRange": "a noisy choice",
    "ApproximateDP": "a one-shot mechanism",
    "AtOrder": "answers under a Renyi filter",
}
MODELS = {"Additive": "additive model of columns and pairs", "Linear": "linear model", "MLP": "perceptron"}
LOST_WORDS = "an answer that was paid for and lost when the run was interrupted"


def number(value: Any, digits: int = 4) -> str:
    """A number as people read it.

    >>> number(0.12345678), number(48000), number(1234567.0), number(2.5e-7), number(1e-6), number(None)
    ('0.1235', '48,000', '1,235,000', '2.5\\xa0×\\xa010⁻⁷', '10⁻⁶', '-')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else clean(value)
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("" if value > 0 else "-") + "infinite"
    if value == 0:
        return "0"
    if isinstance(value, int) and abs(value) < 10**9:
        return f"{value:,}"
    size = math.floor(math.log10(abs(value)))
    if -4 <= size <= 8:
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"
    mantissa, exponent = f"{value:.{max(digits - 1, 1)}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    times = {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}\u00a0×\u00a0")  # noqa: RUF001
    return f"{times}10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def plus_minus(value: float, half: float) -> str:
    """A value with its error, both to the two leading digits of the error.

    >>> plus_minus(-0.06712, 0.8208), plus_minus(1234.5, 56.7), plus_minus(1.0, 1e-9), plus_minus(-0.01, 1.0)
    ('-0.07 ± 0.82', '1,234 ± 57', '1 ± 10⁻⁹', '0.0 ± 1.0')
    """
    if not math.isfinite(half):
        return f"{number(value)} ± {number(half)}"
    digits = 1 - math.floor(math.log10(half))
    if -6 <= digits <= 6:
        return f"{value:z,.{max(digits, 0)}f} ± {half:,.{max(digits, 0)}f}"
    return f"{number(value)} ± {number(half, 2)}"


def percent(share: float) -> str:
    """A share as a percentage; never rounded to certainty or to nothing.

    >>> percent(0.731058), percent(0.9999999), percent(0.00001), percent(0.5), percent(1.0)
    ('73.1\\xa0%', 'more than 99.9\\xa0%', 'less than 0.1\\xa0%', '50\\xa0%', '100\\xa0%')
    """
    if 0.9995 <= share < 1:
        return "more than 99.9\u00a0%"
    if 0 < share < 0.001:
        return "less than 0.1\u00a0%"
    return f"{100 * share:.1f}".removesuffix(".0") + "\u00a0%"


def at_most(share: float) -> str:
    """A limit as a percentage, rounded up.

    >>> at_most(0.731058), at_most(0.5), at_most(0.99999)
    ('73.2\\xa0%', '50\\xa0%', 'more than 99.9\\xa0%')
    """
    return percent(share if share >= 0.999 else math.ceil(1000 * share - 1e-9) / 1000)


def limited(share: float) -> str:
    """A limit in a sentence; one that hardly limits is no "at most".

    >>> limited(0.731058), limited(0.99999)
    ('at most 73.2\\xa0%', 'more than 99.9\\xa0%')
    """
    told = at_most(share)
    return told if told.startswith("more") else f"at most {told}"


def chance(delta: float) -> str:
    """A small probability as one in so many, rounded to more likely.

    >>> chance(1e-6), chance(3e-5), chance(0.2)
    ('1 in 1,000,000', '1 in 33,333', '1 in 5')
    """
    return f"1 in {math.floor(1 / delta + 1e-6):,}" if delta >= 1e-9 else number(delta)


def budget(value: float) -> str:
    """An epsilon or delta as people read it, rounded up.

    >>> budget(1.0), budget(1.0004), budget(1e-6)
    ('1', '1.001', '10⁻⁶')
    """
    return number(float(shown(value, 4)))


def factor(epsilon: float) -> str:
    """e^epsilon, rounded up.

    >>> factor(1.0), factor(0.1), factor(1000.0)
    ('2.72', '1.11', 'more than 1,000,000')
    """
    if epsilon > math.log(1e6):
        return "more than 1,000,000"
    value = math.exp(epsilon)
    return f"{math.ceil(100 * value) / 100:g}" if value < 100 else f"{math.ceil(value):,}"


def belief(prior: float, epsilon: float) -> float:
    """The most that a belief of ``prior`` can become when its odds grow by e^epsilon.

    >>> round(belief(0.5, 1.0), 3), round(belief(0.1, 1.0), 3)
    (0.731, 0.232)
    """
    return float(special.expit(math.log(prior / (1 - prior)) + epsilon))


def guess(epsilon: float, delta: float) -> float:
    """How often the best attacker under (epsilon, delta)-DP guesses a fair coin flip about one record right.

    (e^epsilon + delta) / (1 + e^epsilon): the error rates a, b of any test obey a + e^epsilon b >= 1 - delta and the
    same with a and b exchanged, so a + b >= 2 (1 - delta) / (1 + e^epsilon).

    >>> round(guess(1.0, 1e-6), 6), guess(1e5, 1e-6)
    (0.731059, 1.0)
    """
    return min(1.0, float(special.expit(epsilon) + delta * special.expit(-epsilon)))


def hits(false_alarms: float, epsilon: float, delta: float) -> float:
    """The most true positives at a rate of false positives under (epsilon, delta)-DP.

    >>> round(hits(0.1, 1.0, 0.0), 4), hits(1.0, 1.0, 1e-6), hits(0.0, 1.0, 1e-6)
    (0.2718, 1.0, 1e-06)
    """
    growing = math.exp(min(epsilon + math.log(false_alarms), 1.0)) if false_alarms > 0 else 0.0
    return min(1.0, delta + growing, 1 - math.exp(-epsilon) * (1 - delta - false_alarms))


def gaussian_mu(statement: Mapping[str, Any]) -> float | None:
    """The mu for which the whole run is mu-GDP, when it was priced that way and nothing else was bought."""
    meter, promise = statement["meter"], statement["promise"]
    if promise is None or meter is None or statement["preparation"] is not None:
        return None
    if meter["meter"] == "additive" and meter["name"] == "gdp" and meter["one_shot_delta"] == 0:
        return math.sqrt(meter["cap"])
    if meter["meter"] == "plan" and meter["accountant"] == "gdp" and not _one_shots(meter["plan"]):
        return mu_of(promise["epsilon"], promise["delta"])
    return None


def _one_shots(plan: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a part of delta pays for something that is not Gaussian DP."""
    leaves = [item["event"].get("event", item["event"]) for item in plan]
    return any(leaf["kind"] == "ApproximateDP" and leaf["delta"] > 0 for leaf in leaves)


def question_text(name: str) -> str:
    """What was asked, in words: the question's own; a name without a question stays as it is."""
    return LOST_WORDS if name == LOST else KINDS[name].words if name in KINDS else name


def mechanism(event: Mapping[str, Any]) -> str:
    """How an answer was protected, in words.

    >>> mechanism({"kind": "Poisson", "rate": 0.01, "event": {"kind": "Gaussian", "noise_multiplier": 2.0}})
    'Gaussian noise, 2 times the clip norm, on Poisson batches of 1\\xa0% of the records'
    """
    kind = event.get("kind")
    if kind in ("Poisson", "FixedBatch"):
        batches = "Poisson" if kind == "Poisson" else "fixed-size"
        return f"{mechanism(event['event'])}, on {batches} batches of {percent(event['rate'])} of the records"
    if kind == "Gaussian":
        return f"Gaussian noise, {number(event['noise_multiplier'])} times the clip norm"
    if kind == "Selection":
        return "the best of a secret number of runs, each priced as the statement lists it"
    fields = ", ".join(f"{key} {number(value)}" for key, value in event.items() if key != "kind")
    return f"{MECHANISMS.get(str(kind), str(kind))} ({fields})"


def when(stamp: Any) -> str:
    """A moment as people read it; what is no ISO-8601 stays as it is.

    >>> when("2025-03-01T12:30:59Z"), when("yesterday")
    ('1 March 2025, 12:30 UTC', 'yesterday')
    """
    try:
        moment = datetime.fromisoformat(str(stamp))
    except ValueError:
        return str(stamp)
    zone = moment.tzname() or ""
    return f"{moment.day} {moment:%B %Y, %H:%M} {zone}".strip()


def day(stamp: Any) -> str:
    """The day of a moment.

    >>> day("2025-03-01T12:30:59Z"), day("yesterday")
    ('1 March 2025', 'yesterday')
    """
    return when(stamp).split(", ")[0]


def shorten(name: Any, width: int) -> str:
    """A name that fits into ``width`` characters (wide ones count twice), its end kept: prefixes are often alike.

    >>> shorten("occupation of the householder = farmer", 20)
    'occupation…r = farmer'
    """
    letters = clean(name).replace("\n", " ")
    wide = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in letters)
    if wide <= width:
        return letters
    keep = max(2, width * len(letters) // (2 * wide))
    return f"{letters[:keep]}…{letters[-keep:]}"
