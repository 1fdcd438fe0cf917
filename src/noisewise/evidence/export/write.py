"""The content of an export, by format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...tables.fit.fitted import Fitted
from .formats import check_format
from .plain_model import plain_model
from .python_file import as_python


def exported(fitted: Fitted, to: str) -> bytes:
    """What was fitted, as the content of a file that needs no noisewise: "json", "onnx" or "sklearn"."""
    check_format(to)
    model = plain_model(fitted)
    if to == "onnx":
        from .onnx_file import as_onnx

        return as_onnx(model)
    return as_python(model).encode() if to == "sklearn" else as_json(model)


def as_json(model: Mapping[str, Any]) -> bytes:
    """One line of JSON, as docs/export.md describes it."""
    return (json.dumps(model, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
