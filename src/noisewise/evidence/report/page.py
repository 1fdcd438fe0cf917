"""The report: one HTML page made from a run folder, complete in itself (no network, no script, no font).

It is for three readers, in this order: how good the model is and what it found, what is promised, and how it was done.
It shows released facts only: what a run folder holds was public, declared or paid for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ...accounts.atomic import write_atomically
from ...accounts.concerns import concerns_of
from . import title
from .about_effects import found
from .about_promise import promised, refutes
from .about_quality import quality
from .about_training import done
from .markup import Markup, contents, document, join, tag
from .run_folder import RunFolder, read_run

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
        with suppress(ValueError):  # of the drawing: what reading refuses has words of its own
            return _page(folder)
    raise ValueError(f"{run}: holds a number or a field that cannot be shown; pass a run folder as noisewise wrote it")


def _page(folder: RunFolder) -> str:
    sections = [quality(folder), found(folder), promised(folder), done(folder)]
    said = [tag("li", warning) for warning in folder.run["warnings"]]
    warnings = tag("div", tag("h2", "Warnings"), tag("ul", *said), class_="note") if said else None
    version = folder.statement["software"]["noisewise"]
    words = f"Written by noisewise {version} from released facts only. ", "This page fetches nothing."
    drawn, footer = [one.drawn() for one in sections], tag("footer", join(*words))
    main = tag("main", title.header(folder), warnings, contents(sections), *drawn, footer)
    return document(title.in_short(folder), *_banners(folder), main)


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run folder to ``out`` (default: report.html inside it) and say where it is."""
    target = Path(run) / "report.html" if out is None else Path(out)
    page = report_page(run)
    if target.is_dir():
        raise ValueError(f"{target} is a folder; pass the name of a file, e.g. --out report.html")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page.encode())
    return target


def refresh(run: Path) -> None:
    """The report of a run again, if it has one: for commands that have added something to the folder."""
    if (Path(run) / "report.html").is_file():
        write_report(run)


def _banners(folder: RunFolder) -> list[Markup]:
    """What must not be overlooked."""
    banners: list[tuple[str, str]] = []
    if folder.promise is None:
        why = "This model may reveal the records it was trained on. Do not release it."
        banners.append(("NOT PRIVATE: trained without privacy", why))
    elif folder.simulation:
        why = (
            "Its noise can be drawn again by anyone who knows the seed. Do not release this model. What is said below "
            "holds for a run without a seed."
        )
        banners.append(("NOT PRIVATE: a seeded simulation", why))
    if folder.promise is not None:
        said = concerns_of(folder.promise, folder.run["settings"])
        banners += [(LOUD[kind], f"{text[0].upper()}{text[1:]}.") for kind, text in said.items()]
    banners += [("AN AUDIT CONTRADICTS THE PROMISE", row["verdict"]) for row in folder.audits if refutes(row)]
    return [tag("div", tag("strong", loud), tag("p", why), class_="banner", role="alert") for loud, why in banners]
