"""Messages are plain data: every value comes back as it was, and whatever else is in the bytes is refused at no cost."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import tracemalloc
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from noisewise.remote import messages
from noisewise.remote.forms import ELSEWHERE, packed, unpacked
from noisewise.remote.messages import (
    ARRAY,
    BYTES,
    DICT,
    DTYPES,
    INT,
    LIST,
    MAX_DEPTH,
    MAX_EMPTY,
    MAX_GROWTH,
    MAX_INT_BYTES,
    MAX_VALUES,
    NONE,
    SCALAR,
    STR,
    TUPLE,
    BadMessage,
    pack,
    unpack,
)
from noisewise.tables.addresses import Pin

WORDS = "this is not a message of noisewise, or it is too large"
arrays = st.sampled_from(DTYPES).flatmap(
    lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
scalars = st.sampled_from(DTYPES).flatmap(lambda name: hnp.arrays(name, (1,)).map(lambda array: array[0]))
single = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.binary() | arrays | scalars
    | st.integers(1 - 2**1023, 2**1023 - 1)
)  # fmt: skip
plain = st.recursive(
    single,
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def alike(left: Any, right: Any) -> bool:
    """The same value of the same type; NaN is like NaN, and 0.0 not like -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        same = left.dtype == right.dtype and left.shape == right.shape
        return same and np.asarray(left).tobytes() == np.asarray(right).tobytes()
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    return bool(left == right)


def head(kind: int, *lengths: int) -> bytes:
    return bytes([kind]) + b"".join(struct.pack("<Q", length) for length in lengths)


def array_head(name: str, *shape: int, kind: int = ARRAY) -> bytes:
    return bytes([kind, DTYPES.index(name), len(shape)]) + b"".join(struct.pack("<Q", side) for side in shape)


@settings(max_examples=300)
@given(plain)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert alike(unpack(pack(value)), value)


@settings(max_examples=300)
@given(st.binary(max_size=60) | st.tuples(plain, st.integers(0), st.integers(0, 255)).map(lambda made: _edited(*made)))
def test_what_is_read_has_one_spelling_and_the_rest_one_error(body: bytes) -> None:
    try:
        value = unpack(body)
    except BadMessage as error:
        assert (
            str(error) == WORDS
            and error.__cause__ is None
            and (error.__suppress_context__ or error.__context__ is None)
        )
    else:
        assert pack(value) == body


def _edited(value: Any, at: int, byte: int) -> bytes:
    body = bytearray(pack(value))
    body[at % len(body)] = byte
    return bytes(body)


@given(plain, st.data())
def test_half_a_message_is_none(value: Any, data: st.DataObject) -> None:
    body = pack(value)
    with pytest.raises(BadMessage):
        unpack(body[: data.draw(st.integers(0, len(body) - 1))])
    with pytest.raises(BadMessage):
        unpack(body + b"\0")


@pytest.mark.parametrize(
    "value", [np.arange(6).reshape(2, 3).T, np.arange(6)[::-2], np.arange(3, dtype=">i4"), np.float64(0.5), np.array(7)]
)
def test_arrays_of_any_layout_and_scalars_keep_their_entries(value: Any) -> None:
    found = unpack(pack(value))
    assert type(found) is type(value) and found.dtype == value.dtype.newbyteorder("<")
    np.testing.assert_array_equal(found, value)


def test_an_array_has_memory_of_its_own() -> None:
    body = bytearray(pack(np.zeros(3)))
    found = unpack(body)
    body[-8:] = b"\xff" * 8
    assert found.flags.owndata and found.flags.writeable and found.flags.aligned and not found.any()


def test_what_is_no_number_is_kept_for_the_reader_to_judge() -> None:
    nan, infinite = unpack(pack([math.nan, -math.inf]))
    assert math.isnan(nan) and infinite == -math.inf


# -- what is not plain data is not written -------------------------------------------------------------------------------


class Several(IntEnum):
    ONE = 1


class Longer(list):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    "value",
    [
        object(), len, Path("x"), {1, 2}, 1j, slice(1), Several.ONE, Longer(), {1: 2}, {b"a": 1}, bytearray(b"x"), np.array(["x"]), np.array([None]),
        np.str_("x"), np.datetime64("2020"), np.float16(1), np.zeros(1, "c16"), np.zeros(1, "i4,f8"), np.ma.masked_array([1]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_other_types_are_refused_by_who_writes(value: Any) -> None:
    for held in (value, [value], {"a": (value,)}):
        with pytest.raises(TypeError, match=r"plain data|keys of type str|one of numbers"):
            pack(held)


def _nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def test_bounds_hold_for_who_writes_and_who_reads() -> None:
    assert unpack(pack(_nested(MAX_DEPTH))) == _nested(MAX_DEPTH)
    most = 2 ** (8 * MAX_INT_BYTES - 1)
    assert unpack(pack([most - 1, 1 - most])) == [most - 1, 1 - most]
    own: list[Any] = []
    own += [own, own]
    for value in (_nested(MAX_DEPTH + 1), most, own, [None] * MAX_VALUES, np.zeros((0, MAX_EMPTY + 1)), "\ud800"):
        with pytest.raises(ValueError, match="message"):
            pack(value)
    with pytest.raises(BadMessage):
        unpack(head(LIST, 1) * (MAX_DEPTH + 1) + bytes([NONE]))
    with pytest.raises(BadMessage):
        unpack(head(LIST, MAX_VALUES) + bytes([NONE]) * MAX_VALUES)


def test_a_reader_may_ask_for_less() -> None:
    body = pack([1, 2, 3])
    assert unpack(body, len(body), values=4) == [1, 2, 3]
    with pytest.raises(BadMessage):
        unpack(body, len(body) - 1)
    with pytest.raises(BadMessage):
        unpack(body, values=3)


# -- what is claimed and not there ---------------------------------------------------------------------------------------

HUGE = (2**40, 2**62, 2**63, 2**64 - 1)
BOMBS: dict[str, bytes] = {
    **{f"{kind} of {size}": head(number, size) for size in HUGE for kind, number in {"str": STR, "bytes": BYTES, "list": LIST, "tuple": TUPLE, "dict": DICT}.items()},
    **{f"array of {size}": array_head("f8", size) for size in HUGE},
    "sides that overflow to nothing": array_head("f8", 2**32, 2**32),
    "sides that overflow to eight bytes": array_head("i1", 2**61 + 1, 8) + bytes(8),
    "an empty array with a long side": array_head("f8", 0, 2**40),
    "an empty array with long sides": array_head("f8", 2**62, 2**62, 0),
    "more sides than there may be": array_head("f8", *[1] * 9) + bytes(8),
    "255 sides": bytes([ARRAY, 4, 255]),
    "a scalar with a side": array_head("f8", 1, kind=SCALAR) + bytes(8),
    "an array of another dtype": bytes([ARRAY, len(DTYPES), 0]) + bytes(8),
    "a bool of two": array_head("b1", 1) + b"\x02",
    "a long int": bytes([INT, MAX_INT_BYTES + 1]) + b"\1" * (MAX_INT_BYTES + 1),
    "an int with zeros before it": bytes([INT, 3, 5, 0, 0]),
    "an int of no bytes": bytes([INT, 0]),
    "a text that is none": head(STR, 2) + b"\xff\xff",
    "a lone surrogate": head(STR, 3) + b"\xed\xa0\x80",
    "a text in an overlong spelling": head(STR, 2) + b"\xc0\x80",
    "a key twice": head(DICT, 2) + (struct.pack("<Q", 1) + b"a" + bytes([NONE])) * 2,
    "an unknown kind": bytes([12]),
    "a list one short": head(LIST, 3) + bytes([NONE]) * 2,
    "nothing": b"",
    "a pickle": b"\x80\x05\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_claimed_and_not_there_is_refused_before_anything_is_made_of_it(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage, match=WORDS):
            unpack(BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


SMALLEST = {
    "none": bytes([NONE]), "int": bytes([INT, 3, 0, 0, 1]), "list": head(LIST, 0), "dict": head(DICT, 0), "tuple": head(TUPLE, 1) + bytes([NONE]),
    "str": head(STR, 1) + b"x", "array of one": array_head("i1") + b"\1", "empty array": array_head("i1", 0),
    "scalar": array_head("i1", kind=SCALAR) + b"\1", "entry": head(DICT, 1) + struct.pack("<Q", 1) + b"x" + bytes([NONE]),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SMALLEST)
def test_memory_is_bounded_by_the_length_of_a_message(name: str) -> None:
    count = 20_000
    body = head(LIST, count) + SMALLEST[name] * count
    tracemalloc.start()
    try:
        found = unpack(body)
        assert len(found) == count and tracemalloc.get_traced_memory()[1] < MAX_GROWTH * len(body) + (1 << 16)
    finally:
        tracemalloc.stop()


def test_the_module_needs_neither_torch_nor_pickle() -> None:
    code = (
        "import sys; import noisewise.remote.messages; "
        "assert 'torch' not in sys.modules; print('pickle' in vars(noisewise.remote.messages))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n" and "pickle" not in Path(messages.__file__).read_text()


@pytest.mark.parametrize("value", [Path("private.csv"), [{"at": Path("private.csv")}], Pin(3, None, "tag")], ids=str)
def test_what_names_a_file_has_no_place_in_a_message_to_a_client(value):
    body = packed(value)
    assert unpacked(body) == value
    with pytest.raises(BadMessage):
        unpacked(body, without=ELSEWHERE)
