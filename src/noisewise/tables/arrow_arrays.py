"""Arrow's arrays as numpy's. Arrow's own way imports pandas, which takes longer than reading a table of some thousand rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

CodeArray = NDArray[np.int64]


def numbers_in(cells: pa.Array, missing: Any) -> NDArray[Any]:
    """Whole or floating numbers of fixed size, with ``missing`` for nulls; a view of Arrow's memory, not to be written to.

    >>> numbers_in(pa.array([1.5, None, 2.5])[1:], np.nan).tolist()
    [nan, 2.5]
    """
    kind = np.dtype(cells.type.to_pandas_dtype())
    if len(cells) == 0:  # has no memory at all, perhaps
        return np.empty(0, kind)
    filled = pc.fill_null(cells, pa.scalar(missing, cells.type)) if cells.null_count else cells
    return np.frombuffer(filled.buffers()[1], kind, len(filled), filled.offset * kind.itemsize)


def places_in(coded: pa.DictionaryArray) -> CodeArray:
    """Where each cell is in the dictionary; the end (-1) for a null.

    >>> places_in(pa.array(["b", None, "a", "b"]).dictionary_encode()).tolist()
    [0, -1, 1, 0]
    """
    return numbers_in(coded.indices, -1).astype(np.int64)


def values_in(coded: pa.DictionaryArray) -> Any:
    """What the dictionary holds: floating numbers as numpy's, in their own precision, others as Python's."""
    values = coded.dictionary
    return numbers_in(values, np.nan) if pa.types.is_floating(values.type) else values.to_pylist()
