"""Pages of README and docs as blocks of code, with what is said about each: what runs before it, and whether it runs.

A comment directly above a block marks it:

    <!-- slow -->                  make test-slow runs it
    <!-- needs data: WHAT -->      runs nowhere, for it needs files or names that a reader has; a Python block must parse
    <!-- not run: REASON -->       the same for another reason
    <!-- output varies -->         numbers of the output shown are not compared, its words are
    <!-- before: python             what runs before it and is not shown; also: before: sh
    X, y = ...
    -->
    <!-- file: NAME -->            a block of any language that is written to a file of that name

A block without a language that follows another one directly, or follows `$ command` in its own block, is what is printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--(.*?)-->\s*\Z", re.DOTALL)
RUNS = ("python", "sh", "console")
RECORDS = ("docs/results",)  # records of runs that took hours; the commands are theirs


@dataclass(frozen=True)
class Block:
    """A block of code: its language ("console" for `$ command` with its output), its text, and its marks."""

    page: str
    line: int
    language: str
    code: str
    marks: tuple[str, ...]
    output: str | None

    @property
    def slow(self) -> bool:
        return "slow" in self.marks

    @property
    def varies(self) -> bool:
        return "output varies" in self.marks

    @property
    def left_out(self) -> str | None:
        """Why it is not run."""
        return next((mark for mark in self.marks if mark.startswith(("needs data:", "not run:"))), None)

    @property
    def file(self) -> str | None:
        """The file that it is, if it is one."""
        return next((mark.removeprefix("file:").strip() for mark in self.marks if mark.startswith("file:")), None)

    @property
    def before(self) -> list[tuple[str, str]]:
        """Language and text of what runs before it."""
        told = [
            mark.removeprefix("before:").strip().split("\n", 1) for mark in self.marks if mark.startswith("before:")
        ]
        return [(language.strip(), code) for language, code in told]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """README and the pages of docs, by their paths."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [str(path.relative_to(ROOT)) for path in found]
    return [name for name in names if not name.startswith(RECORDS)]


def blocks(page: str, text: str | None = None) -> list[Block]:
    """The blocks of a page that run, or say why not."""
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    fences, found = list(FENCE.finditer(text)), []
    for number, fence in enumerate(fences):
        language, code = fence[1], fence[2]
        if language == "" and code.startswith("$ "):
            language = "console"
        marks = marks_above(text[: fence.start()])
        if language not in RUNS and not any(mark.startswith("file:") for mark in marks):
            continue
        after = fences[number + 1] if number + 1 < len(fences) else None
        next_to = after is not None and after[1] == "" and text[fence.end() : after.start()].strip() == ""
        next_to = next_to and "\n\n" not in text[fence.end() : after.start()] and not after[2].startswith("$ ")
        found.append(
            Block(
                page,
                text.count("\n", 0, fence.start()) + 1,
                language,
                code,
                marks,
                after[2] if next_to else None,
            )
        )
    return found


def marks_above(text: str) -> tuple[str, ...]:
    """Comments that stand directly above, the first one first."""
    marks: list[str] = []
    while (comment := COMMENT.search(text)) is not None:
        start = text.rfind("<!--")
        marks.insert(0, text[start + 4 : comment.end()].strip().removesuffix("-->").strip())
        text = text[:start]
    return tuple(marks)
