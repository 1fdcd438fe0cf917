"""Commands: results as text for people or, with ``--json``, as one JSON document on standard output."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import nullcontext
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from ..progress import errors

if TYPE_CHECKING:
    from ...remote.processes import Lead

ENTRY_POINT_GROUP = "noisewise.commands"
NAME = re.compile(r"[a-z][a-z0-9-]*")
ELSEWHERE = {"bench": ("noisewise-lab", "./lab")}  # commands of ours in packages of their own, and where these lie
# What is not named here comes last in the list of commands.
FIRST = "demo verify methods predict evaluate audit compare plan report export train ledger bench schema protector attack theory"
HELP_ORDER = tuple(FIRST.split())
JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, all else on standard error.")
]
Decimal = Annotated[
    str | None, typer.Option(help="Decimal sign of the numbers in a CSV: . or ,", show_default="a point")
]
leads: list[Lead] = []  # the ranks or workers that hold the records of this command; the last one is in use
PASSWORD = re.compile(
    r"(:/{1,2}[^:/@\s]*):[^@\s]*@|(password=)[^&\s]*", re.IGNORECASE
)  # of a path s3:/KEY:SECRET@..., too
DOES_NOT_FIT = 3  # exit code: an account has too little left


class Commands(TyperGroup):
    """Our own commands and those of other packages, which cannot take the name of one of ours.

    A command of another package is found by its entry point, listed without being imported, and imported when it is called. A
    package registers one in its ``pyproject.toml``; the value is a typer app, or a function for a single command::

        [project.entry-points."noisewise.commands"]
        bench = "noisewise_lab.commands:bench"
    """

    def list_commands(self, ctx: Any) -> list[str]:
        try:
            outside = {point.name for point in _points()}
        except ValueError:  # reported when such a command is called
            outside = set()
        names = [*self.commands, *sorted((outside | set(ELSEWHERE)) - set(self.commands))]
        return sorted(names, key=lambda name: HELP_ORDER.index(name) if name in HELP_ORDER else len(HELP_ORDER))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (ours := self.commands.get(cmd_name)) is not None:
            return ours
        try:
            points = [point for point in _points() if point.name == cmd_name]
        except ValueError as problem:
            return Outside(cmd_name, [], problem)
        return Outside(cmd_name, points) if points or cmd_name in ELSEWHERE else None


class Outside(TyperCommand):
    """A command of another package, which is imported when its arguments are parsed."""

    def __init__(self, name: str, points: list[metadata.EntryPoint], problem: ValueError | None = None) -> None:
        super().__init__(name, help=escape(str(problem)) if problem else _summary(name, points))
        self.points, self.problem = points, problem

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        return _loaded(str(self.name), self.points).make_context(info_name, args, parent, **extra)


def _points() -> list[metadata.EntryPoint]:
    try:
        return [point for point in metadata.entry_points(group=ENTRY_POINT_GROUP) if NAME.fullmatch(point.name)]
    except Exception as error:
        raise ValueError(f"what installed packages say about themselves cannot be read ({_brief(error)})") from None


def _summary(name: str, points: list[metadata.EntryPoint]) -> str:
    """The summary of the package: showing the help of the command would import it."""
    if not points:
        return f"Needs the package {ELSEWHERE[name][0]}, which is not installed."
    try:
        return escape(str(points[0].dist.metadata["Summary"] or ""))  # type: ignore[union-attr]
    except Exception:
        return ""


def _loaded(name: str, points: list[metadata.EntryPoint]) -> Any:
    if not points:
        package, folder = ELSEWHERE[name]
        raise ValueError(
            f"the command {name} is in a package of its own; "
            f"install it with pip install {package}, or from a checkout with pip install {folder}"
        )
    if len({point.value for point in points}) > 1:
        whose = " and ".join(_package(point) for point in points)
        raise ValueError(f"the command {name} is registered by {whose}; uninstall one of them")
    try:
        return _command(name, points[0].load())
    except (Exception, SystemExit) as error:
        whose = _package(points[0])
        raise ValueError(f"the command {name} of {whose} does not load ({_brief(error)}); reinstall {whose}") from None


def _command(name: str, target: Any) -> Any:
    shelf = typer.Typer(add_completion=False)
    if isinstance(target, typer.Typer):
        shelf.add_typer(target, name=name)
    elif callable(target):
        shelf.command(name)(target)
    else:
        raise TypeError(f"{ENTRY_POINT_GROUP} wants a typer app or a function, not {type(target).__name__}")
    return typer.main.get_group(shelf).commands[name]


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _brief(error: BaseException) -> str:
    """The error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


app = typer.Typer(
    name="noisewise",
    cls=Commands,
    help="Train models on private records under a fixed (epsilon, delta) budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


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


def lead() -> Lead | None:
    """The ranks that this command has; None when it is one process."""
    return leads[-1] if leads else None


def say(message: str) -> None:
    """One line on standard error. Anything that looks like a password in a URL is hidden."""
    shown = PASSWORD.sub(lambda found: f"{found[2]}***" if found[2] else f"{found[1]}:***@", message)
    errors.print(f"noisewise: {shown}", highlight=False, markup=False, soft_wrap=True)


def fail(message: str, code: int = 2) -> int:
    """One line on standard error; returns the exit code, by default that of bad input."""
    say(message)
    return code


def main() -> None:
    """Entry point. Bad input is one line and exit code 2; too little left in an account is 3, Ctrl-C 130."""
    here: Any = nullcontext(True)
    if "WORLD_SIZE" in os.environ:  # torchrun may have started this
        from .processes import torchrun_ranks

        here = torchrun_ranks()
    code = None
    try:
        with here as first:
            if first:
                code = app(standalone_mode=False)
    except BrokenPipeError:  # the reader of the pipe is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        raise SystemExit(fail(str(error))) from None
    except ImportError as error:
        if (
            error.name is not None
        ):  # an import that failed is a bug; a message about an extra to install has no module name
            raise
        raise SystemExit(fail(str(error))) from None
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except Exception as error:
        raise SystemExit(_usage(error)) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> int:
    """A wrong option or argument as one line; anything else is a bug and is raised."""
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
