"""What mkdocs calls while it builds the site (``hooks`` in mkdocs.yml): pages that are made, links, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noisewise_lab.site.assets import foreign_assets
from noisewise_lab.site.commands import commands_listed
from noisewise_lab.site.methods import methods_listed
from noisewise_lab.site.notebooks import as_markdown
from noisewise_lab.site.pages import PAGES, ROOT, as_page, files_linked, place

LISTED = {
    "reference/commands.md": commands_listed,
    "reference/methods.md": methods_listed,
}  # what goes on with what is registered


def on_files(files: Any, config: Any) -> Any:
    """Adds what is no page of docs: README, changelog, laboratory, notebooks, files that pages link to."""
    from mkdocs.structure.files import File

    def add(where: str, content: str | bytes) -> None:
        files.append(File.generated(config, where, content=content))

    for path, where in PAGES.items():
        add(where, as_page((ROOT / path).read_text(encoding="utf-8"), path))
    for notebook in sorted((ROOT / "docs").glob("notebooks/*.ipynb")):
        path = str(notebook.relative_to(ROOT))
        text = as_markdown(notebook.read_text(encoding="utf-8"), notebook.name)
        add(place(path), as_page(text, path).replace(f"]({notebook.stem}.md)", f"]({notebook.name})", 1))
    written = [*PAGES, *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
    linked = {path for page in written for path in files_linked((ROOT / page).read_text(encoding="utf-8"), page)}
    for path in sorted(linked):
        add(place(path), (ROOT / path).read_bytes())
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Pages of docs get links as from the site; those that were made have them. A page by itself needs no list of pages."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    if page.file.generated_by:
        return markdown
    listed = LISTED.get(page.file.src_uri, str)()
    return as_page(f"{markdown}\n\n{listed}", f"docs/{page.file.src_uri}")


def on_post_build(config: Any) -> None:
    """Refuses a site that would fetch something."""
    from mkdocs.exceptions import PluginError

    if found := [*foreign_assets(Path(config.site_dir))]:
        raise PluginError("the site has to work without a network, but it fetches\n" + "\n".join(found))
