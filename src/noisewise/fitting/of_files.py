"""The fit that files of a schema get, before a row is read: what a dry run checks, without a face and its library."""

from __future__ import annotations

from ..budget import Budget
from ..data.encode import Encoder
from ..data.preprocess import Cells, Scaling, interval
from ..data.schema import Schema
from ..data.tables import columns_of
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
    scaling = scaling_of(encoder, method, unit_rows=encoder.classes is not None)
    network, persons = model_for(model, scaling, chosen, labels), schema.persons
    return Fit(
        budget, method, network, scaling, labels, encoder, size_is_public=size_is_public, seed=seed, persons=persons
    )


def scaling_of(encoder: Encoder, method: Method, *, unit_rows: bool) -> Scaling:
    """How rows of a schema are made: scaled, or cells for a method that makes features of them."""
    if method.table:
        return Cells(encoder.low, encoder.high, unit_rows, columns_of(encoder.schema))
    return Scaling(encoder.low, encoder.high, unit_rows)


def _labelled(schema: Schema, encoder: Encoder, method: Method, loss: str | Loss) -> tuple[Loss, Labels]:
    if encoder.classes is None:
        assert schema.target is not None
        target = schema[schema.target]
        return regression_loss(loss), Target(*interval("bounds of the target", (target.low, target.high)))
    chosen = classifier_loss(loss, method, encoder.classes)
    return chosen, classes_for(encoder.classes, chosen)
