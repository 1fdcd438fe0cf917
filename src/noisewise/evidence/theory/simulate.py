"""Noisy descent and momentum on quadratics, to hold the bounds and influences against what happens.

On f = theta^T H theta / 2 noise of standard deviation s in step t alone raises the final loss of descent by exactly
(s^2 eta^2 / 2) sum_i h_i (1 - eta h_i)^(2(T-t)). The bound's q_t forgets it at rate gamma = 1 - eta mu a step, the flattest
direction at gamma^2: PL is all the theorem knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...trusted import validate
from .momentum import largest_rate, momentum_bound, momentum_influence, momentum_schedule
from .risk import (
    Floats,
    Problem,
    Quadratic,
    descent_bound,
    descent_influence,
    optimal_schedule,
    quadratic,
    uniform_schedule,
)


class Measured(NamedTuple):
    """Mean final loss over the draws, its standard error, and the largest gradient norm met on the way."""

    mean: float
    standard_error: float
    largest_gradient: float


def walk(
    loss: Quadratic, noise_std: npt.ArrayLike, *, eta: float, beta: float, draws: int, seed: int, clip: float = math.inf
) -> tuple[Floats, float]:
    """Final losses of ``draws`` runs with gradient noise of standard deviation noise_std[t], and the largest gradient.

    Gradients longer than ``clip`` are cut to it, as if all records were alike.
    """
    rng = np.random.default_rng(seed)
    theta = np.tile(loss.start, (draws, 1))
    velocity = np.zeros_like(theta)
    largest = 0.0
    for t, std in enumerate(np.asarray(noise_std, dtype=float), start=1):
        gradient = theta * loss.curvatures
        norm = np.sqrt((gradient * gradient).sum(axis=1, keepdims=True))
        largest = max(largest, float(norm.max()))
        if largest > clip:
            gradient *= np.minimum(1.0, clip / np.maximum(norm, 1e-300))
        if std > 0:
            gradient += std * rng.standard_normal(theta.shape)
        velocity = beta * velocity + (1 - beta) * gradient
        theta = theta - eta / (1 - beta**t) * velocity
    return loss.loss(theta), largest


def simulated_risk(
    problem: Problem,
    sigma: npt.ArrayLike,
    *,
    beta: float = 0.0,
    eta: float | None = None,
    draws: int = 400,
    seed: int = 0,
) -> Measured:
    """Excess risk on the quadratic of ``problem`` under gradient noise G sigma_t / N; ``eta`` is 1/M unless given.

    Gradients are clipped at G. The theorems hold where that never bites, ``largest_gradient`` <= G: compare before
    trusting a bound. A PL loss on all of space is not Lipschitz, so noise that is large enough always breaks it.
    """
    validate.whole(draws=draws, at_least=2)
    std = np.asarray(sigma, dtype=float) * problem.G / problem.N
    losses, largest = walk(
        quadratic(problem), std, eta=eta or 1 / problem.M, beta=beta, draws=draws, seed=seed, clip=problem.G
    )
    return Measured(float(losses.mean()), float(losses.std(ddof=1) / math.sqrt(draws)), largest)


def measured_influence(
    problem: Problem,
    steps: int,
    *,
    noisy_steps: Iterable[int] | None = None,
    noise_std: float = 0.1,
    beta: float = 0.0,
    eta: float | None = None,
    draws: int = 400,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """What noise in one step alone adds to the final loss, measured and bounded, for each step asked for.

    ``bound`` is (M D / 2) (eta s)^2 gamma^(T-t) for descent, eta D s^2 q_t for momentum; ``exact`` is the closed form for
    descent on quadratics (absent for momentum). All are divided by s^2 eta^2 D M / 2, so that descent's bound reads q_t.
    """
    validate.whole(steps=steps)
    validate.whole(draws=draws, at_least=2)
    validate.positive(noise_std=noise_std)
    rate = eta or 1 / problem.M
    gamma = 1 - rate * problem.mu
    loss = quadratic(problem)
    unit = noise_std**2 * rate**2 * problem.D * problem.M / 2
    quiet = float(walk(loss, np.zeros(steps), eta=rate, beta=beta, draws=1, seed=0)[0][0])
    q = momentum_influence(steps, gamma, beta) * (2 / (rate * problem.M)) if beta else descent_influence(steps, gamma)
    rows: list[dict[str, Any]] = []
    for t in noisy_steps or range(1, steps + 1):
        std = np.zeros(steps)
        std[t - 1] = noise_std
        losses, _ = walk(loss, std, eta=rate, beta=beta, draws=draws, seed=seed + t)
        decay = (1 - rate * loss.curvatures) ** (2 * (steps - t))
        exact = noise_std**2 * rate**2 / 2 * float(loss.curvatures @ decay)
        row = {
            "step": t,
            "influence": float(q[t - 1]),
            "measured": float(losses.mean() - quiet) / unit,
            "standard_error": float(losses.std(ddof=1)) / math.sqrt(draws) / unit,
            "exact": None if beta else exact / unit,
        }
        rows.append(row)
    return rows


def bound_rows(
    problem: Problem,
    steps: Iterable[int],
    *,
    beta: float = 0.5,
    draws: int = 200,
    simulate_every: int = 1,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The three bounds at each T, and every so often what a simulation of the same runs finds.

    ``momentum`` takes its own optimal schedule and the largest rate its bound allows. ``clipped`` says that a gradient
    exceeded G in some draw, so that the bound does not speak about that simulation.
    """
    rate = largest_rate(problem.M, problem.mu, beta)
    rows: list[dict[str, Any]] = []
    for place, count in enumerate(steps):
        sigmas = {
            "uniform": uniform_schedule(count, problem.R),
            "dynamic": optimal_schedule(np.maximum(descent_influence(count, problem.gamma), 1e-300), problem.R),
            "momentum": momentum_schedule(problem, count, beta=beta),
        }
        row: dict[str, Any] = {"steps": int(count)}
        for name, sigma in sigmas.items():
            moving = name == "momentum"
            row[f"{name}_bound"] = (
                momentum_bound(problem, sigma, beta=beta) if moving else descent_bound(problem, sigma)
            )
            row[f"{name}_simulated"], row[f"{name}_clipped"] = None, None
            if place % simulate_every == 0:
                run = simulated_risk(
                    problem, sigma, beta=beta if moving else 0.0, eta=rate if moving else None, draws=draws, seed=seed
                )
                row[f"{name}_simulated"], row[f"{name}_clipped"] = run.mean, run.largest_gradient > problem.G
        rows.append(row)
    return rows
