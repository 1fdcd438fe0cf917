"""Protectors and their results in words and tables that fit a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
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
        data = "\n".join(row["trained_on"]) or "not said"
        table.add_row(Text(row["name"]), Text(data), ranges, f"{row['weights']:,}", f"{row['kilobytes']:.1f}")
        table.add_section()
    return table


def header_table(learned: Learned) -> Table:
    """The header of a protector, a line for each thing."""
    table = Table.grid(padding=(0, 2))
    for label, text in _words(learned):
        table.add_row(label, Text(text))  # a stranger's words are no markup
    return table


def _words(learned: Learned) -> list[tuple[str, str]]:
    """The header in words, a line for each thing."""
    header, design, recipe = learned.header, learned.design, learned.header.get("recipe", {})
    trained_on = [f"{entry['data']} ({entry['licence']})" for entry in header.get("trained_on", [])]
    parts = ["schedule"] * design.scheduler + ["steps"] * design.projector + ["clip norm"] * design.clip
    form = "a share of what is left" if design.form == "exact" else "a share of the whole budget, until it ends"
    norm = f"; {design.norm_share:.0%} of the budget for gradient norms" if design.norm_share else ""
    how = f"{recipe['constraint']}, {recipe['epochs']} epochs, seed {recipe['seed']}" if recipe else "not said"
    return [
        ("name", learned.name),
        ("trained on", ", ".join(trained_on) or "not said"),
        ("for", "; ".join(f"{_range(header['ranges'][key])} {word}" for key, word in RANGES.items())),
        ("steps", f"{learned.horizon} recommended"),
        ("learns", f"{', '.join(parts) or 'nothing'}; spends {form}; {design.inputs} inputs{norm}"),
        ("weights", f"{_weights(learned):,}, LSTMs of {design.units} units, SHA-256 {learned.digest}"),
        ("recipe", how + (f", {header['seconds']:.0f} s" if "seconds" in header else "")),
        ("made by", f"noisewise {header.get('version', '(version not said)')}"),
        ("command", header.get("command") or "not said"),
    ]


def held_out(rows: list[dict[str, Any]], title: str) -> Table:
    """An evaluation: means, and by how much the learned protector is better, paired, with standard errors."""

    def gain(row: dict[str, Any], key: str, factor: float, digits: int) -> str:
        if row[key] is None:
            return ""
        error = "" if row[f"{key}_se"] is None else f" ± {factor * row[f'{key}_se']:.{digits}f}"
        return f"{factor * row[key]:+.{digits}f}{error}"

    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
        caption_justify="left",
        caption="gains: learned against the row's protector, same tasks and noise",
    )
    table.add_column("epsilon", justify="right")
    table.add_column("protector", no_wrap=True)
    for name in ("loss", "right %", "spent %", "gain in loss", "gain in %"):
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in rows:
        accuracy = "" if row["accuracy"] is None else f"{100 * row['accuracy']:.2f}"
        table.add_row(
            f"{row['epsilon']:g}" if row["epsilon"] != last else "",
            row["protector"],
            f"{row['loss']:.3f}",
            accuracy,
            f"{100 * row['spent']:.1f}",
            gain(row, "loss_gain", 1, 3),
            gain(row, "accuracy_gain", 100, 2),
        )
        last = row["epsilon"]
    return table


def _weights(learned: Learned) -> int:
    return sum(weight.size for weight in learned.weights.tensors().values())


def _range(bounds: list[float]) -> str:
    low, high = (f"{bound:,.6g}" for bound in bounds)
    return low if low == high else f"{low} to {high}"
