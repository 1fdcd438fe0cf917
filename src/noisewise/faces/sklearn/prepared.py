"""How an estimator makes rows, of an array, a table or files."""

from __future__ import annotations

from dataclasses import dataclass

from ...tables.encode import Encoder
from ...tables.fit.from_files import Origin
from ...tables.rows import Scaling


@dataclass(frozen=True, eq=False)
class Prepared:
    """By an encoder or as they come, and scaled; ``assumed`` says what that takes for public."""

    scaling: Scaling
    encoder: Encoder | None
    columns: tuple[str, ...] | None
    assumed: tuple[str, ...]
    origin: Origin | None = None  # where a file's bounds come from

    @property
    def width(self) -> int:
        """How many columns the table has."""
        return len(self.scaling.low) if self.encoder is None else len(self.encoder.schema.features)
