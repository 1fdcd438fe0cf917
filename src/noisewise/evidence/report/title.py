"""The title of the report: data set, target, date, quality and budget, in one line and as tiles."""

from __future__ import annotations

from typing import Any

from . import sentences as words
from .about_coefficients import clearest
from .about_promise import counting, sums
from .about_quality import headline
from .about_training import records
from .markup import Markup, join, name_of, tag
from .run_folder import RunFolder
from .sentences import at_most

MAX_TITLE_LETTERS = 60  # of a name
MAX_NAMED_COLUMNS = 3  # of a tile


def in_short(folder: RunFolder) -> str:
    """One line, for the tab of the browser and the name of a file."""
    good, counted = headline(folder), counting(folder)
    what = f"{words.shorten(folder.run['target'], MAX_TITLE_LETTERS)}{_source(folder, ' from ')}"
    quality = "quality not measured" if good is None else f"{good.name} {good.value}"
    price = "no privacy" if counted is None else f"({words.budget(counted[0])}, {words.budget(counted[1])})-DP"
    return ", ".join([what, words.day(folder.run["created"]), quality, price])


def header(folder: RunFolder) -> Markup:
    """The heading and four tiles."""
    run = folder.run
    if run["features"]:
        heading = ["Predicting ", name_of(words.shorten(run["target"], MAX_TITLE_LETTERS)), _source(folder, " from ")]
    else:
        heading = [
            "A model of your own: ",
            name_of(words.shorten(run.get("module") or run["target"], MAX_TITLE_LETTERS)),
        ]
    known, columns = records(folder), len(_columns(folder))
    about = [
        words.day(run["created"]),
        None if known is None else f"{known} records",
        f"{columns:,} column{'s' * (columns != 1)}" if columns else None,
        words.MODELS.get(run["model"]["kind"], run["model"]["kind"]),
    ]
    line = " · ".join(part for part in about if part is not None)
    tiles = [_quality(folder), _found(folder), _budget(folder), _limit(folder)]
    return tag(
        "header",
        tag("h1", *heading),
        tag("p", line, class_="soft"),
        tag("div", *(tile for tile in tiles if tile is not None), class_="tiles"),
    )


def _source(folder: RunFolder, before: str) -> str:
    """The files the model was trained on, where a run says so."""
    names = folder.run.get("data") or []
    if not names:
        return ""
    more = len(names) - 1
    rest = f" and {more:,} more file{'s' * (more != 1)}" if more else ""
    return f"{before}{words.shorten(names[0], MAX_TITLE_LETTERS)}{rest}"


def _columns(folder: RunFolder) -> list[str]:
    """Names of the columns that the model sees."""
    saved = folder.run["preprocessing"]
    schema = saved.get("schema")
    if schema is None:
        return [name for name in folder.run["features"] if name != "(intercept)"]
    return [one["name"] for one in schema["columns"] if one["kind"] != "ignore" and one["name"] != schema["target"]]


def _tile(about: str, big: Any, small: Any) -> Markup:
    return tag("div", tag("i", about), tag("b", big), tag("span", small), class_="tile")


def _quality(folder: RunFolder) -> Markup:
    good = headline(folder)
    if good is None:
        return _tile("Quality", "not measured", "noisewise evaluate finds out")
    return _tile("Quality", good.value, join(good.name, None if good.against is None else f", against {good.against}"))


def _found(folder: RunFolder) -> Markup | None:
    if folder.effects is not None:
        names = [column.feature for column in sorted(folder.effects.columns, key=lambda column: -column.strength)]
    else:
        names = clearest(folder.run)
    if not names:
        return None
    first, *others = [name_of(words.shorten(name, 24)) for name in names[:MAX_NAMED_COLUMNS]]
    rest = join(*(join(" and " if place else "", name) for place, name in enumerate(others)))
    return _tile("Strongest column", first, join("then ", rest) if others else "the only clear one")


def _budget(folder: RunFolder) -> Markup:
    counted, promise = counting(folder), folder.promise
    if counted is None or promise is None:
        return _tile("Budget", "none", "no privacy is promised")
    epsilon, delta = counted
    seeded = "; only without a seed" if folder.simulation else ""
    relation = "added or removed" if promise["adjacency"] == "add_remove" else "replaced by another"
    added = sums(folder)
    small = f"delta = {words.budget(delta)}; {promise['unit']} {relation}{seeded}"
    small = small if added is None else f"{small}; {added}"
    return _tile("Budget", f"epsilon\u00a0=\u00a0{words.budget(epsilon)}", small)


def _limit(folder: RunFolder) -> Markup | None:
    counted = counting(folder)
    if counted is None:
        return None
    limit = at_most(words.guess(*counted))
    return _tile("Limit for any attacker", limit, "how often a coin-flip guess about a record can be right")
