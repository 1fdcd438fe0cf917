"""Standard errors on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from numpy.typing import NDArray

Values = NDArray[Any] | None


class Spread:
    """Standard errors of theta: computed when first asked for or saved, after which what they come from is let go."""

    def __init__(self, compute: Callable[[], Values]) -> None:
        self._compute: Callable[[], Values] | None = compute
        self._known: Values = None

    @classmethod
    def known(cls, errors: Values) -> Self:
        """Standard errors that were computed before, e.g. of a saved model."""
        return cls(lambda: errors)

    def values(self) -> Values:
        """The standard error of each coordinate of theta, or None where it is not known."""
        if self._compute is not None:
            self._known, self._compute = self._compute(), None
        return self._known

    def __getstate__(self) -> dict[str, Any]:
        return {"_compute": None, "_known": self.values()}
