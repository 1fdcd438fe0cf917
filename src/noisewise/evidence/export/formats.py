"""Which formats there are: known before anything heavy is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...tables.fit.fitted import Fitted

NAMES = {"json": "model.json", "onnx": "model.onnx", "sklearn": "model.py"}  # how a file is called unless it is said
ONNX_IS_MISSING = (
    "the package onnx is not installed, which writes such files; pip install 'noisewise[export]', or take another "
    "format: json or sklearn"
)


def check_format(to: str) -> None:
    """Refuse a format that is none, or that needs a package which is not there."""
    if to not in NAMES:
        raise ValueError(f"--to is {to!r}; pass one of {', '.join(NAMES)}")
    if to == "onnx" and find_spec("onnx") is None:
        raise ValueError(ONNX_IS_MISSING)


def exported(fitted: Fitted, to: str) -> bytes:
    """A fitted model as the content of a file that needs no noisewise: "json", "onnx" or "sklearn"."""
    check_format(to)
    from .plain_model import plain_model

    model = plain_model(fitted)
    if to == "onnx":
        from .onnx_file import as_onnx

        return as_onnx(model)
    if to == "sklearn":
        from .python_file import as_python

        return as_python(model).encode()
    return as_json(model)


def as_json(model: Mapping[str, Any]) -> bytes:
    """One line of JSON, as docs/export.md describes it."""
    return (json.dumps(model, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
