"""Every picture of the documentation is used, and is made by a command that is there."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest
from make_pictures import PICTURES, make
from matplotlib.image import imread
from pages import ROOT
from typer.main import get_command

from noisewise.faces.cli.main import app
from noisewise_lab.commands import bench

IMAGES = ROOT / "docs" / "images"
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != IMAGES)]
FILES = sorted(path.name for path in IMAGES.iterdir() if path.suffix in (".png", ".svg"))
ROW = re.compile(r"^\| (`[^|]+`) \| (.+) \|$", re.MULTILINE)
BY_MAKE, BY_HAND = "`make pictures`", "written by hand"


def listed() -> dict[str, str]:
    """Each picture of the list, and how it is made."""
    rows = ROW.findall((IMAGES / "README.md").read_text(encoding="utf-8"))
    return {name: how for names, how in rows for name in re.findall(r"`([^`]+)`", names)}


def test_every_picture_is_listed_with_its_command_and_nothing_else_is():
    assert sorted(listed()) == FILES
    assert all("`noisewise " in how or how.startswith((BY_MAKE, BY_HAND)) for how in listed().values())


@pytest.mark.parametrize("name", FILES)
def test_every_picture_is_on_a_page(name):
    shown = re.compile(rf"\]\([^)]*images/{re.escape(name)}\)")
    assert any(shown.search(page.read_text(encoding="utf-8")) for page in PAGES)


def test_what_make_pictures_makes_is_what_the_list_says():
    assert {name for name, how in listed().items() if how.startswith(BY_MAKE)} == {*PICTURES}
    with pytest.raises(SystemExit, match=r"table2\.png is not made here; pass some of demo\.png"):
        make(["table2.png"])


def test_the_commands_and_their_options_are_there():
    words = [command for how in listed().values() for command in re.findall(r"`(noisewise [^`]+)`", how)]
    words += [command for made in PICTURES.values() for command in made.commands if command.startswith("noisewise")]
    assert len(words) > 25 and not [(line, wrong) for line in words if (wrong := _unknown(line))]


def _unknown(line: str) -> str | None:
    """The first word of a command that noisewise does not know."""
    first, *words = shlex.split(line)[1:]
    command = get_command(bench) if first == "bench" else get_command(app).commands.get(first)
    if command is None:
        return first
    for word in words:
        if hasattr(command, "commands"):
            if word not in command.commands:
                return word
            command = command.commands[word]
        elif word.startswith("--") and not any(word in option.opts for option in command.params):
            return word
    return None


def test_a_command_that_is_gone_would_be_noticed():
    assert _unknown("noisewise plan --epsilon 1") is None
    assert (_unknown("noisewise fly --high"), _unknown("noisewise plan --height 3")) == ("fly", "--height")
    assert (_unknown("noisewise bench swimming"), _unknown("noisewise bench figure4 --date D")) == (
        "swimming",
        "--date",
    )


def test_a_picture_is_made_where_it_is_wanted_and_is_the_one_that_is_there(tmp_path, capsys):
    make(["theory-tails.png"], tmp_path)
    assert "noisewise theory tails" in capsys.readouterr().out
    new, old = (imread(folder / "theory-tails.png") for folder in (tmp_path, IMAGES))
    assert (
        new.shape == old.shape and float(np.abs(new - old).mean()) < 0.01
    )  # fonts are drawn a little differently elsewhere
