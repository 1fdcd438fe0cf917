"""What the site is made of: pages with links of their own, notebooks, commands, methods; and what it may not fetch."""

from __future__ import annotations

import json
from pathlib import Path

from noisewise.methods import registry
from noisewise_lab.site.assets import fetched_by, foreign_assets
from noisewise_lab.site.commands import commands_listed
from noisewise_lab.site.methods import methods_listed
from noisewise_lab.site.notebooks import as_markdown
from noisewise_lab.site.pages import ROOT, as_page, files_linked

PAGE = """# A page
<!-- before: python
x = [1](docs/no.md)
-->
<!-- slow -->
```python
print("[code](docs/stays.md)")
<!-- stays -->
```
![A picture](docs/images/a.png), [`a/`](lab/README.md), [a notebook](docs/notebooks/a.ipynb), `[code](docs/stays.md)`,
[elsewhere](https://example.org/docs/a.md), [here](#a-page), [a file](src/a.json), [an anchor](docs/schema.md#dates).
"""


def test_marks_go_and_links_lead_to_the_site() -> None:
    page = as_page(PAGE, "README.md")
    assert "before:" not in page and "<!-- slow -->" not in page and "<!-- stays -->" in page
    assert page.count("[code](docs/stays.md)") == 2
    for link in ("(images/a.png)", "[`a/`](laboratory.md)", "(notebooks/a.md)", "(https://example.org/docs/a.md)",
                 "(#a-page)", "(files/src/a.json)", "(schema.md#dates)"):  # fmt: skip
        assert link in page, link
    assert files_linked(PAGE, "README.md") == ["src/a.json"]


def test_links_of_a_page_further_down_lead_up() -> None:
    assert (
        as_page("[a](../../README.md) [b](../tables.md)", "docs/results/a.md") == "[a](../index.md) [b](../tables.md)"
    )


def test_files_that_pages_link_to_are_there() -> None:
    pages = list((ROOT / "docs").rglob("*.md"))
    named = [name for page in pages for name in files_linked(page.read_text(), str(page.relative_to(ROOT)))]
    assert named and all((ROOT / name).is_file() for name in named)


def test_a_notebook_is_a_page() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Words."]},
        {"cell_type": "code", "source": "!ls", "outputs": [{"output_type": "stream", "name": "stdout", "text": ["a\n"]}]},
        {"cell_type": "code", "source": "1 + 1", "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["2"]}}]},
        {"cell_type": "code", "source": "draw()", "outputs": [{"output_type": "display_data", "data": {"image/png": "AAAA\n"}}]},
    ]  # fmt: skip
    page = as_markdown(json.dumps({"cells": cells}), "a.ipynb")
    assert page.startswith("# Title\n\n*A notebook: [a.ipynb](a.ipynb)")
    for part in ("\nWords.\n", "```sh\nls\n```", "```text\na\n```", "```python\n1 + 1\n```", "```text\n2\n```",
                 'src="data:image/png;base64,AAAA"'):  # fmt: skip
        assert part in page, part


def test_every_command_is_listed_with_its_options() -> None:
    page = commands_listed()
    for command in ("noisewise train", "noisewise verify", "noisewise schema wizard", "noisewise bench beginners"):
        assert f"# {command}\n" in page
    assert (
        "| `--epsilon <float>` |" in page
        and "[bold]" not in page
        and "`noisewise verify noisewise-demo/statement.json`" in page
    )


def test_every_method_is_listed_with_its_file_and_its_class() -> None:
    page = methods_listed()
    for name, kind in registry().items():
        assert f"## {name}\n" in page and f"::: {kind.__module__}.{kind.__name__}\n" in page


def test_what_would_be_fetched_is_found(tmp_path: Path) -> None:
    page = """<a href="https://a.org">a paper</a> <script src="https://b.org/b.js"></script> <img src="images/c.png">
    <link rel="stylesheet" href="//d.org/d.css"> <img srcset="https://e.org/e.png 2x"> <p style="background: url('http://f.org/f.png')">"""
    found = ["https://b.org/b.js", "//d.org/d.css", "https://e.org/e.png 2x", "http://f.org/f.png"]
    assert fetched_by(page, ".html") == found
    assert fetched_by("@import 'https://a.org/a.css'; a { background: url(data:image/png;base64,//A) }", ".css") == [
        "https://a.org/a.css"
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.html").write_text(page)
    (tmp_path / "b.js").write_text('"https://no-asset.org"')
    assert [*foreign_assets(tmp_path)] == [f"a/a.html: {address}" for address in found]
