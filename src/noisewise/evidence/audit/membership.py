"""Membership inference: was this record in the training data? Attacks on a finished model, judged by its promise.

Three attacks, from the crudest to the strongest known:

- ``loss`` (Yeom et al. 2018): the model is surer about records it has seen. Needs the model alone.
- ``shadow`` (Shokri et al. 2017): models trained by the auditor teach, class by class, what members look like.
- ``lira`` (Carlini et al. 2022): for each record, the likelihood ratio of the model's logit-scaled confidence under
  shadow models trained with and without that record; ``lira_offline`` uses only those trained without it.

An attack reads the records themselves. Its outcome is not covered by any budget: it belongs to whoever holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from ...trusted import validate
from .roc import RATES, Allowed, Curve, Rate, RocPoint, allowed_by, membership_advantage, point, roc

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LabelledRows = tuple[Any, Any]
Train = Callable[[Any, Any, int], Any]
Progress = Callable[[int, int], None]

ATTACKS = ("loss", "shadow", "lira", "lira_offline")
MIN_PROBABILITY = 1e-300
MIN_SHADOWS_PER_SIDE = 16  # with and without a record: then its own spread is trusted (Carlini et al. 2022)


@dataclass(frozen=True)
class Membership:
    """What an attack got. ``advantage`` and the points carry confidence intervals; ``allowed`` is the promise's curve.

    The intervals treat candidates as independent of each other; they share a model, so that is nearly, not quite, so.
    """

    attack: str
    curve: Curve
    auc: float
    advantage: Rate
    points: tuple[RocPoint, ...]
    members: int
    non_members: int
    confidence: float
    allowed: Allowed | None

    @property
    def violates(self) -> bool:
        """Whether the attack did better, beyond chance, than the promise allows."""
        return any(one.violates for one in self.points)

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        got = self.advantage
        gained = f"advantage {got.value:.3f} ({got.low:.3f} to {got.high:.3f} at {self.confidence:.0%})"
        if self.allowed is None:
            outcome = "members can be told from others" if got.low > 0 else "members were not told from others"
            return f"no promise to compare with; {outcome}: {gained}"
        if self.violates:
            return f"VIOLATION: the attack beats what (epsilon, delta) allows: {gained}"
        return f"no violation found: {gained}, allowed {self.allowed.advantage:.3f}"

    def to_dict(self, *, curve: bool = True) -> dict[str, Any]:
        """Plain data, with or without the whole curve."""
        document: dict[str, Any] = {
            "attack": self.attack,
            "auc": self.auc,
            "advantage": self.advantage.to_dict(),
            "tpr_at_fpr": [one.to_dict() for one in self.points],
            "members": self.members,
            "non_members": self.non_members,
            "confidence": self.confidence,
            "allowed": None if self.allowed is None else self.allowed.to_dict(),
            "violates": self.violates,
            "verdict": self.verdict,
        }
        return {**document, "roc": {"fpr": self.curve.fpr, "tpr": self.curve.tpr}} if curve else document


@dataclass(frozen=True)
class Shadows:
    """Models of the auditor's own: who was in each (models, candidates), and what each said about every candidate."""

    inside: Bools
    signals: Floats
    features: Floats


def judge(
    attack: str,
    members: Floats,
    non_members: Floats,
    *,
    allowed: Allowed | None = None,
    confidence: float = 0.95,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> Membership:
    """The outcome of any attack from its scores (higher: more likely a member)."""
    if min(len(members), len(non_members)) < 2:
        raise ValueError("members and non_members need at least two rows each; pass more candidates")
    curve = roc(members, non_members)
    points = tuple(
        point(members, non_members, at, allowed=allowed, confidence=confidence, tests=len(rates)) for at in rates
    )
    return Membership(
        attack=attack,
        curve=curve,
        auc=curve.auc,
        advantage=membership_advantage(members, non_members, confidence=confidence, seed=seed),
        points=points,
        members=len(members),
        non_members=len(non_members),
        confidence=confidence,
        allowed=allowed,
    )


def membership(
    model: Any,
    members: LabelledRows,
    non_members: LabelledRows,
    *,
    attack: str = "lira",
    train: Any = None,
    shadows: int | Shadows = 32,
    background: LabelledRows | None = None,
    allowed: Allowed | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> Membership:
    """Attack one model, given rows (X, y) that were in its training data and rows that were not.

    ``model``: a fitted estimator, or an unfitted one (or a function, as below), which is trained on the members first.
    ``train``: how shadow models are made, an unfitted estimator or a function (X, y, seed) -> fitted estimator; needed
    by every attack but ``loss``. ``background``: rows that go into every shadow model beside half of the candidates.
    ``allowed``: what to compare with; by default what the model's own statement promises.

    Members and non-members must come from the same source, at random: an attack that tells two sources apart says
    nothing about the model. The allowed curve is exact when each candidate was put in by its own coin flip (see
    :func:`membership_game`, which does so).

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)
    >>> result = membership(DecisionTreeClassifier(), (X[:100], y[:100]), (X[100:], y[100:]), attack="loss")
    >>> result.advantage.value > 0.3  # the tree has learned its members by heart
    True
    """
    validate.one_of(ATTACKS, attack=attack)
    X, y = _stack(members[0], non_members[0]), _stack(members[1], non_members[1])
    if not hasattr(model, "predict") or not _is_fitted(model):
        train = model if train is None else train
        model = trainer(model, classes_of(model, y))(*members, seed)
    if allowed is None:
        allowed = allowed_by(getattr(model, "statement_", None))
    if attack != "loss" and not isinstance(shadows, Shadows):
        if train is None:
            raise ValueError(
                f"train is missing; the attack {attack!r} trains shadow models, pass an unfitted estimator"
            )
        shadows = train_shadows(train, X, y, count=shadows, background=background, seed=seed + 1, progress=progress)
    scores = candidate_scores(attack, model, X, y, shadows if isinstance(shadows, Shadows) else None)
    inside = len(members[1])
    return judge(attack, scores[:inside], scores[inside:], allowed=allowed, confidence=confidence, seed=seed)


def membership_game(
    train: Any,
    X: Any,
    y: Any,
    *,
    attacks: Sequence[str] = ATTACKS,
    targets: int = 4,
    shadows: int = 16,
    allowed: Allowed | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Membership]:
    """Train ``targets`` models, each record in or out by a coin flip, and attack them all: one outcome per attack.

    The coin flips make the allowed curve exact under add_remove: given that a record is in or out, the others are
    drawn alike. Under replace_one, where the size is fixed, a random half is in.
    """
    for attack in attacks:
        validate.one_of(ATTACKS, attack=attack)
    validate.whole(targets=targets)
    fit, rng, total = trainer(train, classes_of(train, y)), np.random.default_rng(seed), len(y)
    needed = shadows if any(attack != "loss" for attack in attacks) else 0

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(done, needed + targets)

    trained = train_shadows(fit, X, y, count=needed, seed=seed + 1, progress=report) if needed else None
    scores: dict[str, list[Floats]] = {attack: [] for attack in attacks}
    masks: list[Bools] = []
    for number in range(targets):
        fixed = getattr(train, "adjacency", None) == "replace_one"
        inside = rng.permutation(total) < total // 2 if fixed else rng.random(total) < 0.5
        model = fit(_rows(X, inside), _rows(y, inside), int(rng.integers(2**31)))
        allowed = allowed_by(getattr(model, "statement_", None)) if allowed is None else allowed
        masks.append(inside)
        for attack in attacks:
            scores[attack].append(candidate_scores(attack, model, X, y, trained))
        report(needed + number + 1, 0)
    inside = np.concatenate(masks)
    pooled = {attack: np.concatenate(parts) for attack, parts in scores.items()}
    return {
        attack: judge(attack, values[inside], values[~inside], allowed=allowed, confidence=confidence, seed=seed)
        for attack, values in pooled.items()
    }


def trainer(train: Any, classes: Any = None) -> Train:
    """A function (X, y, seed) -> fitted estimator, from an unfitted estimator (or a function, returned as it is)."""
    if not hasattr(train, "fit"):
        if not callable(train):
            raise ValueError(f"train is {train!r}; pass an unfitted estimator or a function (X, y, seed) -> estimator")
        function: Train = train
        return function
    from sklearn.base import clone  # a function that trains needs no scikit-learn

    def fit(X: Any, y: Any, seed: int) -> Any:
        fresh = clone(train)
        names = fresh.get_params(deep=False)
        if "random_state" in names:
            fresh.set_params(random_state=seed)
        if classes is not None and names.get("classes", classes) is None:
            fresh.set_params(classes=classes)  # a half of the rows may lack a class
        return fresh.fit(X, y)

    return fit


def classes_of(train: Any, y: Any) -> Any:
    """The class labels among all candidates when ``train`` is a classifier; None otherwise."""
    return np.unique(np.asarray(y)) if "classes" in getattr(train, "get_params", dict)() else None


def train_shadows(
    train: Any,
    X: Any,
    y: Any,
    *,
    count: int,
    background: LabelledRows | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Shadows:
    """``count`` models on random halves of the candidates; the second of each pair has what the first lacks."""
    if count < 2 or count % 2:
        raise ValueError(f"shadows is {count!r}; pass an even number of shadow models, at least 2")
    fit, rng = trainer(train, classes_of(train, y)), np.random.default_rng(seed)
    first = rng.random((count // 2, len(y))) < 0.5
    inside = np.stack([first, ~first], axis=1).reshape(count, len(y))
    features = []
    for number, mask in enumerate(inside):
        rows = (_rows(X, mask), _rows(y, mask))
        if background is not None:
            rows = (_stack(rows[0], background[0]), _stack(rows[1], background[1]))
        features.append(signals_of(fit(*rows, int(rng.integers(2**31))), X, y))
        if progress is not None:
            progress(number + 1, count)
    stacked = np.stack(features)
    return Shadows(inside, stacked[:, :, 0], stacked)


def candidate_scores(attack: str, model: Any, X: Any, y: Any, shadows: Shadows | None) -> Floats:
    """The score of every candidate, higher for "was a member"."""
    seen = signals_of(model, X, y)
    if attack == "loss":
        return seen[:, 0]  # the loss is a falling function of it
    if shadows is None:
        raise ValueError(f"shadows are missing; the attack {attack!r} needs shadow models")
    if attack == "shadow":
        return _learned_scores(seen, np.asarray(y), shadows, classes=_is_classifier(model))
    return likelihood_ratio(seen[:, 0], shadows, online=attack == "lira")


def likelihood_ratio(signal: Floats, shadows: Shadows, *, online: bool) -> Floats:
    """log N(s; with) - log N(s; without), or without the first term how far s lies above the models without.

    The spread is each record's own when there are enough shadow models, and otherwise the same for all records.
    """
    mean_out, std_out = _fit(shadows.signals, ~shadows.inside)
    away = (signal - mean_out) / std_out
    if not online:
        return away
    mean_in, std_in = _fit(shadows.signals, shadows.inside)
    return away**2 / 2 + np.log(std_out) - ((signal - mean_in) / std_in) ** 2 / 2 - np.log(std_in)


def _fit(signals: Floats, chosen: Bools) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column over the chosen entries."""
    count = np.maximum(chosen.sum(axis=0), 1)
    mean = np.where(chosen, signals, 0.0).sum(axis=0) / count
    squares = np.where(chosen, (signals - mean) ** 2, 0.0).sum(axis=0)
    if chosen.sum(axis=0).min() >= MIN_SHADOWS_PER_SIDE:
        variance = squares / (count - 1)
    else:
        variance = np.full(len(mean), squares.sum() / max((count - 1).sum(), 1))
    return mean, np.sqrt(variance) + 1e-9


def _learned_scores(seen: Floats, y: NDArray[Any], shadows: Shadows, *, classes: bool) -> Floats:
    """Log-odds of membership from a logistic regression on what the shadow models said, one for each class."""
    from sklearn.linear_model import LogisticRegression  # this attack alone needs it
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    groups = y if classes else np.zeros(len(y))
    scores = np.zeros(len(y))
    for group in np.unique(groups):
        rows = groups == group
        examples = shadows.features[:, rows].reshape(-1, seen.shape[1])
        labels = shadows.inside[:, rows].ravel()
        if labels.all() or not labels.any():
            continue
        scaling, powers = StandardScaler().fit(examples), PolynomialFeatures(2, include_bias=False)

        def prepared(values: Floats, scaling: Any = scaling, powers: Any = powers) -> Floats:
            return np.asarray(powers.fit_transform(np.clip(scaling.transform(values), -5, 5)))

        attack = LogisticRegression(max_iter=1000).fit(prepared(examples), labels)
        scores[rows] = attack.decision_function(prepared(seen[rows]))
    return scores


def signals_of(model: Any, X: Any, y: Any) -> Floats:
    """What a model says about each row: its logit-scaled confidence in the label first, then the shape of its answer.

    log(p_y / (1 - p_y)) for probabilities; the margin for scores without them; minus the absolute error for a
    regression, whose square is the loss.
    """
    labels = np.asarray(y)
    if not _is_classifier(model):
        error = np.asarray(model.predict(X), dtype=float) - labels.astype(float)
        return np.column_stack([-np.abs(error), error])
    known = np.asarray(model.classes_)
    chosen = labels[:, None] == known[None, :]
    if not hasattr(model, "predict_proba"):
        scores = np.asarray(model.decision_function(X), dtype=float)
        scores = np.column_stack([-scores, scores]) / 2 if scores.ndim == 1 else scores
        own = np.where(chosen, scores, -np.inf).max(axis=1)
        return np.nan_to_num(own - np.where(chosen, -np.inf, scores).max(axis=1), neginf=-1e6)[:, None]
    chances = np.asarray(model.predict_proba(X), dtype=float)
    own, other = np.where(chosen, chances, 0.0).sum(axis=1), np.where(chosen, 0.0, chances).sum(axis=1)
    logit = np.log(np.maximum(own, MIN_PROBABILITY)) - np.log(np.maximum(other, MIN_PROBABILITY))
    entropy = -xlogy(chances, chances).sum(axis=1)
    return np.column_stack([logit, np.log(entropy + 1e-12)])


def _is_classifier(model: Any) -> bool:
    return hasattr(model, "classes_")


def _is_fitted(model: Any) -> bool:
    from sklearn.exceptions import NotFittedError  # reading a result needs no scikit-learn
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except TypeError:  # not an estimator of scikit-learn's kind: it has a predict, so take it as it is
        return True
    return True


def _rows(values: Any, mask: Bools) -> Any:
    return values.iloc[np.flatnonzero(mask)] if hasattr(values, "iloc") else np.asarray(values)[mask]


def _stack(first: Any, second: Any) -> Any:
    """One table above the other; as a DataFrame when the first is one."""
    if hasattr(first, "iloc"):
        import pandas as pd  # there already, since the first is a DataFrame

        return pd.concat([first, type(first)(second)], ignore_index=True)
    return np.concatenate([np.asarray(first), np.asarray(second)])
