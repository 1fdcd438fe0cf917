"""``noisewise protector``: train protectors on public tasks, and say what those at hand are, do and are worth."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..progress import bar, bars
from .common import note, numbers
from .main import JsonFlag, app, errors, narrow_table, print_json

if TYPE_CHECKING:
    from ...learned.trained import TrainingPlan
    from ...protect.learned.zoo import Learned

RANGES = {"size": "records", "dimension": "parameters", "epsilon": "epsilon", "horizon": "steps"}


def summary(name: str, learned: Learned, size: int) -> dict[str, Any]:
    """What a list says of a protector whose file has ``size`` bytes."""
    return {
        "name": name,
        "trained_on": [entry["data"] for entry in learned.header.get("trained_on", [])],
        "ranges": learned.header["ranges"],
        "horizon": learned.horizon,
        "weights": _weights(learned),
        "kilobytes": round(size / 1000, 1),
        "sha256": learned.digest,
    }


def listed(rows: list[dict[str, Any]]) -> Table:
    """Protectors as a table, a line for each range."""
    table = Table(title="Protectors in the package", title_justify="left", box=box.SIMPLE)
    for name in ("name", "trained on", "for"):
        table.add_column(name)
    for name in ("weights", "KB"):
        table.add_column(name, justify="right")
    for row in rows:
        ranges = "\n".join(f"{_range(row['ranges'][key])} {word}" for key, word in RANGES.items())
        data = "\n".join(row["trained_on"]) or "unknown"
        table.add_row(Text(row["name"]), Text(data), ranges, f"{row['weights']:,}", f"{row['kilobytes']:.1f}")
        table.add_section()
    return table


def _header(learned: Learned) -> Table:
    """The header of a protector in words, a line for each fact."""
    header, design, recipe = learned.header, learned.design, learned.header.get("recipe", {})
    trained_on = [f"{entry['data']} ({entry['licence']})" for entry in header.get("trained_on", [])]
    parts = ["schedule"] * design.scheduler + ["steps"] * design.projector + ["clip norm"] * design.clip
    form = "a share of what is left" if design.form == "exact" else "a share of the whole budget, until it ends"
    norm = f"; {design.norm_share:.0%} of the budget for gradient norms" if design.norm_share else ""
    how = f"{recipe['constraint']}, {recipe['epochs']} epochs, seed {recipe['seed']}" if recipe else "unknown"
    lines = [
        ("name", learned.name),
        ("trained on", ", ".join(trained_on) or "unknown"),
        ("for", "; ".join(f"{_range(header['ranges'][key])} {word}" for key, word in RANGES.items())),
        ("steps", f"{learned.horizon} recommended"),
        ("learns", f"{', '.join(parts) or 'nothing'}; spends {form}; {design.inputs} inputs{norm}"),
        ("weights", f"{_weights(learned):,}, LSTMs of {design.units} units, SHA-256 {learned.digest}"),
        ("recipe", how + (f", {header['seconds']:.0f} s" if "seconds" in header else "")),
        ("made by", f"noisewise {header.get('version', '(unknown version)')}"),
        ("command", header.get("command") or "unknown"),
    ]
    table = Table.grid(padding=(0, 2))
    for label, text in lines:
        table.add_row(label, Text(text))  # the words of an untrusted file are no markup
    return table


def held_out(rows: list[dict[str, Any]], title: str) -> Table:
    """An evaluation: means, and the paired gains of the learned protector with standard errors."""

    def gain(row: dict[str, Any], key: str, factor: float, digits: int) -> str:
        if row[key] is None:
            return ""
        error = "" if row[f"{key}_se"] is None else f" ± {factor * row[f'{key}_se']:.{digits}f}"
        return f"{factor * row[key]:+.{digits}f}{error}"

    caption = "gains: learned against the row's protector, same tasks and noise"
    table = narrow_table(title=title, caption=caption)
    for name in ("epsilon", "protector", "loss", "right %", "spent %", "gain in loss", "gain in %"):
        table.add_column(name, justify="left" if name == "protector" else "right", no_wrap=name != "epsilon")
    last = None
    for row in rows:
        epsilon = f"{row['epsilon']:g}" if row["epsilon"] != last else ""
        accuracy = "" if row["accuracy"] is None else f"{100 * row['accuracy']:.2f}"
        gains = gain(row, "loss_gain", 1, 3), gain(row, "accuracy_gain", 100, 2)
        table.add_row(epsilon, row["protector"], f"{row['loss']:.3f}", accuracy, f"{100 * row['spent']:.1f}", *gains)
        last = row["epsilon"]
    return table


def _weights(learned: Learned) -> int:
    return sum(weight.size for weight in learned.weights.tensors().values())


def _range(bounds: list[float]) -> str:
    low, high = (f"{bound:,.6g}" for bound in bounds)
    return low if low == high else f"{low} to {high}"


protector = typer.Typer(
    help="Learned protectors: train them on public tasks, list, show, plot and evaluate them.", no_args_is_help=True
)
app.add_typer(protector, name="protector")

Which = Annotated[str, typer.Argument(help="A protector in the package, e.g. linear, or a file.", metavar="NAME|FILE")]
TaskFile = Annotated[
    str, typer.Argument(help="A task file, or the name of one in the package, e.g. generated.", metavar="TASKS.toml")
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the data files of the tasks.", exists=True, file_okay=False, show_default="the task file's"
    ),
]


@protector.command()
def train(
    tasks: TaskFile,
    out: Annotated[Path, typer.Option(help="File to write; curves as CSV and PNG go beside it.", dir_okay=False)],
    data: Data = None,
    preset: Annotated[str, typer.Option(help="default, or paper: 50 batches of 20 steps, 100 epochs.")] = "default",
    constraint: Annotated[
        str | None, typer.Option(help="exact, lagrangian, tent, batch_lagrangian or batch_tent.", show_default=False)
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of training.", show_default=False)] = None,
    units: Annotated[int | None, typer.Option(min=1, help="Units of an LSTM layer.", show_default=False)] = None,
    clip: Annotated[bool | None, typer.Option("--clip/--no-clip", help="Learn the clip norm too.")] = None,
    inputs: Annotated[str | None, typer.Option(help="normalised or paper.", show_default=False)] = None,
    norm_share: Annotated[
        float | None, typer.Option(help="Share of each step's budget for a gradient norm.", show_default=False)
    ] = None,
    start_rate: Annotated[
        float | None, typer.Option(help="First steps, relative to those of zero weights.", show_default=False)
    ] = None,
    start_clip: Annotated[
        float | None, typer.Option(help="First clip norms, relative to those of zero weights.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, tasks and noise.")] = 0,
    name: Annotated[str | None, typer.Option(help="Its name.", show_default="that of the tasks")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint of a stopped run.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Train a protector on public tasks, judge it on held-out ones, and write it with its papers.

    A run that is stopped (Ctrl-C) leaves FILE.checkpoint behind, from which --resume goes on to the same weights.

    Example: [bold]noisewise protector train generated --out mine.safetensors --epochs 100[/bold]
    """
    from ...learned.trained import checkpoint_of, curves_of, train_protector

    options: dict[str, Any] = {"epochs": epochs, "constraint": constraint, "units": units, "clip": clip}
    options |= {"inputs": inputs, "norm_share": norm_share, "start_rate": start_rate, "start_clip": start_clip}
    plan = _plan(tasks, out, data, preset, seed, name, {key: v for key, v in options.items() if v is not None})
    try:
        with _training_bar(plan) as report:
            learned = train_protector(plan, out, resume=resume, report=report)
    except KeyboardInterrupt:
        note(f"stopped; {checkpoint_of(out)} is kept, pass --resume to go on")
        raise typer.Exit(130) from None
    if json_output:
        print_json(learned.header)
    else:
        Console().print(held_out(learned.header["held_out"], f"{learned.name} on held-out public tasks"))
    files = ", ".join(str(path) for path in (out, *curves_of(out)))
    note(f"written: {files} ({learned.header['seconds']:.0f} s of training)")


def _plan(
    tasks: str, out: Path, data: Path | None, preset: str, seed: int, name: str | None, options: dict[str, Any]
) -> TrainingPlan:
    """The preset with the options that were passed, and the command that repeats it."""
    from dataclasses import replace

    from ...learned.trained import PRESETS, TrainingPlan, find_tasks, paper_tasks
    from ...trusted import validate

    validate.one_of(tuple(PRESETS), preset=preset)
    recipe, design = PRESETS[preset]
    of_recipe = {key: options[key] for key in ("epochs", "constraint", "start_rate", "start_clip") if key in options}
    of_design = {key: value for key, value in options.items() if key not in of_recipe}
    recipe, design = replace(recipe, seed=seed, **of_recipe), replace(design, **of_design)
    distribution = find_tasks(tasks, data)
    if preset == "paper":
        distribution = paper_tasks(distribution)
    command = ["noisewise", "protector", "train", Path(tasks).name, "--out", out.name]
    command += ["--data", "FOLDER"] if any(source.file for source in distribution.sources) else []
    command += ["--preset", preset] if preset != "default" else []
    for key, value in options.items():
        command += ["--clip" if value else "--no-clip"] if key == "clip" else [f"--{key.replace('_', '-')}", str(value)]
    command += ["--seed", str(seed)]
    command += ["--name", name] if name else []
    return TrainingPlan(name or distribution.name, distribution, design, recipe, shlex.join(command))


@contextmanager
def _training_bar(plan: TrainingPlan) -> Iterator[Callable[[Any], None]]:
    """A bar with objective, spent budget, seconds per meta-step and time left; then one for the evaluation."""
    from ...learned.meta_training import Epoch

    updates = max(plan.recipe.scheduler_updates + plan.recipe.projector_updates, 1)
    with bars(transient=False) as show:
        smooth: dict[str, float] = {}

        def report(news: Any) -> None:
            if not isinstance(news, Epoch):
                show(*news)
                return
            for key in ("objective", "spent", "seconds"):  # tasks differ: a single epoch is a poor measure
                smooth[key] = 0.9 * smooth.get(key, getattr(news, key)) + 0.1 * getattr(news, key)
            text = f"objective {smooth['objective']:.3f}, spent {smooth['spent']:.3f}, {smooth['seconds'] / updates:.2f} s a meta-step"
            show("training", news.number + 1, plan.recipe.epochs, text)

        yield report


@protector.command("list")
def list_protectors(json_output: JsonFlag = False) -> None:
    """List the protectors that come with the package: what each was trained on, and for which ranges.

    Example: [bold]noisewise protector list[/bold]
    """
    from importlib.resources import files

    from ...protect.learned.zoo import named, names

    rows = []
    for name in names():
        learned = named(name)
        stored = files("noisewise.protect.learned").joinpath(f"protectors/{name}.safetensors").read_bytes()
        rows.append(summary(name, learned, len(stored)))
    if json_output:
        print_json({"protectors": rows})
    else:
        Console().print(listed(rows))


@protector.command()
def show(which: Which, json_output: JsonFlag = False) -> None:
    """Say what a protector was trained on, for what, how, and how it did on held-out public tasks.

    Example: [bold]noisewise protector show clear[/bold]
    """
    from ...protect.learned.zoo import named

    learned = named(which)
    header = learned.header
    if json_output:
        print_json(header)
        return
    Console().print(_header(learned))
    if header.get("held_out"):
        Console().print(held_out(header["held_out"], "On held-out public tasks"))


@protector.command()
def plot(
    which: Which,
    out: Annotated[Path, typer.Option(help="Picture to write, e.g. FILE.png (or .pdf, .svg).", dir_okay=False)],
    json_output: JsonFlag = False,
) -> None:
    """Draw what a protector does on a generated task: noise, clip norm, step size and loss at every step.

    Example: [bold]noisewise protector plot clear --out clear.png[/bold]
    """
    from ...learned.evaluate import on_one_thread
    from ...learned.plots import plot_behaviour
    from ...protect.learned.zoo import named

    learned = named(which)
    with errors.status("running the protector on a generated task"), on_one_thread():
        plot_behaviour(learned, out)
    if json_output:
        print_json({"protector": learned.name, "written": str(out)})
    note(f"written: {out}")


@protector.command()
def evaluate(
    which: Which,
    tasks: TaskFile,
    data: Data = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Comma-separated; by default the usual ones in the tasks' range.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Horizon; by default the recommended one.")] = None,
    many: Annotated[int, typer.Option(min=1, help="Held-out tasks for each epsilon.")] = 16,
    parts: Annotated[bool, typer.Option("--parts", help="Also with equal noise, and with a fixed clip norm.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Compare a protector with the zero-weight one and designed momentum descent, on the same held-out public tasks.

    Gains of the learned protector are paired by task, with standard errors over tasks.

    Example: [bold]noisewise protector evaluate clear generated --epsilons 0.05,0.2[/bold]
    """
    from ...learned.evaluate import evaluate_protector, on_one_thread
    from ...learned.trained import find_tasks
    from ...protect.learned.zoo import named

    learned, distribution = named(which), find_tasks(tasks, data)
    chosen = None if epsilons is None else numbers(epsilons, "epsilons")
    with bar("held-out runs", transient=False) as report, on_one_thread():
        rows = evaluate_protector(
            learned, distribution, epsilons=chosen, horizon=steps, many=many, parts=parts, report=report
        )
    horizon = steps or learned.horizon
    if json_output:
        named_by = {"protector": learned.name, "tasks": distribution.name}
        print_json({**named_by, "horizon": horizon, "many": many, "rows": rows})
    else:
        title = f"{learned.name} on {many} held-out tasks of {distribution.name}, {horizon} steps"
        Console().print(held_out(rows, title))
