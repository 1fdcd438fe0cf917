"""AgdAvg: the average of AGD's model and of a model of the public rows alone.

    theta = (theta_agd + theta_public) / 2

AGD runs without the public rows, so that the two models err independently.

*Guarantee*: that of ``agd``. The public model and the average are post-processing.

Baseline of Wang & Zhou 2020, Differentially Private Learning with Small Public Data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..asking import Facts, PublicCurator
from .agd import Agd, State
from .base import Array
from .nonprivate import minimise
from .only_public import OnlyPublic, required


@dataclass(frozen=True)
class AgdAvg(Agd):
    """AGD from the plain start; ``public_l2`` regularises the public model."""

    public_l2: float = OnlyPublic.l2

    name: ClassVar[str] = "agd_avg"
    summary: ClassVar[str] = "average of agd's and only_public's models"
    paper: ClassVar[str] = "baseline of Wang & Zhou 2020"
    needs_public: ClassVar[bool] = True

    def init(self, theta: Array, facts: Facts, public: PublicCurator | None) -> State:
        required(public, self.name)
        return super().init(theta, facts, None)

    def finish(self, state: State, public: PublicCurator | None) -> Array:
        rows = required(public, self.name)
        alone = minimise(rows, rows.model.start(), l2=self.public_l2, steps=OnlyPublic.steps)
        return (state.theta + alone) / 2
