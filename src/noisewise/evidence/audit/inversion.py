"""Model inversion: the input that a model finds most typical of a class.

Projected gradient ascent on log p(class | x) over inputs within the declared bounds (Fredrikson et al. 2015). The result
is an average of the class, as far as the model has learnt one. That is a fact about many records, which privacy does not
hide, unless the class is one person: then the average *is* the record. :func:`with_a_class_of_one` plants such a class.

Fredrikson, Jha & Ristenpart 2015, Model Inversion Attacks that Exploit Confidence Information.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...tables.fit.fitted import Fitted
from ...tables.rows import Scaling
from ...trusted import validate
from ..bought_quality import scored_by
from .leakage import correlation

if TYPE_CHECKING:
    from ...trusted.torch_extra import Tensor

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Inverted:
    """The input found for one class, the probability it reaches, and how it correlates with the class's mean row."""

    label: Any
    row: tuple[float, ...]
    probability: float
    similarity: float | None


@dataclass(frozen=True)
class Inversion:
    """One input for each class of a model."""

    inputs: tuple[Inverted, ...]

    @property
    def similarity(self) -> float | None:
        """Median over the classes; None when nothing was there to compare with."""
        known = [one.similarity for one in self.inputs if one.similarity is not None]
        return float(np.median(known)) if known else None

    def of(self, label: Any) -> Inverted:
        inputs = {one.label: one for one in self.inputs}
        if label not in inputs:
            raise ValueError(f"label is {label!r}; pass one of {', '.join(map(str, inputs))}")
        return inputs[label]

    def to_dict(self) -> dict[str, Any]:
        classes = []
        for one in self.inputs:
            label = one.label.item() if hasattr(one.label, "item") else one.label
            classes.append({"label": label, "probability": one.probability, "similarity": one.similarity})
        return {"similarity": self.similarity, "classes": classes}


def inversion(
    model: Any,
    *,
    labels: Sequence[Any] | None = None,
    compare: tuple[Any, Any] | None = None,
    steps: int = 300,
    learning_rate: float = 0.02,
    l2: float = 0.02,
    shape: tuple[int, int] | None = None,
    smooth: float = 0.02,
) -> Inversion:
    """Invert a fitted linear or MLP ``PrivateClassifier``, class by class.

    ``labels``: the classes to invert, by default all. ``compare``: rows (X, y) whose class means are compared with the
    inputs found. ``l2`` weighs the mean square of the scaled input against the log-probability, so that columns the
    model ignores stay blank; the ascent starts from the blank (all lower bounds). In units of the declared range, a
    step is about ``learning_rate``. ``shape``: rows are pictures of that height and width; then neighbouring pixels that
    differ cost ``smooth`` times the square of the difference (Fredrikson et al. denoise, too).
    """
    validate.whole(steps=steps)
    validate.positive(learning_rate=learning_rate)
    validate.not_negative(l2=l2, smooth=smooth)
    fitted: Fitted | None = getattr(model, "fitted_", None)
    if fitted is None or fitted.classes is None:
        raise ValueError(f"model is a {type(model).__name__}; pass a fitted PrivateClassifier")
    known = list(fitted.classes)
    wanted = known if labels is None else list(labels)
    if missing := [label for label in wanted if label not in known]:
        raise ValueError(f"labels has {missing[0]!r}; pass classes of the model: {', '.join(map(str, known))}")
    means = {} if compare is None else class_means(*compare)
    features = fitted.scaling.features - 1
    if shape is not None and shape[0] * shape[1] != features:
        raise ValueError(f"shape is {shape!r} but rows have {features} columns; pass (height, width) of the pictures")

    def penalty(shares: Tensor) -> Tensor:
        cost = l2 * shares.square().sum()
        if shape is None:
            return cost
        picture = shares.view(-1, *shape)
        return cost + smooth * (picture.diff(dim=1).square().sum() + picture.diff(dim=2).square().sum())

    codes = [known.index(label) for label in wanted]
    shares, chances = _ascend(fitted, codes, steps, learning_rate, penalty)
    low, high = fitted.scaling.low, fitted.scaling.high
    rows = low + shares * (high - low)
    found = []
    for label, row, chance in zip(wanted, rows, chances, strict=True):
        scaled = [(one - low) / (high - low) for one in (row, means.get(label, row))]
        similarity = correlation(*scaled) if label in means else None
        found.append(Inverted(label, tuple(row.tolist()), float(chance), similarity))
    return Inversion(tuple(found))


def class_means(X: Any, y: Any) -> dict[Any, Floats]:
    rows, labels = np.asarray(X, dtype=float), np.asarray(y)
    return {label: rows[labels == label].mean(axis=0) for label in np.unique(labels)}


def with_a_class_of_one(X: Any, y: Any, row: Any, label: Any, *, copies: int = 1) -> tuple[Any, Any]:
    """The same rows and one more, the only one of its class: the case in which a class is a person.

    ``copies`` > 1 gives that person several equal rows, which a promise for one record no longer covers.
    """
    rows, labels = np.asarray(X, dtype=float), np.asarray(y)
    if label in labels:
        raise ValueError(f"label is {label!r}, which is in y already; pass a new one")
    validate.whole(copies=copies)
    own = np.repeat(np.asarray(row, dtype=float)[None], copies, axis=0)
    return np.concatenate([rows, own]), np.concatenate([labels, np.full(copies, label)])


def _ascend(
    fitted: Fitted, codes: list[int], steps: int, learning_rate: float, penalty: Callable[[Any], Any]
) -> tuple[Floats, Floats]:
    """Inputs between the bounds (0: low, 1: high) that make each class likely, by Adam with projection; all at once."""
    from ...trusted.torch_extra import torch
    from .deep_leakage import scores_of

    model = scored_by(fitted)
    theta, scaling, places = torch.from_numpy(fitted.theta).double(), fitted.scaling, torch.tensor(codes)[:, None]
    shares = torch.zeros(len(codes), scaling.features - 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([shares], lr=learning_rate)

    def log_chances() -> Tensor:
        scores = scores_of(model, theta, scaled_inputs(scaling, shares))
        if scores.ndim == 1:  # one output for two classes: the score is the log-odds of the second
            scores = torch.stack([torch.zeros_like(scores), scores], dim=1)
        return torch.log_softmax(scores, dim=1).gather(1, places)[:, 0]

    for _ in range(steps):
        optimizer.zero_grad()
        (penalty(shares) - log_chances().sum()).backward()
        optimizer.step()
        with torch.no_grad():
            shares.clamp_(0.0, 1.0)
    with torch.no_grad():
        return shares.numpy().copy(), log_chances().exp().numpy()


def scaled_inputs(scaling: Scaling, shares: Tensor) -> Tensor:
    """Inputs given as shares of the declared range, scaled as :class:`Scaling` does, with a graph."""
    from ...trusted.torch_extra import torch

    columns = torch.where(torch.from_numpy(scaling.low == 0), shares, 2 * shares - 1)
    rows = torch.cat([columns, torch.ones(len(shares), 1, dtype=torch.float64)], dim=1)
    if scaling.unit_rows:
        return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / scaling.features**0.5
