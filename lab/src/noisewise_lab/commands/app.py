"""``noisewise bench``, with ``speed``, ``memory``, ``starting``, ``ledger``, ``accounting`` and ``audit-power``: what things cost, and what an audit sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from noisewise.faces.cli.main import JsonFlag, errors, print_json, table_of
from noisewise.faces.progress import bars

if TYPE_CHECKING:
    from ..peers import Peer

SECOND = "second-thread"  # what is timed by this name is no workload
bench = typer.Typer(help="Measure: speed against plain PyTorch, and what accounting costs.", no_args_is_help=True)


@contextmanager
def watched(title: str, transient: bool = False) -> Iterator[Callable[[Any], None]]:
    """A progress bar on standard error; it takes (done, total), or a line to print."""
    with bars(transient=transient) as show:

        def report(news: Any) -> None:
            if isinstance(news, str):
                errors.print(news, highlight=False, soft_wrap=True)
            else:
                show(title, *news)

        yield report


def listed(names: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def compared(names: str) -> list[Peer]:
    """Other libraries that are installed; those that are not are said on standard error."""
    from ..peers import installed

    peers, missing = installed(listed(names))
    for line in missing:
        errors.print(f"noisewise: {line}", highlight=False, markup=False, soft_wrap=True)
    return peers


@bench.command()
def speed(
    json_output: JsonFlag = False,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median of their ratios counts.")] = 15,
    against: Annotated[
        str, typer.Option(help="Other libraries to time as well, if installed: opacus, fastdp, or opacus,fastdp.")
    ] = "",
    only: Annotated[
        str, typer.Option(help="Workloads to time instead of all, as in cnn,transformer or second-thread.")
    ] = "",
) -> None:
    """Time private training against the same training written in plain PyTorch, one thread, and the noise by itself.

    Seconds and ratios are of processor time, because other processes share the cores. The gain of a second thread is
    measured by the clock on the wall, on 3 million rows, beside that of two processes: it needs a core that is free.

    Example: [bold]noisewise bench speed --against opacus --json[/bold]
    """
    from ..second_thread import second_thread
    from ..speed import speed_rows

    names = [name for name in listed(only) if name != SECOND]
    rows, threads = [], None
    if names or not only:
        rows = speed_rows(rounds=rounds, against=compared(against), only=names, progress=errors.is_terminal)
    if SECOND in listed(only) or not only:
        threads = second_thread(rounds=rounds)
    if json_output:
        print_json({"rows": rows, "threads": threads})
        return
    if rows:
        Console().print(table_of(rows, "Processor seconds per step against plain PyTorch (ratio below 1 is faster)"))
    if threads:
        shape = f"{threads['rows']:,} rows of {threads['columns']} columns"
        faster = f"{threads['faster']:.2f} times faster by the clock on the wall"
        typer.echo(
            f"{shape} with a second thread: {faster}; two processes do {threads['two processes']:.2f} times as much as one"
        )


@bench.command()
def memory(
    json_output: JsonFlag = False,
    against: Annotated[str, typer.Option(help="Other libraries to weigh as well, if installed.")] = "",
    only: Annotated[str, typer.Option(help="Workloads to weigh instead of all, as in cnn,transformer.")] = "",
) -> None:
    """What training a module adds to memory at its peak: private training against plain, each in a process of its own.

    Example: [bold]noisewise bench memory --against opacus --json[/bold]
    """
    from ..module_memory import memory_rows

    with watched("weighing", transient=True) as report:
        rows = memory_rows(
            against=compared(against), only=listed(only), progress=lambda done, total: report((done, total))
        )
    if json_output:
        print_json({"rows": rows})
    else:
        Console().print(table_of(rows, "Megabytes that training adds at its peak"))


@bench.command()
def starting(
    json_output: JsonFlag = False,
    rounds: Annotated[int, typer.Option(min=1, help="Fresh processes of each command; the quickest counts.")] = 5,
    only: Annotated[str, typer.Option(help="Commands to time instead of all, as in predict,report.")] = "",
) -> None:
    """Processor seconds and memory of commands, each in a fresh process: refusals, predictions, a report, training on 40,000 rows.

    Example: [bold]noisewise bench starting --rounds 7[/bold]
    """
    from ..starting import starting_rows

    with watched("starting", transient=True) as report:
        rows = starting_rows(rounds=rounds, only=listed(only), progress=lambda done, total: report((done, total)))
    if json_output:
        print_json({"rows": rows})
    else:
        Console().print(
            table_of(rows, "Processor seconds and memory of a fresh process, modules and kernels compiled before")
        )


@bench.command()
def ledger(
    json_output: JsonFlag = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in turns; the median of their ratios counts.")] = 15,
    url: Annotated[str | None, typer.Option(help="An empty PostgreSQL database to race at, too.")] = None,
) -> None:
    """What a ledger costs: reservations against bare commits, and how long fifty racing processes wait.

    Example: [bold]noisewise bench ledger --rounds 15[/bold]
    """
    from ..ledger_speed import ledger_rows, waits

    with watched("reserving", transient=True) as report:
        rows = ledger_rows(rounds=rounds, progress=lambda done, total: report((done, total)))
    races = {"SQLite": waits(), **({} if url is None else {"PostgreSQL": waits(url)})}
    if json_output:
        print_json({"rows": rows, "races": races})
        return
    Console().print(table_of(rows, "A ledger in an SQLite file, by the clock"))
    for name, race in races.items():
        told = "never more than was granted" if race["within"] else "MORE THAN WAS GRANTED"
        typer.echo(
            f"{name}: {race['processes']} processes reserved {race['runs']} runs, {told}; half waited at most "
            f"{race['p50']:.3f} s, 99 of 100 at most {race['p99']:.2f} s"
        )


@bench.command()
def accounting(json_output: JsonFlag = False) -> None:
    """Time pricing 1,000 distinct noise levels, and calibration.

    Example: [bold]noisewise bench accounting[/bold]
    """
    from ..pricing import pricing_rows

    rows = pricing_rows()
    if json_output:
        print_json({"rows": rows})
    else:
        Console().print(table_of(rows, "What accounting costs, in milliseconds"))


@bench.command("audit-power")
def audit_power(
    audits: Annotated[int, typer.Option(min=1, help="Audits to run.")] = 100,
    runs: Annotated[int, typer.Option(min=8, help="Runs of each audit, half of them with the canary.")] = 40_000,
    epsilon: Annotated[float, typer.Option(help="What the Gaussian mechanism promises and keeps.")] = 1.0,
    delta: Annotated[float, typer.Option(help="What the Gaussian mechanism promises and keeps.")] = 1e-5,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    json_output: JsonFlag = False,
) -> None:
    """How near audits come to the truth for a correct Gaussian mechanism, asked through a real curator.

    Example: [bold]noisewise bench audit-power --json[/bold]
    """
    from ..audit_power import power_rows

    with watched("audits", transient=True) as report:
        rows = power_rows(
            epsilon=epsilon, delta=delta, runs=runs, audits=audits, jobs=jobs,
            progress=lambda done, total: report((done, total)),
        )  # fmt: skip
    if json_output:
        print_json({"rows": rows})
    else:
        title = "Audits of a known epsilon"
        shown = [{"what": key.replace("_", " "), "value": value} for row in rows for key, value in row.items()]
        Console().print(table_of(shown, title))
