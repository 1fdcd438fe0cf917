"""Training that clients share: each adds its part to a sum, a trusted server noises the sum and moves the model.

Two units. *Record*: every picture's gradient is clipped, and the noise is priced for one picture. *Client*: a client's
mean gradient is clipped as one vector, and the noise is priced for one client. The honest sum is the curator's answer in
both: to it, a client is one record that is a bundle of pictures. What a hostile client adds is computed from the released
model, so it is post-processing and the price stands; it is clipped like every other contribution. Here is who holds what;
the sums are in :mod:`noisewise.evidence.audit.federation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...accounts import Budget, PlanMeter
from ...asking import Curator, PublicCurator
from ...trusted.accountants.calibrate import calibrate
from ...trusted.engine import Spec
from ...trusted.events import Gaussian, Repeated
from ...trusted.losses import Softmax
from ...trusted.models import MLP, Model
from ...trusted.models.module import ModuleModel
from ...trusted.torch_extra import Tensor, torch

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


# The sum of one round of shared training, over honest clients and a hostile one (:mod:`noisewise.evidence.audit.federation`).


CLIENTS_AT_ONCE = 64  # of one pass, which bounds memory
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Shared:
    """The sum of one round: over honest clients, by a curator, and what a hostile client adds to it."""

    model: Model
    curator: Curator | PublicCurator
    size: int
    clip: float
    noise_multiplier: float

    def honest(self, theta: Singles) -> Floats:
        """Sum of the clipped gradients of all honest records, or clients, with the setting's noise."""
        answer = self.curator.gradient(theta, clip=self.clip, noise_multiplier=self.noise_multiplier)
        return self.size * answer.value.astype(np.float64)

    def hostile(self, theta: Singles, fakes: Singles, label: int) -> tuple[Floats, int]:
        """What made-up pictures with a label add, clipped as any record (or client) is, and how many units they are."""
        labels = np.full(len(fakes), label)
        if isinstance(self.model, ModuleModel):
            places = self.model.inputs[0].shape[0]
            X, y = bundled([fakes[:places]], [labels[:places]], places, blank=label + 1)
            return self.model.clipped_sum(theta, self.model.lay_out(X, y), self.clip), 1
        return self.model.clipped_sum(theta, self.model.lay_out(fakes, labels), self.clip), len(fakes)


def shared(
    clients: Clients,
    setting: FederationSetting,
    budget: Budget,
    *,
    sizes: tuple[int, ...],
    rounds: int,
    clip: float,
    seed: int,
) -> Shared:
    """A setting's side of the server: the noise of ``rounds`` full sums within the budget, as a plan prices it.

    Noised settings are answered by a :class:`Curator` with a seed, which makes them simulations; no meter sells an
    answer without noise, so the others are answered by a public one.
    """
    rows = clients.X.astype(np.float32), clients.y
    model: Model
    X: Any
    y: Any
    if setting.unit == "client":
        pictures, labels = ([part[clients.holder == one] for one in range(clients.count)] for part in rows)
        X, y = bundled(pictures, labels, clients.most, blank=sizes[-1])
        model, size = _of_clients(sizes, clients.most), clients.count
    else:
        (X, y), model, size = rows, MLP(sizes, Softmax()), len(clients.y)
    if not setting.noised:
        return Shared(model, PublicCurator(X, y, model=model, seed=seed), size, clip, 0.0)
    sigma = calibrate(budget, steps=rounds)
    meter = PlanMeter(budget, Repeated(Gaussian(sigma), rounds))
    return Shared(model, Curator(X, y, model=model, meter=meter, size=size, seed=seed), size, clip, sigma)


def network(sizes: tuple[int, ...]) -> torch.nn.Sequential:
    """The shared model as a module, its parameters in the order of a perceptron's theta."""
    width, hidden, outputs = sizes
    return torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, outputs))


def _of_clients(sizes: tuple[int, ...], places: int) -> ModuleModel:
    """The same perceptron, of records that are bundles of pictures."""
    inputs, targets = Spec((places, sizes[0]), torch.float32), Spec((places,), torch.int64, sizes[-1] + 1)
    how: dict[str, Any] = {"reduction": "none", "arithmetic": "assumed", "chunk": CLIENTS_AT_ONCE}
    return ModuleModel(network(sizes), mean_over_pictures, [inputs], [targets], **how)


def mean_over_pictures(scores: Tensor, labels: Tensor) -> Tensor:
    """Each client's mean loss; a place with a label beyond the last class holds no picture."""
    outputs = scores.shape[-1]
    each = torch.nn.functional.cross_entropy(
        scores.reshape(-1, outputs), labels.reshape(-1), ignore_index=outputs, reduction="none"
    )
    return each.view(labels.shape).sum(1) / (labels != outputs).sum(1).clamp(min=1)


def bundled(X: list[Singles], y: list[WholeNumbers], places: int, *, blank: int) -> tuple[tuple[Tensor], tuple[Tensor]]:
    """Clients' pictures and labels as a module takes them, ``places`` for each; places left over have label ``blank``."""
    pictures = np.zeros((len(X), places, X[0].shape[1]), np.float32)
    labels = np.full((len(y), places), blank)
    for number, (rows, own) in enumerate(zip(X, y, strict=True)):
        pictures[number, : len(own)], labels[number, : len(own)] = rows, own
    return (torch.from_numpy(pictures),), (torch.from_numpy(labels),)
