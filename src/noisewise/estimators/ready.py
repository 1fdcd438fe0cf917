"""What faces hand to each other on the way to a fit: where bounds come from, how rows are made, what is ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..data.encode import Encoder
from ..data.persons import Mask
from ..data.preprocess import Scaling
from ..fitting.fit import Fit, Labelled
from ..records.grid import Store, in_memory


@dataclass(frozen=True)
class Origin:
    """Where bounds and categories come from, in words, and what was paid for them before training."""

    words: str = "bounds and categories, declared in a schema"
    classes: str = "declared"
    preparation: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """How rows are made: by an encoder or as they come, and scaled; ``assumed`` says what that takes for public."""

    scaling: Scaling
    encoder: Encoder | None
    columns: tuple[str, ...] | None
    assumed: tuple[str, ...]
    origin: Origin | None = None  # where a file's bounds come from

    @property
    def width(self) -> int:
        """How many columns the table has."""
        return len(self.scaling.low) if self.encoder is None else len(self.encoder.schema.features)


class Ready(NamedTuple):
    """A fit and its rows; ``face`` is the estimator that will hold what comes of it."""

    fit: Fit
    private: Labelled
    public: Labelled | None
    face: Any
    store: Store = in_memory
    task: Labelled | None = None  # rows of a public task of the same shape, to choose settings on
    counted: Mask | None = None  # which rows of persons count, by secret coins

    def __repr__(self) -> str:
        return "Ready(...)"
