"""``noisewise train``: from files to a private model, its statement and its report."""

from __future__ import annotations

import os
import warnings as python_warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text
from typer.core import TyperCommand

from .main import JsonFlag, app, errors, print_json
from .spending import spending

if TYPE_CHECKING:
    from ..budget import Budget
    from ..budget.purse import Purse
    from ..data.resolve import Resolved
    from ..data.schema import Schema
    from ..estimators import PrivateClassifier, PrivateRegressor
    from ..fitting.fit import Fit
    from ..statement import Statement

    Estimator = PrivateClassifier | PrivateRegressor


LARGE = 20 << 20  # bytes of files, which can be several times that as rows


@dataclass(frozen=True)
class Wish:
    """What was asked for, apart from the data."""

    budget: Budget
    method: str
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
    method: Annotated[str | None, typer.Option(help="See noisewise methods.", show_default="recommended")] = None,
    loss: Annotated[str | None, typer.Option(help="See noisewise.losses.", show_default="by the target")] = None,
    model: Annotated[str, typer.Option(help="linear, mlp, or hidden sizes such as 64,32.")] = "linear",
    adjacency: Annotated[str, typer.Option(help="add_remove or replace_one.")] = "add_remove",
    max_grad_norm: Annotated[float | None, typer.Option(help="Clip norm.", show_default="by the method")] = None,
    size_is_public: Annotated[
        bool, typer.Option("--size-is-public", help="The number of records may be known; else a noisy count is bought.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="A simulation: reproducible, NOT private.")] = None,
    separator: Annotated[str | None, typer.Option(help="Separator of a CSV.", show_default="comma")] = None,
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
    """
    from .. import runs
    from ..budget import Budget
    from ..data.resolve import resolve
    from ..methods import RECOMMENDED, method_named

    wish = Wish(
        Budget(epsilon, delta, adjacency=cast(Any, adjacency)), method or RECOMMENDED, loss, _model(model), max_grad_norm,
        size_is_public, seed,
    )  # fmt: skip
    method_named(wish.method)
    _known_loss(loss)
    runs.vacant(out)
    runs.writable(out)
    if cache is not None and not cache.is_dir():
        raise ValueError(f"--cache is {str(cache)!r}; pass an existing folder")
    _disjoint(data, public or [])
    found = resolve(
        data, target=target, schema=schema, public=public or [], bounds_epsilon=bounds_epsilon, budget=wish.budget,
        regression=_for_numbers(loss), separator=separator, read_labels=not dry_run,
    )  # fmt: skip
    planned(wish, found).check(public=bool(public))
    if dry_run:
        _show_plan(wish, found, bounds_epsilon, out, json_output)
        return
    with python_warnings.catch_warnings(record=True) as heard:
        python_warnings.simplefilter("always")
        with spending(out, wish.budget, simulation=seed is not None) as spent:
            with _Bars() as bars:
                if found.purchase is not None:
                    records = found.look(bars.begin("checking the files"))
                    planned(wish, found).check(public=bool(public), records=records)
                    found = found.bought(spent.purse, seed=seed, progress=bars.begin("buying bounds"))
                room = cache or _roomy(out, data)
                estimator = _fit(wish, found, data, public or [], separator, room, bars, spent.purse)
            told = [*_assumed(found), *_own(heard)]
            with runs.new_folder(out) as draft:
                runs.write(estimator.fitted_, draft, warnings=told)
                spent.into(draft)
                _write_report(draft)
    _show(estimator, out, told, json_output)


def _assumed(found: Resolved) -> list[str]:
    """What a user may not have noticed to be taken for public."""
    from ..data.resolve import FROM_LABELS

    if found.classes != FROM_LABELS:
        return []
    return [
        "the classes were taken from the labels, which takes them for public knowledge; if a label could give somebody "
        "away, declare the classes in a schema"
    ]


def _own(heard: list[python_warnings.WarningMessage]) -> list[str]:
    """noisewise's own warnings, which are about public facts; those of libraries may be about private values."""
    own = [warning for warning in heard if warning.category.__module__.startswith("noisewise.")]
    return list(dict.fromkeys(str(warning.message) for warning in own))


def _fit(
    wish: Wish, found: Resolved, data: list[Path], public: list[Path], separator: str | None, cache: Path | None,
    bars: _Bars, purse: Purse,
) -> Estimator:  # fmt: skip
    """The fitted estimator."""
    from ..estimators import Origin

    origin = Origin(found.words, found.classes, found.preparation)
    estimator = unfitted(wish, found.schema).watch(bars.stepped)
    reading = bars.begin("reading")
    return estimator.fit_files(
        data, public=public or None, separator=separator, cache=cache, reading=reading, origin=origin, purse=purse
    )


def planned(wish: Wish, found: Resolved) -> Fit:
    """The fit that was asked for, with imagined bounds where they are still to be bought."""
    fit = unfitted(wish, found.imagined).planned()
    if found.purchase is None:
        return fit
    before = found.purchase.budget
    return fit.before(before.epsilon, before.delta)


def unfitted(wish: Wish, schema: Schema) -> Estimator:
    """The estimator that was asked for: a classifier for classes, a regressor for a number."""
    from ..estimators import PrivateClassifier, PrivateRegressor
    from ..losses import USUAL

    assert schema.target is not None
    common: dict[str, Any] = {
        "method": wish.method, "model": wish.model, "adjacency": wish.budget.adjacency, "schema": schema,
        "max_grad_norm": wish.max_grad_norm, "size_is_public": wish.size_is_public, "random_state": wish.seed,
    }  # fmt: skip
    budget = (wish.budget.epsilon, wish.budget.delta)
    if schema[schema.target].kind == "category":
        return PrivateClassifier(*budget, loss=wish.loss or "auto", **common)
    if wish.loss is not None and not _for_numbers(wish.loss):
        raise ValueError(
            f"--loss is {wish.loss!r} but the target {schema.target!r} is a number; pass --loss {USUAL['regression']}, or declare its "
            'classes in a schema with kind = "category"'
        )
    return PrivateRegressor(*budget, loss=wish.loss or USUAL["regression"], **common)


class _Bars:
    """Progress on standard error: reading the files, then training with the budget spent. Made of public facts."""

    def __enter__(self) -> _Bars:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        quiet = not errors.is_terminal
        self.progress = Progress(*columns, TimeRemainingColumn(), console=errors, transient=True, disable=quiet)
        self.progress.start()
        self.task = self.progress.add_task("", total=1.0)
        self.training = False
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, what: str) -> Callable[[float], None]:
        """Start another pass; the answer takes the share of it that is done."""
        self.progress.reset(self.task, total=1.0, description=what)
        return lambda share: self.progress.update(self.task, completed=share)

    def stepped(self, step: int, steps: int | None, spent: float) -> None:
        if not self.training:
            self.training = True
            self.begin("training")
        done = spent if steps is None else step / steps
        self.progress.update(self.task, description=f"training, {spent:.0%} of the budget spent", completed=done)


def _say(message: str) -> None:
    errors.print(f"noisewise: {message}", highlight=False, markup=False, soft_wrap=True)


def _write_report(draft: Path) -> None:
    from ..report.page import write_report

    write_report(draft, None)


def _show(estimator: Estimator, out: Path, heard: list[str], json_output: bool) -> None:
    for warning in heard:
        _say(warning)
    if json_output:
        print_json({
            "run": str(out), "statement": dict(estimator.statement_.data), "steps": estimator.n_iter_,
            "warnings": heard,
        })  # fmt: skip
        return
    console = Console()
    console.print(Panel(Text(_in_short(estimator.statement_)), title="privacy statement", title_align="left"))
    console.print(
        f"Written to {out}: model, statement.txt, trace and report.html. "
        f"Next: noisewise predict {out} NEW.csv, or noisewise evaluate {out} TEST.csv --public-test",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _in_short(statement: Statement) -> str:
    """The lines that everybody should read; all of them are in statement.txt."""
    first = ("(", "NOT PRIVATE", "This model", "Arithmetic:", "Method:", "Assumed public:")
    return "\n".join(line for line in str(statement).splitlines() if line.startswith(first))


def _show_plan(wish: Wish, found: Resolved, bounds_epsilon: float | None, out: Path, json_output: bool) -> None:
    """What a run would do, from names and declarations alone."""
    from ..data.schema import gaps
    from ..methods import method_named

    estimator, method = unfitted(wish, found.imagined), method_named(wish.method)
    columns = [{"name": column.name, "kind": column.kind} for column in found.schema.columns]
    to_buy = [gap.column for gap in gaps(found.schema)]
    document = {
        "dry_run": True, "method": method.name, "estimator": type(estimator).__name__, "target": found.schema.target,
        "epsilon": wish.budget.epsilon, "delta": wish.budget.delta, "adjacency": wish.budget.adjacency,
        "columns": columns, "bounds_to_buy": to_buy, "bounds_epsilon": bounds_epsilon if to_buy else None,
        "assumed": f"{found.words}; the classes, {found.classes}", "out": str(out),
    }  # fmt: skip
    if json_output:
        print_json(document)
        return
    kinds = ", ".join(
        f"{sum(column['kind'] == kind for column in columns)} {kind}" for kind in ("number", "category", "ignore")
    )
    bought = f" Bounds of {len(to_buy)} columns would be bought with epsilon {bounds_epsilon:g}." if to_buy else ""
    Console().print(
        f"Would train a {document['estimator']} for {document['target']!r} by {method.name} ({method.summary}) at "
        f"({wish.budget.epsilon:g}, {wish.budget.delta:g}), {wish.budget.adjacency}. Columns: {kinds}. "
        f"Assumed public: {found.words}; the classes, {found.classes}.{bought} Would write {out}. Nothing was spent; "
        "`noisewise plan` says what the budget buys.",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _disjoint(data: list[Path], public: list[Path]) -> None:
    """Refuse a private file that is also said to be public."""
    from ..data.files import find_files

    private = {path.resolve() for path in find_files(data)}
    if both := [path for path in (find_files(public) if public else []) if path.resolve() in private]:
        raise ValueError(f"{both[0]}: is private data and --public at once; pass other rows as public")


def _model(text: str) -> str | tuple[int, ...]:
    if text in ("linear", "mlp"):
        return text
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"--model is {text!r}; pass linear, mlp, or hidden sizes such as 64,32")
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
