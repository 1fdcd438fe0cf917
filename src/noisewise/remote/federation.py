"""How records that lie with clients are asked, as plain data, and how a statement describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAX_LOCAL_STEPS = 1000


@dataclass(frozen=True)
class Federated:
    """How records that lie with clients are asked.

    Args:
        unit: what is protected, a record or a client with all its rows.
        availability: ``"independent"`` if whether a client answers is assumed not to depend on the records.
        local_steps: steps of size ``local_rate`` that make a client's vector, where a client is the unit.
        wait: seconds that an answer may take; None for as long as it takes.
    """

    unit: str
    availability: str = "required"
    local_steps: int = 1
    local_rate: float = 1.0
    wait: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in ("record", "client"):
            raise ValueError(f"--unit is {self.unit!r}; pass record or client: what the noise protects")
        if self.availability not in ("required", "independent"):
            raise ValueError(
                f"--availability is {self.availability!r}; pass independent where answering does not depend on the records, "
                "or leave it out"
            )
        if type(self.local_steps) is not int or not 1 <= self.local_steps <= MAX_LOCAL_STEPS:
            raise ValueError(f"--local-steps is {self.local_steps!r}; pass a number from 1 to {MAX_LOCAL_STEPS}")
        if type(self.local_rate) is not float or not 0 < self.local_rate <= 1e6:
            raise ValueError(f"--local-rate is {self.local_rate!r}; pass a step size above 0")
        if self.unit == "record" and (self.local_steps, self.local_rate) != (1, 1.0):
            raise ValueError("local steps mix the rows of a client; pass --unit client, or leave --local-steps out")
        if self.unit == "client" and self.availability != "required":
            raise ValueError("with --unit client, who does not answer contributes nothing; leave --availability out")
        if self.wait is not None and not (type(self.wait) is float and 0 < self.wait < math.inf):
            raise ValueError(f"--timeout is {self.wait!r}; pass seconds above 0")

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Declared:
    """What a server declares to its clients before they join about the size of its sums.

    Args:
        rate: the least share of the records that a question is about, in expectation; 1.0 if it is always all of them, None if not known.
        clients: the number of clients; None if it is not public.
    """

    rate: float | None = None
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and not (type(self.rate) is float and 0 < self.rate <= 1):
            raise ValueError(f"the declared rate is {self.rate!r}; pass a share above 0, up to 1")
        if self.clients is not None and not (type(self.clients) is int and self.clients >= 1):
            raise ValueError(f"the declared number of clients is {self.clients!r}; pass a number from 1")


def what_the_server_sees(federated: Mapping[str, Any]) -> str:
    """What a server sees, in the words of a statement."""
    sees = (
        "one clipped vector, or what one row adds to a statistic, of each client that it asks,"
        if federated["unit"] == "client"
        else "sums over each client's rows"
    )
    also = "" if federated["unit"] == "client" else ", how many rows each client has"
    return f"the server, which adds the noise and sees {sees}{also} and who answered; sums are not encrypted against it"


def taken_for_granted(federated: Mapping[str, Any]) -> list[str]:
    """What a price assumes of clients, in the words of a statement."""
    if federated["unit"] == "client":
        words = [
            "a client counts once per question, with one vector that the server has checked to be clipped; one that does "
            "not answer contributes nothing, and nothing is rescaled by who answered",
            "whether a client answers depends on no other client's records",
        ]
        if federated["wait"] is not None:
            words.append(
                "how many clients take part was fixed beforehand; without a client means with its place left empty"
            )
        if federated["local_steps"] > 1:
            steps, rate = federated["local_steps"], federated["local_rate"]
            words.append(
                f"a client's vector is the mean gradient of {steps} local steps of size {rate:g}, on its rows alone"
            )
        return words
    if federated["availability"] == "independent":
        return ["whether a client answers does not depend on the records; one that does not answer contributes nothing"]
    return ["every client whose rows were drawn answered every question"]
