"""Which rows of a person count: at most k of each person, chosen by secret coins. Rows without a person do not count.

A person is an id, compared as a category is (``key``: 1, 1.0, "1" and " 1 " are one). Every row gets a secret word of its
own, and a person's k rows with the smallest words count. Ids are kept as 128 bits of BLAKE2b under a secret key, and only
until the choice is made: nothing of them is written, shown or said.

*Guarantee*: which rows of a person count depends on that person's rows and words alone. Words are independent and alike,
so where another person's rows are taken out of a table, or others put in, the rest is chosen as it was, in distribution;
with the same words for the same rows, it is the same rows. So tables that differ in one person leave rows that differ in
at most k (k and k when replaced), whatever the coins, and a mechanism on them keeps its promise for persons: condition
on the coins. Two ids of n have the same 128 bits with probability below n^2 2^-129, 2^-75 for as many rows as fit; a
budget has no delta below 1e-15, which is 10^7 times as much.

A row without an id (null, NaN, a missing word) counts for nothing. Were it a person of its own, somebody with many such
rows would count as often; to refuse it would tell that it is there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..trusted.units import Unit
from ..trusted.validate import did_you_mean
from .files import Source
from .refusal import Refusal, our_words
from .values import is_missing_word, key, places_in, values_in

if TYPE_CHECKING:
    import pandas as pd

Mask = NDArray[np.bool_]
Digests = NDArray[np.uint64]  # two words for each row; zeros where there is no id
NO_IDS = "column {!r}, the unit, cannot be read as ids; write numbers or texts in it"


@dataclass(frozen=True)
class PersonColumn:
    """The column of person ids, and how many rows of a person count at most."""

    column: str
    rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ValueError("unit must be the name of the column that says whose row it is")
        Unit(self.rows).counted()

    def in_files(self, source: Source, *, seed: int | None) -> Mask:
        """Which rows of files count, in their order; ``seed``: of a simulation."""
        if self.column not in source.columns:
            meant = did_you_mean(self.column, source.columns)
            raise Refusal(f"{source.where}: lacks the column {self.column!r} that says whose row it is (unit){meant}")
        coins, found = PersonCoins(seed), []
        with our_words(NO_IDS.format(self.column)):
            for batch in source.batches([self.column]):
                found.append(coins.digests(batch.column(0)))
            return coins.choose(np.concatenate(found), self.rows)

    def in_table(self, X: Any, *, seed: int | None) -> Mask:
        """Which rows of a DataFrame count."""
        table, coins = frame(X), PersonCoins(seed)
        places = [place for place, name in enumerate(table.columns) if str(name) == self.column]
        if len(places) != 1:
            meant = did_you_mean(self.column, table.columns)
            raise Refusal(f"X must have one column {self.column!r}, which says whose row it is (unit){meant}")
        with our_words(NO_IDS.format(self.column)):
            cells = table.iloc[:, places[0]]
            return coins.choose(coins.digests(cells if cells.dtype == object else _arrow(cells)), self.rows)

    def without(self, X: Any) -> Any:
        """The table without the column of ids; anything else is returned as it is."""
        names = getattr(X, "columns", None)
        if names is None or not any(str(name) == self.column for name in _names(X)):
            return X
        table = frame(X)
        return table.loc[:, [str(name) != self.column for name in table.columns]]


def persons_of(unit: Any, rows: Any) -> PersonColumn | None:
    """The declared column and number of rows; both or neither must be given."""
    if (unit is None) != (rows is None):
        raise ValueError(
            "unit and rows_per_unit go together: the column that says whose row it is, and how many rows of a person count"
        )
    return None if unit is None else PersonColumn(unit, int(rows) if isinstance(rows, np.integer) else rows)


class PersonCoins:
    """The secrets of one choice: a key for ids and words for rows, fresh each time unless there is a seed."""

    def __init__(self, seed: int | None) -> None:
        from ..trusted.noise.secret_words import MAX_WORDS, SecretWords

        secret = os.urandom(64) if seed is None else hashlib.sha512(f"noisewise persons {seed}".encode()).digest()
        self._key, self._words, self._most = secret[:32], SecretWords(secret[32:]), MAX_WORDS

    def digests(self, cells: Any) -> Digests:
        """Two words for each id: of an Arrow array, or of cells of any kind."""
        if not isinstance(cells, pa.Array):
            return self._hashed(cells)
        plain = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        coded = plain.dictionary_encode()
        return self._hashed([*values_in(coded), None])[places_in(coded)]

    def _hashed(self, values: Iterable[Any]) -> Digests:
        blank = bytes(16)
        whole = b"".join(blank if (text := _text(value)) is None else self._digest(text) for value in values)
        return np.frombuffer(whole, dtype="<u8").reshape(-1, 2)

    def _digest(self, text: str) -> bytes:
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16, key=self._key).digest()

    def choose(self, digests: Digests, rows: int) -> Mask:
        """The ``rows`` rows of each id with the smallest words."""
        order = np.lexsort((self._take(len(digests)), digests[:, 1], digests[:, 0]))
        there = digests[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (there[1:] != there[:-1]).any(axis=1)
        places = np.arange(len(order))
        rank = places - np.maximum.accumulate(np.where(begins, places, 0))
        chosen = np.zeros(len(order), np.bool_)
        chosen[order] = (rank < rows) & there.any(axis=1)
        return chosen

    def _take(self, count: int) -> NDArray[np.int64]:
        words = np.empty(count, np.int64)
        for start in range(0, count, self._most):
            words[start : start + self._most] = self._words.take(min(self._most, count - start))[0]
        return words


def frame(X: Any) -> pd.DataFrame:
    """X as a DataFrame; an array, which has no names of columns, is refused."""
    import pandas as pd

    if isinstance(X, pd.DataFrame):
        return X
    with our_words("unit names a column of X, which has no names of columns; pass a DataFrame"):
        return pd.DataFrame(X.to_pandas())


def _names(X: Any) -> list[Any]:
    names = getattr(X, "column_names", None)  # Arrow, whose columns are the cells
    return list(X.columns if names is None else names)


def _arrow(cells: pd.Series) -> Any:
    """Cells as an Arrow array, or unchanged where Arrow does not know the type."""
    try:
        found = pa.array(cells, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return cells
    whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return cells if isinstance(whole.type, pa.BaseExtensionType) else whole


def _text(value: Any) -> str | None:
    """The text by which ids are compared; None for a missing id."""
    try:
        missing = value is None or bool(value != value)  # NaN, NaT
    except (TypeError, ValueError):  # pandas.NA is neither
        missing = True
    if missing:
        return None
    text = key(value)
    return None if is_missing_word(text) else text
