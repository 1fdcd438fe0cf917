"""``noisewise demo``: private against non-private training on embedded data, at three budgets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from ...accounts.atomic import write_atomically
from ..progress import bar
from .common import answer
from .main import JsonFlag, app, print_json

if TYPE_CHECKING:
    from ...tables.generated import Dataset
    from ..sklearn import PrivateClassifier

BUDGETS = (0.1, 1.0, 8.0)
DELTA = 1e-6
TOGETHER = (sum(BUDGETS), len(BUDGETS) * DELTA)
CENSUS_ROWS = 60_000
FILE_ROWS, NEW_ROWS = 20_000, 5_000
PEOPLE = {
    "people.csv": (20_000, 1),
    "held-out.csv": (5_000, 2),
    "survey.csv": (2_000, 3),
    "new.csv": (3, 4),
}  # rows, seed


@dataclass(frozen=True)
class Split:
    data: Dataset
    train: slice
    test: slice

    def accuracy(self, classifier: PrivateClassifier, report: Callable[..., None]) -> float:
        """Accuracy on held-out rows, which are public; ``report`` is called with the share of the budget that is spent."""
        budget = "" if classifier.epsilon is None else f", epsilon {classifier.epsilon:g}"
        what = f"{self.data.name}, {classifier.method}{budget}"
        classifier.watch(lambda step, total, spent: report(spent, news=what))
        classifier.fit(self.data.X.iloc[self.train], self.data.y[self.train])
        return float(classifier.score(self.data.X.iloc[self.test], self.data.y[self.test]))


def splits() -> list[Split]:
    from ...tables.generated import census, digits

    tables = [(data, int(0.8 * len(data.y))) for data in (census(CENSUS_ROWS), digits())]
    return [Split(data, slice(0, end), slice(end, None)) for data, end in tables]


@app.command()
def demo(
    json_output: JsonFlag = False,
    out: Annotated[Path, typer.Option(help="Folder to write the statement to, as JSON and text.")] = Path(
        "noisewise-demo"
    ),
    files: Annotated[
        Path | None,
        typer.Option(help="Train nothing: only write the files of the guide for analysts to this folder."),
    ] = None,
) -> None:
    """Train on embedded data, private against non-private, at three budgets.

    Example: [bold]noisewise demo --out my-demo[/bold]

    Files to try other commands on: [bold]noisewise demo --files .[/bold]
    """
    if files is not None:
        _write_people(files, json_output)
        return
    from ...accounts.paying import spending
    from ..sklearn import PrivateClassifier

    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    statement = None
    with bar("training", share=True) as report:
        for split in splits():
            settings: dict[str, Any] = {"delta": DELTA, "schema": split.data.schema}
            row: dict[str, Any] = {"data": split.data.name, "records": split.train.stop}
            row["features"] = split.data.X.shape[1]
            with spending(*TOGETHER, dataset=f"demo {split.data.name}"):  # the models share their records
                for epsilon in BUDGETS:
                    classifier = PrivateClassifier(epsilon=epsilon, **settings)
                    row[f"epsilon={epsilon:g}"] = split.accuracy(classifier, report)
                    if split.data.name == "census" and epsilon == BUDGETS[1]:
                        statement = classifier.statement_
            reference = PrivateClassifier(method="nonprivate", **settings)
            row["non-private"] = split.accuracy(reference, report)
            rows.append(row)
    assert statement is not None
    write_atomically(out / "statement.json", f"{statement.to_json()}\n".encode())
    write_atomically(out / "statement.txt", f"{statement}\n".encode())
    plot_accuracies(rows, out / "accuracy.png")
    write_census(out)
    if json_output:
        print_json({"rows": rows, "statement": dict(statement.data), "seconds": time.perf_counter() - started})
        return
    console = Console()
    table = Table(title=f"Accuracy on held-out rows, delta {DELTA:g}, add_remove", title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("epsilon=", "eps "), justify="left" if name == "data" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{value:.1%}" if isinstance(value, float) else f"{value}" for value in row.values()))
    console.print(table)
    console.print(Panel(str(statement), title=f"privacy statement of the census model, epsilon {BUDGETS[1]:g}"))
    words = (
        f"The three private models of a data set share their records, so they promise ({TOGETHER[0]:g}, {TOGETHER[1]:g}) together.\n"
        f"Written to {out}: statement.json, statement.txt, accuracy.png, census.csv, new.csv, schema.toml.\n"
        f"Check the promise yourself: noisewise verify {out}/statement.json\n"
        f"Train from a file: noisewise train {out}/census.csv --schema {out}/schema.toml --epsilon 1 --delta 1e-6"
    )
    console.print(words, highlight=False, soft_wrap=True)


def write_census(out: Path, *, private: int = FILE_ROWS, new: int = NEW_ROWS) -> None:
    """The generated census as files for other commands: private rows, new rows, and their schema."""
    from ...tables.generated import census
    from ...tables.schema import Column, Schema

    table = census(CENSUS_ROWS)
    frame = table.X.round(3).assign(income=["high" if label else "low" for label in table.y])
    write_atomically(out / "census.csv", frame.iloc[:private].to_csv(index=False).encode())
    write_atomically(out / "new.csv", frame.iloc[private : private + new].to_csv(index=False).encode())
    columns = [Column(name, "number", low, high) for name, (low, high) in table.schema.items()]
    schema = Schema((*columns, Column("income", "category", categories=("low", "high"))), "income")
    write_atomically(out / "schema.toml", schema.to_toml().encode())


def _write_people(folder: Path, json_output: bool) -> None:
    """The files that docs/guide-analyst.md begins with; an existing file is refused."""
    from ...tables.generated import people

    folder.mkdir(parents=True, exist_ok=True)
    if there := [name for name in PEOPLE if os.path.lexists(folder / name)]:
        raise ValueError(f"{folder / there[0]} exists already; pass another folder as --files, or remove it first")
    for name, (rows, seed) in PEOPLE.items():
        write_atomically(folder / name, people(rows, seed=seed).to_csv(index=False).encode())
    document = {"written": [str(folder / name) for name in PEOPLE]}
    answer(document, f"Written to {folder}: {', '.join(PEOPLE)}", json_output)


def plot_accuracies(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy over epsilon, a panel for each data set, with the non-private accuracy as a dashed line."""
    from ...evidence.figures import label_axes, note, panels, save_figure, ticks

    figure, row_of_panels = panels(8, 3.4, 1, len(rows), sharey=True, grid=False)
    for row, axes in zip(rows, row_of_panels, strict=True):
        accuracies = [row[f"epsilon={epsilon:g}"] for epsilon in BUDGETS]
        axes.axhline(row["non-private"], color="#777777", linestyle="--", linewidth=1)
        plainly, last = row["non-private"], len(BUDGETS) - 1
        top = max(plainly, accuracies[0]) if abs(plainly - accuracies[0]) < 0.1 else plainly  # above the line, too
        note(axes, f"without privacy {plainly:.1%}", (BUDGETS[0], top), (0, 7), color="#555555")
        axes.plot(BUDGETS, accuracies, "o-", color="#0b6e99")
        for place, (epsilon, accuracy) in enumerate(zip(BUDGETS, accuracies, strict=True)):
            how: dict[str, Any] = {"ha": "center" if place == last else "left", "color": "#0b6e99", "weight": "bold"}
            note(axes, f"{accuracy:.1%}", (epsilon, accuracy), (0 if place == last else 4, -16), **how)
        title = f"{row['data']}: {row['records']:,} records, {row['features']} features"
        label_axes(axes, title=title, x=f"epsilon (delta {DELTA:g})", log="x")
        axes.set_xlim(0.06, 14)
        ticks(axes, BUDGETS)
        axes.set_ylim(0, 1.05)
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    label_axes(row_of_panels[0], y="accuracy on held-out rows")
    save_figure(figure, path, dpi=120)
