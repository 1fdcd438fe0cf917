"""The formats of an export, and its content in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...tables.fit.fitted import Fitted
from .plain_model import plain_model

NAMES = {"json": "model.json", "onnx": "model.onnx", "sklearn": "model.py"}  # default file names
LETTERS_PER_LINE = 118
HEAD = '"""A model of {target}, trained privately and exported by {software}: it needs numpy alone.\n\n{promise}\n\n'
USE = '''    from model import Model
    Model().predict(table)          # a DataFrame, a mapping of columns, or an array in their order
    Model().predict_proba(table)    # where the loss has probabilities
    Model().statement_              # what is promised of the records that it was trained on
"""'''
PLACE = 'MODEL: dict[str, Any] = json.loads("{}")  # an export has its numbers here\n'


def check_format(to: str) -> None:
    """Refuse an unknown format, or one that needs a package which is not installed."""
    if to not in NAMES:
        raise ValueError(f"--to is {to!r}; pass one of {', '.join(NAMES)}")
    if to == "onnx" and find_spec("onnx") is None:
        raise ValueError(
            "the package onnx is not installed, which writes such files; pip install 'noisewise[export]', or take another "
            "format: json or sklearn"
        )


def exported(fitted: Fitted, to: str) -> bytes:
    """The fitted model as the content of a file that does not need noisewise: "json", "onnx" or "sklearn"."""
    check_format(to)
    model = plain_model(fitted)
    if to == "onnx":
        from .onnx_file import as_onnx

        return as_onnx(model)
    if to == "sklearn":
        return as_python(model).encode()
    return (json.dumps(model, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def as_python(model: Mapping[str, Any]) -> str:
    """The text of a module with a class ``Model``, which is a scikit-learn estimator where that is installed."""
    document = json.dumps(model, allow_nan=False, separators=(",", ":"))
    lines = [document[at : at + LETTERS_PER_LINE] for at in range(0, len(document), LETTERS_PER_LINE)]
    numbers = "".join(f"    {line!r}\n" for line in lines)
    before, after = (Path(__file__).parent / "standalone.py").read_text(encoding="utf-8").split(PLACE)
    promise = model["statement"].get("guarantee") or "No promise is made; see the statement."
    head = HEAD.format(target=_plain(model["target"]), promise=_plain(promise), software=model["software"])
    code = before.split('"""', 2)[2]
    return f"{head}{USE}{code}MODEL: dict[str, Any] = json.loads(\n{numbers})\n{after}"


def _plain(text: object) -> str:
    """Letters that end no text and begin no command: names come from untrusted files."""
    return "".join(letter if letter.isalnum() or letter in " ,.:;()-_=" else "_" for letter in str(text))[:400]
