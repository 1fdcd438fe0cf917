"""Where private rows meet a library: what it says of them is never passed on.

numpy quotes cells, scikit-learn the number of rows, Arrow whole records, and an exception carries what it complains of
(``UnicodeEncodeError.object``) even when nobody prints it. So every call that hands rows to a library stands inside
:func:`our_words`: errors become one sentence of ours without cause or context, and warnings are dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

NO_MEMORY = (
    "the rows do not fit into memory; pass fewer columns, or files (fit_files, noisewise train) instead of arrays"
)

NOT_ROWS = (
    "the X argument must be rows of real numbers (a string is read as the number that it writes), all of one length; "
    "encode categories by a public list first. Complex data not supported"
)


class Refusal(ValueError, TypeError):
    """What noisewise itself says of private rows: names of arguments, files and columns, never a value or a count.

    A TypeError too, because that is what scikit-learn's users expect of a cell that is neither number nor text.
    """


@contextmanager
def our_words(sentence: str) -> Iterator[None]:
    """Whatever goes wrong inside is said by ``sentence`` alone; a :class:`Refusal` from inside keeps its own words.

    >>> try:
    ...     with our_words("age must be a number"):
    ...         float("a secret")
    ... except ValueError as error:
    ...     print(error, error.__cause__, error.__context__)
    age must be a number None None
    """
    message = None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    except Refusal as refusal:
        message = str(refusal)
    except MemoryError:  # numpy names the shape
        message = NO_MEMORY
    except Exception:
        message = sentence
    if message is not None:
        _refuse(message)


def _refuse(sentence: str) -> None:
    """Raise without context: ``from None`` only hides it, and the caller is still handling the library's error."""
    refusal = Refusal(sentence)
    try:
        raise refusal
    except Refusal:
        refusal.__context__ = None
        raise
