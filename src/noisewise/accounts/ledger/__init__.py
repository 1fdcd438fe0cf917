"""The account of a data set across runs, people and machines, in a database: an SQLite file, or PostgreSQL for a team.

A privacy budget belongs to a data set, not to a run. A ledger holds accounts by name; each is a purse over all runs on that
data set (:class:`~noisewise.accounts.purse.Purse`), whose entries are rows of a database. Nothing here sees a record, and
nothing compares contents: the user names the data set of a run.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> ledger = Ledger.create(f"{folder.name}/ledger.db")
>>> ledger.register("patients", Budget(3.0, 1e-5))
>>> account = ledger.account("patients")
>>> account
Account('patients': 0 of (3, 1e-05) add_remove taken by 0 runs)
>>> folder.cleanup()
"""

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError('a ledger needs SQLAlchemy, which is not installed: pip install "noisewise[ledger]"') from error

from ...trusted.accountants.terms import Budget
from .database import LedgerBusy, LedgerUnreachable
from .ledger import Ledger, account_in
from .verify import Findings

__all__ = ["Budget", "Findings", "Ledger", "LedgerBusy", "LedgerUnreachable", "account_in"]
