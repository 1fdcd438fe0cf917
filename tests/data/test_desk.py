"""Our own words: nothing of a library's error or warning is left, and what is not an error passes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from noisewise.tables.refusal import Refusal, our_words


def told(error: type[BaseException], what: BaseException) -> BaseException:
    with pytest.raises(error) as raised, our_words("ours"):
        try:
            raise RuntimeError("a record")
        except RuntimeError:
            raise what from None
    return raised.value


@pytest.mark.parametrize(
    "what", [ValueError("a record"), KeyError("a record"), RecursionError("a record"), StopIteration()]
)
def test_an_error_is_replaced_and_cannot_be_reached(what: Exception) -> None:
    error = told(Refusal, what)
    assert str(error) == "ours" and isinstance(error, ValueError)
    assert error.__cause__ is None and error.__context__ is None


def test_a_refusal_keeps_its_words_and_loses_its_past() -> None:
    error = told(Refusal, Refusal("column 'age' holds text"))
    assert str(error) == "column 'age' holds text" and error.__context__ is None


def test_a_lack_of_memory_is_told_without_a_shape() -> None:
    assert "memory" in str(told(Refusal, MemoryError("Unable to allocate an array with shape (4177, 3)")))


def test_an_interruption_passes() -> None:
    told(KeyboardInterrupt, KeyboardInterrupt())


def test_it_holds_inside_of_another_error_and_as_a_decorator() -> None:
    @our_words("ours")
    def ask() -> None:
        raise ValueError("a record")

    for _ in range(2):
        with pytest.raises(Refusal, match="ours") as raised, our_words("others"):
            ask()
        assert raised.value.__context__ is None


def test_warnings_are_dropped_and_come_back_afterwards() -> None:
    with our_words("ours"):
        warnings.warn("a record", stacklevel=1)
        assert np.isinf(np.float64(1e308) * 10)
    with pytest.warns(UserWarning, match="still heard"):
        warnings.warn("still heard", stacklevel=1)
