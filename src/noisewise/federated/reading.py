"""How a client reads what its server sends: as plain data, of the few kinds that questions are made of.

Messages are packed as between ranks, but a client is not its server's: it lets nothing be called, opened or changed by reading. A
class is named here or unknown; an object gets the fields of its class and no others, a class none at all; an array is of
numbers, or of texts. So no message names a file, and none changes what this process does with its own.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

CLASSES = {
    "data.files": ("Dialect",),
    "data.preprocess": ("Cells", "Scaling"),
    "data.schema": ("Column", "Gap", "Schema"),
    "federation": ("Federated",),
    "fitting.labels": ("Classes", "Target"),
    "losses.hinge": ("Hinge",),
    "losses.huber_hinge": ("HuberHinge",),
    "losses.logistic": ("Logistic",),
    "losses.softmax": ("Softmax",),
    "losses.squared": ("Squared",),
    "losses.weighted": ("ClassWeighted",),
    "models.additive": ("Additive",),
    "models.linear": ("Linear",),
    "models.perceptron": ("MLP",),
    "prepare.columns": ("TableColumn",),
    "prepare.features": ("Codes", "Features", "Hats", "Product"),
    "records.holder": ("Request",),
    "records.totals": ("Drawn",),
}
NAMED = {(f"noisewise.{module}", name) for module, names in CLASSES.items() for name in names}
BUILTINS: dict[str, Any] = {"slice": slice, "set": set, "frozenset": frozenset, "complex": complex}
KINDS = "biufU"  # of numbers and texts


def read_plainly(body: bytes) -> Any:
    """What bytes stand for, if that is plain data; whatever else is in them is refused by name."""
    return _Reader(io.BytesIO(body)).load()


def _dtype(name: str, *_: object) -> np.dtype[Any]:
    found = np.dtype(str(name))
    if found.kind not in f"{KINDS}O":
        raise pickle.UnpicklingError("an array in a message is of numbers or texts")
    return found


def _numbers(dtype: object) -> np.dtype[Any]:
    if not isinstance(dtype, np.dtype) or dtype.kind not in KINDS:
        raise pickle.UnpicklingError("an array in a message is of numbers or texts")
    return dtype


def _of_buffer(buffer: Any, dtype: Any, shape: Any, order: str, *_: object) -> NDArray[Any]:
    return np.frombuffer(buffer, _numbers(dtype)).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: Any, buffer: bytes) -> Any:
    (value,) = np.frombuffer(buffer, _numbers(dtype))
    return value


def _empty(*_: object) -> NDArray[Any]:
    return np.empty(0, np.int8)


NUMPY: dict[str, Callable[..., Any]] = {"_frombuffer": _of_buffer, "_reconstruct": _empty, "scalar": _scalar}
CALLED = (*BUILTINS.values(), *NUMPY.values(), _dtype)


class _Reader(pickle._Unpickler):
    """Python's own reader in Python, with other answers to what would call or change something."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in NAMED:
            return getattr(import_module(module), name)
        if module == "builtins" and name in BUILTINS:
            return BUILTINS[name]
        if (module, name) == ("numpy", "dtype"):
            return _dtype
        if (module, name) == ("numpy", "ndarray"):
            return None  # which is said of an array that is made of what follows
        if module.removesuffix(".multiarray").removesuffix(".numeric") in ("numpy._core", "numpy.core"):
            return NUMPY[name]
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a message to a client")

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        called = self.stack[-1]
        if not any(called is known for known in CALLED):
            raise pickle.UnpicklingError("a message to a client calls something")
        self.stack[-1] = called(*arguments)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, np.dtype):
            _check_dtype(*state)
        elif isinstance(made, np.ndarray):
            made.__setstate__(_checked_array(*state))
        elif is_dataclass(made) and not isinstance(made, type) and type(state) is dict:
            own = {field.name for field in fields(made)}  # what is made of them (cached) is made anew
            vars(made).update({name: value for name, value in state.items() if name in own})
        else:
            raise pickle.UnpicklingError("a message to a client changes something")

    dispatch[pickle.BUILD[0]] = load_build

    def load_inst(self) -> None:
        raise pickle.UnpicklingError("a message to a client is written in another way")

    dispatch[pickle.INST[0]] = dispatch[pickle.OBJ[0]] = load_inst  # which make objects by a call


def _check_dtype(_: int, order: Any, *parts: Any) -> None:
    """Refuse a dtype whose numbers lie in another order, or that has parts; it stays as it was named."""
    if order not in ("<", "|", "=") or parts[:3] != (None, None, None):
        raise pickle.UnpicklingError("an array in a message is of numbers or texts")


def _checked_array(_: int, sides: Any, dtype: Any, fortran: Any, content: Any) -> tuple[Any, ...]:
    """What an array is made of, once its length is that of its content."""
    shape = tuple(int(side) for side in sides)
    long = prod(shape)
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        fits = type(content) is list and len(content) == long and all(type(each) is str for each in content)
    else:
        fits = type(content) is bytes and len(content) == long * _numbers(dtype).itemsize
    if not fits or min(shape, default=0) < 0:
        raise pickle.UnpicklingError("an array in a message is not what it says")
    return 1, shape, dtype, bool(fortran), content
