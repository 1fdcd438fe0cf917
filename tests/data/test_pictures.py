"""Histograms of oriented gradients: what they see, and that each picture is turned by itself."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import noisewise as nw


def edge(height: int = 8, width: int = 8) -> np.ndarray:
    """Dark on the left, light on the right: slopes point right."""
    picture = np.zeros((height, width))
    picture[:, width // 2 :] = 1.0
    return picture


def test_an_edge_is_seen_in_its_direction_and_place() -> None:
    features = nw.OrientedGradients((8, 8), directions=4).fit_transform(edge().reshape(1, -1))
    histograms = features.reshape(2, 2, 4)  # cells down, cells right, directions: right, down, left, up
    assert np.allclose(histograms[..., 1:], 0)
    assert np.allclose(histograms[..., 0], np.sqrt(4 * 0.5))  # half a step on either side of the edge, four rows
    turned = nw.OrientedGradients((8, 8), directions=4).fit_transform(edge().T.reshape(1, -1)).reshape(2, 2, 4)
    assert np.allclose(turned[..., 1], np.sqrt(2)) and np.allclose(turned[..., [0, 2, 3]], 0)


def test_a_direction_in_between_is_shared() -> None:
    down, right = np.mgrid[0:8, 0:8]
    slope = (down + right).reshape(1, -1) / 16.0
    histograms = nw.OrientedGradients((8, 8), directions=4).fit_transform(slope).reshape(-1, 4)
    assert np.allclose(histograms[:, 0], histograms[:, 1], rtol=1e-5) and (histograms[:, 0] > 0).all()
    assert np.allclose(histograms[:, 2:], 0)


def test_a_stack_has_cells_wider_cells_and_moved_cells() -> None:
    pictures = np.random.default_rng(0).random((3, 28 * 28))
    stack = nw.OrientedGradients((28, 28), stacked=True).fit_transform(pictures)
    assert stack.shape == (3, 8 * (49 + 16 + 36))
    assert np.array_equal(stack[:, :392], nw.OrientedGradients((28, 28)).fit_transform(pictures))
    assert np.array_equal(stack[:, 392:520], nw.OrientedGradients((28, 28), cell=7).fit_transform(pictures))
    edge = np.zeros((28, 28))
    edge[:, 4:] = 1.0  # slopes at columns 3 and 4: two cells see them, one of those that were moved
    seen = nw.OrientedGradients((28, 28), stacked=True).fit_transform(edge.reshape(1, -1))[0].reshape(-1, 8)[:, 0]
    first, moved = seen[:49].reshape(7, 7), seen[65:].reshape(6, 6)
    assert (first[:, :2] > 0).all() and (first[:, 2:] == 0).all() and np.allclose(first[:, 0], first[:, 1])
    assert (moved[:, 0] > 0).all() and (moved[:, 1:] == 0).all()


@pytest.mark.parametrize("shape", [(2, 3), (5, 4), (4, 4)])
def test_a_stack_of_pictures_smaller_than_its_cells(shape: tuple[int, int]) -> None:
    pictures = np.random.default_rng(0).random((2, shape[0] * shape[1]))
    stack = nw.OrientedGradients(shape, stacked=True).fit_transform(pictures)
    assert np.isfinite(stack).all() and stack.shape[0] == 2


def test_colours_count_by_their_steepest_channel() -> None:
    gray = np.random.default_rng(0).random((3, 8, 8, 1))
    plain = nw.OrientedGradients((8, 8)).fit_transform(gray.reshape(3, -1))
    colours = np.concatenate([0.1 * gray, gray, 0 * gray], axis=3).reshape(3, -1)
    assert np.array_equal(nw.OrientedGradients((8, 8, 3)).fit_transform(colours), plain)
    assert np.array_equal(nw.OrientedGradients((8, 8, 1)).fit_transform(gray.reshape(3, -1)), plain)


@pytest.mark.parametrize("company", [1, 7, 2000, 2001])
@pytest.mark.parametrize("settings", [{"shape": (10, 10)}, {"shape": (5, 5, 4), "cell": 2, "stacked": True}])
def test_no_bit_of_a_picture_depends_on_its_company(company: int, settings: dict) -> None:
    rng = np.random.default_rng(0)
    mine, others, turn = rng.random((1, 100)), rng.random((company, 100)), nw.OrientedGradients(**settings)
    alone = turn.fit_transform(mine)[0]
    assert np.array_equal(turn.transform(np.concatenate([mine, others]))[0], alone)
    assert np.array_equal(turn.transform(np.concatenate([others, mine]))[-1], alone)


@pytest.mark.parametrize("company", [1, 7, 2000, 2001])
def test_a_picture_is_turned_by_itself(company: int) -> None:
    """The privacy of everything after it rests on this: no bit of a row depends on the other rows."""
    rng = np.random.default_rng(0)
    mine, others = rng.random((1, 100)), rng.random((company, 100))
    turn = nw.OrientedGradients((10, 10), cell=4)
    alone = turn.fit_transform(mine)
    assert alone.shape == (1, 3 * 3 * 8)  # cells at the edge are filled up with nothing
    for rows in (np.concatenate([mine, others]), np.concatenate([others, mine])):
        at = 0 if np.array_equal(rows[0], mine[0]) else len(rows) - 1
        assert np.array_equal(turn.transform(rows)[at], alone[0])


def test_no_pixel_raises_warns_or_is_shown() -> None:
    """A private picture may not stop anything, change another one, or be seen in a message."""
    rows = np.random.default_rng(0).random((4, 64))
    turn, good = nw.OrientedGradients((8, 8)), nw.OrientedGradients((8, 8)).fit_transform(rows)
    for worst in (np.nan, np.inf, -np.inf, 1e300):
        odd = rows.copy()
        odd[2, 5] = worst
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            features = turn.transform(odd)
        assert np.isfinite(features).all() and np.array_equal(features[[0, 1, 3]], good[[0, 1, 3]])
    with pytest.raises(ValueError) as refusal:
        turn.transform([["SECRET"] * 64])
    assert "SECRET" not in str(refusal.value) and refusal.value.__cause__ is None


def test_settings_are_checked_before_pictures_are_turned() -> None:
    with pytest.raises(ValueError, match="cell"):
        nw.OrientedGradients((8, 8), cell=0).transform(np.zeros((1, 64)))


def test_a_flat_picture_has_no_direction_and_no_pictures_no_rows() -> None:
    turn = clone(nw.OrientedGradients((8, 8)))
    assert not turn.fit_transform(np.full((1, 64), 0.7)).any()
    assert turn.transform(np.empty((0, 64))).shape == (0, 32)


@pytest.mark.parametrize(
    ("settings", "rows", "said"),
    [
        ({}, np.zeros((1, 63)), "28 x 28 = 784 pixels"),
        ({"shape": (8, 8)}, np.zeros(64), "8 x 8 = 64 pixels"),
        ({"shape": (1, 64)}, np.zeros((1, 64)), "at least 2 pixels"),
        ({"shape": 28}, np.zeros((1, 784)), "shape is 28"),
        ({"shape": (28,)}, np.zeros((1, 784)), "shape is"),
        ({"shape": (8, 8, 0)}, np.zeros((1, 64)), "channels"),
        ({"shape": (8, 8, 3)}, np.zeros((1, 64)), "8 x 8 x 3 = 192 pixels"),
        ({"stacked": 1}, np.zeros((1, 784)), "stacked is 1"),
        ({"cell": 0}, np.zeros((1, 784)), "cell"),
        ({"directions": 2.5}, np.zeros((1, 784)), "directions"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, rows: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nw.OrientedGradients(**settings).fit(rows).transform(rows)
