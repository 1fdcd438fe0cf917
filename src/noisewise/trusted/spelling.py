"""Names that people type: what they may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """What to add to a refusal of a name: the known one that is spelt most like it, if any is.

    >>> did_you_mean("incme", ["age", "income"]), did_you_mean("Age", ["age"]), did_you_mean("x", ["age"])
    (" (did you mean 'income'?)", " (did you mean 'age'?)", '')
    """
    spelt = {str(one).strip().lower(): str(one) for one in known}
    near = get_close_matches(str(name).strip().lower(), spelt, n=1, cutoff=0.7)
    return f" (did you mean {spelt[near[0]]!r}?)" if near else ""
