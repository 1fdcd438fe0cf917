"""Progress bars on standard error, when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

errors = Console(stderr=True)


@contextmanager
def bars(*, share: bool = False, transient: bool = True) -> Iterator[Callable[..., None]]:
    """``report(what, done, total, news)`` moves the bar of ``what``, made when it is first named.

    A bar counts, or with ``share`` shows percent of a ``total`` of 1; ``news`` is a text beside it.
    """
    amount = TextColumn("{task.percentage:>3.0f} %") if share else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TextColumn("{task.fields[news]}"))
    # ten minutes of speed: with slow steps, less would give no estimate of the time left
    shown = partial(Progress, transient=transient, disable=not errors.is_terminal, speed_estimate_period=600)
    with shown(*columns, TimeRemainingColumn(), console=errors) as progress:
        named: dict[str, TaskID] = {}

        def report(what: str, done: float, total: float | None = 1.0 if share else None, news: str = "") -> None:
            if what not in named:
                named[what] = progress.add_task(what, total=total, news=news)
            progress.update(named[what], completed=done, total=total, news=news)

        yield report


@contextmanager
def bar(text: str, *, share: bool = False, transient: bool = True) -> Iterator[Callable[..., None]]:
    """One bar: ``report(done, total, news)``, or ``report(share, news=...)``."""
    with bars(share=share, transient=transient) as report:
        yield lambda done, *total, **news: report(text, done, *total, **news)
