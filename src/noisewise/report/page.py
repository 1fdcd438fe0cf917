"""The report: one HTML page made from a run folder, complete in itself (no network, no script, no font).

It shows released facts only: what a run folder holds was public, declared or paid for.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from ..atomic import write_atomically
from ..budget.concerns import concerns_of
from . import about_effects, about_model, about_privacy, words
from .markup import Markup, join, name_of, tag
from .run_folder import RunFolder, read_run
from .words import at_most, number

# Even if something slipped through the escaping, a browser would neither run nor fetch it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


LOUD = {
    "epsilon": "HARDLY A LIMIT: the epsilon is large",
    "delta": "A LARGE DELTA",
    "default": "NOBODY CHOSE THIS EPSILON",
}


def report_page(run: Path) -> str:
    """The report of a run folder as one HTML document; a folder that cannot be drawn is a ValueError."""
    try:
        return _page(read_run(Path(run)))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError):  # 10^400 is a number in JSON
        pass
    raise ValueError(f"{run}: holds a number or a field that cannot be shown; pass a run folder as noisewise wrote it")


def _page(folder: RunFolder) -> str:
    style = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))
    title = f"Privacy report: {words.shorten(folder.run['target'], 60)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    parts = (
        about_privacy.promised, about_privacy.prepared, about_privacy.spent, about_privacy.noise_and_clip,
        about_privacy.gradient_norm, about_model.chosen, about_effects.effects, about_model.coefficients, about_model.quality, about_model.comparison,
        about_model.audits, about_model.small_print, about_model.the_statement,
    )  # fmt: skip
    main = tag("main", _header(folder), _warnings(folder), *(part(folder) for part in parts), _footer(folder))
    return f"<!doctype html>\n{tag('html', head, tag('body', *_banners(folder), main), lang='en')}\n"


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
        banners.append(
            (
                "NOT PRIVATE: trained without privacy",
                "This model may reveal the records it was trained on. Do not release it.",
            )
        )
    elif folder.simulation:
        banners.append(
            (
                "NOT PRIVATE: a seeded simulation",
                "Its noise can be drawn again by anyone who knows the seed. Do not release this model. What is said below "
                "holds for a run without a seed.",
            )
        )
    if folder.promise is not None:
        said = concerns_of(folder.promise, folder.run["settings"])
        banners += [(LOUD[kind], f"{text[0].upper()}{text[1:]}.") for kind, text in said.items()]
    banners += [
        ("AN AUDIT CONTRADICTS THE PROMISE", row["verdict"]) for row in folder.audits if about_model.refutes(row)
    ]
    return [tag("div", tag("strong", loud), tag("p", why), class_="banner", role="alert") for loud, why in banners]


def _header(folder: RunFolder) -> Markup:
    run, promise = folder.run, folder.promise
    method = folder.statement["method"]["name"]
    what = (f"{run['model']['kind']} model of ", name_of(run["target"]), f", trained with {method}, ")
    subtitle = tag("p", *what, words.when(run["created"]), class_="soft")
    if promise is None:
        return tag("header", tag("h1", "No privacy is promised"), subtitle)
    epsilon, delta = promise["epsilon"], promise["delta"]
    adding = promise["adjacency"] == "add_remove"
    would = "would promise " if folder.simulation else ""
    tiles: list[tuple[str, Any]] = [
        (f"ε = {words.budget(epsilon)}", f"odds about a record change by at most {words.factor(epsilon)} times"),
        (f"δ = {words.budget(delta)}", f"allowance on top: {words.chance(delta)}"),
        (at_most(words.guess(epsilon, delta)), "at most: how often a coin-flip guess about a record can be right"),
        (promise["unit"], "added or removed (add_remove)" if adding else "replaced by another (replace_one)"),
    ]
    title = f"{would}({words.budget(epsilon)},\u00a0{words.budget(delta)})-differential privacy"
    sums = about_model.total(folder)
    return tag(
        "header",
        tag("h1", title[0].upper() + title[1:]),
        subtitle,
        tag(
            "div",
            *(tag("div", tag("b", big), tag("span", small), class_="tile") for big, small in tiles),
            class_="tiles",
        ),
        None
        if sums is None
        else tag("p", f"With the private evaluations of this folder: ({number(sums[0])}, {number(sums[1])}) in total."),
        None
        if folder.simulation
        else tag("p", f"Checked when this page was made: {folder.verdict.reason}.", class_="soft"),
    )


def _warnings(folder: RunFolder) -> Markup | None:
    warnings = folder.run["warnings"]
    if not warnings:
        return None
    return tag("div", tag("h2", "Warnings"), tag("ul", *(tag("li", warning) for warning in warnings)), class_="note")


def _footer(folder: RunFolder) -> Markup:
    version = folder.statement["software"]["noisewise"]
    return tag(
        "footer", join(f"Written by noisewise {version} from released facts only. ", "This page fetches nothing.")
    )
