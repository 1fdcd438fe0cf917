"""What goes between a server and its clients, as bytes, and what a client checks of it before it touches a row.

*To a client*: plain data, and objects of a short list that are made of their fields (:mod:`noisewise.remote.forms`), none of which names a
file. Reading costs no more than the length of the message, calls nothing that it names and changes nothing.

*What a client checks.* A server may be hostile, and compiled sums trust their arguments: a row, a column or a coordinate that does not
exist would be read from, or written to, somewhere else. So every part of a request must have the right type, and fit the rows, the model
and the table; anything else is a BadMessage.

*From a client*: integers of 64 bits: the number of the question, whether it was answered, how many arrays follow and how long each is,
then their entries. The server knows what these stand for and their shapes; an answer that is a byte shorter or longer is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...tables.files import Dialect
from ...tables.fit.labels import Classes, ClassesOrTarget, Target
from ...tables.rows import Cells, Scaling
from ...tables.schema import Schema
from ...trusted.features import Features, Hats, Product, TableColumn
from ...trusted.models import MLP, Additive, Linear, Model
from ...trusted.stores.protocol import SUMS, Known, whole
from ...trusted.stores.totals import Drawn, Integers
from ..federation import Declared, Federated
from ..forms import ELSEWHERE, packed, unpacked
from ..holder import Request
from ..messages import BadMessage

DONE, REFUSED, FAILED = 0, 1, 2  # answered; its file does not fit what was asked; anything else
WHOLE = np.dtype("<i8")
MAX_REQUESTS = 1 << 9  # of a history: each may lay all rows out anew
MAX_VERSIONS = 32  # of the records that a client holds at a time
MAX_ENTRIES = (1 << 25) - (1 << 10)  # of an answer: a quarter of a gigabyte, which a server takes


def pack_history(history: Sequence[Request]) -> bytes:
    """How a client's rows are made, which it must know before a question. The same for all clients."""
    return packed(tuple(history))


def read_history(body: bytes) -> tuple[Request, ...]:
    """What :func:`pack_history` packed, at a client."""
    history = unpacked(body, without=ELSEWHERE)
    if type(history) is not tuple or len(history) > MAX_REQUESTS:
        raise BadMessage
    for request in history:
        check_request(request)
    return history


def pack_question(request: Request) -> bytes:
    """What one client is asked."""
    return packed(request)


def read_question(body: bytes) -> Request:
    """What :func:`pack_question` packed, at a client."""
    request = unpacked(body, without=ELSEWHERE)
    check_request(request)
    return request


def pack_answer(number: int, arrays: Sequence[NDArray[Any]] = (), state: int = DONE) -> bytes:
    """A client's answer to the question of that number."""
    head = np.array([number, state, len(arrays), *(array.size for array in arrays)], WHOLE)
    bodies = [np.ascontiguousarray(array).astype(WHOLE, casting="safe") for array in arrays]
    return b"".join(part.tobytes() for part in [head, *bodies])


def read_answer(body: object, number: int, shapes: Sequence[tuple[int, ...]]) -> list[Integers] | None:
    """The arrays of an answer to the question of that number, in the shapes that were asked for; None for anything else."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
    if type(body) is not bytes or len(body) != WHOLE.itemsize * (3 + len(sizes) + sum(sizes)):
        return None
    words = np.frombuffer(body, WHOLE).astype(np.int64)
    if words[: 3 + len(sizes)].tolist() != [number, DONE, len(sizes), *sizes]:
        return None
    ends = np.cumsum([3 + len(sizes), *sizes]).tolist()
    return [words[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(shapes)]


def refused(body: object, number: int) -> bool:
    """Whether an answer says that the client's file does not fit what was asked."""
    return type(body) is bytes and body == pack_answer(number, state=REFUSED)


# -- the types of a request ---------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """What a server sends for rows to be made."""

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
        """The length of a theta."""
        return self.model.outputs * self.columns if self.model.linear else self.model.dimension


def check_request(request: object) -> None:
    """Refuse a request whose parts do not have the types that it takes; their values are checked below."""
    if type(request) is not Request:
        raise BadMessage
    number, act, arguments = request
    if not whole(number) or type(act) is not str or type(arguments) is not tuple or act not in TYPES:
        raise BadMessage
    if act == "total" and len(arguments) == 5:
        arguments = (*arguments, None)  # a seed may be left out
    if len(arguments) != len(TYPES[act]) or not all(
        fits(each) for fits, each in zip(TYPES[act], arguments, strict=True)
    ):
        raise BadMessage
    if act == "total" and not _taken(arguments[1], arguments[3]):
        raise BadMessage
    if act == "change" and not _changed(*arguments[2:]):
        raise BadMessage


def _array(value: Any, *dimensions: int) -> bool:
    return type(value) is np.ndarray and value.dtype.kind == "f" and value.ndim in dimensions


def _drawn(value: Any) -> bool:
    if type(value) is not Drawn or not isinstance(value.expected, float):
        return False
    rows = value.rows
    return rows is None or (type(rows) is np.ndarray and rows.dtype == np.int64 and rows.ndim == 1)


def _options(value: Any) -> bool:
    return type(value) is dict and all(
        key in ("scale", "basis") and (each is None or _array(each, 1, 2)) for key, each in value.items()
    )


def _taken(name: str, own: tuple[Any, ...]) -> bool:
    """Whether a sum takes such arguments, and its answer would not take much memory."""
    takes = SUMS[name].takes
    return (
        len(own) == len(takes)
        and all(kind.typed(value) for kind, value in zip(takes, own, strict=True))
        and SUMS[name].entries(1, *own) <= MAX_ENTRIES
    )


def _changed(name: str, own: tuple[Any, ...]) -> bool:
    """Whether records are changed in this way by such arguments."""
    match name, own:
        case "in_basis", (matrix,):
            return _array(matrix, 2)
        case "centred", (centre, scale):
            return _array(centre, 1) and isinstance(scale, float)
        case "prepared", (features,):
            return type(features) is Features
    return False


def _or_none(value: Any) -> bool:
    return value is None or whole(value)


def _kind(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds


TYPES: dict[str, tuple[Callable[[Any], bool], ...]] = {  # of the arguments of each request
    "make": (
        lambda maker: type(maker) is str and maker == "client", _kind(Schema), _kind(Scaling, Cells), _kind(Classes, Target),
        _kind(bool), _kind(Dialect, str, type(None)), _kind(Federated), _kind(Declared),
    ),
    "hold": (whole, _kind(Linear, Additive, MLP)),
    "change": (whole, whole, _kind(str), _kind(tuple)),
    "forget": (lambda versions: type(versions) is tuple and all(map(whole, versions)),),
    "counted": (_or_none,),
    "total": (whole, lambda name: type(name) is str and name in SUMS, _drawn, _kind(tuple), _options, _or_none),
}  # fmt: skip


# -- what fits the rows, the model and the table ------------------------------------------------------------------------


def check_model(model: Model, made: Made) -> None:
    """Refuse a model of other rows or labels than those that were made."""
    if isinstance(made.scaling, Cells):
        fits = isinstance(model, Additive) and model.columns == made.scaling.columns
    else:
        fits = not isinstance(model, Additive) and model.features == made.scaling.features
    numbers = model.shape if type(model.shape) is tuple else (None,)
    fits = fits and made.integers == (model.loss.task == "classes")
    if not fits or any(type(number) is not int for number in numbers):
        raise BadMessage


def check_change(name: str, arguments: tuple[Any, ...], held: Held, made: Made) -> None:
    """Refuse a basis, centre or features that do not fit the rows."""
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
    """Refuse a question about rows, coordinates or columns that do not exist, or about a row twice."""
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
