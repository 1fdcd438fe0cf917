"""The fit that files of a schema get, before a row is read: what a dry run checks, without a face and its library."""

from __future__ import annotations

from ..budget import Budget
from ..data.encode import Encoder
from ..data.preprocess import Scaling, interval
from ..data.schema import Schema
from ..losses import Loss
from ..methods import Method
from .fit import Fit, classes_for, classifier_loss, model_for, regression_loss
from .labels import Labels, Target


def fit_of_files(
    schema: Schema,
    budget: Budget,
    method: Method,
    *,
    loss: str | Loss,
    model: str | tuple[int, ...],
    size_is_public: bool,
    seed: int | None,
) -> Fit:
    """A fit of classes where the target is a category, else of a number; ``schema`` is complete."""
    encoder = Encoder(schema)
    chosen, labels = _labelled(schema, encoder, method, loss)
    scaling = Scaling(encoder.low, encoder.high, encoder.classes is not None)
    network = model_for(model, scaling.features, chosen, labels)
    return Fit(budget, method, network, scaling, labels, encoder, size_is_public=size_is_public, seed=seed)


def _labelled(schema: Schema, encoder: Encoder, method: Method, loss: str | Loss) -> tuple[Loss, Labels]:
    if encoder.classes is None:
        assert schema.target is not None
        target = schema[schema.target]
        return regression_loss(loss), Target(*interval("bounds of the target", (target.low, target.high)))
    chosen = classifier_loss(loss, method, encoder.classes)
    return chosen, classes_for(encoder.classes, chosen)
