"""Links between pages lead somewhere: to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "lab" / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
NAMED = re.compile(r"\{[^}]*#([\w-]+)[^}]*\}|<a (?:id|name)=\"([^\"]+)\"|\bid=\"([^\"]+)\"")


def anchors(page: Path) -> set[str]:
    """Headings as GitHub and the site address them."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"\{.*\}$", "", heading)).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words.replace("`", "")).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    named = {name for names in NAMED.findall(text) for name in names if name}
    return {*found} | named


def broken(page: Path) -> list[str]:
    wrong = []
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):  # another site
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists():
            wrong.append(f"{page.relative_to(ROOT)}: {target} is not there")
        elif anchor and place.suffix == ".md" and anchor not in anchors(place):
            wrong.append(f"{page.relative_to(ROOT)}: {target}: there is no such heading")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text("# One `two`\n[a](a.md#one-two) [b](b.md) [c](#three) `[d](d.md)` [e](https://example.org)\n")
    assert [line.split(": ")[1].split(":")[0] for line in broken(page)] == ["b.md is not there", "#three"]
