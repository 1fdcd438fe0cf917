"""Commands: results as text for people or, with ``--json``, as one JSON document on standard output."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ..progress import errors
from .outside import Commands

app = typer.Typer(
    name="noisewise",
    cls=Commands,
    help="Train models on private records under a fixed (epsilon, delta) budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, all else on standard error.")
]


Decimal = Annotated[
    str | None, typer.Option(help="Decimal sign of the numbers in a CSV: . or ,", show_default="a point")
]


def dialect(separator: str | None, decimal: str | None) -> Any:
    """How a CSV is written, as its reader takes it."""
    from ...tables.files import Dialect

    return Dialect(separator, decimal)


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def table_of(rows: list[dict[str, Any]], title: str) -> Table:
    """A table for people: one column per key, numbers to the right."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        number = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def narrow_table(**options: Any) -> Table:
    """A table without a frame, so that its columns fit on 80 characters."""
    how: dict[str, Any] = {"title_justify": "left", "caption_justify": "left", **options}
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, **how)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version, which kernels are in use, and exit.")
    ] = False,
) -> None:
    if show:
        from ..._version import __version__
        from ...trusted.fast import kernels

        typer.echo(f"noisewise {__version__} (kernels: {kernels.in_use()})")
        raise typer.Exit


PASSWORD = re.compile(
    r"(:/{1,2}[^:/@\s]*):[^@\s]*@|(password=)[^&\s]*", re.IGNORECASE
)  # of a path s3:/KEY:SECRET@..., too
DOES_NOT_FIT = 3  # exit code: an account has too little left


def say(message: str) -> None:
    """One line on standard error. What looks like a password in a URL is not shown, whoever put it there."""
    shown = PASSWORD.sub(lambda found: f"{found[2]}***" if found[2] else f"{found[1]}:***@", message)
    errors.print(f"noisewise: {shown}", highlight=False, markup=False, soft_wrap=True)


def fail(message: str, code: int = 2) -> int:
    """One clear line on standard error; the exit code of bad input, or another."""
    say(message)
    return code


def main() -> None:
    """Entry point: bad input is one line and exit code 2, what an account has too little for 3, Ctrl-C 130."""
    from .processes import torchrun_ranks

    code = None
    try:
        with torchrun_ranks() as here:
            if here:
                code = app(standalone_mode=False)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        raise SystemExit(fail(str(error))) from None
    except ImportError as error:
        if error.name is not None:  # Python's own, which is a bug; what says which extra to install names no module
            raise
        raise SystemExit(fail(str(error))) from None
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except Exception as error:
        raise SystemExit(_usage(error)) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> int:
    """A wrong option or argument in one line; anything else is a bug and is shown as one."""
    if not hasattr(error, "format_message"):
        from ...trusted.counts import BudgetExhausted

        if isinstance(error, BudgetExhausted):
            return fail(str(error), DOES_NOT_FIT)
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return 2
    command = getattr(getattr(error, "ctx", None), "command_path", "noisewise")
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return fail(f"{message}; see {command} --help")
