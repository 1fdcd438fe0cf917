"""``noisewise predict``, ``noisewise evaluate`` and ``noisewise effects``: using a run folder."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .common import note, refuse_existing, write
from .keeping import spending
from .main import Decimal, JsonFlag, app, dialect, print_json, say
from .options import Separator
from .paying import DatasetName, LedgerUrl, payment_of
from .processes import RayAddress, RayWorkers, RecordsOption, holders, refuse_records
from .request import places

if TYPE_CHECKING:
    import pandas as pd

    from ...accounts import Budget
    from ...accounts.account import Account
    from ...accounts.purse import Purse
    from ...evidence.metrics import Quality
    from ...remote.processes import Lead
    from ...tables.addresses import Place
    from ...tables.encode import Encoder
    from ...tables.files import Dialect
    from ...tables.fit.fitted import Fitted
    from ...trusted.units import Unit

MAX_CLASS_LETTERS = 60  # of all class names that a table shows side by side
MAX_SCORE_DELTA = 1e-4  # that a run folder may choose for a score
TableOut = Annotated[
    Path | None, typer.Option(help="File to write, .csv or .parquet.", show_default="standard output, as CSV")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[list[str], typer.Argument(metavar="DATA", help="CSV or Parquet files with the features.")],
    out: TableOut = None,
    separator: Separator = None,
    decimal: Decimal = None,
    force: Force = False,
    json_output: JsonFlag = False,
) -> None:
    """Predict the target of new rows: one line each, with probabilities where the loss has them.

    Columns that the model does not know are ignored; the target need not be there. In CSV a text that a spreadsheet
    would run as a formula (it begins with =, +, -, @, a tab or a line end, and is no number) gets a ' in front.

    Example: [bold]noisewise predict run new.csv --out predictions.csv[/bold]
    """
    from ...evidence import runs
    from ...tables.rows import read_rows

    _refuse_file(out, force=force)
    fitted = runs.load(run)
    rows = read_rows(data, _encoder(fitted, run), fitted.scaling, separator=dialect(separator, decimal), predict=True)
    table = _predictions(fitted, rows.X)
    if out is not None:
        _write_table(table, out, f"{len(table):,} predictions")
    if json_output:
        predictions = None if out is not None else table.to_dict(orient="list")
        print_json({"rows": len(table), "written": None if out is None else str(out), "predictions": predictions})
    elif out is None:
        _without_formulas(table).to_csv(sys.stdout, index=False)


def _refuse_file(out: Path | None, *, force: bool) -> None:
    """Refuse a file that is not a table, or that exists."""
    if out is not None:
        if out.suffix not in (".csv", ".parquet"):
            raise ValueError(f"--out is {str(out)!r}; pass a file that ends in .csv or .parquet")
        refuse_existing(out, force=force)


def _predictions(fitted: Fitted, X: Any) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {f"predicted {fitted.target}": fitted.predictions(X)}
    if fitted.likely and fitted.classes is not None:
        for name, share in zip(fitted.classes, fitted.probabilities(X).T, strict=True):
            columns[f"probability of {name}"] = share
    return pd.DataFrame(columns)


def _without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with texts that a spreadsheet shows instead of running them; heads begin with words of noisewise."""
    from ...tables.values import inert

    return table.apply(lambda cells: cells if cells.dtype.kind in "biuf" else cells.map(inert))


def _write_table(table: pd.DataFrame, out: Path, what: str) -> None:
    from io import BytesIO

    content = BytesIO()
    if out.suffix == ".csv":
        _without_formulas(table).to_csv(content, index=False)
    else:
        table.to_parquet(content, index=False)
    write(out, content.getvalue())
    note(f"Written to {out}: {what}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[list[str], typer.Argument(metavar="DATA", help="CSV or Parquet files with features and target.")],
    public_test: Annotated[bool, typer.Option("--public-test", help="The rows are public: the score is free.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="The rows are private: buy the score with this epsilon.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the score.", show_default="that of the run")] = None,
    size_is_public: Annotated[bool, typer.Option("--size-is-public", help="The number of rows may be known.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="A simulation: NOT private; not added to the run.")] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    records: RecordsOption = None,
    ray_workers: RayWorkers = None,
    ray_address: RayAddress = None,
    ledger: LedgerUrl = None,
    dataset: DatasetName = None,
    json_output: JsonFlag = False,
) -> None:
    """Score a model on public rows for free, or on private rows for a budget of its own.

    Beside accuracy: that of one answer for all, balanced accuracy, ROC AUC, log loss and calibration; of a regression RMSE,
    MAE and R^2. On private rows all of them are one release. Its budget comes on top of the training's, and both are in the
    report. With --ledger and --dataset the account of these rows pays; exit code 3 when too little is left.

    Example: [bold]noisewise evaluate run held-out.csv --epsilon 0.1[/bold]
    """
    from ...accounts.budget_warnings import concerns
    from ...evidence import runs
    from ...evidence.report.page import refresh
    from ...tables.file_pieces import Pinned
    from ...tables.files import open_source

    if public_test == (epsilon is not None):
        raise ValueError(
            "say whose rows these are: --public-test if they are public, or --epsilon E to buy the score on private ones"
        )
    if public_test and (ledger is not None or dataset is not None):
        raise ValueError("the score on public rows is free; leave --ledger and --dataset out")
    if public_test and records is not None:
        raise ValueError("workers hold private rows; leave --records out for public ones")
    refuse_records(records, ray_workers, ray_address)
    payment = payment_of(ledger, dataset, free=public_test or seed is not None)
    fitted = runs.load(run)
    budget = None if epsilon is None else _budget(fitted, epsilon, delta)
    for concern in () if budget is None else concerns(budget.epsilon, budget.delta).values():
        say(concern)
    if seed is None:
        runs.writable(run / "evaluation.json")
    encoder = _encoder(fitted, run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library's warnings may show private values
        persons, counted, pinned = None if public_test else encoder.schema.persons, None, None
        if persons is not None:
            source = open_source(data, separator=dialect(separator, decimal))
            pinned = Pinned(source.paths)
            counted = persons.in_files(source, seed=seed)
        with holders(records, ray_workers, ray_address) as lead:
            known = _read(fitted, data, dialect(separator, decimal), counted, lead, public_test=public_test)
            if pinned is not None:
                pinned.check()
            with ExitStack() as stack:
                purse = None
                if budget is not None:  # written into the run folder until there is a score
                    paid = spending(run / "evaluation", budget, simulation=seed is not None, payment=payment)
                    purse = stack.enter_context(paid).purse
                quality = _quality(fitted, known, budget, size_is_public, seed, purse)
                entry = _entry(quality, places(data), encoder.schema.protects)
                if seed is None:
                    runs.append(run, "evaluation.json", entry)
    if seed is None:
        refresh(run)
    if json_output:
        print_json({**entry, "simulation": seed is not None})
        return
    price = "public rows, free" if budget is None else f"private rows, for ({budget.epsilon:g}, {budget.delta:g}) more"
    price += "" if payment is None else f" from the account {payment.dataset!r}"
    simulated = "; a simulation, NOT private" if seed is not None else ""
    typer.echo(f"{quality.metric} {_shown(quality.metric, quality.value, quality.interval)}, {price}{simulated}")
    for line in _lines(quality):
        typer.echo(line)


class _Known(NamedTuple):
    """Rows and labels to score on, here or elsewhere; ``there``: who has a label; ``table``: all rows of persons."""

    X: Any
    y: Any
    there: Any
    table: int | None


def _read(
    fitted: Fitted, data: list[str], separator: Dialect, counted: Any, lead: Lead | None, *, public_test: bool
) -> _Known:
    """The rows with their labels; ``lead``: the process that holds them, if it is not this one."""
    table, encoder = None if counted is None else len(counted), fitted.encoder
    assert encoder is not None
    if lead is not None:
        from ...tables.fit.across_processes import spread_test_rows

        return _Known(*spread_test_rows(lead, data, fitted, separator=separator, counted=counted), None, table)
    from ...tables.rows import read_rows

    rows = read_rows(data, encoder, fitted.scaling, separator=separator, counted=counted)
    rows = rows.with_labels() if public_test else rows
    assert rows.y is not None
    return _Known(rows.X, rows.y if encoder.classes is None else encoder.classes[rows.y], rows.there, table)


def _quality(
    fitted: Fitted, known: _Known, budget: Budget | None, size_is_public: bool, seed: int | None, purse: Purse | Account | None
) -> Quality:  # fmt: skip
    """The score; many rows are laid out in a mapped file."""
    if budget is None:
        from ...evidence.metrics import public_quality

        return public_quality(fitted, known.X, known.y)
    from ...evidence.bought_quality import private_quality
    from ...tables.rows import MAX_BYTES_IN_MEMORY
    from ...trusted.stores.grid import Mapped, in_memory
    from ...trusted.units import RECORD

    store = Mapped(Path(tempfile.gettempdir())) if getattr(known.X, "nbytes", 0) > MAX_BYTES_IN_MEMORY else in_memory
    unit = RECORD if fitted.encoder is None else fitted.encoder.schema.protects
    return private_quality(
        fitted, known.X, known.y, budget, size_is_public=size_is_public, seed=seed, store=store, purse=purse,
        unit=unit, table=known.table, there=known.there,
    )  # fmt: skip


def _budget(fitted: Fitted, epsilon: float, delta: float | None) -> Budget:
    from ...accounts import Budget
    from ...evidence.bought_quality import scored_by

    scored_by(fitted)  # a model that needs torch is refused before anything is reserved
    asked = fitted.settings
    if delta is None and not asked["delta"] <= MAX_SCORE_DELTA:  # else the author of the folder chooses for these rows
        raise ValueError(f"the run's delta is {asked['delta']!r}, more than is taken unasked; pass --delta")
    return Budget(epsilon, asked["delta"] if delta is None else delta, adjacency=asked["adjacency"])


def _entry(quality: Quality, data: tuple[Place, ...], unit: Unit) -> dict[str, Any]:
    """The score as evaluation.json has it; ``unit``: what its price protects."""
    budget = quality.budget
    return {
        "metric": quality.metric, "value": quality.value, "interval": list(quality.interval),
        "rows": "public" if budget is None else "private", "unit": None if budget is None else unit.words,
        "epsilon": None if budget is None else budget.epsilon, "delta": None if budget is None else budget.delta,
        "when": datetime.now(UTC).isoformat(timespec="seconds"), "file": ", ".join(path.name for path in data),
        "events": list(quality.events), **quality.figures.to_dict(),
    }  # fmt: skip


def _shown(metric: str, value: float, interval: tuple[float, float]) -> str:
    from ...evidence.metrics import SHARES

    form = ".2%" if metric in SHARES else ".4g"
    return f"{value:{form}} (95 %: {interval[0]:{form}} to {interval[1]:{form}})"


def _lines(quality: Quality) -> Iterator[str]:
    """The other figures, one line each, and in words whether one answer for all would do as well."""
    from ...evidence.metrics import WORDS

    figures = quality.figures
    for name, words in WORDS.items():
        value, interval = figures.metrics.get(name, (None, None))
        if name != quality.metric and value is not None and interval is not None:
            baseline = f" ({figures.answer})" if name == "baseline_accuracy" else ""
            yield f"  {words}{baseline}: {_shown(name, value, interval)}"
    if figures.confusion is not None:
        yield from _table(figures.confusion)
    if figures.verdict is not None:
        yield f"{figures.verdict}."


def _table(confusion: dict[str, Any]) -> Iterator[str]:
    """The confusion matrix, if its classes fit side by side."""
    names = [repr(name) for name in confusion["classes"]]
    if sum(map(len, names)) > MAX_CLASS_LETTERS:
        return
    width = max(len(str(count)) for counts in confusion["counts"] for count in counts)
    first, widths = max(map(len, ("label", *names))), [max(len(name), width) for name in names]
    heads = "  ".join(f"{name:>{room}}" for name, room in zip(names, widths, strict=True))
    yield f"  {'label':<{first}}  predicted {heads}"
    for name, counts in zip(names, confusion["counts"], strict=True):
        cells = "  ".join(f"{count:>{room}}" for count, room in zip(counts, widths, strict=True))
        yield f"  {name:<{first}}            {cells}"


def _encoder(fitted: Fitted, run: Path) -> Encoder:
    if fitted.encoder is None:
        raise ValueError(f"{run} was trained on arrays, not files; use noisewise.load({str(run)!r}) in Python")
    return fitted.encoder


@app.command()
def effects(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: TableOut = None,
    force: Force = False,
    json_output: JsonFlag = False,
) -> None:
    """How the score, or a regression's target, changes with each column: one line for each of its values.

    feature, value, effect, and noise_low to noise_high, 95 % of the privacy noise; of several classes also output. Values are
    knots of a number, categories, and "missing". --json has the strengths of pairs too. Costs nothing: the model is released
    already. In CSV a text that a spreadsheet would run as a formula gets a ' in front, as in predict.

    Example: [bold]noisewise effects run --out effects.csv[/bold]
    """
    import pandas as pd

    from ...evidence import runs

    _refuse_file(out, force=force)
    fitted = runs.load(run)
    try:
        found = fitted.effects()
    except AttributeError:
        method = fitted.settings["method"]
        raise ValueError(
            f"{run} was trained by {method}, whose model has no effects of columns; additive's has, and a linear one has "
            "its coefficients in the report"
        ) from None
    rows = list(found.rows())
    table = pd.DataFrame(rows)
    if out is not None:
        one_type = table.assign(value=table["value"].map(str)) if out.suffix == ".parquet" else table
        _write_table(one_type, out, f"{len(rows):,} values of {len(found.columns):,} columns")
    if json_output:
        written = None if out is None else str(out)
        shown = None if out is not None else rows
        print_json({"rows": len(rows), "written": written, "effects": shown, "pairs": found.pair_rows()})
    elif out is None:
        _without_formulas(table).to_csv(sys.stdout, index=False)
