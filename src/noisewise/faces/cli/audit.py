"""``noisewise audit``: tries to catch a method, or the method of a run, giving away more than it promised."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..progress import bar
from .common import note
from .main import JsonFlag, app, print_json
from .options import IsolationName

if TYPE_CHECKING:
    from ...evidence.audit.finished_run import Claim
    from ...evidence.audit.lower_bound import Audit

EPSILON, DELTA = 1.0, 1e-5
KINDS = {
    "exact": "exact binomial (Clopper-Pearson)",
    "gdp": "Gaussian DP, from both error rates",
    "pooled": "Gaussian DP, from the mean error rate (Clopper-Pearson)",
}


@app.command()
def audit(
    target: Annotated[str, typer.Argument(metavar="METHOD|RUN", help="A method's name, or the folder of a run.")],
    epsilon: Annotated[float | None, typer.Option(help="What is claimed.", show_default=f"{EPSILON:g}")] = None,
    delta: Annotated[float | None, typer.Option(help="What is claimed.", show_default=f"{DELTA:g}")] = None,
    adjacency: Annotated[
        str | None, typer.Option(help="add_remove or replace_one.", show_default="add_remove if the method has it")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of a method.", show_default="a few")] = None,
    loss: Annotated[str | None, typer.Option(help="Loss of a method.", show_default="the one that shows most")] = None,
    rows_per_unit: Annotated[
        int | None, typer.Option(min=1, help="The promise is to a person with this many rows.", show_default="a record")
    ] = None,
    runs: Annotated[int, typer.Option(min=8, help="Trainings in all, half of them with the canary.")] = 2000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999999, help="Of the lower bound.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all trainings.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    isolation: IsolationName = "sandbox",
    plot: Annotated[Path | None, typer.Option(help="Picture of scores and ROC, e.g. audit.png.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Train many times with and without one record, and bound epsilon from below by how well the two are told apart.

    Everything is simulated on worst-case records; no private data is used and nothing is spent. A run's audit is added
    to its folder. A bound above the claim is an alarm, tried on up to four times as many fresh runs before it is called
    a violation. Exit code 0: no violation found, 1: the claim is refuted. It can refute a claim, never prove one.

    Example: [bold]noisewise audit dpsgd --epsilon 0.5 --runs 4000 --plot audit.png[/bold]
    """
    from ...evidence.audit.lower_bound import epsilon_lower_bound
    from ...methods import known_names
    from ...trusted.units import Unit

    place = Path(target)  # the name of a method means a folder only if a run is in it
    named = target in known_names() and not (place / "run.json").exists()
    folder = place if place.is_dir() and not named else None
    if folder is not None:
        if any(value is not None for value in (epsilon, delta, adjacency, steps, loss, rows_per_unit)):
            raise ValueError("a run states its own promise and settings; leave these options out, or name a method")
        from ...evidence import runs as folders
        from ...evidence.audit.finished_run import claim_of

        claim = claim_of(folders.load(folder).statement.data, isolation)
    else:
        claim = replace(_claim(target, epsilon, delta, adjacency, steps, loss, isolation), unit=Unit(rows_per_unit))
    with bar(f"auditing {claim.method.name}") as report:
        result = epsilon_lower_bound(
            claim.method,
            epsilon=claim.epsilon,
            delta=claim.delta,
            adjacency=claim.adjacency,
            runs=runs,
            confidence=confidence,
            seed=seed,
            jobs=jobs,
            progress=lambda done, total: report(done, total, "confirming an alarm" * (total > runs)),
            loss=claim.loss,
            size_is_public=claim.size_is_public,
            rows_per_unit=claim.unit.rows,
        )
    if folder is not None:
        from ...evidence.report.page import refresh

        when = datetime.now(UTC).isoformat(timespec="seconds")
        folders.append(folder, "audit.json", {**result.to_dict(), "unit": claim.unit.words, "when": when})
        refresh(folder)
    if plot is not None:
        from ...evidence.audit.plots import plot_audit

        plot_audit(result, plot)
    power = _power(result)
    if json_output:
        print_json({**result.to_dict(), "finds_half_the_noise": power})
    else:
        _tell(result, power, folder, plot, claim.unit.rows)
    raise typer.Exit(1 if result.violation else 0)


def _claim(
    name: str, epsilon: float | None, delta: float | None, adjacency: str | None, steps: int | None, loss: str | None, isolation: str
) -> Claim:  # fmt: skip
    """A method in its small setting, with the promise that was asked for."""
    from ...evidence.audit.canaries import small_setting
    from ...evidence.audit.finished_run import Claim
    from ...methods import known_names
    from ...trusted import validate
    from ...trusted.events import ADJACENCIES

    if name not in known_names() and ":" not in name:
        known = ", ".join(known_names())
        raise ValueError(f"{name!r} is neither the folder of a run nor a method; the methods are {known}")
    setting = small_setting(name, isolation)
    method = setting.method if steps is None else setting.method.with_settings(steps=steps)
    if adjacency is not None:
        validate.one_of(ADJACENCIES, adjacency=adjacency)
    relation: Any = adjacency or setting.adjacency
    budget = EPSILON if epsilon is None else epsilon, DELTA if delta is None else delta
    return Claim(method, *budget, relation, loss, size_is_public=True)


def _power(result: Audit) -> float | None:
    from ...evidence.audit.lower_bound import power_against_half_noise

    how: dict[str, Any] = {"runs": result.runs, "confidence": result.confidence, "trials": 50}
    return power_against_half_noise(result.claimed, result.delta, **how) if result.gaussian else None


def _tell(result: Audit, power: float | None, folder: Path | None, plot: Path | None, rows: int | None) -> None:
    out = Console(highlight=False, soft_wrap=True)
    out.print(result.verdict, style="bold red" if result.violation else "bold")
    canary = "one record" if rows is None else f"one person of {rows} row{'s' * (rows > 1)}"
    relation = f"with {canary} {'more' if result.adjacency == 'add_remove' else 'replaced'}"
    out.print(f"{result.method}: {result.runs:,} trainings, half of them {relation}; delta {result.delta:g}")
    out.print(f"told apart by the {result.score}: {_errors(result)}")
    out.print(f"interval: {KINDS[result.interval]}")
    if (fresh := result.confirmation) is not None:
        out.print(f"the same test on fresh runs: {_errors(fresh)}")
    if power is not None:
        out.print(f"an audit of this size catches half the noise in about {100 * power:.0f} % of cases")
    elif not result.violation:
        out.print("the claim is not one of Gaussian DP, so only the exact interval holds, which needs many more runs")
    written = [str(plot)] if plot else []
    written += [f"{folder}/audit.json"] if folder else []
    if written:
        note(f"written: {', '.join(written)}")


def _errors(result: Any) -> str:
    wrong = f"{result.false_positives:,} false alarms and {result.false_negatives:,} misses"
    return f"{wrong} in {result.trials:,} runs each"
