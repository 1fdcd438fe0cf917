"""``noisewise train``: from files to a private model, its statement and its report."""

from __future__ import annotations

import os
import warnings as python_warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from ..progress import bars
from . import options
from .federated import NetworkFit, federated_of, fitted_on_clients, names_shown, refuse_with_clients, refuse_without
from .keeping import KeptRun, free_name, keeping, refuse_stopped, settings_for
from .main import Decimal, JsonFlag, app, dialect, lead, print_json, say
from .paying import ENVIRONMENT, DatasetName, LedgerUrl, kept_of, payment_again, payment_of
from .processes import RayAddress, RayWorkers, RecordsOption, holders, refuse_records, refuse_restart
from .request import TrainingOptions, fit_for, for_numbers, known_loss, origin_of, places, planned
from .resuming import is_whole, refuse_others, taken_up
from .tuning import TuningOptions, searched, show_search, tuning_of, unfitted

if TYPE_CHECKING:
    from ...accounts.ledger.receipt import Payment
    from ...statements.statement import Statement
    from ...tables.addresses import Place
    from ...tables.files import Dialect
    from ...tables.fit.fit import Fit
    from ...tables.fit.fitted import Fitted
    from ...tables.resolve import Resolved


LARGE_FILE_BYTES = 20 << 20  # can be several times that as rows


@app.command(cls=options.WithLosses)
def train(
    context: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="Private CSV or Parquet files, a folder, or an address such as s3://bucket/folder (required, but for --resume).",
        ),
    ] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    target: options.TargetOption = None,
    schema: options.SchemaFile = None,
    public: options.PublicFiles = None,
    bounds_epsilon: Annotated[
        float | None, typer.Option(help="Part of epsilon that buys the bounds of number columns.")
    ] = None,
    method: options.MethodName = None,
    isolation: options.IsolationName = "sandbox",
    loss: options.LossName = None,
    model: options.ModelName = "auto",
    protector: options.ProtectorName = None,
    protector_share: options.ProtectorShare = None,
    adjacency: options.Adjacency = "add_remove",
    max_grad_norm: options.MaxGradNorm = None,
    size_is_public: options.SizeIsPublic = False,
    tune: Annotated[
        str | None,
        typer.Option(help="Search settings: auto, public, selection, exponential, online or none.", show_default=False),
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="Settings to search, a TOML or JSON file: see docs/guide-tuning.md.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that train candidates side by side.")] = 1,
    size_guess: Annotated[
        int | None, typer.Option(min=1, help="About how many records there are, for planning a search.")
    ] = None,
    seed: options.Seed = None,
    separator: options.Separator = None,
    decimal: Decimal = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for decoded rows that do not fit into memory; nothing stays there.")
    ] = None,
    out: options.Out = Path("noisewise-run"),
    federated: options.FederatedFlag = False,
    unit: options.UnitOption = None,
    local_steps: options.LocalSteps = None,
    local_rate: options.LocalRate = None,
    availability: options.Availability = None,
    records: RecordsOption = None,
    ray_workers: RayWorkers = None,
    ray_address: RayAddress = None,
    ledger: LedgerUrl = None,
    dataset: DatasetName = None,
    resume: options.Resume = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; spend nothing.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Train a private model on files. Every number that comes out was declared, public or paid for.

    Ctrl-C stops cleanly: there is no model then, and what was spent is written down.

    A run that was stopped or killed goes on with --resume: nothing is paid for or drawn twice.

    Example: [bold]noisewise train patients.csv --schema schema.toml --epsilon 1 --delta 1e-6 --out run[/bold]

    After a crash: [bold]noisewise train --resume run[/bold]

    From an account: [bold]noisewise train ... --ledger ledger.db --dataset patients[/bold]; exit code 3 when too little is left

    Past one machine: [bold]noisewise train FOLDER ... --records ray --ray-address HOST:6379[/bold]

    With a search: [bold]noisewise train ... --epsilon 3 --tune selection --candidates settings.toml[/bold]

    Of clients: [bold]noisewise train CLIENTS/ --federated --unit client --schema schema.toml --epsilon 4 --delta 1e-5[/bold]
    """
    if resume is not None:
        refuse_others(context)
        go_on(resume, ledger, json_output)
        return
    if not data:
        context.fail("Missing argument 'DATA'.")
    if epsilon is None or delta is None:
        context.fail(f"Missing option '{'--epsilon' if epsilon is None else '--delta'}'.")
    clients = None
    if (federated, unit, local_steps, local_rate, availability) != (False, None, None, None, None):
        clients = federated_of(federated, unit, local_steps, local_rate, availability)
    asked = TrainingOptions(
        places(data), epsilon, delta, target, schema, places(public or ()), bounds_epsilon, method, loss, model, protector,
        protector_share, adjacency, max_grad_norm, size_is_public, separator, decimal, cache, records, ray_workers, ray_address,
        clients, isolation=isolation, seed=seed,
    )  # fmt: skip
    _ = asked.budget  # refused before the rest is imported
    if (records, ray_workers, ray_address) != (None, None, None):
        refuse_records(records, ray_workers, ray_address)
    asked.check()
    tuning = None if tune is None and candidates is None else tuning_of(tune, candidates, jobs, size_guess)
    if seed is None:
        refuse_restart(out)
    if tuning is not None and (records is not None or lead() is not None):
        raise ValueError("--tune searches in one process; leave --records and torchrun out, or --tune")
    if asked.federated is not None:
        refuse_with_clients(asked, tuning=tuning is not None, several=lead() is not None)
    payment = None
    if ledger is not None or dataset is not None or os.environ.get(ENVIRONMENT):
        payment = payment_of(ledger, dataset, free=seed is not None or (dry_run and dataset is None))
    trained(asked, out, tuning=tuning, payment=payment, dry_run=dry_run, json_output=json_output)


def go_on(out: Path, ledger: str | None, json_output: bool, network: NetworkFit | None = None) -> None:
    """Resume a stopped run; ``network`` reaches its clients, where records lie with clients."""
    if is_whole(out):
        say(f"{out} is whole: nothing was left to do")
        return
    asked, spent = taken_up(out)
    if isinstance(spent, str) and ledger is not None:
        raise ValueError(f"no account of a ledger pays for the run of {out}; leave --ledger out")
    refuse_with_clients(asked, tuning=False, several=lead() is not None)
    refuse_without(network, asked, out)
    payment = None if isinstance(spent, str) else payment_again(ledger, spent)
    refuse_records(asked.records, asked.ray_workers, asked.ray_address)
    asked.check()
    trained(asked, out, spent=spent, payment=payment, json_output=json_output, network=network)


def trained(
    asked: TrainingOptions, out: Path, *, tuning: TuningOptions | None = None, spent: str | dict[str, Any] | None = None,
    payment: Payment | None = None, dry_run: bool = False, json_output: bool = False, network: NetworkFit | None = None,
) -> None:  # fmt: skip
    """Train and write what was asked; ``spent``: where it is written down what was spent, of a run that is taken up.

    ``network``: over which clients are asked that hold the records; there are no files here then.
    """
    from ...evidence import runs
    from ...tables.resolve import resolve

    known_loss(asked.loss)
    runs.vacant(out)
    runs.writable(out)
    if spent is None:
        refuse_stopped(out)
    if asked.cache is not None and not asked.cache.is_dir():
        raise ValueError(f"--cache is {str(asked.cache)!r}; pass an existing folder")
    data, public = [*asked.data], [*asked.public]
    _disjoint(data, public)
    written = dialect(asked.separator, asked.decimal)
    resolved = resolve(
        data, target=asked.target, schema=asked.schema, public=public, bounds_epsilon=asked.bounds_epsilon,
        budget=asked.budget, regression=for_numbers(asked.loss), separator=written, read_labels=not dry_run,
    )  # fmt: skip
    fit = planned(asked, resolved)
    fit.check(public=bool(public))
    over = None if network is None or asked.clients is None else network(asked.clients)
    if spent is None and payment is not None:
        _fits(payment, tuning, resolved, fit)
    if dry_run:
        from .request import show_plan

        show_plan(asked, resolved, out, json_output)
        return
    seed, journalled = asked.seed, tuning is None and asked.seed is None and fit.method.private
    where = spent or (free_name(out).name if payment is None else kept_of(payment))
    said = settings_for(asked, out, fit, where) if journalled else None
    with python_warnings.catch_warnings(record=True) as caught:
        python_warnings.simplefilter("always")
        with keeping(out, asked.budget, said, simulation=seed is not None, payment=payment) as kept:
            with bars(share=True) as report:
                if resolved.purchase is not None:
                    resolved = kept.bounds(resolved) or _bought(asked, resolved, bool(public), kept, tuning, report)
                fitted, words = _fit(asked, resolved, written, _room(asked, out), report, kept, tuning, over)
            warnings = [*_assumed(resolved), *_own(caught)]
            with runs.new_folder(out, draft=kept.draft) as draft:
                runs.write(fitted, draft, warnings=warnings, data=names_shown(asked))
                kept.into(draft)
                _write_report(draft)
    if words:
        show_search(words)
    _show(fitted, out, warnings, json_output)


def _fits(
    payment: Payment, tuning: TuningOptions | None, resolved: Resolved, fit: Fit, records: int | None = None
) -> None:
    """Refuse, before anything is bought or read, a run that the account could not pay for; what it takes to train may depend
    on ``records``, and is looked at once they are known.
    """
    from ...accounts import Terms
    from ...tables.bought import terms_of
    from ...trusted.events import ApproximateDP

    runs = []
    if resolved.purchase is not None:
        budget = resolved.purchase.budget
        runs.append((terms_of(budget), payment.account.admitted(budget, persons=fit.unit.persons), "bounds"))
    asks, training = fit.asks(records) if tuning is None else None, fit.training_budget()
    if tuning is not None and tuning.how == "selection":
        asks = Terms.plan(ApproximateDP(training.epsilon, training.delta)), training
    if asks is not None:
        runs.append((asks[0], payment.account.admitted(asks[1], persons=fit.unit.persons), "training"))
    payment.account.check(runs)


def _bought(
    asked: TrainingOptions,
    resolved: Resolved,
    public: bool,
    kept: KeptRun,
    tuning: TuningOptions | None,
    report: Callable[..., None],
) -> Resolved:
    """``resolved`` with its missing bounds bought, and recorded before they are used."""
    records = resolved.look(partial(report, "checking the files"))
    fit = planned(asked, resolved)
    fit.check(public=public, records=records)
    if kept.payment is not None:
        _fits(kept.payment, tuning, resolved, fit, records)
    bought = resolved.bought(kept.purse, seed=asked.seed, progress=partial(report, "buying bounds"))
    kept.keep_bounds(bought)
    return bought


def _assumed(resolved: Resolved) -> list[str]:
    """Warnings: what is assumed public, and doubts that public rows raise."""
    from ...tables.resolve import FROM_LABELS

    if resolved.classes != FROM_LABELS:
        return [*resolved.notes]
    return [
        *resolved.notes,
        "the classes were taken from the labels, which takes them for public knowledge; if a label could give somebody "
        "away, declare the classes in a schema",
    ]


def _own(caught: list[python_warnings.WarningMessage]) -> list[str]:
    """Warnings of noisewise itself, which are about public facts; those of libraries may be about private values."""
    own = [warning for warning in caught if warning.category.__module__.startswith("noisewise.")]
    return list(dict.fromkeys(str(warning.message) for warning in own))


def _fit(
    asked: TrainingOptions, resolved: Resolved, separator: Dialect, cache: Path | None, report: Callable[..., None],
    kept: KeptRun, tuning: TuningOptions | None, over: Callable[..., Fitted] | None,
) -> tuple[Fitted, str]:  # fmt: skip
    """The fitted model and, after a search, how its settings were found, in words."""
    from ...tables.fit.build import ready_files

    data = [*asked.data]
    reading: dict[str, Any] = {"public": [*asked.public] or None, "separator": separator, "cache": cache}
    reading["reading"] = partial(report, "reading")
    if tuning is not None:
        reading["origin"] = origin_of(resolved)
        return searched(unfitted(asked, resolved.schema), tuning, data, reading, kept.purse, report)
    fit = fit_for(asked, resolved, resolved.schema)
    how: dict[str, Any] = {"progress": partial(_stepped, report), "purse": kept.purse, "journal": kept.journal}
    if asked.federated is not None:
        return fitted_on_clients(fit, asked, separator, report, how, over), ""
    if asked.records is None:
        return ready_files(fit, data, lead=lead(), **reading).run(**how), ""
    report("starting workers", 0.0)
    with holders(asked.records, asked.ray_workers, asked.ray_address) as leader:
        report("starting workers", 1.0)
        return ready_files(fit, data, lead=leader, **reading).run(**how), ""


def _stepped(report: Callable[..., None], step: int, steps: int | None, spent: float) -> None:
    """Move the bar of the training, which shows public facts only."""
    report("training", spent if steps is None else step / steps, news=f"{spent:.0%} of the budget spent")


def _write_report(draft: Path) -> None:
    from ...evidence.report.page import write_report

    write_report(draft, None)


def _show(fitted: Fitted, out: Path, warnings: list[str], json_output: bool) -> None:
    for warning in warnings:
        say(warning)
    if json_output:
        document = {"run": str(out), "statement": dict(fitted.statement.data), "steps": fitted.steps}
        print_json({**document, "warnings": warnings})
        return
    console = Console()
    console.print(Panel(Text(_in_short(fitted.statement)), title="privacy statement", title_align="left"))
    console.print(
        f"Written to {out}: model, statement.txt, trace and report.html. "
        f"Next: noisewise predict {out} NEW.csv, or noisewise evaluate {out} TEST.csv --public-test",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _in_short(statement: Statement) -> str:
    """The lines of a statement that everybody should read; statement.txt has all of them."""
    first = (
        "(",
        "NOT PRIVATE",
        "This model",
        "This is a part of the account",
        "Arithmetic:",
        "Method:",
        "Assumed public:",
    )
    said = ("the unit is one person", "Setting: federated")  # a record in one place goes without saying
    lines = str(statement).splitlines()
    return "\n".join(line for line in lines if line.startswith(first) or any(words in line for words in said))


def _disjoint(data: list[Place], public: list[Place]) -> None:
    """Refuse a private file that is also said to be public."""
    from ...tables.addresses import identity
    from ...tables.files import find_files

    private = {identity(path) for path in (find_files(data) if data else [])}
    if both := [path for path in (find_files(public) if public else []) if identity(path) in private]:
        raise ValueError(f"{both[0]}: is private data and --public at once; pass other rows as public")


def _room(asked: TrainingOptions, out: Path) -> Path | None:
    """The folder for rows of large files: beside the run, where there should be room; None keeps rows in memory.

    Workers keep their rows in memory unless --cache is given.
    """
    from ...tables.addresses import size_of
    from ...tables.files import find_files

    if asked.cache is not None or asked.records is not None or not asked.data:
        return asked.cache
    large = sum(map(size_of, find_files([*asked.data]))) > LARGE_FILE_BYTES
    return out.parent if large and out.parent.is_dir() and os.access(out.parent, os.W_OK) else None
