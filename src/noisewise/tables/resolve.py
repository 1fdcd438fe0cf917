"""From files, a target and perhaps a schema or public rows to a complete schema, parts of which may have to be bought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..accounts import Budget
from ..accounts.account import Account
from ..accounts.purse import Purse
from ..trusted.validate import did_you_mean
from .addresses import Place
from .bought import Purchase, part_of, purchase, with_bounds
from .encode import Encoder
from .files import Dialect, Share, Source, open_source
from .fill import fill_from_public, public_doubts, skeleton
from .refusal import our_words
from .schema import Column, Gap, Schema, gaps, read_schema

WAYS_OUT = (
    "Private values may not tell. {} ways out: (1) `noisewise schema wizard FILE --out schema.toml` asks for what is missing, "
    "`noisewise schema init FILE --target COL --out schema.toml` leaves room for it; then pass --schema; (2) pass --public "
    "FILE with public rows of the same columns; {}"
)
BUY = "(3) pass --bounds-epsilon E to buy the bounds of number columns with a part of epsilon"
FROM_LABELS = "taken from the labels"
IMAGINED = (0.0, 1.0)  # bounds with which everything else is checked before real ones are bought
IMAGINED_CLASSES = ("one", "another")


@dataclass(frozen=True)
class Resolved:
    """A schema, in words where it comes from, and what is to be bought, or was bought, to complete it."""

    source: Source
    schema: Schema
    words: str
    classes: str
    purchase: Purchase | None = None
    preparation: Mapping[str, Any] | None = None  # what was paid for bounds, once they are bought
    notes: tuple[str, ...] = ()  # doubts that public rows raise about declared columns

    @property
    def imagined(self) -> Schema:
        """The schema with imagined bounds where there are none yet."""
        return with_imagined_bounds(self.schema)

    def look(self, progress: Share | None = None) -> int:
        """Read everything once, so that cells that the schema refuses are found before paying; returns the number of records."""
        encoder, records = Encoder(self.imagined), 0
        encoder.check(self.source.columns)
        with our_words(f"{self.source.files[0].path}: cannot be read; write it anew"):
            for batch in self.source.batches(list(encoder.columns), progress=progress):
                encoder(batch)
                records += len(encoder.labels(batch))
        return records

    def bought(
        self, purse: Purse | Account | None, *, seed: int | None = None, progress: Share | None = None
    ) -> Resolved:
        """The same with every missing bound bought."""
        if self.purchase is None:
            return self
        schema, paid = self.purchase.bounds(self.source, purse, seed=seed, progress=progress)
        words = f"{self.words}; bounds bought where nothing declares them"
        return replace(self, schema=schema, words=words, preparation=paid)


def with_imagined_bounds(schema: Schema) -> Schema:
    """The schema with imagined bounds where it has none."""
    for gap in gaps(schema):
        if gap.what == "bounds" and gap.column is not None:
            schema = schema.with_column(with_bounds(schema[gap.column], *IMAGINED))
    return schema


def resolve(
    data: list[Place],
    *,
    target: str | None,
    schema: Path | None,
    public: list[Place],
    bounds_epsilon: float | None,
    budget: Budget,
    regression: bool,
    separator: str | Dialect | None = None,
    read_labels: bool = True,
) -> Resolved:
    """The schema to train by, perhaps with bounds to buy. Nothing is read from private values, except, when nothing
    declares them and bounds are to be bought, the classes of the target, which are then assumed to be public.

    ``regression``: a target without a kind is a number. ``read_labels=False`` imagines those classes: for a dry run.
    """
    if bounds_epsilon is not None:
        part_of(bounds_epsilon, budget)
    source = open_source(data, separator=separator) if data else Source(())  # clients of a network have the files
    resolved = Resolved(source, *_declared(source, target, schema, public, regression, separator))
    if resolved.schema.target is None:
        raise ValueError("the target is missing; name the column to predict with --target, or in the schema")
    if public:
        resolved = replace(resolved, notes=_doubted(resolved.schema, schema, public, separator))
    if bounds_epsilon is not None:
        resolved = _with_kinds(resolved, data, regression, schema is not None, separator, read_labels)
    left = gaps(resolved.schema)
    if left and (bounds_epsilon is None or any(gap.what != "bounds" for gap in left)):
        raise ValueError(_refusal(resolved.schema, left, bounds_epsilon is not None))
    if bounds_epsilon is None:
        return resolved
    if not left:
        raise ValueError(
            "every bound is declared or public already; leave --bounds-epsilon out, all of epsilon then trains"
        )
    return replace(resolved, purchase=purchase(resolved.schema, epsilon=bounds_epsilon, budget=budget))


def _declared(
    source: Source,
    target: str | None,
    schema: Path | None,
    public: list[Place],
    regression: bool,
    separator: str | Dialect | None,
) -> tuple[Schema, str, str]:
    start = skeleton(source, target) if schema is None else read_schema(schema)
    if schema is not None and target is not None and target != start.target:
        if target not in start:
            meant = did_you_mean(target, [column.name for column in start.columns])
            raise ValueError(f"--target is {target!r}, which {schema} does not describe{meant}")
        start = replace(start, target=target)
    words = "names and types of the columns" if schema is None else "bounds and categories, declared in a schema"
    if not public or not gaps(start):
        return start, words, "declared"
    if schema is None:
        start = skeleton(open_source(public, separator=separator), target)
    filled = fill_from_public(_numeric_target(start) if regression else start, public, separator=separator)
    if regression and any(gap.column == start.target for gap in gaps(filled)):  # texts: classes, by the squared loss
        filled = fill_from_public(start, public, separator=separator)
    where = "bounds and categories, taken from public rows"
    return (
        filled,
        where if schema is None else f"{words} or taken from public rows",
        "declared or taken from public rows",
    )


def _doubted(
    schema: Schema, declared: Path | None, public: list[Place], separator: str | Dialect | None
) -> tuple[str, ...]:
    """Refuse a column that public rows show to be an id or constant; for a declared column return a note instead."""
    known = {} if declared is None else {column.name: column for column in read_schema(declared).columns}
    notes = []
    for name, doubt in public_doubts(schema, public, separator=separator).items():
        if name not in known or not known[name].kind:
            raise ValueError(f"column {name!r} {doubt} in a schema (noisewise schema init --public writes one)")
        notes.append(f"column {name!r} {doubt}")
    return tuple(notes)


def _numeric_target(schema: Schema) -> Schema:
    """The schema with a target of kind number if it had none: otherwise a few whole numbers would count as classes."""
    if schema.target is None or schema[schema.target].kind:
        return schema
    return schema.with_column(Column(schema.target, "number"))


def _with_kinds(
    resolved: Resolved,
    data: list[Place],
    regression: bool,
    said: bool,
    separator: str | Dialect | None,
    read_labels: bool,
) -> Resolved:
    """Columns without a kind are numbers; a target without a kind is one too for a regression, else has classes.

    ``said``: kinds come from a schema that somebody wrote, not from the types of a file.
    """
    assert resolved.schema.target is not None
    label = resolved.schema[resolved.schema.target]
    schema = _numeric_target(resolved.schema) if regression else resolved.schema
    for column in schema.columns:
        if column.kind == "" and column.name != label.name and not column.note:
            schema = schema.with_column(Column(column.name, "number"))
    undeclared = label.kind == "" or (label.kind == "number" and label.low is None and not said)
    if (undeclared and not regression) or (label.kind == "category" and not label.categories):
        imagined = Column(label.name, "category", categories=IMAGINED_CLASSES)
        classes = _seen_classes(label, resolved.source, data, separator) if read_labels else imagined
        schema = schema.with_column(classes)
        return replace(resolved, schema=schema, classes=FROM_LABELS)
    return replace(resolved, schema=schema)


def _seen_classes(label: Column, source: Source, data: list[Place], separator: str | Dialect | None) -> Column:
    """The target with the classes that its labels show."""
    others = tuple(Column(name, "ignore") for name in source.columns if name != label.name)
    only = Schema((Column(label.name), *others), label.name)
    seen = fill_from_public(only, data, separator=separator)[label.name]
    if seen.kind != "category" or not seen.categories:
        raise ValueError(
            f"target {label.name!r} does not look like classes; pass --loss squared for a regression, "
            "or declare its categories in a schema"
        )
    return seen


def _refusal(schema: Schema, left: list[Gap], buying: bool) -> str:
    first = next((gap for gap in left if gap.what != "bounds"), left[0]) if buying else left[0]
    note = schema[first.column].note if first.column is not None else ""
    what = f"column {first.column!r} {note}" if note else str(first)
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return f"{what}{more}. {_ways_out(schema, left, buying)}"


def _ways_out(schema: Schema, left: list[Gap], buying: bool) -> str:
    """The ways out, and whether buying would help: bounds can be bought, kinds and categories cannot."""
    lists = [gap.column for gap in left if gap.what == "categories" and gap.column != schema.target]
    odd = [gap.column for gap in left if gap.column is not None and schema[gap.column].note]
    if stuck := (lists or odd):
        why = "its categories cannot be bought, only bounds of numbers can" if lists else "its bounds cannot be bought"
        bought = "does not" if buying else "(--bounds-epsilon) would not"
        return WAYS_OUT.format("Two", f"buying bounds {bought} help with {stuck[0]!r}: {why}")
    if any(gap.what == "kind" for gap in left):
        only = "; that helps if all of these columns are numbers, for categories cannot be bought"
        return WAYS_OUT.format("Three", BUY + only)
    return WAYS_OUT.format("Three", BUY)
