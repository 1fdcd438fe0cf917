"""From a fit of files to one of clients: what cannot be asked of clients is refused before anything is read or paid for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...methods import Method, makes_a_promise
from ...methods.growing_batch import GrowingBatch
from ...tables.files import Dialect, Paths, Share
from ...tables.fit.build import public_rows
from ...tables.fit.fit import Fit
from ...train import Records
from ...trusted.events import FULL
from ..federation import Declared, Federated
from ..processes import RowsElsewhere, ShapeElsewhere
from .client import MAKER
from .server import Crowd

WORK = "take one that asks for sums, e.g. additive, descent, dpsgd, agd, adaptive_clip or l2p"


def fit_of_clients(asked: Fit, federated: Federated) -> Fit:
    """The same fit on records that lie with clients; refused where it needs rows in one place."""
    method = asked.method
    if not makes_a_promise(method):
        raise ValueError(f"{method.name} sees plain rows, which stay with their clients; {WORK}")
    if method.walks:
        raise ValueError(f"{method.name} goes over rows one by one, and they stay with their clients; {WORK}")
    if asked.persons is not None:
        raise ValueError("a schema's unit counts rows of persons over all files; with clients, leave unit out of it")
    if asked.preparation is not None:
        raise ValueError("bounds are bought where all rows are; declare them in a schema, or pass --public")
    return replace(asked, federated=federated, settings={**asked.settings, "federated": federated.to_dict()})


def least_rate(method: Method) -> float | None:
    """The least share of the records that a method asks about, in expectation; None where that is not known beforehand.

    >>> from noisewise.methods import method_named
    >>> least_rate(method_named("descent")), least_rate(method_named("dpsgd").with_settings(sampling=("poisson", 0.2)))
    (1.0, 0.2)
    """
    if isinstance(method, GrowingBatch):
        return min(method.rates())
    if not type(method).__module__.startswith("noisewise."):
        return None
    match getattr(method, "sampling", FULL):
        case ("full",):
            return 1.0
        case (_, float() as rate):
            return rate
    return None


def _public(asked: Fit) -> bool:
    """Whether the number of clients is public: it was declared so, or fixed beforehand."""
    assert asked.federated is not None
    return asked.federated.unit == "client" and (asked.size_is_public or asked.federated.wait is not None)


def ready_clients(
    asked: Fit,
    crowd: Crowd,
    *,
    public: Paths | None = None,
    separator: str | Dialect | None = None,
    reading: Share | None = None,
) -> Fit:
    """The fit with the rows of clients: each has read its file and found it fit, with nothing paid."""
    assert asked.encoder is not None and asked.federated is not None
    schema, integers = asked.encoder.schema, asked.model.loss.task == "classes"
    declared = Declared(least_rate(asked.method), crowd.clients if _public(asked) else None)
    arguments: tuple[Any, ...] = (schema, asked.scaling, asked.labels, integers, separator, asked.federated, declared)
    places = crowd.places(MAKER, *arguments, unlabelled=schema.target_missing == "drop")
    if places.records == 0:
        raise ValueError("no client has rows; pass files with records")
    if reading is not None:
        reading(1.0)
    rows = RowsElsewhere(crowd, places, asked.scaling.features)
    given = None if public is None else public_rows(asked, public, separator=separator)
    return asked.on(Records(rows, ShapeElsewhere((len(rows),))), given)
