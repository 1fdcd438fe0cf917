"""``noisewise ledger``: accounts of data sets across runs, people and machines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .main import JsonFlag, app, narrow_table, print_json
from .paying import LedgerUrl

if TYPE_CHECKING:
    from ...accounts.ledger import Ledger
    from ...accounts.ledger.ledger import AccountState
    from ...accounts.ledger.lines import AccountLine
    from ...accounts.ledger.verify import Findings


ledger = typer.Typer(
    help="Ledgers: one account for all runs on a data set, in a file or in a team's PostgreSQL.", no_args_is_help=True
)
app.add_typer(ledger, name="ledger")

HEAD = "noisewise-ledger-head/1"
DatasetOption = Annotated[str, typer.Option("--dataset", metavar="NAME", help="The name of the data set.")]
MaybeDataset = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="The data set.", show_default="all of them")
]


def _opened(url: str | None) -> Ledger:
    from ...accounts.ledger import Ledger

    return Ledger(url)


def _done(document: dict[str, Any], words: str, json_output: bool) -> None:
    if json_output:
        print_json(document)
    else:
        typer.echo(words)


@ledger.command()
def init(url: LedgerUrl = None, json_output: JsonFlag = False) -> None:
    """Make a new ledger without accounts: an SQLite file that only you can read, or tables in a PostgreSQL database.

    What is there already is refused, never overwritten.

    Example: [bold]noisewise ledger init --ledger ledger.db[/bold]

    For a team: [bold]noisewise ledger init --ledger postgresql://officer@host/privacy[/bold]
    """
    from ...accounts.ledger import Ledger

    made = Ledger.create(url)
    words = f"made {made.name}; next: noisewise ledger register --dataset NAME --epsilon E --delta D"
    _done({"ledger": made.name}, words, json_output)


@ledger.command()
def register(
    dataset: DatasetOption,
    epsilon: Annotated[float, typer.Option(help="What all runs together may cost.")],
    delta: Annotated[float, typer.Option(help="The same, well below 1/records.")],
    url: LedgerUrl = None,
    adjacency: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    unit: Annotated[str, typer.Option(help="Whom the promise is to: record or person.")] = "record",
    currency: Annotated[str, typer.Option(help="What runs are added up in: gdp, zcdp or rdp.")] = "gdp",
    order: Annotated[int | None, typer.Option(help="Of rdp.", show_default=False)] = None,
    delta_share: Annotated[
        float, typer.Option(help="Part of delta for runs that count as the (epsilon, delta) that they promise.")
    ] = 0.5,
    json_output: JsonFlag = False,
) -> None:
    """Open the account of a data set: all its runs together will be (epsilon, delta)-DP, whatever they are.

    Example: [bold]noisewise ledger register --ledger ledger.db --dataset patients --epsilon 3 --delta 1e-6[/bold]
    """
    from ...accounts import Budget

    budget = Budget(epsilon, delta, adjacency=cast(Any, adjacency))
    opened = _opened(url)
    opened.register(dataset, budget, unit=cast(Any, unit), currency=currency, order=order, delta_share=delta_share)
    words = f"registered {dataset!r} with ({epsilon:g}, {delta:g}), {adjacency}, for a {unit}"
    _done(opened.state(dataset).to_dict(), f"{words}; next: noisewise train ... --dataset {dataset}", json_output)


@ledger.command()
def grant(
    url: LedgerUrl = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="The account that gets more.", show_default=False)
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The new total.", show_default=False)] = None,
    delta: Annotated[float | None, typer.Option(help="The new total.", show_default="as before")] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A role of PostgreSQL that may spend from now on.", show_default=False),
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Raise the total of an account, or let a role of PostgreSQL spend and look.

    A larger total is a weaker promise, also to the past runs: whoever grants answers for it. Nothing is ever taken back.

    Example: [bold]noisewise ledger grant --ledger ledger.db --dataset patients --epsilon 4[/bold]

    Example: [bold]noisewise ledger grant --role analyst[/bold]
    """
    from ...accounts import Budget

    if (role is None) == (dataset is None) or (role is None) != (epsilon is not None):
        raise ValueError("say what to grant: --dataset NAME --epsilon E [--delta D], or --role NAME")
    opened = _opened(url)
    if role is not None:
        opened.allow(role)
        words = f"the role {role!r} may read the ledger, reserve, claim and settle; nothing else"
        _done({"role": role}, words, json_output)
        return
    assert dataset is not None and epsilon is not None
    old = opened.account(dataset).budget
    new = Budget(epsilon, float(old.delta) if delta is None else delta, old.adjacency)
    opened.grant(dataset, new)
    words = f"{dataset!r} has ({new.epsilon:g}, {new.delta:g}) now, for all its runs together; before ({old.epsilon:g}, {old.delta:g})"
    _done(opened.state(dataset).to_dict(), words, json_output)


@ledger.command()
def show(
    url: LedgerUrl = None,
    dataset: MaybeDataset = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page, too.", show_default=False, dir_okay=False)
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Draw accounts: what was granted, what is spent, reserved and left, what fits, and all runs.

    With --json the document of one account, or of several under "accounts". Amounts are in the account's currency.

    Example: [bold]noisewise ledger show --ledger ledger.db --dataset patients --page account.html[/bold]
    """
    from dataclasses import asdict

    from ...accounts.ledger.lines import lines_of

    opened = _opened(url)
    accounts = [lines_of(opened, name) for name in ([dataset] if dataset is not None else opened.datasets())]
    if page is not None:
        from ...evidence.report.ledger_page import ledger_page
        from .schema import write

        write(page, ledger_page(accounts))
    if json_output:
        documents = [{**state.to_dict(), "entries": [asdict(line) for line in lines]} for state, lines in accounts]
        print_json(documents[0] if len(documents) == 1 else {"accounts": documents})
        return

    console = Console()
    for number, (state, lines) in enumerate(accounts):
        if number:
            console.print()
        draw_account(console, state, lines)
    if not accounts:
        typer.echo("no data set is registered; noisewise ledger register does")
    if page is not None:
        typer.echo(f"written: {page}", err=True)


@ledger.command()
def history(url: LedgerUrl = None, dataset: MaybeDataset = None, json_output: JsonFlag = False) -> None:
    """List all that ever happened, in order: each row follows from the one before it by a hash.

    Example: [bold]noisewise ledger history --ledger ledger.db --dataset patients[/bold]
    """
    from ...accounts.ledger.lines import in_words, told

    opened = _opened(url)
    if dataset is not None:
        opened.account(dataset)  # a name that is not there is refused
    rows = list(opened.history(dataset))
    if json_output:
        print_json([told(row) for row in rows])
        return
    for row in rows:
        typer.echo(f"{row.seq:>6}  {row.at[:19].replace('T', ' ')}  {row.hash[:12]}  {in_words(row)}")


@ledger.command()
def verify(
    export: Annotated[
        Path | None, typer.Argument(metavar="[EXPORT.json]", help="An export to check, instead of a ledger.")
    ] = None,
    url: LedgerUrl = None,
    head: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="An end of the history that was kept elsewhere.")
    ] = None,
    journal: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN", help="A run folder with its journal: given any, each run that gave back needs its own."
        ),
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Check a ledger: the chain of its history, its tables against it, and every price computed anew.

    A run takes no less than it ever claimed, unless the history has the end of its closed journal. With --journal these are
    read, and must say the same. A history that was cut off and sealed anew is found only by a head that was kept elsewhere (ledger export --head-only).
    Exit code 0 when it holds, 1 with one line for each finding when it does not, 2 when it cannot be read.

    Example: [bold]noisewise ledger verify --ledger ledger.db --head monday.json[/bold]
    """
    from ...accounts.ledger.verify import verified

    if export is not None and url is not None:
        raise ValueError("pass an export or --ledger, not both")
    journals = None
    if journal:
        from ...accounts.journal import closed_journal

        journals = [closed_journal(path) for path in journal]
    found = verified(_opened(url) if export is None else _read(export), [_head(path) for path in head or ()], journals)
    _tell(found, json_output)
    raise typer.Exit(0 if found.holds else 1)


def _tell(found: Findings, json_output: bool) -> None:
    if json_output:
        document = {"holds": found.holds, "seq": found.seq, "head": found.head, "runs": found.runs}
        print_json({**document, "findings": list(found.wrong)})
        return
    for line in found.wrong:
        typer.echo(line)
    if found.holds:
        typer.echo(
            f"yes: {found.runs} runs, {found.seq} rows of history that ends at {found.head[:12]}; every price is right"
        )


@ledger.command(name="export")
def write_export(
    out: Annotated[Path, typer.Option(metavar="FILE.json", help="A new file, which only you can read.")],
    url: LedgerUrl = None,
    head_only: Annotated[
        bool, typer.Option("--head-only", help="Only where the history ends: keep it elsewhere.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Write the whole ledger as JSON, or with --head-only the end of its history, which seals all that came before.

    Example: [bold]noisewise ledger export --ledger ledger.db --head-only --out monday.json[/bold]
    """
    opened = _opened(url)
    seq, head = opened.head()
    document = {"format": HEAD, "seq": seq, "head": head} if head_only else opened.export()
    try:
        place = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except FileExistsError:
        raise ValueError(f"{out} exists already; pass another file") from None
    with open(place, "w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")
    what = "the end of the history" if head_only else "the whole ledger"
    written = {"written": str(out), "seq": document["seq"], "head": document["head"]}
    _done(written, f"written: {out}, {what}, {document['seq']} rows", json_output)


def _read(path: Path) -> Any:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: not a JSON document; pass what noisewise ledger export wrote") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: not what noisewise ledger export wrote")
    return document


def _head(path: Path) -> tuple[int, str]:
    document = _read(path)
    if not isinstance(document.get("seq"), int) or not isinstance(document.get("head"), str):
        raise ValueError(f"{path}: holds no end of a history; pass what noisewise ledger export --head-only wrote")
    return document["seq"], document["head"]


# An account of a ledger drawn in the terminal: a bar of what is spent, reserved and left, and a table of its runs.


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
