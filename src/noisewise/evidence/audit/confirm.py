"""An alarm is confirmed on fresh runs before it is called a violation.

The first stage (:mod:`noisewise.evidence.audit.lower_bound`) alarms when its bound, at ``confidence``, exceeds the claim. Then the
test it used, that is score, threshold and kind of interval, meets runs of other seeds. They are looked at after 1, 2, 4
and 8 times as many trials as the first stage measured, each time at a level of LEVEL / 4; the first look whose bound
exceeds the claim confirms. A strong violation is confirmed by the first look; one that the first stage finds half of the
time lies about 1.6 standard errors beyond the claim there, but 4.7 at the last look, which asks for 3.7.

*Guarantee*. Let the claim be true and fix everything that the first stage saw. The test is then fixed and the fresh runs
are independent of it, so each look's bound exceeds the true epsilon with probability at most LEVEL / 4, and any of them
with at most LEVEL (a union bound: the looks share runs). The first stage alarms with probability at most 1 - confidence. So

    P(false violation) = P(alarm) P(confirmed | alarm) <= (1 - confidence) LEVEL,

2.5e-5 at 95 %. Over m audits, dependent or not, it is at most m times that: for up to 40 private methods at most 0.1 % at
95 %, and 1 % at every confidence that is accepted (at least 50 %). LEVEL alone would not do: 40 LEVEL is 2 %. The runs
count as independent because each has a seed of its own, from SHA-256, and a cryptographic stream grown from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .error_bounds import epsilon_bound
from .transcript import SCORES

if TYPE_CHECKING:
    from .lower_bound import Audit

Floats = npt.NDArray[np.float64]
Fresh = Callable[[int, int], Floats]
LEVEL = 5e-4
LOOKS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Confirmation:
    """What fresh runs say of an alarm. ``lower_bound`` holds at ``confidence`` over all looks together."""

    confirmed: bool
    lower_bound: float
    confidence: float
    runs: int
    false_positives: int
    false_negatives: int
    trials: int


def confirm(audit: Audit, fresh: Fresh) -> Audit:
    """The audit with its alarm, if it raised one, tried on fresh runs.

    ``fresh(start, stop)`` gives the scores of the fresh runs with these numbers, of shape (2 worlds, runs, kinds of score).
    """
    if not audit.alarm:
        return audit
    fp = fn = seen = 0
    bound = 0.0
    for look in LOOKS:
        until = look * audit.trials
        without, with_it = scores_named(fresh(seen, until), audit.score)
        fp, fn, seen = fp + int((without > audit.threshold).sum()), fn + int((with_it <= audit.threshold).sum()), until
        bound = max(bound, epsilon_bound(audit.interval, fp, fn, seen, audit.delta, 1 - LEVEL / len(LOOKS)))
        if bound > audit.claimed:
            break
    return replace(audit, confirmation=Confirmation(bound > audit.claimed, bound, 1 - LEVEL, 2 * seen, fp, fn, seen))


def scores_named(scores: Floats, score: str) -> Floats:
    """(2 worlds, runs): the score of this name; one with a minus in front speaks for the record where it is small."""
    name = score.removeprefix("- ")
    values: Floats = scores[:, :, SCORES.index(name)]
    return values if name == score else -values
