"""One Python file with the numbers of a model in it: :mod:`.elsewhere`, its text, and the model as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = '"""A model of {target}, trained privately and exported by {software}: it needs numpy alone.\n\n{promise}\n\n'
PLACE = 'MODEL: dict[str, Any] = json.loads("{}")  # an export has its numbers here\n'
WIDE = 118


def as_python(model: Mapping[str, Any]) -> str:
    """The text of a module with a class ``Model``, which scikit-learn takes for an estimator where it is installed."""
    text = (Path(__file__).parent / "elsewhere.py").read_text(encoding="utf-8")
    document = json.dumps(model, allow_nan=False, separators=(",", ":"))
    lines = [document[at : at + WIDE] for at in range(0, len(document), WIDE)]
    numbers = "".join(f"    {line!r}\n" for line in lines)
    before, after = text.split(PLACE)
    _, after_head = before.split('"""', 2)[1:]
    head = HEAD.format(**{**_words(model), "software": model["software"]})
    return f"{head}{USE}{after_head}MODEL: dict[str, Any] = json.loads(\n{numbers})\n{after}"


USE = '''    from model import Model
    Model().predict(table)          # a DataFrame, a mapping of columns, or an array in their order
    Model().predict_proba(table)    # where the loss has probabilities
    Model().statement_              # what is promised of the records that it was trained on
"""'''


def _words(model: Mapping[str, Any]) -> dict[str, str]:
    """What is shown at the top, harmless inside of a text in quotes."""
    promise = str(model["statement"].get("guarantee") or "No promise is made; see the statement.")
    return {"target": _plain(model["target"]), "promise": _plain(promise)}


def _plain(text: object) -> str:
    """Letters that end no text and begin no command: a name comes from a file."""
    return "".join(letter if letter.isalnum() or letter in " ,.:;()-_=" else "_" for letter in str(text))[:400]
