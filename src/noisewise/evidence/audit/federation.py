"""Training that clients share: each adds its part to a sum, a trusted server noises the sum and moves the model.

Two units. *Record*: every picture's gradient is clipped, and the noise is priced for one picture. *Client*: a client's
mean gradient is clipped as one vector, and the noise is priced for one client. The honest sum is the curator's answer in
both: to it, a client is one record that is a bundle of pictures. What a hostile client adds is computed from the released
model, so it is post-processing and the price stands; it is clipped like every other contribution. Here is who holds what;
the sums are in :mod:`noisewise.evidence.audit.shared_sum`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WholeNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class FederationSetting:
    """What is clipped, a record's gradient or a client's, and whether noise is added for that unit."""

    name: str
    unit: str
    noised: bool


WITHOUT_NOISE = FederationSetting("no noise", "record", False)
RECORD_LEVEL = FederationSetting("record level", "record", True)
CLIENT_CLIP = FederationSetting("client clip only", "client", False)
CLIENT_LEVEL = FederationSetting("client level", "client", True)
SETTINGS = (WITHOUT_NOISE, RECORD_LEVEL, CLIENT_CLIP, CLIENT_LEVEL)


@dataclass(frozen=True)
class Clients:
    """Pictures (rows of pixels between 0 and 1), their classes, and the number of the client that holds each."""

    X: Floats
    y: WholeNumbers
    holder: WholeNumbers

    @property
    def count(self) -> int:
        return int(self.holder.max()) + 1

    @property
    def most(self) -> int:
        """Pictures of the client that has most."""
        return int(np.bincount(self.holder).max())

    def pictures(self, label: int) -> int:
        """The most pictures of a class that one client holds."""
        return int(np.bincount(self.holder, self.y == label).max())


def dealt(
    X: Floats, y: WholeNumbers, victim: int, *, each: int, most: int, holders: int = 1, there: bool = True
) -> Clients:
    """The victim, client 0, holds its class alone (at most ``most`` pictures); others hold ``each`` of one class.

    With several ``holders`` the same pictures of the class are shared out among them. Without the victim
    (``there=False``) the others are the same and nobody holds the class.
    """
    bundles = np.array_split(np.flatnonzero(y == victim)[:most], holders) if there else []
    for label in np.unique(y[y != victim]):
        own = np.flatnonzero(y == label)
        bundles += [own[start : start + each] for start in range(0, len(own), each)]
    places = np.concatenate(bundles)
    holder = np.repeat(np.arange(len(bundles)), [len(bundle) for bundle in bundles])
    return Clients(X[places], y[places], holder)
