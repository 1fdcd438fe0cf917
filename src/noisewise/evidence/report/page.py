"""The report: one HTML page made from a run folder, complete in itself (no network, no script, no font).

It is for three readers, in this order: how good the model is and what it found, what is promised, and how it was done.
It shows released facts only: what a run folder holds was public, declared or paid for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ...accounts.atomic import write_atomically
from ...accounts.budget_warnings import concerns_of
from . import sentences as words
from .about_coefficients import clearest
from .about_effects import found
from .about_promise import counting, promised, refutes, sums
from .about_quality import headline, quality
from .about_training import done, records
from .markup import Markup, contents, document, join, joined, name_of, tag, tile
from .run_folder import RunFolder, read_run
from .sentences import at_most

MAX_TITLE_LETTERS = 60  # of a name
MAX_NAMED_COLUMNS = 3  # of a tile
LOUD = {
    "epsilon": "HARDLY A LIMIT: the epsilon is large",
    "delta": "A LARGE DELTA",
    "default": "NOBODY CHOSE THIS EPSILON",
}
UNSHOWN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError)  # 10^400 is a number in JSON


def report_page(run: Path) -> str:
    """The report of a run folder as one HTML document; a folder that cannot be drawn is a ValueError."""
    with suppress(*UNSHOWN):
        folder = read_run(Path(run))
        with suppress(ValueError):  # of the drawing; an error of reading has a message of its own
            return _page(folder)
    raise ValueError(f"{run}: holds a number or a field that cannot be shown; pass a run folder as noisewise wrote it")


def _page(folder: RunFolder) -> str:
    sections = [quality(folder), found(folder), promised(folder), done(folder)]
    items = [tag("li", warning) for warning in folder.run["warnings"]]
    warnings = tag("div", tag("h2", "Warnings"), tag("ul", *items), class_="note") if items else None
    version = folder.statement["software"]["noisewise"]
    footer = tag("footer", f"Written by noisewise {version} from released facts only. This page fetches nothing.")
    main = tag("main", _header(folder), warnings, contents(sections), *(one.drawn() for one in sections), footer)
    return document(_title(folder), *_banners(folder), main)


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run folder to ``out`` (default: report.html inside it), and return its path."""
    target = Path(run) / "report.html" if out is None else Path(out)
    page = report_page(run)
    if target.is_dir():
        raise ValueError(f"{target} is a folder; pass the name of a file, e.g. --out report.html")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page.encode())
    return target


def refresh(run: Path) -> None:
    """Write the report of a run again, if it has one: for commands that have added something to the folder."""
    if (Path(run) / "report.html").is_file():
        write_report(run)


def _banners(folder: RunFolder) -> list[Markup]:
    banners: list[tuple[str, str]] = []
    if folder.promise is None:
        why = "This model may reveal the records it was trained on. Do not release it."
        banners.append(("NOT PRIVATE: trained without privacy", why))
    else:
        if folder.simulation:
            why = (
                "Its noise can be drawn again by anyone who knows the seed. Do not release this model. What is said below "
                "holds for a run without a seed."
            )
            banners.append(("NOT PRIVATE: a seeded simulation", why))
        concerns = concerns_of(folder.promise, folder.run["settings"])
        banners += [(LOUD[kind], f"{text[0].upper()}{text[1:]}.") for kind, text in concerns.items()]
    banners += [("AN AUDIT CONTRADICTS THE PROMISE", row["verdict"]) for row in folder.audits if refutes(row)]
    return [tag("div", tag("strong", loud), tag("p", why), class_="banner", role="alert") for loud, why in banners]


def _title(folder: RunFolder) -> str:
    """One line, for the tab of the browser and the name of a file: data set, target, date, quality and budget."""
    good, counted = headline(folder), counting(folder)
    what = f"{words.shorten(folder.run['target'], MAX_TITLE_LETTERS)}{_source(folder)}"
    quality = "quality not measured" if good is None else f"{good.name} {good.value}"
    price = "no privacy" if counted is None else f"({words.budget(counted[0])}, {words.budget(counted[1])})-DP"
    return ", ".join([what, words.day(folder.run["created"]), quality, price])


def _header(folder: RunFolder) -> Markup:
    run = folder.run
    name = run["target"] if run["features"] else run.get("module") or run["target"]
    named = name_of(words.shorten(name, MAX_TITLE_LETTERS))
    heading = ["Predicting ", named, _source(folder)] if run["features"] else ["A model of your own: ", named]
    known, columns = records(folder), len(_columns(folder))
    about = [
        words.day(run["created"]),
        None if known is None else f"{known} records",
        f"{columns:,} column{'s' * (columns != 1)}" if columns else None,
        words.MODELS.get(run["model"]["kind"], run["model"]["kind"]),
    ]
    line = " · ".join(part for part in about if part is not None)
    tiles = tag("div", _quality(folder), _found(folder), _budget(folder), _limit(folder), class_="tiles")
    return tag("header", tag("h1", *heading), tag("p", line, class_="soft"), tiles)


def _source(folder: RunFolder) -> str:
    """The files the model was trained on, where the run states them."""
    names = folder.run.get("data") or []
    if not names:
        return ""
    more = len(names) - 1
    rest = f" and {more:,} more file{'s' * (more != 1)}" if more else ""
    return f" from {words.shorten(names[0], MAX_TITLE_LETTERS)}{rest}"


def _columns(folder: RunFolder) -> list[str]:
    schema = folder.run["preprocessing"].get("schema")
    if schema is None:
        return [name for name in folder.run["features"] if name != "(intercept)"]
    return [one["name"] for one in schema["columns"] if one["kind"] != "ignore" and one["name"] != schema["target"]]


def _quality(folder: RunFolder) -> Markup:
    good = headline(folder)
    if good is None:
        return tile("Quality", "not measured", "noisewise evaluate finds out")
    return tile("Quality", good.value, join(good.name, None if good.against is None else f", against {good.against}"))


def _found(folder: RunFolder) -> Markup | None:
    if folder.effects is not None:
        names = [column.feature for column in sorted(folder.effects.columns, key=lambda column: -column.strength)]
    else:
        names = clearest(folder.run)
    if not names:
        return None
    first, *others = [name_of(words.shorten(name, 24)) for name in names[:MAX_NAMED_COLUMNS]]
    return tile("Strongest column", first, join("then ", joined(others, " and ")) if others else "the only clear one")


def _budget(folder: RunFolder) -> Markup:
    counted, promise = counting(folder), folder.promise
    if counted is None or promise is None:
        return tile("Budget", "none", "no privacy is promised")
    epsilon, delta = counted
    seeded = "; only without a seed" if folder.simulation else ""
    relation = "added or removed" if promise["adjacency"] == "add_remove" else "replaced by another"
    added = "" if (parts := sums(folder)) is None else f"; {parts}"
    small = f"delta = {words.budget(delta)}; {promise['unit']} {relation}{seeded}{added}"
    return tile("Budget", f"epsilon\u00a0=\u00a0{words.budget(epsilon)}", small)


def _limit(folder: RunFolder) -> Markup | None:
    if (counted := counting(folder)) is None:
        return None
    about = "how often a coin-flip guess about a record can be right"
    return tile("Limit for any attacker", at_most(words.guess(*counted)), about)
