"""``noisewise schema wizard``: questions in the terminal that make a schema."""

from __future__ import annotations

import shutil
import textwrap
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .common import refuse_existing, write
from .main import Decimal, JsonFlag, dialect
from .schema import DECLARED, FROM_PUBLIC, Separator, schema, tell

if TYPE_CHECKING:
    from ...tables.files import Dialect
    from ...tables.schema import Column

ENDED = "the answers ended before the questions; nothing was written. Answer stop to leave the other columns open"
HOW = (
    "Enter takes the guess in brackets; ? explains, back goes back, rest takes all guesses, stop leaves the rest open."
)
FROM_NAMES = "Guesses came from names and types of the columns; no value was read."


@schema.command()
def wizard(
    file: Annotated[
        Path,
        typer.Argument(
            help="A table, of which names are read (and rows, if you say that they are public), a codebook "
            "(CSV with name, kind, low, high, categories, label), or what pandas prints of dtypes.",
            metavar="PUBLIC_OR_CODEBOOK",
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write.", dir_okay=False)] = Path("schema.toml"),
    target: Annotated[str | None, typer.Option(help="The column to predict.", show_default=False)] = None,
    public: Annotated[
        bool | None,
        typer.Option("--public/--private", help="Whether the rows of the table are public.", show_default="asked"),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="Ask nothing: answers from a TOML file, written as a schema is.", dir_okay=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    separator: Separator = None,
    decimal: Decimal = None,
    json_output: JsonFlag = False,
) -> None:
    """Ask column by column what a table is, with guesses, and write the schema. Private values are never looked at.

    A list of codes can be pasted where values are asked for, as 1 = clerk, one a line.

    Example: [bold]noisewise schema wizard codebook.csv --out schema.toml[/bold]
    """
    from ...tables.schema import gaps
    from ...tables.wizard import Wizard, answered

    refuse_existing(out, force=force)
    given = None if answers is None else _read(answers)
    asking = _Terminal(json_output)
    if public is None and given is not None:
        public = bool(given.get("public"))
    try:
        known = _known(file, target, dialect(separator, decimal), public, asking, ask=given is None)
        if given is not None:
            made = answered(known.columns, known.target, given)
        else:
            asking.say(f"{len(known.columns)} {known.what}. {HOW}")
            made = Wizard(known.columns, known.target, asking.ask, asking.say).run()
    except EOFError:
        raise ValueError(ENDED) from None
    write(out, made.to_toml(top=[DECLARED, *known.top]).encode())
    asking.say("")
    tell(out, made, json_output=json_output, notes=answers is not None)
    if not json_output and not gaps(made):
        data = known.private or "DATA.csv"
        train = f"noisewise train {data} --schema {out} --epsilon 1 --delta 1e-6"
        typer.echo(f"next: noisewise schema check {out} {data}, then {train}")


class _Terminal:
    """Questions on standard output, or on standard error (``aside``) if a document goes there."""

    def __init__(self, aside: bool) -> None:
        self.aside = aside

    def say(self, line: str) -> None:
        width = max(shutil.get_terminal_size().columns - 1, 40)
        for one in line.splitlines() or [""]:
            indent = " " * (len(one) - len(one.lstrip()))
            typer.echo(textwrap.fill(one, width, subsequent_indent=indent, break_on_hyphens=False), err=self.aside)

    def ask(self, question: str) -> str:
        if not self.aside:
            return input(question)
        typer.echo(question, nl=False, err=True)
        return input()


class _Known(NamedTuple):
    """What is known before the first question; ``private``: the table that the schema is for, if that was passed."""

    columns: tuple[Column, ...]
    target: str | None
    what: str
    top: list[str]
    private: Path | None = None


def _known(
    file: Path, target: str | None, written: Dialect, public: bool | None, asking: _Terminal, *, ask: bool
) -> _Known:
    """From a document, public rows, or names and types; ``ask``: whether rows are public, unless that is known."""
    from ...tables.codebook import read_book
    from ...tables.files import open_source
    from ...tables.fill import fill_from_public, skeleton, with_dates
    from ...tables.wizard import asked_target

    if not file.exists():
        raise ValueError(f"{file}: no such file; pass a table, a codebook, or a text with dtypes of pandas")
    book = read_book(file, written.separator)
    if book is not None:
        top = [f"From the {book.what} {file.name} and from answers."]
        return _Known(book.columns, target or book.target, f"columns of {file} ({book.what})", top)
    source = open_source([file], separator=written)
    what = f"columns of {file}"
    if public is None and ask:
        asking.say(
            f"{file} is a table. If its rows are public, guesses come from them; else from names and types alone."
        )
        public = asking.ask("Are its rows public? yes or no [no] ").strip().lower() in ("y", "yes")
    if public:
        if target is None and ask:
            target = asked_target(skeleton(source).columns, None, asking.ask, asking.say)
        filled = with_dates(fill_from_public(None, file, target, separator=written), file, written)
        return _Known(filled.columns, target, f"{what}, whose rows are public", [FROM_PUBLIC])
    return _Known(skeleton(source, target).columns, target, f"{what}, by name; no value is read", [FROM_NAMES], file)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; pass answers in TOML") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: is not TOML ({' '.join(str(error).split())})") from None
