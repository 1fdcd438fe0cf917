"""Requests and replies as messages: the objects of noisewise that they may hold, each spelled out by its fields.

Nothing but ``CLASSES`` can be made of a message. An object is a dict with the name of its class under the key "" and exactly the fields of
that class, whose constructor checks them. Everything else in a message is plain data (:mod:`noisewise.messages`). ``ELSEWHERE`` names the
objects that only processes of the data holder may send each other, because they name files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .messages import MAX_BYTES, BadMessage, pack, unpack

CLASSES = {
    "Address": "tables.addresses", "Pin": "tables.addresses", "Dialect": "tables.files", "FilePiece": "tables.file_pieces", "Cells": "tables.rows",
    "Scaling": "tables.rows", "Column": "tables.schema", "Schema": "tables.schema", "Arithmetic": "trusted.arithmetic", "Federated": "remote.federation", "Declared": "remote.federation",
    "Classes": "tables.fit.labels", "Target": "tables.fit.labels", "Hinge": "trusted.losses.hinge", "HuberHinge": "trusted.losses.huber_hinge", "Logistic": "trusted.losses.logistic",
    "Softmax": "trusted.losses.softmax", "Squared": "trusted.losses.squared", "ClassWeighted": "trusted.losses.weighted", "Additive": "trusted.models.linear", "Linear": "trusted.models.linear",
    "MLP": "trusted.models.perceptron", "TableColumn": "trusted.features", "Codes": "trusted.features", "Features": "trusted.features", "Hats": "trusted.features",
    "Product": "trusted.features", "Reply": "remote.holder", "Request": "remote.holder", "Drawn": "trusted.stores.totals", "IntegerTotal": "trusted.stores.totals",
}  # fmt: skip
ELSEWHERE = frozenset({"Path", "Address", "Pin", "FilePiece"})
MAX_CHARACTERS = 1 << 22  # of an array of texts
KIND = ""  # the key of a dict that says what it stands for


def packed(value: Any) -> bytes:
    """A value as the bytes of a message."""
    return pack(_spelled(value))


def unpacked(body: bytes | memoryview, limit: int = MAX_BYTES, *, without: Set[str] = frozenset()) -> Any:
    """The value of a message of at most ``limit`` bytes; ``without``: kinds of objects that it may not hold."""
    return _made(unpack(body, limit), without)


@cache
def _class(name: str) -> tuple[type, tuple[str, ...]]:
    """The class of a name, and the names of its fields."""
    found = getattr(import_module(f"noisewise.{CLASSES[name]}"), name)
    return found, tuple(field.name for field in fields(found)) if is_dataclass(found) else found._fields


def _spelled(value: Any) -> Any:
    """Plain data that stands for a value."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(map(_spelled, value))
    if kind is dict:
        if KIND in value:
            raise TypeError("a dict in a message has no empty key")
        return {key: _spelled(each) for key, each in value.items()}
    if kind is np.ndarray and value.dtype.kind in "OU":
        entries = [each.item() if isinstance(each, np.generic) else each for each in value.tolist()]
        return {KIND: "texts", "entries": entries, "objects": value.dtype.kind == "O"}
    if isinstance(value, Path):
        return {KIND: "Path", "name": os.fsencode(value)}
    name = kind.__name__
    if CLASSES.get(name) == kind.__module__.removeprefix("noisewise."):
        return {KIND: name} | {field: _spelled(getattr(value, field)) for field in _class(name)[1]}
    return value  # plain data, or refused by pack


def _made(data: Any, without: Set[str]) -> Any:
    """The value that plain data stands for."""
    kind = type(data)
    if kind in (list, tuple):
        return kind([_made(each, without) for each in data])
    if kind is not dict:
        return data
    parts = {key: _made(each, without) for key, each in data.items() if key != KIND}
    name = data.get(KIND)
    if name is None:
        return parts
    if type(name) is not str or name in without:
        raise BadMessage
    return _constructed(name, parts)


def _constructed(name: str, parts: Mapping[str, Any]) -> Any:
    make: Callable[..., Any]
    if name in OTHERS:
        make, named = OTHERS[name]
    elif name in CLASSES:
        make, named = _class(name)
    else:
        raise BadMessage
    if {*parts} != {*named}:
        raise BadMessage
    try:
        return make(**parts)
    except Exception:  # the words of a class may quote what it refuses
        raise BadMessage from None


def _texts(entries: Any, objects: Any) -> Any:
    """A vector of texts; one of objects may also hold numbers."""
    allowed = (str, bool, int, float) if objects else (str,)
    if type(entries) is not list or type(objects) is not bool or any(type(each) not in allowed for each in entries):
        raise BadMessage
    if objects:
        return np.array([*entries, None], object)[:-1].copy()
    if len(entries) * max(map(len, entries), default=0) > MAX_CHARACTERS:  # each takes as much as the longest
        raise BadMessage
    return np.array(entries, np.str_)


def _path(name: Any) -> Path:
    if type(name) is not bytes:
        raise BadMessage
    return Path(os.fsdecode(name))


OTHERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "texts": (_texts, ("entries", "objects")),
    "Path": (_path, ("name",)),
}
