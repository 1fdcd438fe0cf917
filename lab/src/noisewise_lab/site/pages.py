"""Files of the repository as pages of the site: where each one stands there, and links that lead to that place.

README is the front page. Pages keep the links that a reader of the repository follows; they are rewritten here.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "lab/README.md": "laboratory.md"}
WHOLE = re.compile(  # what is taken as a whole: blocks of code, marks for tests, links, code in a line
    r"^(?P<fence>```|~~~).*?^(?P=fence)[ \t]*$"
    r"|(?P<mark>^<!--.*?-->[ \t]*\n?)"
    r"|(?P<words>!?\[(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)"
    r"|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.DOTALL | re.MULTILINE,
)
SITES = re.compile(r"[a-z]+:")


def place(path: str) -> str:
    """Where a file of the repository stands on the site.

    >>> place("README.md"), place("docs/schema.md"), place("docs/notebooks/a.ipynb"), place("src/a.json")
    ('index.md', 'schema.md', 'notebooks/a.md', 'files/src/a.json')
    """
    if path in PAGES:
        return PAGES[path]
    if not path.startswith("docs/"):
        return f"files/{path}"
    inside = path.removeprefix("docs/")
    return re.sub(r"\.ipynb$", ".md", inside)


def as_page(text: str, source: str) -> str:
    """The text of a file without the marks that tests read, and with links as from its place on the site.

    >>> print(as_page("See [how](docs/schema.md#dates), `[not](this.md)`.", "README.md"))
    See [how](schema.md#dates), `[not](this.md)`.
    >>> print(as_page("[Install](../README.md) it.", "docs/schema.md"))
    [Install](index.md) it.
    """
    here = posixpath.dirname(place(source))

    def changed(part: re.Match[str]) -> str:
        if part["mark"]:
            return ""
        target, sign, anchor = (part["target"] or "").partition("#")
        if not target or SITES.match(target):
            return part[0]
        return f"{part['words']}{posixpath.relpath(place(linked(target, source)), here or '.')}{sign}{anchor}"

    return WHOLE.sub(changed, text)


def linked(target: str, source: str) -> str:
    """The file that a link in another file leads to, from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def files_linked(text: str, source: str) -> list[str]:
    """Files of the repository that a page links to and that are no pages: they go along with the site.

    >>> files_linked("[one](../src/a.json), [two](schema.md), [three](https://a.org)", "docs/export.md")
    ['src/a.json']
    """
    targets = [part["target"].partition("#")[0] for part in WHOLE.finditer(text) if part["target"]]
    paths = {linked(target, source) for target in targets if target and not SITES.match(target)}
    return sorted(path for path in paths if place(path).startswith("files/"))
