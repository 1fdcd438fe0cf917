"""Which account pays: :func:`spending`, an account for a ``with`` block, and ``ledger=`` and ``dataset=`` of every face.

A ledger is a database, which is imported when one is named and not before.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ..trusted import validate
from ..trusted.accountants.terms import Budget, Terms
from ..trusted.events import Adjacency
from .account import UNITS, Account, UnitName, named
from .budget_warnings import warn_of
from .purse import Purse
from .spending_file import PurseStore

if TYPE_CHECKING:
    from .ledger import Ledger


def spending(
    budget: Budget | float | None = None,
    delta: float | None = None,
    dataset: str | None = None,
    *,
    adjacency: Adjacency | None = None,
    unit: UnitName = "record",
    terms: Terms | str | None = None,
    store: PurseStore | str | os.PathLike[str] | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
) -> Account:
    """An account: inside its ``with`` block all private fits share one budget, and a fit that does not fit is refused before it begins.

    ``budget`` is a :class:`Budget`, or an epsilon with its ``delta``; ``dataset`` names the records in statements.
    Every ``fit`` and ``fit_files``, purchase of bounds and paid evaluation inside takes its own (epsilon, delta), unless
    it is given another ``purse``. Fits with a ``random_state`` are simulations and take nothing.

    Without ``terms`` promises add up (basic composition): any method, any split of the budget. With ``terms="gdp"``, or
    other adaptive ``Terms``, the account is a filter, and ten equal runs cost about three times the epsilon of one, not
    ten times. Methods that are metered in that currency (``auto`` on a table, ``descent``) pay what they were charged; a
    plan pays its price in that currency, which for sampled batches is much; what is metered in another one is refused.

    ``unit="person"`` is for fits with ``rows_per_unit``. ``store`` is a file that keeps the account beyond the process.
    An account does not reach into other processes: a fit in a forked one, or in a worker that got its unfitted estimator
    from inside the block (``n_jobs=2``), is refused; one that was fitted before may be fitted anew elsewhere, unpaid. It
    counts what fits release, not what others compute from private rows: the scores of ``GridSearchCV`` and the calibrator of ``CalibratedClassifierCV`` stay unpaid.

    ``ledger``: instead of a new account, that of ``dataset`` in a ledger (a URL, a path, or a ``Ledger``), whose budget,
    relation, unit and terms are its own; without a budget and a ledger, in the one that ``NOISEWISE_LEDGER`` names.

    *Guarantee*: all that the runs inside release together is (epsilon, delta)-DP; see :class:`purse.Purse`.

    >>> import numpy as np, noisewise as nw
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = nw.PrivateClassifier(epsilon=0.5, delta=1e-6, bounds=(-1, 1))
    >>> with nw.spending(1.0, 2e-6, dataset="patients") as account:
    ...     _ = model.fit(X, X[:, 0] > 0)
    ...     _ = model.fit(X, X[:, 1] > 0)
    >>> account
    Account('patients': 1 of (1, 2e-06) add_remove taken by 2 runs)
    >>> account.left is None
    True
    """
    if budget is None:
        if delta is not None or adjacency is not None or unit != "record" or terms is not None or store is not None:
            raise ValueError("the account of a ledger has its own budget and terms; pass ledger= and dataset= alone")
        return account_of_ledger(ledger, dataset)
    if ledger is not None:
        raise ValueError("the account of a ledger has its own budget; leave it out, or leave ledger out")
    if not isinstance(budget, Budget):
        if delta is None:
            raise ValueError("delta is missing; pass spending(epsilon, delta, ...), or a Budget")
        budget = Budget(budget, delta, adjacency or "add_remove")
    elif delta is not None or adjacency is not None:
        raise ValueError("budget says delta and adjacency; leave them out, or pass epsilon and delta")
    validate.one_of(UNITS, unit=unit)
    dataset = "the private records" if dataset is None else dataset
    named(dataset)
    warn_of(budget.epsilon, budget.delta)
    purse = Purse(budget, Terms.adaptive(terms) if isinstance(terms, str) else terms, store=store)
    return Account(purse, dataset, unit)


def payer(
    purse: Purse | Account | None, ledger: Ledger | str | os.PathLike[str] | None, dataset: str | None
) -> Purse | Account | None:
    """What pays for a run: the given ``purse``, or the account of ``dataset`` in a ``ledger``."""
    if ledger is None and dataset is None:
        return purse
    if purse is not None:
        raise ValueError("purse and ledger both say where the budget comes from; pass one of them")
    return account_of_ledger(ledger, dataset)


def planned_budget(
    epsilon: float | None,
    delta: float | None,
    adjacency: Adjacency | None,
    ledger: Ledger | str | os.PathLike[str] | None,
    dataset: str | None,
    *,
    persons: bool,
) -> Budget:
    """The budget of a plan: the given one; what is not given comes from what the account of a ledger has left."""
    if ledger is None and dataset is None:
        if epsilon is None or delta is None:
            raise ValueError(
                f"{'epsilon' if epsilon is None else 'delta'} is missing; pass both, or a ledger to plan from"
            )
        return Budget(epsilon, delta, adjacency or "add_remove")
    account = account_of_ledger(ledger, dataset)
    found = account.fitting(epsilon, delta)
    return account.admitted(found if adjacency is None else replace(found, adjacency=adjacency), persons=persons)


def account_of_ledger(ledger: Ledger | str | os.PathLike[str] | None, dataset: str | None) -> Account:
    """The account of a data set in a ledger; without one, in the ledger that ``NOISEWISE_LEDGER`` names."""
    from .ledger import Ledger, account_in

    if isinstance(ledger, Ledger) and dataset:
        return ledger.account(dataset)
    return account_in(None if isinstance(ledger, Ledger) else ledger, dataset)
