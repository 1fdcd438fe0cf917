"""An account of a ledger drawn in the terminal: a bar of what is spent, reserved and left, and a table of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .main import narrow_table

if TYPE_CHECKING:
    from ...accounts.ledger.ledger import AccountState
    from ...accounts.ledger.lines import AccountLine

BAR_CELLS = 50
PARTS = (("spent", "█", "blue"), ("reserved", "▒", "yellow"), ("left", "░", "green"))
MAX_LISTED_RUNS = 40  # in a terminal


def draw_account(console: Console, state: AccountState, lines: Sequence[AccountLine]) -> None:
    """Draw an account for people."""
    budget, unit = state.budget, "a record" if state.unit == "record" else "a person"
    order = "" if state.order is None else f" at order {state.order}"
    told = f": granted ({budget.epsilon:g}, {budget.delta:g}), {budget.adjacency}, {unit}, counted in {state.currency}{order}"
    console.print(Text.assemble((state.name, "bold"), told), soft_wrap=True)
    shares = {name: getattr(state, name).cost / state.granted.cost for name, _, _ in PARTS}
    console.print(bar(shares))
    console.print(Text("   ").join(Text(f"{sign} {name} {shares[name]:.1%}", colour) for name, sign, colour in PARTS))
    console.print(_rest(state), highlight=False, markup=False, soft_wrap=True)
    if lines:
        console.print(_runs(lines))
    if len(lines) > MAX_LISTED_RUNS:
        console.print(f"The last {MAX_LISTED_RUNS} of {len(lines)} runs; --json or --page has all.", highlight=False)


def bar(shares: dict[str, float]) -> Text:
    """The parts of a whole; what is there at all has a cell."""
    cells = {name: max(round(shares[name] * BAR_CELLS), int(shares[name] > 1e-9)) for name, _, _ in PARTS}
    largest = max(cells, key=lambda name: cells[name])
    cells[largest] += BAR_CELLS - sum(cells.values())
    return Text.assemble(*((sign * cells[name], colour) for name, sign, colour in PARTS))


def _rest(state: AccountState) -> str:
    from ...accounts.account import rounded_down

    fits = state.fits
    text = "Nothing is left that would buy an answer."
    if fits is not None:
        text = f"The largest promise that fits: epsilon {rounded_down(fits.epsilon)} at delta {fits.delta:g}."
    if state.granted.delta:
        text += (
            f" For runs that count as the (epsilon, delta) that they promise, delta {state.left.delta:.3g} of "
            f"{state.granted.delta:g} is left."
        )
    return text


def _runs(lines: Sequence[AccountLine]) -> Table:
    table = narrow_table()
    for name in ("run", "what", "epsilon", "delta", "share", "state", "by", "when"):
        right = name in ("run", "epsilon", "delta", "share")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "what")
    for line in lines[-MAX_LISTED_RUNS:]:
        colour = {"spent": "", "reserved": "yellow", "failed": "red"}[line.state]
        cells = (str(line.number), line.what, f"{line.epsilon:.4g}", f"{line.delta:.3g}", f"{line.share:.1%}")
        table.add_row(
            *map(Text, cells), Text(line.state, colour), Text(line.owner), Text(line.when[:16].replace("T", " "))
        )
    return table
