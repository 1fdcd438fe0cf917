"""The secret draws of a search: how many runs there are, of which candidates, and who is compared on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .events import Repetitions
from .gate import secret

SCORED = 0.15  # of the records, which candidates are compared on and not trained on
DEALING, DRAWING = 1 << 65, 1 << 68  # added to a simulation's seed: each use has draws of its own


def drawn_runs(law: Repetitions, candidates: int, seed: int | None) -> list[int]:
    """The candidate of each run of a private selection, uniformly, with replacement; even their number is secret.

    *Guarantee*: number and candidates are independent of the records, and never leave the search.
    """
    stream = secret(None if seed is None else seed + DRAWING)
    return [int(stream.subset(1, candidates)[0]) for _ in range(stream.runs(law))]


def coins(records: int, *, seed: int | None, share: float = SCORED) -> NDArray[np.bool_]:
    """Which records are compared on: each with probability ``share``, by a secret coin of its own.

    *Guarantee*: the coins do not depend on the records, are drawn under a fresh key and never shown; a record's coin goes by
    its place. Given the coins, neighbours differ in one record of one part, so whatever is private for each part by itself
    is private at the price of the dearer one (the mixture over coins is no further apart than the parts are: divergences are
    jointly quasi-convex). Searches here charge at least that.
    """
    picked = np.zeros(records, dtype=bool)
    stream = secret(None if seed is None else seed + DEALING)
    picked[stream.each_with_probability(share, records)] = True
    return picked
