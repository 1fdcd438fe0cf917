"""Other methods at the same budget, simulated on public data: what ``noisewise compare`` put into the folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..metrics import SHARES, WORDS
from .charts import Interval, interval_chart
from .markup import Markup, SectionPart, charts, figure, join, name_of, table, tag
from .run_folder import RunFolder
from .sentences import number, percent

Z = 1.96  # 95 % of a normal distribution


def comparison(folder: RunFolder) -> SectionPart | None:
    """A row for each method, the best first, and one for a single answer for all."""
    document = folder.comparison
    if document is None:
        return None
    metric, lower = document["metric"], any(word in document["metric"].lower() for word in ("error", "loss"))
    done = [row for row in document["rows"] if row["mean"] is not None and math.isfinite(row["mean"])]
    done.sort(key=lambda row: row["mean"] if lower else -row["mean"])
    own = folder.statement["method"]["name"]
    shown = [_row(row, own, metric) for row in done] + _constant(document, metric)
    label, title = f"{metric} ({'lower' if lower else 'higher'} is better)", f"{metric} of each method"
    chart = interval_chart("comparison", shown, title=title, x_label=label, show=partial(measured, metric))
    size = "" if document["size"] is None else f", {number(document['size'])} private records"
    refused = [(name_of(row["method"]), row["refused"]) for row in document["rows"] if row["refused"]]
    note = document["note"] if isinstance(document.get("note"), str) else "No private record was used for it."
    told = (
        f"Simulated on public data, {number(document['repeats'])} runs of each method at epsilon "
        f"{number(document['epsilon'])}, delta {number(document['delta'])}, {document['adjacency']}{size}. {note}"
    )
    title = f"{metric[:1].upper()}{metric[1:]} of each method, best first"
    caption = "Bars are 95 % ranges of the mean over runs; hollow ones have no privacy or no model."
    without = table(("did not run", "because"), refused) if refused else None
    body = join(tag("p", told), charts(figure(title, chart, caption)), without, _others(done, metric))
    return SectionPart("methods", "Compared with other methods", body)


def _row(row: Mapping[str, Any], own: str, metric: str) -> Interval:
    error = row["standard_error"]
    known = error is not None and 0 < error < math.inf
    about = (
        ", this run's method" if row["method"] == own else "",
        ", with public rows" if row["public"] else "",
        ", no privacy" if row.get("private", row["method"] != "nonprivate") is False else "",
    )
    return Interval(
        row["method"] + "".join(about),
        row["mean"],
        (row["mean"] - Z * error, row["mean"] + Z * error) if known else None,
        text=measured(metric, row["mean"]),
        faint=bool(about[2]),
    )


def _constant(document: Mapping[str, Any], metric: str) -> list[Interval]:
    value = document.get("constant")
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return []
    return [Interval("one answer for all", float(value), None, text=measured(metric, value), faint=True)]


def measured(metric: str, value: float) -> str:
    """Rates as percentages, all else as numbers."""
    rate = any(word in metric.lower() for word in ("accuracy", "precision", "recall")) and 0 <= value <= 1
    return percent(value) if rate else number(value)


def _others(rows: Sequence[Mapping[str, Any]], metric: str) -> Markup | None:
    """The other figures of simulated methods, folded."""
    having = [row for row in rows if row.get("metrics")]
    names = [name for name in WORDS if name != metric and any(name in row["metrics"] for row in having)]
    if not names:
        return None
    lines = [(name_of(row["method"]), *(_shown(row, name) for name in names)) for row in having]
    inside = table(("method", *(WORDS[name] for name in names)), lines, numeric=range(1, len(names) + 1), wide=True)
    return tag("details", tag("summary", "Other figures of each method, means"), inside, class_="unprinted")


def _shown(row: Mapping[str, Any], name: str) -> str:
    value = row["metrics"].get(name, {}).get("value")
    if value is None or math.isnan(value):
        return "-"
    return percent(value) if name in SHARES and 0 <= value <= 1 else number(value, 3)
