"""The frame of every page: one HTML document that fetches nothing and runs nothing."""

from __future__ import annotations

from importlib.resources import files

from .markup import Markup, tag

# Even if something slipped through the escaping, a browser would neither run nor fetch it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, *body: Markup | None) -> str:
    """A whole page with our style sheet in it."""
    style = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"
