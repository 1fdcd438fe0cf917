"""What was said to a place that holds rows, as far as another needs to hear it to hold the same: rows are read and laid out anew.

A place may be lost, or keep nothing from one question to the next. Whoever asks remembers how its rows came about: they are
made once, held for a model, and changed. What nobody holds any more, and nothing was made of, is forgotten here, too.
"""

from __future__ import annotations

from typing import NamedTuple

from .holder import Request


class Told(NamedTuple):
    """A request that made records ``new``, of others (``of``) or of the rows themselves (None)."""

    request: Request
    new: int
    of: int | None


class History:
    """The requests that one place was asked to make its rows and records by, in their order."""

    def __init__(self) -> None:
        self._made: Request | None = None
        self._told: dict[int, Told] = {}
        self._unused: set[int] = set()

    def note(self, request: Request) -> None:
        """Remember a request that was answered; those that change nothing are not remembered."""
        arguments = request.arguments
        if request.act == "make":
            self._made = request
            self._told.clear()
            self._unused.clear()
        elif request.act == "hold":
            self._told[arguments[0]] = Told(request, arguments[0], None)
        elif request.act == "change":
            self._told[arguments[1]] = Told(request, arguments[1], arguments[0])
        elif request.act == "forget":
            self._unused |= {*arguments[0]} & self._told.keys()
            self._prune()

    def _prune(self) -> None:
        """Drop what is unused and what nothing was made of that is not dropped itself."""
        while drop := self._unused - {told.of for told in self._told.values()}:
            self._unused -= drop
            for version in drop:
                del self._told[version]

    def needed(self) -> list[Request]:
        """What to ask of a place that holds nothing, one after the other, so that it holds what this one held."""
        made = [] if self._made is None else [self._made]
        told = [told.request for told in self._told.values()]
        if not self._unused:
            return [*made, *told]
        number = told[-1].number
        return [*made, *told, Request(number, "forget", (tuple(sorted(self._unused)),))]
