"""``noisewise train --dry-run``: what a run would do, from names and declarations alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .main import print_json, say
from .request import AUTO, Asked, of_classes, planned

if TYPE_CHECKING:
    from ...tables.resolve import Resolved


def show_plan(asked: Asked, resolved: Resolved, out: Path, json_output: bool) -> None:
    """What a run would do, from names and declarations alone."""
    from ...accounts.concerns import concerns
    from ...tables.fit.auto import choice_for, why
    from ...tables.rows import columns_of
    from ...tables.schema import gaps
    from ...trusted.units import CLIENT

    reasons = None
    if asked.chosen == AUTO:
        training = planned(asked, resolved).training_budget()
        reasons = why(choice_for(columns_of(resolved.imagined), training, None, asked.layers))
    method, face = planned(asked, resolved).method, "Classifier" if of_classes(resolved.imagined) else "Regressor"
    columns = [{"name": column.name, "kind": column.kind} for column in resolved.schema.columns]
    to_buy = [gap.column for gap in gaps(resolved.schema)]
    notes = [*resolved.notes, *concerns(asked.budget.epsilon, asked.budget.delta).values()]
    client = asked.federated is not None and asked.federated.unit == "client"
    unit = CLIENT if client else resolved.schema.protects.words
    document = {
        "dry_run": True, "method": method.name, "estimator": f"Private{face}", "target": resolved.schema.target,
        "epsilon": asked.budget.epsilon, "delta": asked.budget.delta, "adjacency": asked.budget.adjacency,
        "unit": unit, "setting": "central" if asked.federated is None else "federated, trusted server",
        "columns": columns, "bounds_to_buy": to_buy, "bounds_epsilon": asked.bounds_epsilon if to_buy else None,
        "assumed": f"{resolved.words}; the classes, {resolved.classes}", "out": str(out), "why": reasons,
        "notes": notes,
    }  # fmt: skip
    for note in notes:
        say(note)
    if json_output:
        print_json(document)
        return
    kinds = ", ".join(
        f"{sum(column['kind'] == kind for column in columns)} {kind}" for kind in ("number", "category", "ignore")
    )
    told = "" if resolved.schema.unit is None and asked.federated is None else f", the unit is {unit}"
    told += "" if asked.federated is None else f", {document['setting']}"
    bought = (
        f" Bounds of {len(to_buy)} columns would be bought with epsilon {asked.bounds_epsilon:g}." if to_buy else ""
    )
    Console().print(
        f"Would train a {document['estimator']} for {document['target']!r} by {method.name} ({method.summary}) at "
        f"({asked.budget.epsilon:g}, {asked.budget.delta:g}), {asked.budget.adjacency}{told}. Columns: {kinds}. "
        f"Assumed public: {resolved.words}; the classes, {resolved.classes}.{bought} Would write {out}. Nothing was spent; "
        "`noisewise plan` says what the budget buys." + ("" if reasons is None else f"\n{reasons}"),
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
