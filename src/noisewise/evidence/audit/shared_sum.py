"""The sum of one round of shared training, over honest clients and a hostile one (:mod:`noisewise.evidence.audit.federation`)."""

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
from .federation import Clients, FederationSetting, Floats, WholeNumbers

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
