"""What is ready to run: a fit and its rows, checked and scaled, with nothing paid yet."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...accounts.account import Account
from ...accounts.journal import Journal
from ...accounts.purse import Purse
from ...train import StepProgress
from ...trusted.stores.grid import Allocator, in_memory
from ..persons import Mask
from .fit import Fit, Labelled
from .fitted import Fitted


class Ready(NamedTuple):
    """A fit and its rows; ``face`` is the estimator that will hold what comes of it, if there is one."""

    fit: Fit
    private: Labelled
    public: Labelled | None
    face: Any = None
    store: Allocator = in_memory
    task: Labelled | None = None  # rows of a public task of the same shape, to choose settings on
    counted: Mask | None = None  # which rows of persons count, by secret coins

    def run(
        self,
        *,
        progress: StepProgress | None = None,
        purse: Purse | Account | None = None,
        journal: Journal | None = None,
    ) -> Fitted:
        """Pay and train, as :meth:`Fit.run` does."""
        how: dict[str, Any] = {"progress": progress, "purse": purse, "journal": journal}
        return self.fit.run(self.private, self.public, store=self.store, **how)

    def __repr__(self) -> str:
        return "Ready(...)"
