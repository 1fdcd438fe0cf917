"""Data sets of the published tables: found by name in a folder, scaled as the paper scaled them.

Bounds for scaling are those of the whole file, declared public as the paper does.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Published:
    """Where a data set lies and what in it is the label; ``openml`` is its name there, for machines that are online."""

    file: str
    label: str
    regression: bool = False
    drop: tuple[str, ...] = ()
    public_share: float = 0.001
    openml: str | None = None


SOURCES: dict[str, Published] = {
    "adult": Published("a9a.parquet", "y", drop=("split",)),
    "ipums-br": Published("ipums_br.parquet", "y"),
    "ipums-us": Published("ipums_us.parquet", "y"),
    "magic04": Published("magic04.parquet", "y", openml="MagicTelescope"),
    "mini-boo-ne": Published("miniboone.parquet", "y", public_share=0.0001, openml="MiniBooNE"),
    "skin": Published("skin.parquet", "y", public_share=0.0001, openml="skin-segmentation"),
    "cadata": Published("cadata.parquet", "median_house_value", regression=True),
    "electrical": Published("electrical_grid.parquet", "stab", regression=True, drop=("stabf",)),
}


@dataclass(frozen=True)
class Table:
    """Unit-norm rows with an intercept column, and labels -1/+1 or in [-1, 1]."""

    name: str
    X: Floats
    y: Floats
    regression: bool
    public_share: float


class Missing(Exception):
    """A data set that is not in the folder and could not be fetched."""


def load(name: str, folder: Path) -> Table:
    """The data set of that name, scaled: features and real labels to [-1, 1], intercept, rows of norm 1."""
    source = SOURCES[name]
    frame = _frame(source, folder)
    if "split" in frame.columns and "split" in source.drop:
        frame = frame[frame["split"] == "train"]
    y = frame[source.label].to_numpy(dtype=float)
    X = frame.drop(columns=[source.label, *source.drop], errors="ignore").to_numpy(dtype=float)
    labels = _to_unit_interval(y) if source.regression else np.where(y > 0, 1.0, -1.0)
    rows = np.column_stack([_to_unit_interval(X), np.ones(len(X))])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Table(name, rows.astype(np.float32), labels.astype(np.float32), source.regression, source.public_share)


def _frame(source: Published, folder: Path) -> pd.DataFrame:
    path = folder / source.file
    if path.exists():
        return pd.read_parquet(path)
    if source.openml is None:
        raise Missing(f"{path} is not there")
    try:
        from sklearn.datasets import fetch_openml

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the one line below says what matters
            fetched: Any = fetch_openml(source.openml, version=1, as_frame=True, parser="auto", n_retries=0)
    except Exception as error:
        raise Missing(f"{path} is not there and OpenML could not be reached ({type(error).__name__})") from None
    codes = pd.Series(fetched.target).astype("category").cat.codes
    return fetched.data.assign(**{source.label: (codes == codes.mode()[0]).astype(int)})


def _to_unit_interval(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(axis=0), values.max(axis=0)
    return 2 * (values - low) / np.where(high > low, high - low, 1.0) - 1
