"""Whole training runs at the data, of which only the end is released: the proofs, and the walks themselves."""

from __future__ import annotations

from .objective import PerturbedObjective
from .oneshot import Descent, OnePass, Whole

#: every whole run that there is, by its name
WHOLE: dict[str, type[Whole]] = {kind.name: kind for kind in (Descent, OnePass, PerturbedObjective)}
