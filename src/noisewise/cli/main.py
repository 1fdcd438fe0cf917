"""Commands: results as text for people or, with ``--json``, as one JSON document on standard output."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    name="noisewise",
    help="Train models on private records under a fixed (epsilon, delta) budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
bench = typer.Typer(help="Measure: speed against plain PyTorch, and what accounting costs.", no_args_is_help=True)
app.add_typer(bench, name="bench")

errors = Console(stderr=True)
JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, all else on standard error.")
]


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


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version, which kernels are in use, and exit.")
    ] = False,
) -> None:
    if show:
        from .. import __version__, kernels

        typer.echo(f"noisewise {__version__} (kernels: {kernels.in_use()})")
        raise typer.Exit


@app.command()
def demo(
    json_output: JsonFlag = False,
    out: Annotated[Path, typer.Option(help="Folder to write the statement to, as JSON and text.")] = Path(
        "noisewise-demo"
    ),
) -> None:
    """Train on embedded data, private against non-private, at three budgets.

    Example: [bold]noisewise demo --out my-demo[/bold]
    """
    from .demo import run_demo

    run_demo(json_output=json_output, out=out)


@app.command()
def verify(
    statement: Annotated[Path, typer.Argument(help="A statement.json written by noisewise, or a run folder.")],
    json_output: JsonFlag = False,
) -> None:
    """Recompute the promise of a statement from the statement alone: yes or no.

    Of a run folder it also checks the seal, and that text, trace, settings and statement say the same. Whoever rewrites
    all of them alike and seals the folder anew cannot be found out from the folder: its word is its sender's word.

    Needs no data. Exit code 0 for yes, 1 for no, 2 when the file cannot be read.

    Example: [bold]noisewise verify noisewise-demo/statement.json[/bold]
    """
    from ..report.agreement import Unreadable, verify_path

    try:
        verdict = verify_path(statement)
    except Unreadable as error:
        raise SystemExit(fail(str(error))) from None
    if json_output:
        print_json(asdict(verdict))
    else:
        typer.echo(str(verdict))
    raise typer.Exit(0 if verdict.holds else 1)


@app.command()
def methods(json_output: JsonFlag = False) -> None:
    """List the training methods: what each does, what it needs, and its paper.

    Example: [bold]noisewise methods --json[/bold]
    """
    from .methods import run_methods

    run_methods(json_output=json_output)


@bench.command()
def speed(
    json_output: JsonFlag = False,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median of their ratios counts.")] = 15,
    against: Annotated[
        str, typer.Option(help="Other libraries to time as well, if installed: opacus, fastdp, or opacus,fastdp.")
    ] = "",
) -> None:
    """Time private training against the same training written in plain PyTorch, one thread, and the noise by itself.

    Seconds and ratios are of processor time, because other processes share the cores. The gain of a second thread is
    measured by the clock on the wall, so it needs a core that is free.

    Example: [bold]noisewise bench speed --against opacus --json[/bold]
    """
    from ..bench.peers import installed
    from ..bench.speed import second_thread, speed_rows

    peers, missing = installed([name.strip() for name in against.split(",") if name.strip()])
    for line in missing:
        errors.print(f"noisewise: {line}", highlight=False, markup=False, soft_wrap=True)
    rows = speed_rows(rounds=rounds, against=peers, progress=errors.is_terminal)
    threads = second_thread(rounds=rounds)
    if json_output:
        print_json({"rows": rows, "threads": threads})
        return
    Console().print(table_of(rows, "Processor seconds per step against plain PyTorch (ratio below 1 is faster)"))
    typer.echo(
        f"{threads['workload']} with a second thread: {threads['faster']:.2f} times faster by the clock on the wall"
    )


@bench.command()
def accounting(json_output: JsonFlag = False) -> None:
    """Time pricing 1,000 distinct noise levels, and calibration.

    Example: [bold]noisewise bench accounting[/bold]
    """
    from ..bench.pricing import pricing_rows

    rows = pricing_rows()
    if json_output:
        print_json({"rows": rows})
    else:
        Console().print(table_of(rows, "What accounting costs, in milliseconds"))


def fail(message: str) -> int:
    """One clear line on standard error; the exit code of bad input."""
    errors.print(f"noisewise: {message}", highlight=False, markup=False, soft_wrap=True)
    return 2


def main() -> None:
    """Entry point: bad input is one line and exit code 2, Ctrl-C is exit code 130."""
    try:
        code = app(standalone_mode=False)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        raise SystemExit(fail(str(error))) from None
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except Exception as error:
        raise SystemExit(_usage(error)) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _usage(error: Exception) -> int:
    """A wrong option or argument in one line; anything else is a bug and is shown as one."""
    if not hasattr(error, "format_message"):
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return 2
    command = getattr(getattr(error, "ctx", None), "command_path", "noisewise")
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return fail(f"{message}; see {command} --help")


from .attacks import attack  # noqa: E402  the sub-commands use the helpers above
from .protector import protector  # noqa: E402
from .schema import schema  # noqa: E402
from .theory import theory  # noqa: E402

app.add_typer(schema, name="schema")
app.add_typer(protector, name="protector")
app.add_typer(attack, name="attack")
app.add_typer(theory, name="theory")
