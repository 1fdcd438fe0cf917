"""``noisewise train``: from files to a private model, its statement and its report."""

from __future__ import annotations

import os
import warnings as python_warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperCommand

from ..show.progress import bars
from .main import Decimal, JsonFlag, app, dialect, errors, print_json
from .ranks import lead, refuse_restart
from .spending import spending
from .tuning import Tuning, searched, show_search, tuning_of, with_protector

if TYPE_CHECKING:
    from ..budget import Budget
    from ..budget.purse import Purse
    from ..data.files import Dialect
    from ..data.resolve import Resolved
    from ..data.schema import Schema
    from ..estimators import PrivateClassifier, PrivateRegressor
    from ..fitting.fit import Fit
    from ..fitting.fitted import Fitted
    from ..fitting.of_files import Origin
    from ..methods import Method
    from ..statement import Statement

    Estimator = PrivateClassifier | PrivateRegressor


LARGE = 20 << 20  # bytes of files, which can be several times that as rows


@dataclass(frozen=True)
class Request:
    """What was asked for, apart from the data."""

    budget: Budget
    method: str | Method
    loss: str | None
    model: str | tuple[int, ...]
    max_grad_norm: float | None
    size_is_public: bool
    seed: int | None


class WithLosses(TyperCommand):
    """Names the losses where help is asked for: finding them out takes numpy, which other commands start without."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from ..losses import loss_names

        next(option for option in self.params if option.name == "loss").help = f"{', '.join(loss_names())}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


@app.command(cls=WithLosses)
def train(
    data: Annotated[list[Path], typer.Argument(metavar="DATA", help="Private CSV or Parquet files, or a folder.")],
    epsilon: Annotated[float, typer.Option(help="Budget: epsilon.")],
    delta: Annotated[float, typer.Option(help="Budget: delta, well below 1/records.")],
    target: Annotated[str | None, typer.Option(help="The column to predict, if no schema says.")] = None,
    schema: Annotated[Path | None, typer.Option(help="What the columns are: see noisewise schema init.")] = None,
    public: Annotated[
        list[Path] | None, typer.Option(help="Public rows of the same columns: bounds, categories, help for training.")
    ] = None,
    bounds_epsilon: Annotated[
        float | None, typer.Option(help="Part of epsilon that buys the bounds of number columns.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="See noisewise methods.", show_default="auto")] = None,
    loss: Annotated[str | None, typer.Option(help="See noisewise.losses.", show_default="by the target")] = None,
    model: Annotated[str, typer.Option(help="auto, linear, mlp, or hidden sizes such as 64,32.")] = "auto",
    protector: Annotated[
        str | None,
        typer.Option(
            help="For l2p: a protector's name, a file, or private: trained on these records.", show_default="auto"
        ),
    ] = None,
    protector_share: Annotated[
        float | None, typer.Option(help="Share of the budget that trains a private protector.", show_default="0.2")
    ] = None,
    adjacency: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    max_grad_norm: Annotated[float | None, typer.Option(help="Clip norm.", show_default="by the method")] = None,
    size_is_public: Annotated[
        bool, typer.Option("--size-is-public", help="The number of records may be known; else a noisy count is bought.")
    ] = False,
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
    seed: Annotated[int | None, typer.Option(min=0, help="A simulation: reproducible, NOT private.")] = None,
    separator: Annotated[str | None, typer.Option(help="Separator of a CSV.", show_default="comma")] = None,
    decimal: Decimal = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for decoded rows that do not fit into memory; nothing stays there.")
    ] = None,
    out: Annotated[Path, typer.Option(help="New folder for model, statement, trace and report.")] = Path(
        "noisewise-run"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; spend nothing.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Train a private model on files. Every number that comes out was declared, public or paid for.

    Ctrl-C stops cleanly: there is no model then, and what was spent is written down.

    Example: [bold]noisewise train patients.csv --schema schema.toml --epsilon 1 --delta 1e-6 --out run[/bold]

    With a search: [bold]noisewise train ... --epsilon 3 --tune selection --candidates settings.toml[/bold]
    """
    from ..budget import Budget

    budget = Budget(epsilon, delta, adjacency=cast(Any, adjacency))  # refused before the rest is imported

    from .. import runs
    from ..data.resolve import resolve
    from ..fitting.auto import AUTO, method_for

    chosen = with_protector(method, protector, protector_share, max_grad_norm)
    request = Request(budget, chosen or AUTO, loss, _model(model), max_grad_norm, size_is_public, seed)
    method_for(request.method, request.model, None)
    tuning = tuning_of(tune, candidates, jobs, size_guess)
    refuse_restart(out, private=seed is None)
    if tuning is not None and lead() is not None:
        raise ValueError("--tune searches in one process; leave torchrun out, or --tune")
    _known_loss(loss)
    runs.vacant(out)
    runs.writable(out)
    if cache is not None and not cache.is_dir():
        raise ValueError(f"--cache is {str(cache)!r}; pass an existing folder")
    _disjoint(data, public or [])
    written = dialect(separator, decimal)
    resolved = resolve(
        data, target=target, schema=schema, public=public or [], bounds_epsilon=bounds_epsilon, budget=request.budget,
        regression=_for_numbers(loss), separator=written, read_labels=not dry_run,
    )  # fmt: skip
    planned(request, resolved).check(public=bool(public))
    if dry_run:
        _show_plan(request, resolved, bounds_epsilon, out, json_output)
        return
    with python_warnings.catch_warnings(record=True) as caught:
        python_warnings.simplefilter("always")
        with spending(out, request.budget, simulation=seed is not None) as spent:
            with bars(share=True) as report:
                if resolved.purchase is not None:
                    records = resolved.look(partial(report, "checking the files"))
                    planned(request, resolved).check(public=bool(public), records=records)
                    resolved = resolved.bought(spent.purse, seed=seed, progress=partial(report, "buying bounds"))
                room = cache or _roomy(out, data)
                fitted, words = _fit(request, resolved, data, public or [], written, room, report, spent.purse, tuning)
            warnings = [*_assumed(resolved), *_own(caught)]
            with runs.new_folder(out) as draft:
                runs.write(fitted, draft, warnings=warnings, data=[path.absolute().name for path in data])
                spent.into(draft)
                _write_report(draft)
    if words:
        show_search(words)
    _show(fitted, out, warnings, json_output)


def _assumed(resolved: Resolved) -> list[str]:
    """What a user may not have noticed: taken for public, or shown by public rows."""
    from ..data.resolve import FROM_LABELS

    if resolved.classes != FROM_LABELS:
        return [*resolved.notes]
    return [
        *resolved.notes,
        "the classes were taken from the labels, which takes them for public knowledge; if a label could give somebody "
        "away, declare the classes in a schema",
    ]


def _own(caught: list[python_warnings.WarningMessage]) -> list[str]:
    """noisewise's own warnings, which are about public facts; those of libraries may be about private values."""
    own = [warning for warning in caught if warning.category.__module__.startswith("noisewise.")]
    return list(dict.fromkeys(str(warning.message) for warning in own))


def _fit(
    request: Request, resolved: Resolved, data: list[Path], public: list[Path], separator: Dialect, cache: Path | None,
    report: Callable[..., None], purse: Purse, tuning: Tuning | None,
) -> tuple[Fitted, str]:  # fmt: skip
    """What was fitted, and in words how its settings were found, if they were searched."""
    from ..fitting.of_files import ready_files

    reading: dict[str, Any] = {"public": public or None, "separator": separator, "cache": cache, "lead": lead()}
    reading["reading"] = partial(report, "reading")
    if tuning is not None:
        reading["origin"] = _origin(resolved)
        return searched(unfitted(request, resolved.schema), tuning, data, reading, purse, report)
    ready = ready_files(_asked(request, resolved.schema, _origin(resolved)), data, **reading)
    return ready.run(progress=partial(_stepped, report), purse=purse), ""


def planned(request: Request, resolved: Resolved) -> Fit:
    """The fit that was asked for, with imagined bounds where they are still to be bought."""
    fit = _asked(request, resolved.imagined, _origin(resolved))
    if resolved.purchase is None:
        return fit
    before = resolved.purchase.budget
    return fit.before(before.epsilon, before.delta)


def _asked(request: Request, schema: Schema, origin: Origin) -> Fit:
    from ..fitting.of_files import fit_of_files

    same = ("model", "size_is_public", "seed", "max_grad_norm")
    common: dict[str, Any] = {name: getattr(request, name) for name in same}
    return fit_of_files(schema, request.budget, request.method, loss=_loss(request, schema), origin=origin, **common)


def _origin(resolved: Resolved) -> Origin:
    from ..fitting.of_files import Origin

    return Origin(resolved.words, resolved.classes, resolved.preparation)


def unfitted(request: Request, schema: Schema) -> Estimator:
    """The estimator whose settings are searched: a classifier for classes, a regressor for a number."""
    from ..estimators import PrivateClassifier, PrivateRegressor

    same = ("method", "model", "max_grad_norm", "size_is_public")
    common: dict[str, Any] = {name: getattr(request, name) for name in same}
    common |= {"adjacency": request.budget.adjacency, "schema": schema, "random_state": request.seed}
    face = PrivateClassifier if _of_classes(schema) else PrivateRegressor
    return face(request.budget.epsilon, request.budget.delta, loss=_loss(request, schema), **common)


def _of_classes(schema: Schema) -> bool:
    assert schema.target is not None
    return schema[schema.target].kind == "category"


def _loss(request: Request, schema: Schema) -> str:
    """The loss that was asked for, or the usual one of the target."""
    from ..losses import USUAL

    if _of_classes(schema):
        return request.loss or "auto"
    if request.loss is not None and not _for_numbers(request.loss):
        raise ValueError(
            f"--loss is {request.loss!r} but the target {schema.target!r} is a number; pass --loss {USUAL['regression']}, or declare its "
            'classes in a schema with kind = "category"'
        )
    return request.loss or USUAL["regression"]


def _stepped(report: Callable[..., None], step: int, steps: int | None, spent: float) -> None:
    """The bar of the training is made of public facts."""
    report("training", spent if steps is None else step / steps, news=f"{spent:.0%} of the budget spent")


def _say(message: str) -> None:
    errors.print(f"noisewise: {message}", highlight=False, markup=False, soft_wrap=True)


def _write_report(draft: Path) -> None:
    from ..report.page import write_report

    write_report(draft, None)


def _show(fitted: Fitted, out: Path, warnings: list[str], json_output: bool) -> None:
    for warning in warnings:
        _say(warning)
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
    """The lines that everybody should read; all of them are in statement.txt."""
    first = ("(", "NOT PRIVATE", "This model", "Arithmetic:", "Method:", "Assumed public:")
    person = "the unit is one person"  # a record goes without saying
    return "\n".join(line for line in str(statement).splitlines() if line.startswith(first) or person in line)


def _show_plan(
    request: Request, resolved: Resolved, bounds_epsilon: float | None, out: Path, json_output: bool
) -> None:
    """What a run would do, from names and declarations alone."""
    from ..budget.concerns import concerns
    from ..data.schema import gaps
    from ..data.tables import columns_of
    from ..fitting.auto import AUTO, choice_for
    from ..fitting.why import why
    from ..units import unit_of

    reasons = None
    if request.method == AUTO:
        training = planned(request, resolved).training_budget()
        reasons = why(choice_for(columns_of(resolved.imagined), training, None, request.model))
    method, face = planned(request, resolved).method, "Classifier" if _of_classes(resolved.imagined) else "Regressor"
    columns = [{"name": column.name, "kind": column.kind} for column in resolved.schema.columns]
    to_buy = [gap.column for gap in gaps(resolved.schema)]
    notes = [*resolved.notes, *concerns(request.budget.epsilon, request.budget.delta).values()]
    document = {
        "dry_run": True, "method": method.name, "estimator": f"Private{face}", "target": resolved.schema.target,
        "epsilon": request.budget.epsilon, "delta": request.budget.delta, "adjacency": request.budget.adjacency,
        "unit": unit_of(resolved.schema.rows_per_unit),
        "columns": columns, "bounds_to_buy": to_buy, "bounds_epsilon": bounds_epsilon if to_buy else None,
        "assumed": f"{resolved.words}; the classes, {resolved.classes}", "out": str(out), "why": reasons,
        "notes": notes,
    }  # fmt: skip
    for note in notes:
        _say(note)
    if json_output:
        print_json(document)
        return
    kinds = ", ".join(
        f"{sum(column['kind'] == kind for column in columns)} {kind}" for kind in ("number", "category", "ignore")
    )
    unit = "" if resolved.schema.unit is None else f", the unit is {document['unit']}"
    bought = f" Bounds of {len(to_buy)} columns would be bought with epsilon {bounds_epsilon:g}." if to_buy else ""
    Console().print(
        f"Would train a {document['estimator']} for {document['target']!r} by {method.name} ({method.summary}) at "
        f"({request.budget.epsilon:g}, {request.budget.delta:g}), {request.budget.adjacency}{unit}. Columns: {kinds}. "
        f"Assumed public: {resolved.words}; the classes, {resolved.classes}.{bought} Would write {out}. Nothing was spent; "
        "`noisewise plan` says what the budget buys." + ("" if reasons is None else f"\n{reasons}"),
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _disjoint(data: list[Path], public: list[Path]) -> None:
    """Refuse a private file that is also said to be public."""
    from ..data.files import find_files

    private = {path.resolve() for path in find_files(data)}
    if both := [path for path in (find_files(public) if public else []) if path.resolve() in private]:
        raise ValueError(f"{both[0]}: is private data and --public at once; pass other rows as public")


def _model(text: str) -> str | tuple[int, ...]:
    if text in ("auto", "linear", "mlp"):
        return text
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"--model is {text!r}; pass auto, linear, mlp, or hidden sizes such as 64,32")
    return sizes


def _known_loss(loss: str | None) -> None:
    from ..losses import loss_named

    if loss is not None:
        loss_named(loss)


def _for_numbers(loss: str | None) -> bool:
    from ..losses import loss_named

    return loss is not None and loss_named(loss).task == "regression"


def _roomy(out: Path, data: list[Path]) -> Path | None:
    """Where large files are decoded to: beside the run, where there should be room; small ones stay in memory."""
    from ..data.files import find_files

    large = sum(path.stat().st_size for path in find_files(data)) > LARGE
    return out.parent if large and out.parent.is_dir() and os.access(out.parent, os.W_OK) else None
