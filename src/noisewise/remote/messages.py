"""Plain data as bytes, for every message of noisewise: between server and clients, ranks, workers, host and guest.

A value is None, a bool, an int, a float, a str, bytes, a list, a tuple, a dict with str keys, or an array or a scalar of numpy of one of
``DTYPES``. Nothing else can be written or read, and reading calls nothing that a message names.

A value is one byte for its kind, then its contents. Lengths, counts and sides of arrays have 8 bytes; numbers are little-endian; an array
is its dtype, the number of its sides, the sides, and its entries in C order. Each value has one spelling: what was read packs into the
same bytes again.

*Reading costs no more than the length of the message.* That length is checked first. A length, count or shape is checked against the bytes
that are left before anything is made of it; depth and number of values are bounded. So time is linear in the length of a message, and
memory is at most ``MAX_GROWTH`` times it. Whatever is wrong with a message, the error is :class:`BadMessage` with the same words, which
reveal nothing of what was read.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 1 << 30  # of a message
MAX_VALUES = 1 << 20  # of a message, those inside others included
MAX_DEPTH = 32  # of values inside each other
MAX_INT_BYTES = 128  # of an int: 1,024 bits with its sign
MAX_SIDES = 8  # of an array
MAX_EMPTY = 1 << 24  # entries that an empty array would have if each side of length 0 had length 1
MAX_GROWTH = 64  # bytes of memory for each byte of a message
DTYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")  # bool, integers and floats, by number

NONE, FALSE, TRUE, INT, FLOAT, STR, BYTES, LIST, TUPLE, DICT, ARRAY, SCALAR = range(12)
KINDS = tuple(np.dtype(f"<{name}") for name in DTYPES)
HOLDING: dict[type, int] = {list: LIST, tuple: TUPLE, dict: DICT}
_LENGTH, _FLOAT = struct.Struct("<Q"), struct.Struct("<d")


class BadMessage(ValueError):
    """Bytes that are not a message, or too large a one."""

    def __init__(self) -> None:
        super().__init__("this is not a message of noisewise, or it is too large")


def pack(value: Any) -> bytes:
    """A value as bytes; TypeError if it is not plain data, ValueError if it is more than :func:`unpack` reads.

    >>> unpack(pack({"clip": 1.0, "sums": (2**70, None)}))
    {'clip': 1.0, 'sums': (1180591620717411303424, None)}
    """
    writer = _Writer()
    writer.write(value, 0)
    return b"".join(writer.parts)


def unpack(data: bytes | bytearray | memoryview, limit: int = MAX_BYTES, *, values: int = MAX_VALUES) -> Any:
    """The value of a message of at most ``limit`` bytes and ``values`` values; BadMessage for anything else."""
    body = memoryview(data)
    if body.nbytes > limit:
        raise BadMessage
    reader = _Reader(body.cast("B"), values)
    value = reader.read(0)
    if reader.at != body.nbytes:
        raise BadMessage
    return value


class _Writer:
    """Writes values one after the other into ``parts``."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._values = 0

    def write(self, value: Any, depth: int) -> None:
        self._values += 1  # a list that holds itself ends here
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise ValueError("this is nested too deeply, or has too many parts, for a message")
        kind = HOLDING.get(type(value))
        if kind is None:
            self.parts.append(_single(value))
            return
        self.parts.append(bytes([kind]) + _LENGTH.pack(len(value)))
        if kind != DICT:
            for each in value:
                self.write(each, depth + 1)
            return
        for key, each in value.items():
            if type(key) is not str:
                raise TypeError("a dict in a message has keys of type str")
            self.parts.append(_text(key))
            self.write(each, depth + 1)


def _single(value: Any) -> bytes:
    """A value that holds no others, of exactly these types: a subclass may mean something else."""
    kind = type(value)
    if value is None:
        return bytes([NONE])
    if kind is bool:
        return bytes([TRUE if value else FALSE])
    if kind is int:
        length = _int_bytes(value)
        if length > MAX_INT_BYTES:
            raise ValueError(f"an int in a message has at most {8 * MAX_INT_BYTES} bits")
        return bytes([INT, length]) + value.to_bytes(length, "little", signed=True)
    if kind is float:
        return bytes([FLOAT]) + _FLOAT.pack(value)
    if kind is str:
        return bytes([STR]) + _text(value)
    if kind is bytes:
        return bytes([BYTES]) + _LENGTH.pack(len(value)) + value
    if kind is np.ndarray or isinstance(value, np.generic):
        return bytes([ARRAY if kind is np.ndarray else SCALAR]) + _array(np.asarray(value))
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no place in a message: it is not plain data")


def _text(value: str) -> bytes:
    try:
        body = value.encode()
    except UnicodeEncodeError:
        raise ValueError("a text in a message must be valid Unicode, without lone surrogates") from None
    return _LENGTH.pack(len(body)) + body


def _int_bytes(value: int) -> int:
    """The bytes of an int with its sign."""
    return (value.bit_length() + 8) // 8


def _array(array: NDArray[Any]) -> bytes:
    if (name := array.dtype.str[1:]) not in DTYPES:
        raise TypeError(f"an array of {array.dtype} has no place in a message; make it one of numbers")
    if not _may_be(array.shape):
        raise ValueError("an array in a message has too many sides, or is empty with sides that are too long")
    number = DTYPES.index(name)
    head = bytes([number, array.ndim]) + b"".join(map(_LENGTH.pack, array.shape))
    return head + array.astype(KINDS[number], copy=False).tobytes()


def _may_be(shape: tuple[int, ...]) -> bool:
    """Whether an array may have this shape, provided that its entries are there."""
    return len(shape) <= MAX_SIDES and (0 not in shape or prod(side or 1 for side in shape) <= MAX_EMPTY)


class _Reader:
    """Reads values one after the other; the next begins ``at``."""

    def __init__(self, body: memoryview, values: int) -> None:
        self._body, self.at, self._left = body, 0, values

    def read(self, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise BadMessage
        kind = self._byte()
        if kind in (NONE, FALSE, TRUE):
            return None if kind == NONE else kind == TRUE
        if kind == INT:
            return self._int()
        if kind == FLOAT:
            return _FLOAT.unpack(self._take(8))[0]
        if kind == STR:
            return self._text()
        if kind == BYTES:
            return bytes(self._take(self._length()))
        if kind in (LIST, TUPLE, DICT):
            return self._holding(kind, depth)
        if kind in (ARRAY, SCALAR):
            return self._array(kind)
        raise BadMessage

    def _take(self, length: int) -> memoryview:
        """The next bytes, which must be there."""
        start, self.at = self.at, self.at + length
        if self.at > len(self._body):
            raise BadMessage
        return self._body[start : self.at]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _length(self) -> int:
        """A length, count or side: any number below 2^64, still to be checked."""
        return int(_LENGTH.unpack(self._take(8))[0])

    def _int(self) -> int:
        length = self._byte()
        value = int.from_bytes(self._take(length), "little", signed=True)
        if length > MAX_INT_BYTES or length != _int_bytes(value):
            raise BadMessage
        return value

    def _text(self) -> str:
        try:
            return str(self._take(self._length()), "utf-8")
        except UnicodeDecodeError:
            raise BadMessage from None

    def _holding(self, kind: int, depth: int) -> Any:
        count = self._length()
        if count > min(self._left, len(self._body) - self.at):  # each takes a byte at least
            raise BadMessage
        if kind != DICT:
            items = [self.read(depth + 1) for _ in range(count)]
            return items if kind == LIST else tuple(items)
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self._text()
            if key in found:
                raise BadMessage
            found[key] = self.read(depth + 1)
        return found

    def _array(self, kind: int) -> Any:
        name, sides = self._byte(), self._byte()
        if name >= len(DTYPES) or sides > (MAX_SIDES if kind == ARRAY else 0):
            raise BadMessage
        dtype, shape = KINDS[name], tuple(self._length() for _ in range(sides))
        if not _may_be(shape):
            raise BadMessage
        body = self._take(prod(shape) * dtype.itemsize)
        array = np.ndarray(shape, dtype, body).copy()  # aligned, in memory of its own
        if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            raise BadMessage
        return array if kind == ARRAY else array[()]
