"""``noisewise schema``: write the file that declares columns, by hand or by questions, and say what it lacks."""

from __future__ import annotations

import shutil
import textwrap
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..progress import bar
from .common import refuse_existing, write
from .main import Decimal, JsonFlag, app, dialect, print_json

if TYPE_CHECKING:
    from ...tables.files import Dialect
    from ...tables.schema import Column, Gap, Schema

schema = typer.Typer(
    help="Schemas: what you declare about a table, so that nothing need be read from private rows.",
    no_args_is_help=True,
)
app.add_typer(schema, name="schema")

DECLARED = "What is declared here is public: never look bounds or categories up in private rows."
NO_TYPES = "A CSV has no types, only values, and those were not read: set the kind of every column."
TYPES = "Kinds were taken from the types of the columns; no value was read."
FROM_PUBLIC = (
    "Kinds, bounds and categories were taken from rows said to be public: widen them if others may lie outside."
)
ENDED = "the answers ended before the questions; nothing was written. Answer stop to leave the other columns open"
HOW = (
    "Enter takes the guess in brackets; ? explains, back goes back, rest takes all guesses, stop leaves the rest open."
)
FROM_NAMES = "Guesses came from names and types of the columns; no value was read."

Files = Annotated[list[str], typer.Argument(help="CSV or Parquet files, a folder or a glob.", metavar="FILE")]
Separator = Annotated[
    str | None, typer.Option(help="What separates the columns of a CSV, e.g. ';' or tab.", show_default="a comma")
]


@schema.command()
def init(
    files: Files,
    out: Annotated[Path, typer.Option(help="File to write, e.g. schema.toml.", dir_okay=False)],
    target: Annotated[str | None, typer.Option(help="The column to predict.", show_default=False)] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The rows are public: fill in kinds, bounds and categories from them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    separator: Separator = None,
    decimal: Decimal = None,
    json_output: JsonFlag = False,
) -> None:
    """Write a schema to fill in, from the names (and, for Parquet, types) of the columns; never from private values.

    With --public the rows are read, and what they hold is filled in.

    Example: [bold]noisewise schema init people.csv --target income --out schema.toml[/bold]
    """
    from ...tables.files import open_source
    from ...tables.fill import fill_from_public, skeleton

    refuse_existing(out, force=force)
    written = dialect(separator, decimal)
    if public:
        with bar("reading public rows", share=True) as report:
            made = fill_from_public(None, files, target, separator=written, progress=report)
        top = [DECLARED, FROM_PUBLIC]
    else:
        source = open_source(files, separator=written)
        typed = all(file.types is not None for file in source.files)
        made, top = skeleton(source, target), [DECLARED, TYPES if typed else NO_TYPES]
    write(out, made.to_toml(top=top).encode())
    _tell(out, made, json_output=json_output)


@schema.command()
def check(
    path: Annotated[Path, typer.Argument(help="A schema file.", metavar="SCHEMA.toml")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files whose columns are compared, by name and type.", metavar="FILE"),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    json_output: JsonFlag = False,
) -> None:
    """Say what a schema still lacks and, with files, whether they have its columns; no value is read.

    Exit code 0 when it is complete, 1 when it is not, 2 when a file cannot be read.

    Example: [bold]noisewise schema check schema.toml people.csv[/bold]
    """
    from ...tables.column_checks import tells_nothing
    from ...tables.files import open_source
    from ...tables.fill import same_names
    from ...tables.schema import gaps, read_schema

    read = read_schema(path)
    idle = [reason for column in read.features if (reason := tells_nothing(column))]
    wrong = [*idle, *(same_names(read, open_source(files, separator=dialect(separator, decimal))) if files else [])]
    open_gaps = gaps(read)
    if json_output:
        complete = not (open_gaps or wrong)
        print_json({"schema": str(path), "complete": complete, "missing": _missing(open_gaps), "files": wrong})
    else:
        for line in [*(str(gap) for gap in open_gaps), *wrong]:
            typer.echo(line)
        if not (open_gaps or wrong):
            typer.echo(_summary(read))
    raise typer.Exit(1 if open_gaps or wrong else 0)


def _tell(out: Path, made: Schema, *, json_output: bool, notes: bool = True) -> None:
    """Say which file was written, with the notes on columns, and what is still open."""
    from ...tables.schema import gaps

    open_gaps = gaps(made)
    noted = [f"column {column.name!r} {column.note}" for column in made.columns if column.note and notes]
    if json_output:
        document = {"written": str(out), "columns": len(made.columns), "complete": not open_gaps}
        print_json({**document, "missing": _missing(open_gaps), "notes": noted})
        return
    typer.echo(f"written: {out}, {len(made.columns)} columns")
    for note in noted:
        typer.echo(note)
    if open_gaps:
        typer.echo(f"still to fill in: {len(open_gaps)} entries; edit it, then run: noisewise schema check {out}")
    else:
        typer.echo(_summary(made))


def _missing(open_gaps: list[Gap]) -> list[dict[str, Any]]:
    return [{"what": gap.what, "column": gap.column, "message": str(gap)} for gap in open_gaps]


def _summary(complete: Schema) -> str:
    target = complete[str(complete.target)]
    task = f"{len(target.categories)} classes" if target.kind == "category" else "a number"
    used = len(complete.features)
    ignored = len(complete.columns) - used - 1
    return f"complete: {used} features, {ignored} ignored, target {target.name!r} ({task})"


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
    _tell(out, made, json_output=json_output, notes=answers is not None)
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


class _Start(NamedTuple):
    """What is known before the first question; ``private``: the table that the schema is for, if that was passed."""

    columns: tuple[Column, ...]
    target: str | None
    what: str
    top: list[str]
    private: Path | None = None


def _known(
    file: Path, target: str | None, written: Dialect, public: bool | None, asking: _Terminal, *, ask: bool
) -> _Start:
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
        return _Start(book.columns, target or book.target, f"columns of {file} ({book.what})", top)
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
        return _Start(filled.columns, target, f"{what}, whose rows are public", [FROM_PUBLIC])
    return _Start(skeleton(source, target).columns, target, f"{what}, by name; no value is read", [FROM_NAMES], file)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; pass answers in TOML") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: is not TOML ({' '.join(str(error).split())})") from None
