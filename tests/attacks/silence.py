"""What the attacks by message share: the secrets that are planted, and a look at everything that was said."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

N = 4177
WORD = "Xanthippe7"
NUMBER = 7316529.25
SECRETS = (WORD, "7316529", "7.316529", "7.3165", "731652", "4,177", "4177", "4176", "4178")

RNG = np.random.default_rng(0)
PLAIN = RNG.uniform(-1, 1, (N, 2))
LABELS = (PLAIN[:, 0] > 0).astype(int)


def cases(poisons: dict[str, Any], held: Iterable[str] = ()) -> Any:
    """One case for each poison; those that the old commit already withstood are guards."""
    guard, held = pytest.mark.guard("the old commit already withstood it"), frozenset(held)
    assert held <= set(poisons)
    params = [pytest.param(what, marks=guard if what in held else (), id=what) for what in poisons]
    return pytest.mark.parametrize("what", params)


def everything_in(error: BaseException | None, depth: int = 0) -> Iterator[str]:
    """All that an error says or carries, and the errors that it came from."""
    if error is None or depth > 10:
        return
    for name in ("args", "__notes__", *(name for name in dir(error) if not name.startswith("__"))):
        try:
            value = getattr(error, name, None)
        except Exception:
            continue
        if not callable(value):
            yield shown(value)
    yield from (shown(error), str(type(error)))
    for other in (error.__cause__, error.__context__):
        yield from everything_in(other, depth + 1)


def shown(value: Any) -> str:
    """A value as a log would write it; one that cannot be written is a record that got out."""
    try:
        return f"{value!r} {value!s}"
    except Exception as error:
        return f"{WORD}: {type(error)}"


def keeps_quiet(what: Callable[[], Any], capsys: Any) -> BaseException | None:
    """Do it, look at everything that was said, and return the error."""
    raised: BaseException | None = None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            what()
        except (Exception, SystemExit) as error:
            raised = error
    said = [*everything_in(raised), *capsys.readouterr(), *(shown(one.message) for one in heard)]
    for text in said:
        assert not [secret for secret in SECRETS if secret in text], text[:400]
    for one in heard:
        assert "number of unique classes" not in str(one.message), "a count of private labels decides over this warning"
    assert isinstance(raised, ValueError | SystemExit | None), f"{raised!r} is not one of our own errors"
    return raised
