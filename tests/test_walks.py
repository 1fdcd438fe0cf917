"""How long the walks of docs/architecture.md are, and that the page names every file on them; ``-s`` prints the figures."""

from __future__ import annotations

from walks import HOUSE, by_room, event, walks

PAGE = HOUSE.parents[1] / "docs" / "architecture.md"
MAX_FILES = {"train": 52, "fit": 41, "event": 14}  # they get shorter, never longer


def test_the_page_about_the_house_names_every_file_on_a_walk():
    found = {**walks(), "event": event()}
    sources = [path.read_text().splitlines() for path in HOUSE.rglob("*.py")]
    print(f"\npackage: {len(sources)} files, {sum(map(len, sources)):,} lines")
    page = PAGE.read_text()
    for start, files in found.items():
        print(f"{start}: {len(files)} files")
        assert len(files) <= MAX_FILES[start]
        assert by_room(files) in page, f"docs/architecture.md names other files; python tests/walks.py prints {start}"


def test_a_folder_is_named_once_with_its_files():
    files = ["a/b.py", "train.py", "a/c/__init__.py", "a/d.py"]
    assert by_room(files).split("\n") == ["a/         b, d", "           train", "a/c/       __init__"]
