"""The trace of a run: every answered question, described by released facts only. Needs no torch."""

from __future__ import annotations

from typing import NamedTuple

from .events import Event

LOST = "lost"  # instead of a question: an answer that was paid for and not written down in time


class Released(NamedTuple):
    """One line of a trace: a question that was answered, described by released facts only."""

    question: str
    event: Event
    clip: float | None
    noise_std: float
    norm: float | None
    spent: float
