"""What a client has agreed to, whatever its server says.

What is judged is what the server declares, the unit, the clip, the rate and the number of questions, and never how many
rows a question names: a refusal that depended on that would tell about a batch.
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

OTHER_SCHEMA = "the server's schema is another one than --schema; nothing was answered"


@dataclass(frozen=True)
class Agreed:
    """What a client answers by: the schema and the unit (None: any), the largest clip and the number of questions.

    ``least_size``: how many records a sum is over at least, in expectation: the server's declared rate, times the rows of this client
    where a record is the unit, times the declared number of clients where a client is.
    """

    schema: Schema | None = None
    unit: str | None = None
    max_clip: float = math.inf
    max_questions: int | None = None
    least_size: float = 0.0

    def __post_init__(self) -> None:
        if self.unit not in (None, "record", "client"):
            raise ValueError(f"--unit is {self.unit!r}; pass record or client: what the server has promised to protect")
        if not self.max_clip > 0:
            raise ValueError(f"--max-clip is {self.max_clip!r}; pass a number above 0")
        if self.max_questions is not None and self.max_questions < 1:
            raise ValueError(f"--max-questions is {self.max_questions!r}; pass a number from 1")
        if not 0 <= self.least_size < math.inf:
            raise ValueError(f"--least-size is {self.least_size!r}; pass a number of records")

    def check_unit(self, schema: Schema, federated: Federated) -> None:
        """Refuse to make rows for another schema or unit; before the file is read."""
        if self.schema is not None and schema != self.schema:
            raise Refusal(OTHER_SCHEMA)
        if self.unit is not None and federated.unit != self.unit:
            raise Refusal(f"the server protects a {federated.unit}, and --unit is {self.unit}; nothing was answered")

    def check_size(self, rows: int, federated: Federated, declared: Declared) -> None:
        """Refuse to join a run whose sums are over too few records; before anything is said."""
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
        """Refuse one question too many, ``asked`` being how many there were with it."""
        if self.max_questions is not None and asked > self.max_questions:
            raise Refusal(f"the server asks more than --max-questions {self.max_questions}; nothing more is answered")

    def check_clip(self, request: Request) -> None:
        """Refuse a larger clip than was agreed."""
        _, name, _, arguments, *_ = request.arguments
        each = zip(SUMS[name].takes, arguments, strict=True)
        clips = [kind.clips(value) for kind, value in each]
        if not all(math.hypot(*some) <= self.max_clip for some in clips):
            raise Refusal(
                f"the server asks for a larger clip than --max-clip {self.max_clip:g}; nothing more is answered"
            )

    def check_batch(self, declared: Declared, rows: Integers | None, there: Integers) -> None:
        """Refuse some rows where the server has declared that it asks about all, which are those that are ``there``."""
        if declared.rate == 1 and rows is not None and not np.array_equal(rows, there):
            raise Refusal(
                "the server asks about some rows, and has declared that it asks about all; nothing more is answered"
            )
