"""What a client checks of a server's requests before it touches a row: the types and shapes of all that they hold.

A server may be hostile, and compiled sums take what they are handed for granted: a row, a column, a coordinate that is not there would
be read from, or written to, somewhere else. So nothing reaches them that does not fit the rows, the model and the table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...tables.files import Dialect
from ...tables.fit.labels import Classes, ClassesOrTarget, Target
from ...tables.preprocess import Cells, Scaling
from ...tables.schema import Schema
from ...trusted.features import Features, Hats, Product, TableColumn
from ...trusted.models import MLP, Additive, Linear, Model
from ...trusted.stores.protocol import SUMS, Known, Sum, whole
from ...trusted.stores.totals import Drawn
from ..federation import Declared, Federated
from ..holder import Request
from ..messages import BadMessage

MAX_ENTRIES = 1 << 26  # of an answer: half a gigabyte
MADE: tuple[Any, ...] = (
    Schema, (Scaling, Cells), (Classes, Target), bool, (Dialect, str, type(None)), Federated, Declared,
)  # fmt: skip


class Made(NamedTuple):
    """What a server says for rows to be made."""

    schema: Schema
    scaling: Scaling
    labels: ClassesOrTarget
    integers: bool
    written: str | Dialect | None
    federated: Federated
    declared: Declared


class Held(NamedTuple):
    """Records as they are laid out: for which model, and with how many columns."""

    model: Model
    columns: int

    @property
    def dimension(self) -> int:
        """How long a theta is."""
        return self.model.outputs * self.columns if self.model.linear else self.model.dimension


def check_request(request: Request) -> None:
    """Refuse a request whose parts are not what it takes; what they say is checked elsewhere."""
    if not whole(request.number) or type(request.act) is not str or type(request.arguments) is not tuple:
        raise BadMessage
    check = CHECKS.get(request.act)
    if check is None or not check(*request.arguments):
        raise BadMessage


def _array(value: Any, *dimensions: int) -> bool:
    return type(value) is np.ndarray and value.dtype.kind == "f" and value.ndim in dimensions


def _make(maker: Any = None, *arguments: Any) -> bool:
    kinds = zip(arguments, MADE, strict=False)
    return (
        type(maker) is str
        and maker == "client"
        and len(arguments) == len(MADE)
        and all(isinstance(each, kind) for each, kind in kinds)
    )


def _hold(*arguments: Any) -> bool:
    return len(arguments) == 2 and whole(arguments[0]) and type(arguments[1]) in (Linear, Additive, MLP)


def _change(*arguments: Any) -> bool:
    if len(arguments) != 4 or not (whole(arguments[0]) and whole(arguments[1]) and type(arguments[3]) is tuple):
        return False
    match arguments[2] if type(arguments[2]) is str else "", arguments[3]:
        case "in_basis", (matrix,):
            return _array(matrix, 2)
        case "centred", (centre, scale):
            return _array(centre, 1) and isinstance(scale, float)
        case "prepared", (features,):
            return type(features) is Features
    return False


def _forget(*arguments: Any) -> bool:
    return len(arguments) == 1 and type(arguments[0]) is tuple and all(map(whole, arguments[0]))


def _counted(*arguments: Any) -> bool:
    return len(arguments) == 1 and (arguments[0] is None or whole(arguments[0]))


def _total(*arguments: Any) -> bool:
    if len(arguments) not in (5, 6):
        return False
    version, name, drawn, own, options, seed = (*arguments, None)[:6]
    return (
        whole(version) and type(name) is str and name in SUMS and _drawn(drawn) and type(own) is tuple and type(options) is dict
        and all(key in ("scale", "basis") and (each is None or _array(each, 1, 2)) for key, each in options.items())
        and (seed is None or whole(seed)) and _taken(SUMS[name], own)
    )  # fmt: skip


def _taken(asked: Sum, own: tuple[Any, ...]) -> bool:
    """Whether a sum takes such arguments, and can be made of them without taking much memory."""
    known = len(own) == len(asked.takes) and all(
        kind.typed(value) for kind, value in zip(asked.takes, own, strict=True)
    )
    return known and asked.entries(1, *own) <= MAX_ENTRIES


def _drawn(value: Any) -> bool:
    if type(value) is not Drawn or not isinstance(value.expected, float):
        return False
    return value.rows is None or (
        type(value.rows) is np.ndarray and value.rows.dtype == np.int64 and value.rows.ndim == 1
    )


CHECKS = {"make": _make, "hold": _hold, "change": _change, "forget": _forget, "counted": _counted, "total": _total}


# -- what fits the rows, the model and the table ------------------------------------------------------------------------


def check_model(model: Model, made: Made) -> None:
    """Refuse a model of other rows or labels than those that were made."""
    if isinstance(made.scaling, Cells):
        fits = isinstance(model, Additive) and model.columns == made.scaling.columns
    else:
        fits = not isinstance(model, Additive) and model.features == made.scaling.features
    numbers = model.shape if type(model.shape) is tuple else (None,)
    if (
        not fits
        or made.integers != (model.loss.task == "classes")
        or any(type(number) is not int for number in numbers)
    ):
        raise BadMessage


def check_change(name: str, arguments: tuple[Any, ...], held: Held, made: Made) -> None:
    """Refuse another basis, centre or features than fit the rows."""
    if name == "in_basis":
        fits = arguments[0].shape[0] == held.columns >= arguments[0].shape[1]
    elif name == "centred":
        fits = len(arguments[0]) == held.columns
    else:
        fits = all(map(_plain_block, arguments[0].blocks))
        arguments[0].check(_table(made))
    if not fits:
        raise BadMessage


def _plain_block(block: Any) -> bool:
    if type(block) is Product:
        return all(type(part) is not Product and _plain_block(part) for part in (block.first, block.second))
    numbers = (block.column, block.knots) if type(block) is Hats else (block.column, *block.groups)
    return all(type(number) is int for number in numbers)


def check_total(request: Request, length: int, held: Held, made: Made) -> None:
    """Refuse a question about rows, coordinates or columns that there are not, or about a row twice."""
    _, name, drawn, own, options, *_ = request.arguments
    rows = drawn.rows
    if rows is not None and rows.size and (rows[0] < 0 or rows[-1] >= length or (np.diff(rows) <= 0).any()):
        raise BadMessage
    known = Known(held.dimension, held.model.outputs, _table(made))
    if not all(kind.fits(value, known) for kind, value in zip(SUMS[name].takes, own, strict=True)):
        raise BadMessage
    scale, basis = options.get("scale"), options.get("basis")
    if scale is not None and scale.shape != (held.dimension,):
        raise BadMessage
    if basis is not None and not (basis.ndim == 2 and basis.shape[0] == held.dimension >= basis.shape[1]):
        raise BadMessage
    if SUMS[name].entries(held.columns, *own) > MAX_ENTRIES:
        raise BadMessage


def _table(made: Made) -> tuple[TableColumn, ...]:
    return made.scaling.columns if isinstance(made.scaling, Cells) else ()
