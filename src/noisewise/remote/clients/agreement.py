"""What a client has agreed to answer, whatever its server says.

A client judges what the server declares: the unit, the clip, the rate and the number of questions. It never judges how many rows a
question names: a refusal that depended on that would reveal something of a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...tables.refusal import Refusal
from ...tables.schema import Schema
from ...trusted.stores.protocol import SUMS
from ...trusted.stores.totals import Integers
from ..federation import Declared, Federated
from ..holder import Request


@dataclass(frozen=True)
class Agreed:
    """What a client answers.

    Args:
        schema: the server's schema must be this one; None for any.
        unit: what the server must protect, ``"record"`` or ``"client"``; None for either.
        max_clip: the largest clip of a question about gradients.
        max_questions: the number of questions that are answered.
        least_size: how many records a sum must be over in expectation: the server's declared rate, times this client's rows if a record is
            the unit, or times the declared number of clients if a client is.
    """

    schema: Schema | None = None
    unit: str | None = None
    max_clip: float = math.inf
    max_questions: int | None = None
    least_size: float = 0.0

    def __post_init__(self) -> None:
        if self.unit not in (None, "record", "client"):
            raise ValueError(f"--unit is {self.unit!r}; pass record or client: what the server must protect")
        if not self.max_clip > 0:
            raise ValueError(f"--max-clip is {self.max_clip!r}; pass a number above 0")
        if self.max_questions is not None and self.max_questions < 1:
            raise ValueError(f"--max-questions is {self.max_questions!r}; pass a number from 1")
        if not 0 <= self.least_size < math.inf:
            raise ValueError(f"--least-size is {self.least_size!r}; pass a number of records")

    def check_unit(self, schema: Schema, federated: Federated) -> None:
        """Refuse another schema or unit, before the file is read."""
        if self.schema is not None and schema != self.schema:
            raise Refusal("the server's schema is not that of --schema; nothing was answered")
        if self.unit is not None and federated.unit != self.unit:
            raise Refusal(f"the server protects a {federated.unit}, and --unit is {self.unit}; nothing was answered")

    def check_size(self, rows: int, federated: Federated, declared: Declared) -> None:
        """Refuse a run whose sums are over too few records, before anything is answered."""
        size = rows if federated.unit == "record" else declared.clients
        if self.least_size == 0:
            return
        if size is None or declared.rate is None:
            raise Refusal(
                "the server does not declare over how many records its sums are, and --least-size asks for that"
            )
        if not size * declared.rate >= self.least_size:
            raise Refusal(
                f"the server's sums are over fewer than --least-size {self.least_size:g} records; nothing was answered"
            )

    def check_count(self, asked: int) -> None:
        """Refuse one question too many; ``asked``: how many there were, this one included."""
        if self.max_questions is not None and asked > self.max_questions:
            raise Refusal(f"the server asks more than --max-questions {self.max_questions}; nothing more is answered")

    def check_clip(self, request: Request) -> None:
        """Refuse a larger clip than was agreed."""
        _, name, _, arguments, *_ = request.arguments
        clips = [kind.clips(value) for kind, value in zip(SUMS[name].takes, arguments, strict=True)]
        if not all(math.hypot(*some) <= self.max_clip for some in clips):
            raise Refusal(
                f"the server asks for a larger clip than --max-clip {self.max_clip:g}; nothing more is answered"
            )

    def check_batch(self, declared: Declared, rows: Integers | None, there: Integers) -> None:
        """Refuse some rows where the server has declared that it asks about all, which are those of ``there``."""
        if declared.rate == 1 and rows is not None and not np.array_equal(rows, there):
            raise Refusal(
                "the server asks about some rows, and has declared that it asks about all; nothing more is answered"
            )
