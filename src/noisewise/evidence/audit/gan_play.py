"""The rounds of shared training with a hostile client in it, and what its drawings score (:mod:`noisewise.evidence.audit.gan`)."""

from __future__ import annotations

import numpy as np

from ...trusted.torch_extra import Tensor, torch
from .federation import Floats, WholeNumbers
from .gan import HeavyBallServer, Hostile
from .leakage import correlation
from .shared_sum import Shared, Singles, network

CODE_LENGTH = 16  # of what a drawing is made from
HIDDEN_UNITS = 64  # of the generator
SCORED_DRAWINGS = 200


def play(
    sums: Shared, sizes: tuple[int, ...], victim: int, server: HeavyBallServer, hostile: Hostile, *, seed: int
) -> tuple[Singles, Singles]:
    """All rounds: the generator learns from the shared model, its drawings go in, the model moves; model and drawings."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network(sizes)
        # the generator draws pictures from a few normal numbers; pixels between 0 and 1
        layers = (
            torch.nn.Linear(CODE_LENGTH, HIDDEN_UNITS),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN_UNITS, sizes[0]),
            torch.nn.Sigmoid(),
        )
        generator = torch.nn.Sequential(*layers)
        optimizer = torch.optim.Adam(generator.parameters(), lr=hostile.learning_rate, betas=(0.5, 0.999))
        wanted = torch.full((hostile.batch,), victim)
        theta: Singles = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
        velocity = np.zeros_like(theta)
        for _ in range(server.rounds):
            for _ in range(hostile.steps):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(_drawn(generator, hostile.batch)), wanted).backward()
                optimizer.step()
            total, units = sums.honest(theta), sums.size
            if hostile.fakes:
                fakes = _drawn(generator, hostile.fakes).detach().numpy()
                added, more = sums.hostile(theta, fakes, sizes[-1] - 1)
                total, units = total + added, units + more
            velocity = server.momentum * velocity + (total / units).astype(np.float32)
            theta = theta - server.learning_rate * velocity
            _fill(model, theta)
        return theta, _drawn(generator, SCORED_DRAWINGS).detach().numpy()


def _fill(model: torch.nn.Module, theta: Singles) -> None:
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta), model.parameters())


def _drawn(generator: torch.nn.Module, many: int) -> Tensor:
    drawings: Tensor = generator(torch.randn(many, CODE_LENGTH))
    return drawings


def scores(
    theta: Singles, sizes: tuple[int, ...], drawings: Singles, held: tuple[Floats, WholeNumbers], victim: int
) -> tuple[tuple[float, ...], float, float, float, float]:
    """The first drawing, taken, likeness, and the shared model's accuracy on other classes and on the victim's."""
    X, y = held
    made = drawings.astype(np.float64)
    nearest = torch.cdist(torch.from_numpy(made), torch.from_numpy(X)).argmin(1).numpy()
    mean = X[y == victim].mean(axis=0)
    model = network(sizes)
    _fill(model, theta)
    with torch.no_grad():
        right = model(torch.from_numpy(X).float()).argmax(1).numpy() == y
    return (
        tuple(made[0].tolist()),
        float(np.mean(y[nearest] == victim)),
        float(np.mean([correlation(one, mean) for one in made])),
        float(np.mean(right[y != victim])),
        float(np.mean(right[y == victim])),
    )
