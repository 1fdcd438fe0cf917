"""The page of a ledger: the balance of each account, its runs, and the share of the grant that each run took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate

from ..._version import __version__
from ...accounts.account import rounded_down
from ...accounts.ledger.ledger import AccountState
from ...accounts.ledger.lines import AccountLine
from ...accounts.spending_file import Amount
from . import sentences as words
from .charts import Interval, Series, interval_chart, line_chart
from .markup import Markup, charts, document, figure, join, name_of, table, tag, tile

ShownAccount = tuple[AccountState, Sequence[AccountLine]]
CURRENCIES = {"gdp": "Gaussian DP", "zcdp": "zero-concentrated DP", "rdp": "Rényi DP"}


def ledger_page(accounts: Iterable[ShownAccount]) -> str:
    """One HTML document about these accounts. It does not name the ledger's location: the page may go to others."""
    shown = list(accounts)
    now = words.when(datetime.now(UTC).isoformat(timespec="seconds"))
    title = f"Account of {shown[0][0].name}" if len(shown) == 1 else f"{len(shown)} accounts"
    head = tag("header", tag("h1", title), tag("p", f"How the ledger stood on {now}.", class_="soft"))
    footer = tag("footer", f"Written by noisewise {__version__}. This page fetches nothing.")
    return document(title, tag("main", head, *(_account(one, len(shown) > 1) for one in shown), footer))


def _account(account: ShownAccount, several: bool) -> Markup:
    state, lines = account
    return tag(
        "section",
        tag("h2", name_of(state.name)) if several else None,
        _tiles(state),
        tag("p", _promise(state)),
        charts(_standing(state), _course(state, lines)),
        _runs(lines),
    )


def _tiles(state: AccountState) -> Markup:
    left, fits = _share(state, state.left), ("nothing", "no further run")
    if (most := state.fits) is not None:
        at_most = f"at most, at δ = {words.budget(float(most.delta))}, for one run"
        fits = f"ε = {rounded_down(float(most.epsilon))}", at_most
    epsilon, delta = _granted(state)
    not_settled = sum(entry.state == "reserved" for entry in state.entries)
    return tag(
        "div",
        tile("Granted", f"ε = {epsilon}", f"δ = {delta}, {state.budget.adjacency}"),
        tile("Left", words.percent(left), f"of what was granted, counted in {CURRENCIES[state.currency]}"),
        tile("Fits", *fits),
        tile("Runs", str(len(state.entries)), f"{not_settled} of them not settled"),
        class_="tiles",
    )


def _granted(state: AccountState) -> tuple[str, str]:
    return words.budget(float(state.budget.epsilon)), words.budget(float(state.budget.delta))


def _promise(state: AccountState) -> str:
    whom, (epsilon, delta) = "a record" if state.unit == "record" else "a person with all rows", _granted(state)
    return (
        f"All that these runs release together, whatever they are and in whatever order, is ({epsilon}, {delta})"
        f"-differentially private for {whom}. A run is charged what it reserved until it is settled, and then what it spent."
    )


def _standing(state: AccountState) -> Markup | None:
    parts = {name: _share(state, getattr(state, name)) for name in ("spent", "reserved", "left")}
    rows = [
        Interval(name, share, text=words.percent(share), solid=True, faint=name == "left")
        for name, share in parts.items()
    ]
    chart = interval_chart(
        f"standing-{_key(state)}", rows, title="What was granted", x_label="share of what was granted",
        description=", ".join(f"{row.name} {row.text}" for row in rows), limits=(0.0, 1.0), show=words.percent,
    )  # fmt: skip
    caption = f"In {CURRENCIES[state.currency]}"
    if state.order is not None:
        caption += f" at order {state.order}"
    if state.granted.delta:
        taken = 1 - state.left.delta / state.granted.delta
        caption += f". Of the part of delta for runs that count as what they promise, {words.percent(taken)} is taken"
    return figure("What was granted", chart, f"{caption}.")


def _course(state: AccountState, lines: Sequence[AccountLine]) -> Markup | None:
    if not lines:
        return None
    taken, deltas = (
        [(float(i), share) for i, share in enumerate([0.0, *accumulate(getattr(line, field) for line in lines)])]
        for field in ("share", "delta_share")
    )
    series = [Series("of the budget", taken, "area", 1)]
    if any(line.delta_share for line in lines):
        series.append(Series("of the part of delta", deltas, "dashed", 2))
    chart = line_chart(
        f"course-{_key(state)}", series, title="Taken by runs", x_label="runs", y_label="taken, in all",
        description=f"After {len(lines)} runs {words.percent(taken[-1][1])} of what was granted is taken.",
        y_limits=(0.0, 1.0), show=words.percent, show_x=lambda value: f"{value:g}",
    )  # fmt: skip
    return figure("Taken by runs, one after the other", chart, "Runs that asked nothing take nothing.")


def _runs(lines: Sequence[AccountLine]) -> Markup:
    if not lines:
        return tag("p", "No run has taken anything yet.")
    heads = ("run", "what", "epsilon", "delta", "share", "state", "by", "when")
    rows = [
        (
            line.number, line.what, words.number(line.epsilon, 4), words.budget(line.delta), words.percent(line.share),
            line.state, name_of(line.owner), words.when(line.when),
        )
        for line in lines
    ]  # fmt: skip
    return join(tag("h3", "Runs"), table(heads, rows, numeric=(0, 2, 3, 4), wide=True))


def _share(state: AccountState, amount: Amount) -> float:
    return amount.cost / state.granted.cost


def _key(state: AccountState) -> str:
    """A name for the parts of a chart; accounts may be called anything."""
    return state.name.encode().hex()
