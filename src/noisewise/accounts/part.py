"""One run's part of a purse: what it reserved, what it may use by now, and its end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ..trusted import validate
from ..trusted.counts import NotCopied
from ..trusted.meter import Meter
from .store import Closed, PurseEntry

if TYPE_CHECKING:
    from .purse import Purse


class PurseShare:
    """One run's part of a purse: ``meter`` pays until the run is settled, which leaving the ``with`` block does."""

    __slots__ = ("_claimed", "_entry", "_most", "_number", "_purse", "_unknown", "meter")

    def __init__(
        self, purse: Purse, number: int, entry: PurseEntry, meter: Meter, claimed: float = 0.0, *, unknown: bool = False
    ) -> None:
        self._purse, self._number, self._entry, self.meter, self._claimed = purse, number, entry, meter, claimed
        self._most = claimed  # that was ever claimed, as far as this process knows
        self._unknown = unknown  # what an earlier process used of it, or uses still

    @property
    def number(self) -> int:
        """Its place in the purse."""
        return self._number

    @property
    def claimed(self) -> float:
        """How much of it was claimed so far, here or by an earlier process of the run."""
        return self._claimed

    def claim(self, share: float) -> None:
        """Write down, durably, that it may be used up to this share of its meter, before that is drawn.

        Of several processes that took up one run only one gets any block: :class:`~.store.Claimed` for the others.
        """
        self._purse._claim(self._number, self._claimed, float(share))
        self._claimed, self._most = float(share), max(self._most, float(share))

    def known(self) -> None:
        """Say that the meter is charged, or will be, with all that earlier processes may have used: a journal knows."""
        self._unknown = False

    def settle(self, state: str = "spent", *, journal: Closed | None = None) -> None:
        """Close the meter and write down what it paid for; ``state`` is "spent", or "failed" for a run without a model.

        ``journal``: the end of the run's journal, for what it claimed and did not use to come back.
        """
        validate.one_of(("spent", "failed"), state=state)
        if self._unknown and not self.meter.closed:
            self.meter.forfeit(1.0)
        self._purse._settle(self._number, self._entry, self.meter, state, (self._claimed, self._most), journal)

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = NotCopied._refuse  # it knows what it claimed

    def __enter__(self) -> PurseShare:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if not self.meter.closed:
            self.settle("spent" if kind is None else "failed")
