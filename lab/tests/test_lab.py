"""The laboratory is installed beside noisewise, which finds its command by entry point and imports it when it is called."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from importlib.resources import files

from typer.testing import CliRunner

from noisewise.faces.cli.main import app
from noisewise_lab.commands import bench

COMMANDS = [
    "speed", "accounting", "audit-power", "figure2", "figure3", "figure4", "large", "tables", "tables-prepare",
    "transfer", "ablation", "protector", "table2", "ppsgd-figures",
]  # fmt: skip


def test_bench_is_found_by_its_entry_point():
    (point,) = metadata.entry_points(group="noisewise.commands", name="bench")
    assert point.dist.name == "noisewise-lab" and point.load() is bench
    told = CliRunner().invoke(app, ["bench", "--help"])
    assert told.exit_code == 0
    places = [told.output.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)


def test_the_list_of_commands_says_the_same_as_bench_and_does_not_import_it():
    code = """
import sys
from noisewise.faces.cli import main
sys.argv = ["noisewise", "--help"]
try:
    main()
finally:
    print("noisewise_lab" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert bench.info.help in told
    assert told.endswith("\nFalse\n")


def test_published_numbers_are_there():
    assert files("noisewise_lab").joinpath("published/ppsgd_table2.csv").is_file()
