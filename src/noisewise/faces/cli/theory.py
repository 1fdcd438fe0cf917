"""``noisewise theory``: bounds, schedules, influences, tails and accountants as tables, JSON, CSV and pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from ...accounts.atomic import write_atomically
from .main import JsonFlag, app, errors, print_json, table_of

if TYPE_CHECKING:
    from ...evidence.theory.risk import Problem

theory = typer.Typer(
    help="What theory promises: risk bounds, noise schedules, privacy-loss tails, accountants.", no_args_is_help=True
)
app.add_typer(theory, name="theory")

MAX_SHOWN_ROWS = 14  # of a table for people

Out = Annotated[Path | None, typer.Option(help="Write a picture, e.g. FILE.png (or .pdf, .svg).", show_default=False)]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write all rows as CSV.", show_default=False)]
Epsilon = Annotated[float, typer.Option(help="Budget: epsilon.")]
Delta = Annotated[float, typer.Option(help="Budget: delta.")]
Adjacency = Annotated[str, typer.Option(help="add_remove or replace_one.")]
Kappa = Annotated[float, typer.Option(help="Condition number M / mu.")]
RecordsCount = Annotated[int, typer.Option(min=1, help="Number of records N.")]
Dimension = Annotated[int, typer.Option(min=1, help="Number of parameters D.")]
Smoothness = Annotated[float, typer.Option(help="Smoothness M of the loss.")]
ClipOption = Annotated[float, typer.Option(help="Lipschitz constant G = clip norm.")]
GapOption = Annotated[float, typer.Option(help="f(theta_1) - f*.")]
StepsOption = Annotated[int, typer.Option(min=1, help="Number of steps T.")]
DrawsOption = Annotated[int, typer.Option(min=2, help="Simulated runs for each point.")]
Beta = Annotated[float, typer.Option(help="Momentum in [0, 1).")]


class TheoryTable(NamedTuple):
    """What a command made: rows, their title and picture, and a shorter table for people if all rows are too many."""

    rows: list[dict[str, Any]]
    title: str
    plot: Callable[[list[dict[str, Any]], Path], None]
    table: list[dict[str, Any]] | None = None


def delivered(make: Callable[..., TheoryTable]) -> None:
    """A command of ``make``'s name and options that also takes --json, --csv and --out."""

    def command(json_output: JsonFlag = False, out: Out = None, csv_path: Csv = None, **options: Any) -> None:
        _deliver(make(**options), json_output=json_output, csv_path=csv_path, out=out)

    own = [one for one in signature(command, eval_str=True).parameters.values() if one.name != "options"]
    command.__signature__ = Signature([*own, *signature(make, eval_str=True).parameters.values()])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in command.__signature__.parameters.values()}  # type: ignore[attr-defined]
    command.__doc__ = make.__doc__
    theory.command(make.__name__)(command)


def _deliver(made: TheoryTable, *, json_output: bool, csv_path: Path | None, out: Path | None) -> None:
    """Files first; then all rows as JSON, or a table short enough to read."""
    rows = made.rows
    if csv_path is not None:
        csv_path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(csv_path, text.getvalue().encode())
    if out is not None:
        made.plot(rows, out)
    if json_output:
        print_json({"rows": rows})
    else:
        shown = made.table or rows
        if not made.table and len(rows) > MAX_SHOWN_ROWS * 2:
            shown = [rows[round(i * (len(rows) - 1) / (MAX_SHOWN_ROWS - 1))] for i in range(MAX_SHOWN_ROWS)]
        plain = [{key: "-" if value is None else value for key, value in row.items()} for row in shown]
        Console().print(table_of(plain, made.title))
        if len(shown) < len(rows) and made.table is None:
            errors.print(f"{len(shown)} of {len(rows)} rows; all of them with --json or --csv FILE.", highlight=False)
    for path in (csv_path, out):
        if path is not None:
            errors.print(f"Written: {path}", highlight=False, soft_wrap=True)


def _problem(
    *, kappa: float, records: int, dimension: int, smoothness: float, clip: float, gap: float, R: float
) -> Problem:
    from ...evidence.theory.risk import Problem
    from ...trusted import validate

    validate.positive(kappa=kappa, smoothness=smoothness)
    if kappa < 1:
        raise ValueError(f"kappa is {kappa!r}; pass a number >= 1")
    return Problem(M=smoothness, mu=smoothness / kappa, G=clip, D=dimension, N=records, R=R, gap=gap)


def _whole_grid(low: float, high: float, points: int) -> list[int]:
    import numpy as np

    return [int(value) for value in np.unique(np.geomspace(low, high, points).round().astype(int))]


@delivered
def bounds(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    adjacency: Adjacency = "add_remove",
    kappa: Kappa = 10.0,
    records: RecordsCount = 10_000,
    dimension: Dimension = 10,
    smoothness: Smoothness = 1.0,
    clip: ClipOption = 2.0,
    gap: GapOption = 1.0,
    beta: Beta = 0.5,
    largest: Annotated[int, typer.Option(min=2, help="Largest number of steps.")] = 2000,
    draws: DrawsOption = 200,
) -> TheoryTable:
    """Excess risk bounds over the number of steps: uniform and dynamic noise, momentum; simulated runs beside them.

    Example: [bold]noisewise theory bounds --kappa 10 --records 10000 --out bounds.png[/bold]
    """
    from ...evidence import theory as th
    from ...evidence.theory import plots

    R = th.privacy_total(epsilon, delta, adjacency)
    problem = _problem(
        kappa=kappa, records=records, dimension=dimension, smoothness=smoothness, clip=clip, gap=gap, R=R
    )
    best = {th.best_steps(problem, name) for name in ("uniform", "dynamic")}
    grid = sorted({*_whole_grid(1, largest, 60), *(steps for steps in best if steps <= largest)})
    rows = th.bound_rows(problem, grid, beta=beta, draws=draws, simulate_every=5)
    title = f"kappa {kappa:g}, {records:,} records, {dimension} parameters, epsilon {epsilon:g}, delta {delta:g}"
    return TheoryTable(rows, f"Excess risk: {title}", partial(plots.plot_bounds, title=title), _risks(rows))


def _risks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bounds and simulated runs for people; a star marks runs with clipped gradients, which no bound covers."""
    table: list[dict[str, Any]] = []
    for row in rows:
        if row["uniform_simulated"] is not None:
            line: dict[str, Any] = {"T": row["steps"]}
            for name in ("uniform", "dynamic", "momentum"):
                star = "*" if row[f"{name}_clipped"] else ""
                line[f"{name} bound"] = f"{row[f'{name}_bound']:.2g}"
                line[f"{name} run"] = f"{row[f'{name}_simulated']:.2g}{star}"
            table.append(line)
    return table


@delivered
def advantage(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    adjacency: Adjacency = "add_remove",
    largest: Annotated[float, typer.Option(help="Largest condition number.")] = 1e5,
    records: Annotated[list[int] | None, typer.Option(min=1, help="Numbers of records; may be repeated.")] = None,
    dimension: Dimension = 10,
    smoothness: Smoothness = 1.0,
    clip: ClipOption = 2.0,
    gap: GapOption = 1.0,
) -> TheoryTable:
    """How much the dynamic schedule gains over uniform noise as the condition number grows.

    Example: [bold]noisewise theory advantage --records 10000 --records 1000000 --out advantage.png[/bold]
    """
    import numpy as np

    from ...evidence import theory as th
    from ...evidence.theory import plots

    if not largest > 1:
        raise ValueError(f"largest is {largest!r}; pass a condition number > 1")
    R = th.privacy_total(epsilon, delta, adjacency)
    rows: list[dict[str, Any]] = []
    for count in records or [1_000, 10_000, 100_000, 1_000_000]:
        problem = _problem(
            kappa=1.0, records=count, dimension=dimension, smoothness=smoothness, clip=clip, gap=gap, R=R
        )
        rows += th.advantage(problem, np.geomspace(1, largest, 81).tolist())
    title = f"{dimension} parameters, epsilon {epsilon:g}, delta {delta:g}, {adjacency}"
    return TheoryTable(rows, f"Uniform over dynamic bound: {title}", partial(plots.plot_advantage, title=title))


@delivered
def momentum(
    steps: StepsOption = 60,
    gamma: Annotated[float, typer.Option(help="What a step leaves of the gap, in (0, 1): 1 - eta mu.")] = 0.95,
    beta: Annotated[list[float] | None, typer.Option(help="Momenta in [0, 1); may be repeated.")] = None,
) -> TheoryTable:
    """What momentum does to the noise of each step: its q_t against that of descent.

    Example: [bold]noisewise theory momentum --beta 0.5 --beta 0.9 --out momentum.png[/bold]
    """
    from ...evidence import theory as th
    from ...evidence.theory import plots
    from ...trusted import validate

    validate.open_unit(gamma=gamma)
    rows = th.noise_figure(steps, gamma, tuple(beta or (0.5, 0.8, 0.9)))
    title = f"influence of each step, T = {steps}, gamma = {gamma:g}"
    return TheoryTable(rows, f"Momentum against descent: {title}", partial(plots.plot_momentum, title=title))


@delivered
def influence(
    kappa: Kappa = 10.0,
    dimension: Dimension = 10,
    steps: StepsOption = 40,
    beta: Beta = 0.0,
    draws: DrawsOption = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
) -> TheoryTable:
    """Put noise into one step of descent on a quadratic and see how much of it is left: measured against q_t.

    Example: [bold]noisewise theory influence --kappa 10 --steps 40 --out influence.png[/bold]
    """
    from ...evidence import theory as th
    from ...evidence.theory import plots
    from ...evidence.theory.momentum import largest_rate

    problem = _problem(kappa=kappa, records=1, dimension=dimension, smoothness=1.0, clip=1.0, gap=1.0, R=1.0)
    eta = largest_rate(problem.M, problem.mu, beta) if beta else None
    rows = th.measured_influence(problem, steps, beta=beta, eta=eta, draws=draws, seed=seed)
    kind = f"momentum {beta:g}" if beta else "descent"
    title = f"{kind} on a quadratic, kappa {kappa:g}, {dimension} parameters, T = {steps}, {draws:,} draws"
    return TheoryTable(rows, f"Influence: {title}", partial(plots.plot_influence, title=title))


@delivered
def tails(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    omega: Annotated[float, typer.Option(help="omega of the tCDP guarantee, > 1.")] = 10.0,
    points: Annotated[int, typer.Option(min=2, help="Number of rows.")] = 200,
) -> TheoryTable:
    """How likely a privacy loss above t is under pure, approximate, zCDP and tCDP guarantees, and exactly.

    Example: [bold]noisewise theory tails --epsilon 1 --delta 1e-5 --out tails.png[/bold]
    """
    from ...evidence.theory import plots
    from ...evidence.theory.tails import tail_rows

    rows = tail_rows(epsilon, delta, omega=omega, points=points)
    title = f"the Gaussian mechanism that just meets epsilon {epsilon:g}, delta {delta:g}"
    return TheoryTable(rows, f"P(Z > t) at most: {title}", partial(plots.plot_tails, title=title, omega=omega))


@delivered
def accountants(
    delta: Delta = 1e-5,
    adjacency: Adjacency = "add_remove",
    rate: Annotated[float, typer.Option(help="Poisson sampling rate.")] = 0.01,
    noise: Annotated[float, typer.Option(help="Noise multiplier of Poisson batches.")] = 1.0,
    full_noise: Annotated[float, typer.Option(help="Noise multiplier of full batches.")] = 100.0,
    largest: Annotated[int, typer.Option(min=1, help="Largest number of steps.")] = 10_000,
    points: Annotated[int, typer.Option(min=1, help="Numbers of steps, evenly on a log scale.")] = 5,
) -> TheoryTable:
    """Epsilon and computing time of every accountant over the number of steps, full batch and Poisson.

    Example: [bold]noisewise theory accountants --rate 0.01 --noise 1 --out accountants.png[/bold]
    """
    from ...evidence.theory import plots
    from ...evidence.theory.accountants import compare_accountants

    grid = _whole_grid(1, largest, points) if points > 1 else [largest]
    rows = compare_accountants(grid, noise_multiplier=full_noise, delta=delta, adjacency=adjacency)
    rows += compare_accountants(
        grid, noise_multiplier=noise, sampling=("poisson", rate), delta=delta, adjacency=adjacency
    )
    for row in rows:
        if row["refused"] and row["steps"] == grid[-1]:
            errors.print(f"{row['accountant']}: {row['refused']}", highlight=False, markup=False, soft_wrap=True)
    return TheoryTable(rows, f"Accountants, delta {delta:g}, {adjacency}", plots.plot_accountants, _prices(rows))


def _prices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Epsilons for people: a row for each sampling and accountant, a column for each number of steps."""
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["sampling"], row["accountant"])
        line = table.setdefault(key, {"sampling": key[0], "accountant": key[1]})
        line[f"T={row['steps']}"] = "-" if row["epsilon"] is None else f"{row['epsilon']:.3g}"
    return list(table.values())


@delivered
def erm(
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    adjacency: Adjacency = "add_remove",
    records: RecordsCount = 10_000,
    dimension: Dimension = 10,
    diameter: Annotated[float, typer.Option(help="Diameter of the set of parameters.")] = 1.0,
    lipschitz: Annotated[float, typer.Option(help="Lipschitz constant L of one record's loss.")] = 1.0,
) -> TheoryTable:
    """Risk bounds of projected gradient descent on convex losses, plain and private, and the best number of steps.

    Example: [bold]noisewise theory erm --records 10000 --dimension 10 --out erm.png[/bold]
    """
    from ...evidence import theory as th
    from ...evidence.theory import plots
    from ...evidence.theory.erm import risk_rows

    R = th.privacy_total(epsilon, delta, adjacency)
    best = th.best_private_steps(records=records, dimension=dimension, R=R)
    grid = sorted({*_whole_grid(2, max(100.0 * best, 10.0 * records), 24), best})
    rows = risk_rows(
        grid,
        epsilon=epsilon,
        delta=delta,
        diameter=diameter,
        lipschitz=lipschitz,
        records=records,
        dimension=dimension,
        adjacency=adjacency,
    )
    title = f"{records:,} records, {dimension} parameters, epsilon {epsilon:g}, delta {delta:g}"
    return TheoryTable(
        rows, f"Projected descent, best T {best:,}: {title}", partial(plots.plot_erm, title=title, best=best)
    )
