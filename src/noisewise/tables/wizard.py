"""Questions that make a schema, a column at a time: guesses come from public rows, documents, types and names.

``ask`` shows a question and returns a line; ``say`` shows a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..trusted.validate import did_you_mean
from .codebook import EQUALS, by_name, codes_in, kind_of, pair_in, target_among, value_of
from .fill import A_CONSTANT, AN_ID
from .schema import Column, Schema, declared
from .schema_text import text_of
from .values import UNITS, in_unit

Ask = Callable[[str], str]
Say = Callable[[str], None]
KINDS = ("number", "category", "date", "ignore")
SHORT = {kind[0]: kind for kind in KINDS}
KIND_FIRST = re.compile(r"^(number|category|date)\s+(?=\S)", re.IGNORECASE)  # as guesses are shown: number 0 to 120
HELP = """  number    a quantity: you will be asked for the lowest and the highest value there can be
  category  one of a few values: you will be asked for all of them
  date      a date or a time, which becomes a number of years, days or hours
  ignore    not used: ids, names, notes, whatever tells nothing about others
  At once:  0 120 (a number and its bounds), or  yes, no  (a category and its values)
  back      to the column before;  rest  takes the guesses for all others;  stop  leaves the others open"""
BOUNDS = "  What such values can be, not what they are in your file: nobody is 200 years old. Tighter bounds mean less noise."
VALUES = "  Every value that can occur. Paste a list: with commas, or one a line (1 = clerk); an empty line ends it."
MIN_LOG_RATIO = 1000.0  # of the bounds: a log scale is offered


class Back(Exception):
    """Go back to the column before."""


class Rest(Exception):
    """Ask no more questions; ``guesses``: take the guesses for the other columns."""

    def __init__(self, guesses: bool) -> None:
        self.guesses = guesses


@dataclass
class Wizard:
    """Asks about columns; ``columns`` and ``target`` are what is known so far."""

    columns: tuple[Column, ...]
    target: str | None
    ask: Ask
    say: Say
    target_missing: str = "refuse"
    _made: dict[str, Column] = field(default_factory=dict)

    def run(self) -> Schema:
        """The schema that the answers make."""
        known = self.columns
        if self.target is None:
            self.target = asked_target(self.columns, None, self.ask, self.say)
        self.columns = tuple(guessed(column, column.name == self.target) for column in self.columns)
        question = "Records without a label: refuse the file, or drop them (they count for nothing)? [refuse] "
        self.target_missing = self._choice(question, ("refuse", "drop"), "refuse")
        place = 0
        try:
            while place < len(self.columns):
                try:
                    column = self.columns[place]
                    self._made[column.name] = self._column(place, self._made.get(column.name, column))
                    place += 1
                except Back:
                    place = max(place - 1, 0)
        except Rest as rest:
            left = self.columns
            if not rest.guesses:
                left = tuple(guessed(one, True) if one.name == self.target else one for one in known)
            self._made |= {one.name: one for one in left[place:]}
        columns = tuple(self._made[column.name] for column in self.columns)
        return Schema(columns, self.target, target_missing=self.target_missing)

    def _column(self, place: int, guess: Column) -> Column:
        target = guess.name == self.target
        self.say("")
        self.say(f"{place + 1} of {len(self.columns)}: {guess.name}" + ("  (to be predicted)" if target else ""))
        if guess.note:
            self.say(f"  it {guess.note.split(';')[0]}" if _a_verb(guess.note) else f"  {guess.note}")
        while True:
            try:
                return self._checked(guess, target)
            except ValueError as error:
                self.say(f"  {error}.")

    def _checked(self, guess: Column, target: bool) -> Column:
        kinds = tuple(kind for kind in KINDS if not (target and kind == "ignore"))
        first = "date" if guess.unit else guess.kind
        shown = self._shown(guess)
        answer = self._command(f"  {', '.join(kinds)}? {_bracket(shown or first)}")
        if not answer and shown:
            return self._spread(guess) if guess.kind == "number" and guess.scale == "linear" else guess
        at_once = self._at_once(guess, answer)
        if at_once is not None:
            return at_once
        kind = SHORT.get(answer.lower(), kind_of(answer)) or ("" if answer else first)
        if kind not in kinds:
            meant = did_you_mean(answer, kinds)
            raise ValueError(
                f"{answer!r} is none of {', '.join(kinds)}{meant}; ? explains them" if answer else "? explains them"
            )
        plain = Column(guess.name, note=_label(guess))
        if kind == "ignore":
            return replace(plain, kind="ignore")
        if kind == "category":
            noted = re.search(r"categories = \[(.*)\]$", guess.note)  # whole numbers that may be codes
            codes = codes_in(noted[1])[0] if noted else ()
            return self._category(guess if guess.kind == "category" else replace(plain, categories=codes))
        if kind == "date":
            return self._date(guess if guess.unit else plain)
        number = replace(guess if guess.kind == "number" and not guess.unit else plain, kind="number")
        return self._spread(self._bounds(number, "lowest and highest value there can be"))

    def _shown(self, guess: Column) -> str:
        """A complete guess in one line, which Enter takes; empty if it is incomplete."""
        if guess.kind == "number" and guess.low is not None and guess.high is not None:
            unit = f"date, in {guess.unit}" if guess.unit else "number"
            return f"{unit} {guess.low:.10g} to {guess.high:.10g}{', log' * (guess.scale == 'log')}"
        if guess.kind == "category" and guess.categories:
            return f"category {_few(guess.categories)}"
        return "ignore" if guess.kind == "ignore" else ""

    def _at_once(self, guess: Column, answer: str) -> Column | None:
        """A number with its bounds, or a category with its values, from one line; None for anything else."""
        if answer.lower() in SHORT or not answer:
            return None
        answer = KIND_FIRST.sub("", answer)
        pair = pair_in(answer)
        if pair is not None and all(in_unit(end, "seconds", "") is not None for end in pair):
            unit = guess.unit or ("hours" if ":" in pair[0][:3] else "years")
            return _bounded(Column(guess.name, "number", unit=unit, note=_label(guess)), pair)
        if pair is not None and all(end[:1] in "+-.0123456789" for end in pair) and not guess.unit:
            return self._spread(_bounded(Column(guess.name, "number", note=_label(guess)), pair))
        if any(sign in answer for sign in ",;|") or EQUALS.search(answer):
            return self._listed(guess, answer)
        return None

    def _bounds(self, column: Column, words: str) -> Column:
        known = column.low is not None and column.high is not None
        shown = f"{column.low:.10g} {column.high:.10g}" if known else ""
        answer = self._command(f"  {words}? {_bracket(shown)}", BOUNDS)
        if not answer:
            if not known:
                self.say("  Left open: fill it in later, or buy it with a part of epsilon (--bounds-epsilon).")
            return column
        pair = pair_in(answer)
        if pair is None:
            raise ValueError(f"{answer!r} is not a pair; write two numbers, e.g. 0 120")
        return _bounded(column, pair)

    def _spread(self, column: Column) -> Column:
        low, high = column.low, column.high
        if column.unit or low is None or high is None or low <= 0 or high < MIN_LOG_RATIO * low:
            return replace(column, scale="linear")
        guess = "log" if "heavy tail" in column.note or column.scale == "log" else "linear"
        question = f"  spread evenly (linear), or over powers of ten as money is (log)? [{guess}] "
        return replace(column, scale=self._choice(question, ("linear", "log"), guess))

    def _date(self, guess: Column) -> Column:
        usual = guess.unit or "years"
        unit = self._choice(f"  in which unit? {', '.join(UNITS)} [{usual}] ", UNITS, usual)
        ends = (guess.low, guess.high) if unit == guess.unit else (None, None)
        dated = Column(guess.name, "number", *ends, unit=unit, note=_label(guess))
        return self._bounds(dated, "earliest and latest, as 1920-01-01 2030-12-31 or 08:00 20:00")

    def _category(self, guess: Column) -> Column:
        shown = _few(guess.categories) if guess.categories else ""
        answer = self._command(f"  all values it can have? {_bracket(shown)}", VALUES)
        if not answer:
            if not guess.categories:
                self.say("  Left open: list them in the file before you train; they cannot be bought.")
            return replace(guess, kind="category")
        return self._listed(guess, answer)

    def _listed(self, guess: Column, answer: str) -> Column:
        """A category with the values of a list that begins with ``answer``."""
        lines = [answer]
        several = any(sign in answer for sign in ",;|") and not EQUALS.search(answer.split(",")[0])
        while not several and (line := self.ask("  next (Enter ends the list): ")).strip():
            lines.append(line)
        codes, words = codes_in("\n".join(lines))
        return Column(guess.name, "category", categories=codes, note=words or _label(guess))

    def _choice(self, question: str, choices: tuple[str, ...], guess: str) -> str:
        while True:
            answer = self.ask(question).strip().lower()
            found = [one for one in choices if answer and one.startswith(answer)]
            if not answer or len(found) == 1:
                return found[0] if answer else guess
            self.say(f"  Answer one of {', '.join(choices)}{did_you_mean(answer, choices)}.")

    def _command(self, question: str, help_text: str = HELP) -> str:
        """An answer that is not a command."""
        while True:
            answer = self.ask(question).strip()
            if answer == "?":
                self.say(help_text)
                continue
            if answer == "back":
                raise Back
            if answer in ("rest", "stop"):
                raise Rest(answer == "rest")
            return answer


def asked_target(columns: tuple[Column, ...], known: str | None, ask: Ask, say: Say) -> str:
    """The column to predict."""
    names = [column.name for column in columns]
    guess = known or target_among(columns)
    while (answer := ask(f"Which column is to be predicted? [{guess}] ").strip() or guess) not in names:
        say(f"  There is no column {answer!r}{did_you_mean(answer, names)}. The columns are {', '.join(names)}.")
    return answer


def guessed(column: Column, target: bool) -> Column:
    """The guess for a column: ids and constants are ignored, but never the target, which takes only known values."""
    guess = by_name(column)
    if target:
        kind = column.kind if guess.kind == "ignore" else guess.kind
        return replace(guess, kind=kind, unknown="refuse", missing=None, rare=())
    idle = guess.note in (AN_ID, A_CONSTANT) or guess.note.endswith((AN_ID, A_CONSTANT))
    return Column(guess.name, "ignore", note=guess.note) if idle else guess


def answered(columns: tuple[Column, ...], target: str | None, answers: Mapping[str, Any]) -> Schema:
    """The schema of a file of answers (``target``, ``target_missing``, ``columns``), with guesses for the rest."""
    strange = [name for name in answers if name not in ("target", "target_missing", "public", "columns")]
    given = answers.get("columns", {})
    names = [column.name for column in columns]
    if strange or not isinstance(given, Mapping):
        raise ValueError("the answers may have target, target_missing, public and tables [columns.NAME]")
    if unknown := [name for name in given if name not in names]:
        meant = did_you_mean(unknown[0], names)
        raise ValueError(f"the answers name the column {unknown[0]!r}, which is not there{meant}")
    chosen = answers.get("target") or target or target_among(columns)
    guesses = {column.name: guessed(column, column.name == chosen) for column in columns}
    made = {name: _overruled(guesses[name], given.get(name)) for name in names}
    return Schema(tuple(made.values()), chosen, target_missing=answers.get("target_missing", "refuse"))


def _overruled(guess: Column, answer: Any) -> Column:
    """A guess with the fields of an answer; an answer of another kind replaces it."""
    if answer is None:
        return guess
    if isinstance(answer, Mapping) and answer.get("kind", guess.kind) == guess.kind:
        known = Schema((guess,)).to_dict()["columns"][0]
        answer = {**{name: value for name, value in known.items() if name != "name"}, **answer}
    return replace(declared(guess.name, answer), note=_label(guess))


def _bounded(column: Column, pair: tuple[str, str]) -> Column:
    low, high = (value_of(column, end, text) for end, text in zip(("low", "high"), pair, strict=True))
    return replace(column, low=low, high=high, scale="linear", knots=())  # type: ignore[arg-type]


def _a_verb(note: str) -> bool:
    return note.startswith(("has ", "is ", "looks ", "holds ", "reaches "))


def _label(column: Column) -> str:
    """The words of a document, which stay as a comment; notes on a guess do not."""
    return "" if _a_verb(column.note) else column.note


def _bracket(guess: str) -> str:
    return f"[{guess}] " if guess else ""


def _few(values: tuple[Any, ...]) -> str:
    shown = ", ".join(_written(value) for value in values[:8])
    return shown if len(values) <= 8 else f"{shown}, .. {len(values)} values"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return text_of(value) if "," in value else value
    return str(value).lower() if isinstance(value, bool) else str(value)
