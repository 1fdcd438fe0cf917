"""Pictures of protectors: how training went, and what a trained one does, step by step, on a public task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..evidence.figures import BLUE, GREEN, GREY, ORANGE, band, label_axes, legend_below, panels, save_figure
from ..protect.learned.parts import protector
from ..protect.learned.weights import base_step, zero_weights
from ..protect.learned.zoo import Learned
from ..protect.protector import Protector
from ..trusted.torch_extra import torch
from .evaluate import NOTHING_LEFT, held_out_task
from .meta_training import Epoch
from .tasks import Tasks, TaskSource
from .unroll import PublicTask, advance, calibrated_losses, start

SHOWN_EPSILONS = (0.05, 0.2, 0.8)
SHOWN_SIZE = 20_000


class Steps(NamedTuple):
    """The protector at each step (T, R); NaN where a copy had stopped."""

    noise: NDArray[np.float64]
    clip: NDArray[np.float64]
    rate: NDArray[np.float64]
    loss: NDArray[np.float64]


@dataclass(frozen=True)
class ComparedProtectors:
    """The learned and the zero-weight protector on one task at one epsilon."""

    epsilon: float
    learned: Steps
    untrained: Steps


def watched(part: Protector, task: PublicTask, seed: int = 0) -> Steps:
    """Noise relative to equal noise, clip norm, step along the gradient relative to the base step, and loss."""
    generator = torch.Generator().manual_seed(seed)
    columns: list[list[NDArray[np.float64]]] = [[], [], [], []]
    with torch.no_grad():
        run, going = start(part, task), torch.ones(task.copies, dtype=torch.bool)
        for _ in range(task.horizon):
            before = run.thetas
            run, track = advance(part, task, run, 1, generator, limited=True)
            gradient, signal = run.signal.gradient, run.signal
            along = -((run.thetas - before) * gradient).sum(1) / gradient.square().sum(1).clamp(min=1e-20)
            rate = along / base_step(signal)
            noise = (task.horizon * track.spent[0].clamp(min=1e-12)).rsqrt()
            loss = calibrated_losses(task, run.thetas)  # theta gets its scale at the end: on the way it is no matter
            for column, values in zip(columns, (noise, track.clips[0], rate, loss), strict=True):
                column.append(torch.where(going, values, torch.nan).double().numpy())
            going = going & (run.signal.remaining > NOTHING_LEFT)
    return Steps(*(np.array(column) for column in columns))


def shown_task(learned: Learned, epsilon: float, copies: int) -> PublicTask:
    """A generated task for the protector: a perceptron if it was trained on perceptrons alone."""
    models = {source.get("model", "linear") for source in learned.header.get("tasks", {}).get("source", [])}
    source = TaskSource("gaussian", columns=(40, 40), basis=1.0, model="mlp" if models == {"mlp"} else "linear")
    tasks = Tasks("shown", (source,), size=(SHOWN_SIZE, SHOWN_SIZE))
    return held_out_task(tasks, 0, 1, epsilon=epsilon, horizon=learned.horizon, copies=copies)


def behaviour(
    learned: Learned, epsilons: tuple[float, ...] = SHOWN_EPSILONS, copies: int = 24
) -> list[ComparedProtectors]:
    parts = [protector(weights, learned.design) for weights in (learned.weights, zero_weights(learned.design))]
    tasks = [shown_task(learned, epsilon, copies) for epsilon in epsilons]
    return [
        ComparedProtectors(epsilon, *(watched(part, task) for part in parts))
        for epsilon, task in zip(epsilons, tasks, strict=True)
    ]


def plot_behaviour(learned: Learned, path: Path, *, copies: int = 24) -> list[ComparedProtectors]:
    """Noise, clip norm, step size and loss per step, a colour for each epsilon; bands: 10 to 90 % of the copies."""
    results = behaviour(learned, copies=copies)
    task = shown_task(learned, SHOWN_EPSILONS[0], 1)
    figure, grid = panels(10.5, 7.0, 2, 2)
    noise, clip, rate, loss = grid.flat
    for result, colour in zip(results, (ORANGE, GREEN, BLUE), strict=True):
        for axes, field in ((noise, "noise"), (clip, "clip"), (rate, "rate"), (loss, "loss")):
            _band(axes, getattr(result.learned, field), colour, "-", f"epsilon {result.epsilon:g}")
        _band(loss, result.untrained.loss, colour, "--", None)
    noise.axhline(1, color=GREY, linestyle="--", linewidth=1)
    clip.axhline(float(results[0].untrained.clip[0, 0]), color=GREY, linestyle="--", linewidth=1)
    rate.axhline(1, color=GREY, linestyle="--", linewidth=1)
    titles = (
        ("Noise multiplier relative to equal noise", "ratio"),
        ("Clip norm", "norm"),
        ("Step along the gradient relative to zero weights", "ratio"),
        ("Loss on the task's rows, theta at its best scale", "mean loss"),
    )
    for axes, (title, label) in zip(grid.flat, titles, strict=True):
        label_axes(axes, title=title, x="step", y=label)
    _wide_enough(noise)
    _wide_enough(clip)
    top = max(float(np.nanmax(np.nanquantile(result.learned.rate, 0.9, axis=1))) for result in results)
    rate.set_ylim(0, 1.1 * max(top, 1.0))
    noise.plot([], [], color=GREY, linestyle="--", linewidth=1, label="zero-weight protector")
    legend_below(figure, noise)
    kind = "a perceptron" if len(task.rows.model.groups) > 1 else "logistic regression"
    figure.suptitle(
        f"Protector {learned.name}: {kind} on a generated table, n = {SHOWN_SIZE:,}, d = {task.rows.model.dimension}, "
        f"T = {learned.horizon}\nmedians; bands: 10 to 90 % of {copies} runs",
        fontsize=10,
    )
    save_figure(figure, path, dpi=130)
    return results


def plot_curves(curve: list[Epoch], path: Path, *, title: str) -> None:
    """The objective and the spent share of the budget over epochs, each with its running median over 20."""
    figure, (objective, budget) = panels(8.4, 3.6, 1, 2)
    epochs = np.array([epoch.number + 1 for epoch in curve])
    lines = (
        (objective, "Objective, relative to the loss at the start", "objective", [epoch.objective for epoch in curve]),
        (budget, "Spent budget", "share of the budget", [epoch.spent for epoch in curve]),
    )
    for axes, what, label, values in lines:
        top = 1.3 * float(np.quantile(values, 0.95))  # a task that goes wrong should not flatten the rest
        off = np.array(values) > top
        dots = {"color": "#9BC4DD", "markersize": 4, "label": "one epoch (each has its own task)"}
        axes.plot(epochs[~off], np.array(values)[~off], ".", **dots)
        axes.plot(epochs[off], np.full(off.sum(), top), "^", color="#9BC4DD", markersize=5)
        axes.plot(epochs, np.minimum(_running(values), top), color=BLUE, linewidth=1.8, label="median of the last 20")
        label_axes(axes, title=what, x="epoch", y=label)
    budget.plot([], [], "^", color="#9BC4DD", markersize=5, label="off the scale")
    budget.axhline(1, color=ORANGE, linestyle="--", linewidth=1, label="the whole budget")
    low, high = budget.get_ylim()
    budget.set_ylim(min(low, 0.8), max(high, 1.2))
    legend_below(figure, budget)
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path, dpi=130)


def _running(values: list[float], window: int = 20) -> NDArray[np.float64]:
    """Median of the last ``window`` values, of fewer at the start.

    >>> _running([1.0, 3.0, 5.0, 0.0], 3).tolist()
    [1.0, 2.0, 3.0, 3.0]
    """
    return np.array([np.median(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)])


def _band(axes: Any, values: NDArray[np.float64], colour: str, line: str, label: str | None) -> None:
    """The median and the 10 to 90 % band over copies; steps after every copy had stopped are left out."""
    values = values[~np.isnan(values).all(1)]
    steps = np.arange(1, len(values) + 1)
    low, middle, high = np.nanquantile(values, (0.1, 0.5, 0.9), axis=1)
    strong = line == "-"
    alpha, width = (0.18, 1.7) if strong else (0.08, 1.2)
    look = {"color": colour, "linestyle": line, "linewidth": width, "label": label}
    band(axes, steps, low, middle, high, alpha=alpha, **look)


def _wide_enough(axes: Any) -> None:
    """Axis limits with room around small changes; a logarithmic axis for large ones."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # slow to import

    low, high = axes.dataLim.intervaly
    if high <= 5 * low:
        axes.set_ylim(min(0.95 * low, 0.75 * high), max(1.05 * high, 1.25 * low))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
