"""``noisewise schema``: write the file that declares columns, bounds, categories and target, and say what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..progress import bar
from .common import refuse_existing, write
from .main import Decimal, JsonFlag, app, dialect, print_json

if TYPE_CHECKING:
    from ...tables.schema import Gap, Schema

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
    tell(out, made, json_output=json_output)


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


def tell(out: Path, made: Schema, *, json_output: bool, notes: bool = True) -> None:
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
