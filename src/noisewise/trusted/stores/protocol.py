"""What a question may ask of records, wherever they live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .totals import Drawn, Floats, IntegerTotal

Parts = Iterator[tuple[Floats, NDArray[Any], NDArray[np.bool_]]]
F = TypeVar("F", bound=Callable[..., Any])
SUMS: dict[str, Callable[..., Any]] = {}  # by name: what is asked of records at other ranks


class Elsewhere:
    """Stands for rows that are not here."""

    def held(self, model: Any, store: Any, coins: Any) -> Any:
        """The records, laid out where they are."""

    def counted(self, classes: int | None) -> NDArray[np.bool_] | None:
        """Which of them have a label (:func:`~noisewise.trusted.stores.grid.labelled`); None where all have one."""


def everywhere(total: F) -> F:
    """A sum over records, asked by its name of each rank where they lie at several (``summed``), and added up."""
    SUMS[total.__name__] = total

    @wraps(total)
    def asked(records: Any, drawn: Drawn, *arguments: Any) -> Any:
        ranks = getattr(records, "summed", None)
        return total(records, drawn, *arguments) if ranks is None else ranks(total.__name__, drawn, *arguments)

    return asked  # type: ignore[return-value]


class HeldRecords(Protocol):
    """Private rows behind exact integer totals, here or on other machines; ``drawn``: which of them."""

    @property
    def columns(self) -> int: ...
    @property
    def coordinates(self) -> bool: ...
    def __len__(self) -> int: ...
    def gradients(self, drawn: Drawn, theta: Floats, clip: float) -> IntegerTotal: ...
    def layered(self, drawn: Drawn, theta: Floats, clips: Sequence[float]) -> Sequence[IntegerTotal]: ...
    def vectors(
        self, drawn: Drawn, theta: Floats, clip: float, *, scale: Floats | None, basis: Floats | None
    ) -> IntegerTotal: ...
    def short(
        self,
        drawn: Drawn,
        theta: Floats,
        threshold: float,
        *,
        scale: Floats | None = None,
        basis: Floats | None = None,
    ) -> IntegerTotal: ...
    def losses(self, drawn: Drawn, thetas: Sequence[Floats], bound: float) -> IntegerTotal: ...
    def row_sum(self, drawn: Drawn) -> IntegerTotal: ...
    def unit_rows(self, drawn: Drawn) -> Parts: ...
    def scored(self, drawn: Drawn, theta: Floats) -> Parts: ...
