"""What stands around an estimator: a Pipeline whose earlier steps learn from the private rows, and arguments of other fits."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from ...trusted.validate import did_you_mean

KNOWN = ("public", "purse", "ledger", "dataset")  # what fit takes beside X and y
MAX_FRAMES = 64  # that are looked through for a pipeline
SCALE = "declare bounds= or schema=, by which the estimator scales itself"
PUBLIC = "fit it on public rows and pass sklearn.frozen.FrozenEstimator(it)"
CATEGORIES = "pass a DataFrame and schema=noisewise.Schema(...), which lists the categories"
MISSING = "leave missing values as they are, or say in a schema what they become"
CHOOSE = "choose columns by what you know, or on public rows"
INSTEAD = {
    "StandardScaler": SCALE, "MinMaxScaler": SCALE, "MaxAbsScaler": SCALE, "RobustScaler": SCALE,
    "PowerTransformer": 'declare scale = "log" in a schema', "QuantileTransformer": "leave it out: method='auto' buys ranks",
    "KBinsDiscretizer": "declare knots in a schema", "SplineTransformer": "declare knots in a schema",
    "OneHotEncoder": CATEGORIES, "OrdinalEncoder": CATEGORIES, "TargetEncoder": CATEGORIES, "LabelBinarizer": CATEGORIES,
    "SimpleImputer": MISSING, "KNNImputer": MISSING, "IterativeImputer": MISSING, "MissingIndicator": MISSING,
    "SelectKBest": CHOOSE, "SelectPercentile": CHOOSE, "SelectFromModel": CHOOSE, "VarianceThreshold": CHOOSE, "RFE": CHOOSE,
}  # fmt: skip
NOTHING = {
    "FrozenEstimator", "PolynomialFeatures", "RBFSampler", "PolynomialCountSketch", "SkewedChi2Sampler",
    "GaussianRandomProjection", "SparseRandomProjection", "OrientedGradients", "FeatureHasher", "HashingVectorizer",
}  # fmt: skip # they take from rows how many columns there are, at most


class PrivacyWarning(UserWarning):
    """Something outside of a private fit looks at private rows, and nobody pays for it."""


def warn_in_pipeline(estimator: Any) -> None:
    """Warn when the estimator is being fitted inside of a Pipeline, behind steps that learned from the same rows."""
    for pipeline in _pipelines():
        for step in (step for _, step in pipeline.steps[:-1]):
            for name in _learners(step):
                how = INSTEAD.get(name, PUBLIC)
                warnings.warn(
                    f"{name} stands before {type(estimator).__name__} in a Pipeline and learns from the private rows, which no "
                    f"budget pays for: what it learned is released with the pipeline. Instead, {how}",
                    PrivacyWarning,
                    stacklevel=4,
                )


def refuse_others(others: Mapping[str, Any], *, weighs: bool) -> None:
    """Refuse what scikit-learn's estimators take and this one does not, by name."""
    for name, value in others.items():
        if name == "sample_weight":
            if value is None:
                continue
            how = "pass class_weight={class: weight}, chosen without the private labels" if weighs else "leave it out"
            raise ValueError(
                "sample_weight is not supported: every record counts once, which is what a clip norm and its price are for; "
                f"{how}, or keep rows by a rule that looks at nobody else's"
            )
        raise TypeError(f"fit has no argument {name!r}{did_you_mean(name, KNOWN)}; pass X, y, {', '.join(KNOWN)}")


def _pipelines() -> Iterator[Pipeline]:
    """Pipelines that are being fitted, the innermost first."""
    frame, depth = sys._getframe(2), 0
    seen: set[int] = set()
    while frame is not None and depth < MAX_FRAMES:
        one = frame.f_locals.get("self")
        if isinstance(one, Pipeline) and id(one) not in seen:
            seen.add(id(one))
            yield one
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]


def _learners(step: Any) -> Iterator[str]:
    """The transformers of a step that learn from rows, by the names of their types."""
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            yield from _learners(inner)
    elif isinstance(step, FeatureUnion):
        for _, inner in step.transformer_list:
            yield from _learners(inner)
    elif isinstance(step, ColumnTransformer):
        for _, inner, _ in step.transformers:
            yield from _learners(inner)
    elif isinstance(step, BaseEstimator) and not _learns_nothing(step):
        yield type(step).__name__


def _learns_nothing(step: Any) -> bool:
    name = type(step).__name__
    if name in NOTHING or not get_tags(step).requires_fit:
        return True
    if name in ("OneHotEncoder", "OrdinalEncoder") and not isinstance(step.categories, str):
        return getattr(step, "min_frequency", None) is None and getattr(step, "max_categories", None) is None
    if name == "SimpleImputer":
        return bool(step.strategy == "constant" and step.fill_value is not None)
    return name == "FunctionTransformer"
