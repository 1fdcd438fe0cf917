"""Membership inference on the model of a finished run, from rows that its auditor has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...evidence.audit.membership import Membership, Progress, Shadows, membership
from ...tables.encode import labelled
from ...tables.files import open_source
from ...trusted.units import UNIT


def attack_run(
    model: Any,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    *,
    target: str | None = None,
    attack: str = "loss",
    train: Any = None,
    shadows: int | Shadows = 32,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> Membership:
    """Attack a model that a run folder holds; the tables have the label in the column ``target`` (default: the schema's).

    Shadow models are trained with the run's own settings, as far as the folder holds them, unless ``train`` says how.
    The figures are computed from the rows, and no budget paid for that: they belong into the folder only when the
    member rows are public or were planted by the auditor.
    """
    inside, outside = (_pair(model, table, target) for table in (members, non_members))
    return membership(
        model,
        inside,
        outside,
        attack=attack,
        train=model if train is None else train,
        shadows=shadows,
        confidence=confidence,
        seed=seed,
        progress=progress,
    )


def entry(result: Membership, unit: str = UNIT) -> dict[str, Any]:
    """The outcome as audit.json has it; ``unit``: what the promise that it is held against protects."""
    return {
        "kind": "membership",
        "unit": unit,
        "lower_bound": None,
        "claimed": None if result.allowed is None else result.allowed.epsilon,
        "runs": 1,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **result.to_dict(curve=False),
    }


def read_table(path: Path) -> pd.DataFrame:
    """A CSV (every cell as text: what it means is the schema's matter) or a Parquet file."""
    source = open_source([path])
    return pa.Table.from_batches(list(source.batches())).to_pandas()


def _pair(model: Any, table: pd.DataFrame, target: str | None) -> tuple[pd.DataFrame, Any]:
    """Features and labels; labels as the model's classes are, whatever type the file gave them."""
    encoder: Any = model.fitted_.encoder
    known = None if encoder is None else encoder.schema.target
    name = target if target is not None else known
    if name is None:
        raise ValueError("target is missing; the run's schema names none, pass the label's column")
    if name not in table.columns:
        raise ValueError(f"there is no column {name!r}; pass the name of the label's column as target")
    X, y = table.drop(columns=[name]), table[name]
    if name == known:  # the schema says what a cell means
        labels = encoder.labels(table)
        there = labelled(labels)  # all of them, unless the schema drops records without a label
        X, labels = X[there], labels[there]
        return X, labels if encoder.classes is None else encoder.classes[labels]
    if not hasattr(model, "classes_"):
        try:
            return X, y.astype(float).to_numpy()
        except ValueError:
            raise ValueError(f"column {name!r} holds values that are not numbers; clean it first") from None
    words = {str(label): label for label in model.classes_.tolist()}
    labels = [words.get(str(value).strip()) for value in y]
    if any(label is None for label in labels):
        raise ValueError(f"column {name!r} holds values that are no class of the model; clean it first")
    return X, np.array(labels, dtype=model.classes_.dtype)
