"""A journal: every released answer of a run in a folder, so that a run that was killed goes on where it was.

    claim a block of the budget, durably -> charge -> draw -> write down the noisy answer -> use it

A run that is taken up again is answered from the journal as far as that reaches: nothing is drawn twice. What was charged
and has no answer stays charged: a plan has one step fewer then, a filter may ask again as a further event. The stream of
noise is never written down; a run that goes on has a fresh one.

*Blocks*. Lines are handed to the system one by one and forced to the disk once a block, a sixteenth of the budget, so that a
step waits for no disk. Whatever of a block has no line when the run is taken up may have been drawn nevertheless (the power
failed, or another process has a copy of the folder), so the rest of the last block is given up: a crash costs at most one
block. A run that ends in good order, by an exception too, gives back what it claimed and did not use.

*A chain*. Every line has the hash of the one before, so a line that was taken out or changed is found. What a run claimed and did
not use comes back to the account that pays only with the end of a finished journal (:meth:`~noisewise.accounts.purse.Purse.settled`).

*Guarantee*: whatever happens between two lines, every noise that was drawn is charged for, and no answer is given for other
noise than it was drawn with: a block is on the disk, and claimed in the purse that pays for the run, before any of it is
drawn, and what has an answer is not asked again. A claim says which one it follows, so of two copies of a folder that are
both taken up, a purse that outlives the process (a file, a ledger) lets one go on, and the other stops. Without such a purse,
that there is one folder is the user's word. So is that the data set is the one it was: contents are not compared. The folder
holds released answers and settings alone.
"""

from .chain import LINES, closed_journal
from .folder import CLAIM_SHARE, NOBODY, Journal, Running, settings_in
from .journalled import WHAT, Journalled, paid

__all__ = [
    "CLAIM_SHARE",
    "LINES",
    "NOBODY",
    "WHAT",
    "Journal",
    "Journalled",
    "Running",
    "closed_journal",
    "paid",
    "settings_in",
]
