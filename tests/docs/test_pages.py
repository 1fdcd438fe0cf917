"""Every block of code in README and docs runs, or says why not; what it prints is what is shown."""

from __future__ import annotations

import ast

import pytest
from pages import Block, blocks, pages
from running import Page, compare, literals, transcript

MARKS = ("slow", "needs data:", "not run:", "output varies", "before:", "file:")
PAGES = {page: found for page in pages() if (found := blocks(page))}


def run(page: str, *, slow: bool) -> int:
    """Run the blocks of a page; how many there were."""
    shared, ran = Page(), 0
    for block in PAGES[page]:
        if block.left_out is None and (slow or not block.slow):
            shared.run(block)
            ran += 1
    return ran


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the commands of a page find and leave their files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


QUICK = [page for page, found in PAGES.items() if any(not b.slow and b.left_out is None for b in found)]
SLOW = [page for page, found in PAGES.items() if any(b.slow and b.left_out is None for b in found)]


@pytest.mark.parametrize("page", QUICK)
def test_blocks_run(page, folder):
    assert run(page, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_slow_blocks_run(page, folder):
    assert run(page, slow=True)


@pytest.mark.parametrize("page", PAGES)
def test_what_does_not_run_says_why_and_parses(page):
    for block in PAGES[page]:
        reason = (block.left_out or "").partition(":")[2]
        assert block.left_out is None or len(reason.strip()) > 3, f"{block}: say why, as <!-- not run: REASON -->"
        if block.left_out is not None and block.language == "python":
            ast.parse(block.code, str(block))
        odd = [mark for mark in block.marks if not mark.startswith(MARKS)]
        assert not odd, f"{block}: {odd[0]!r} is no mark; see tests/docs/pages.py"


PAGE = """
<!-- before: python
x = 2
-->
<!-- output varies -->
```python
print(x, "things")
1 + x  # 3
x / 3  # 0.667
```
```
7 things
```
"""


def test_a_page_is_read_as_it_is_meant():
    (block,) = blocks("a page", PAGE)
    assert block.varies and block.before == [("python", "x = 2")] and block.output == "7 things\n"
    Page().run(block)
    with pytest.raises(AssertionError, match="a page:6"):
        Page().run(Block("a page", 6, "python", block.code, (*block.marks[:1],), "3 things"))
    with pytest.raises(AssertionError, match="is 3, not 4"):
        Page().run(Block("a page", 6, "python", "1 + 2  # 4", (), None))
    with pytest.raises(AssertionError, match="NameError"):
        Page().run(Block("a page", 6, "python", "unknown", (), None))


def test_output_is_compared_word_by_word():
    compare("a  b\nc d 1", "a\nb ... d 1", varies=False)
    compare("a 12.5 % b", "a 3 % b", varies=True)
    for shown in ("a c", "a b 2", "b a"):
        with pytest.raises(AssertionError):
            compare("a b 1", shown, varies=False)
    assert list(transcript("$ ls\na\n$ pwd\nb\n")) == [("ls", "a\n"), ("pwd", "b\n")]
    assert literals("f(1)  # 2.5\ng()  # words") == {1: (2.5, "2.5")}
