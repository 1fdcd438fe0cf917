"""The style of every picture: colours that differ in greyscale, lines and marks that differ without colour."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from ..accounts.atomic import write_atomically

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#9B4F96", "#666666"
PALE = "#AAAAAA"
FORMATS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps")
STYLES: list[tuple[str, Any, str]] = [
    (BLUE, "-", "o"),
    (ORANGE, "--", "s"),
    (GREEN, "-.", "^"),
    (PURPLE, ":", "D"),
    ("#8C6D00", (0, (5, 1, 1, 1)), "v"),
]


def panels(width: float, height: float, down: int = 1, across: int = 1, *, grid: bool = True, **options: Any) -> Any:
    """A figure and its axes: one, or an array of them."""
    from matplotlib.figure import Figure  # slow to import, and most commands draw nothing

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(down, across, **options)
    for one in figure.axes:
        one.spines[["top", "right"]].set_visible(False)
        if grid:
            one.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
            one.set_axisbelow(True)
    return figure, axes


def label_axes(
    axes: Any, *, title: str | None = None, x: str | None = None, y: str | None = None, log: str = ""
) -> None:
    """Title and labels; ``log`` names the axes that are logarithmic, e.g. "xy"."""
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if title is not None:
        axes.set_title(title, loc="left", fontsize=10)
    if x is not None:
        axes.set_xlabel(x)
    if y is not None:
        axes.set_ylabel(y)


def ticks(axes: Any, values: Sequence[float], **options: Any) -> None:
    """Exactly these ticks on the x axis."""
    axes.set_xticks(values, [f"{value:g}" for value in values], **options)
    axes.minorticks_off()


def note(axes: Any, text: str, at: tuple[float, float], shift: tuple[float, float], **options: Any) -> None:
    """A few words, ``shift`` points away from ``at``."""
    axes.annotate(text, at, shift, textcoords="offset points", **options)


def band(axes: Any, x: Any, low: Any, middle: Any, high: Any, *, alpha: float = 0.2, **options: Any) -> None:
    """A line inside the range around it."""
    axes.plot(x, middle, **options)
    axes.fill_between(x, low, high, color=options["color"], alpha=alpha, linewidth=0)


def legend_below(figure: Any, axes: Any, columns: int = 4, **options: Any) -> None:
    """One legend for the axes, each label once, under all panels."""
    shown: dict[str, Any] = {}
    for one in getattr(axes, "flat", [axes]):
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=columns, frameon=False, **options)


def picture_file(path: Path) -> Path:
    """The path, if its suffix is that of a picture; checked before any slow work."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path} has no picture format that is known; name it FILE.png, .pdf or .svg")
    return path


def save_figure(figure: Any, path: Path, dpi: int = 140) -> None:
    """Write the figure in the format of the file name, whole or not at all."""
    buffer = BytesIO()
    figure.savefig(buffer, format=picture_file(path).suffix[1:].lower(), dpi=dpi)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
