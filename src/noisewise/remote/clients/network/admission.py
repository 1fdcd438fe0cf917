"""Who takes part in a run over the network: the clients that were there when it began, each by its own key, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock


class Door:
    """Lets clients in until as many are there as were asked for; then only those may come back."""

    def __init__(self, wanted: int, order: Sequence[int] = ()) -> None:
        """``order``: that of clients which are known beforehand; others are in the order in which they came."""
        self._wanted, self._order, self._lock = wanted, tuple(order), Lock()
        self._inside: dict[int, None] = {}
        self._shut = False

    def admits(self, node: int) -> bool:
        """Whether this client takes part, from now on."""
        with self._lock:
            if node not in self._inside and not self._shut and len(self._inside) < self._wanted:
                self._inside[node] = None
            return node in self._inside

    def full(self) -> bool:
        """Whether a client that is not known yet comes too late."""
        with self._lock:
            return self._shut or len(self._inside) >= self._wanted

    def left(self, node: int) -> None:
        """A client is gone; before the run another may take its place."""
        with self._lock:
            if not self._shut:
                self._inside.pop(node, None)

    @property
    def inside(self) -> tuple[int, ...]:
        with self._lock:
            return (*self._inside,)

    def shut(self) -> tuple[int, ...] | None:
        """All that take part, in their order, once enough are there; nobody else from then on."""
        with self._lock:
            if len(self._inside) < self._wanted:
                return None
            self._shut = True
            places = {node: place for place, node in enumerate(self._order)}
            return tuple(sorted(self._inside, key=lambda node: places.get(node, len(places))))
