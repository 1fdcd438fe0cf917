"""Projections are exact: checked against a solver and against the inequality that characterises them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from noisewise.protect.projectors import SETS, set_named


def inside(name, point, radius, slack=1e-5):
    return {
        "ball": np.linalg.norm(point) <= radius + slack,
        "box": np.abs(point).max() <= radius + slack,
        "simplex": point.min() >= -slack and abs(point.sum() - radius) <= slack,
    }[name]


def solved(name, v, radius):
    """The projection by a general solver."""
    constraints = {
        "ball": [{"type": "ineq", "fun": lambda u: radius**2 - u @ u, "jac": lambda u: -2 * u}],
        "box": [],
        "simplex": [{"type": "eq", "fun": lambda u: u.sum() - radius, "jac": np.ones_like}],
    }[name]
    bounds = {"ball": None, "box": [(-radius, radius)] * len(v), "simplex": [(0, None)] * len(v)}[name]
    start = np.full(len(v), radius / len(v) / 2)
    found = minimize(
        lambda u: ((u - v) ** 2).sum(), start, jac=lambda u: 2 * (u - v), bounds=bounds, constraints=constraints,
        method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    return found.x


@pytest.mark.parametrize("name, radius, seed", list(itertools.product(SETS, [0.5, 2.0], range(8))))
def test_projection_agrees_with_a_solver(name, radius, seed):
    v = np.random.default_rng(seed).normal(scale=[0.2, 1.0, 5.0][seed % 3], size=2 + seed)
    found = set_named(name, radius).project(v)
    assert inside(name, found, radius)
    np.testing.assert_allclose(found, solved(name, v, radius), atol=2e-5)


@pytest.mark.parametrize("name", SETS)
def test_projection_is_the_nearest_point_and_keeps_points_inside(name):
    """(v - Pv).(u - Pv) <= 0 for every u of the set, and P is idempotent."""
    rng, convex = np.random.default_rng(0), set_named(name, 1.5)
    for dimension in (1, 2, 7, 300):
        for scale in (0.0, 0.1, 30.0, 1e6):
            v = rng.normal(size=dimension) * scale
            p = convex.project(v)
            assert inside(name, p, 1.5)
            np.testing.assert_allclose(convex.project(p), p, atol=1e-9, rtol=1e-9)
            for _ in range(20):
                u = convex.project(rng.normal(size=dimension) * 3)
                assert float((v - p) @ (u - p)) <= 1e-7 * max(scale, 1)
                assert np.linalg.norm(u - p) <= convex.diameter(dimension) + 1e-9
            assert convex.project(v.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("name", SETS)
def test_a_stack_is_projected_one_by_one(name):
    """Thetas lie along the last axis, whatever is in front; some are inside already, some far out."""
    rng, convex = np.random.default_rng(0), set_named(name, 1.5)
    stack = rng.normal(size=(4, 3, 6)) * np.array([0.01, 1.0, 100.0])[:, None]
    stack[0] = convex.project(stack[0, 2])
    found = convex.project(stack)
    assert found.shape == stack.shape
    for place in np.ndindex(4, 3):
        np.testing.assert_allclose(found[place], convex.project(stack[place]), rtol=1e-12, atol=1e-12)
        assert inside(name, found[place], 1.5)
    np.testing.assert_allclose(found[0], stack[0], rtol=1e-12, atol=1e-12)
    assert not np.allclose(found[1:], stack[1:])


def test_diameters_are_reached():
    corner = np.full(4, 100.0)
    first, second = np.eye(4)[0] * 50, np.eye(4)[1] * 50
    for name, (a, b) in {"ball": (corner, -corner), "box": (corner, -corner), "simplex": (first, second)}.items():
        convex = set_named(name, 2.0)
        gap = np.linalg.norm(convex.project(a) - convex.project(b))
        assert gap == pytest.approx(convex.diameter(4), rel=1e-5)


def test_unknown_sets_and_sizes_are_refused():
    with pytest.raises(ValueError, match="constraint is 'cone'; pass one of 'ball', 'box', 'simplex'"):
        set_named("cone", 1.0)
    with pytest.raises(ValueError, match="radius is 0"):
        set_named("ball", 0)
