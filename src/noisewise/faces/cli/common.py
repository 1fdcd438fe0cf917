"""What several commands do alike: refuse a file that exists, write one, answer, and take numbers with commas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from ...accounts.atomic import write_atomically
from .main import errors, print_json


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to overwrite a file, unless asked to."""
    if path.exists() and not force:
        raise ValueError(f"{path} exists already; pass --force to overwrite it, or another file")


def write(path: Path, content: bytes) -> None:
    """Write all of the content or nothing."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror}); pass another file") from None


def answer(document: Any, words: str, json_output: bool) -> None:
    """The answer of a command: a document or a sentence."""
    if json_output:
        print_json(document)
    else:
        typer.echo(words)


def note(words: str) -> None:
    """A line on standard error, e.g. which file was written."""
    errors.print(words, highlight=False, markup=False, soft_wrap=True)


def numbers(text: str, option: str, kind: type[Any] = float, *, may_be_empty: bool = False) -> list[Any]:
    """The numbers of an option: at least 0, with commas between them."""
    try:
        values = [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        values = [-1]
    if not all(0 <= value < float("inf") for value in values) or not (values or may_be_empty):
        raise ValueError(f"--{option} is {text!r}; pass finite numbers >= 0 with commas between them, e.g. 1,10")
    return values
