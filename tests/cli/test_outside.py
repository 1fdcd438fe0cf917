"""Commands of other packages: listed without an import, unable to shadow or break ours, one line when they are broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import noisewise
from noisewise.faces.cli.main import ENTRY_POINT_GROUP

WORKING = """
import typer
greet = typer.Typer(help="Greetings.", no_args_is_help=True)
@greet.command()
def hello(name: str, times: int = 1) -> None:
    print("hello " * times + name)
@greet.command()
def refuse() -> None:
    raise ValueError("no greeting; pass another")
def alone(times: int = 1) -> None:
    print("alone " * times)
number = 3
"""
WAVE = """
from .main import app
@app.command()
def wave() -> None:
    'Wave at people.'
    print("hello")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """``install("package", name="module:object")``: a package with a summary and commands; nothing else has commands."""
    real = metadata.entry_points
    monkeypatch.setattr(
        metadata, "entry_points", lambda **which: [p for p in real(**which) if p.dist.name in installed]
    )
    installed = set()
    (tmp_path / "greetings.py").write_text(WORKING)
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there")
    (tmp_path / "stops.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("greetings", "broken", "stops"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    def add(package: str, summary: str = "Says [bold] hello.", **commands: str) -> None:
        folder = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nSummary: {summary}\n")
        lines = [f"{name} = {value}" for name, value in commands.items()]
        (folder / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n" + "\n".join(lines) + "\n")
        installed.add(package)

    return add


def test_a_command_is_listed_with_its_package_s_summary_and_not_imported(install, shell):
    install("greetings", greet="greetings:greet", broken="broken:app", **{"Not A Name": "greetings:greet"})
    told = shell("--help")
    assert told.code == 0 and "Not A Name" not in told.out
    lines = [line for line in told.out.splitlines() if "Says [bold] hello." in line]
    assert [line.split()[1] for line in lines] == ["broken", "greet"]
    assert told.out.index(" theory ") < told.out.index(" broken ")
    assert not {"greetings", "broken"} & set(sys.modules)


def test_an_app_and_a_function_are_called_like_commands_of_ours(install, shell):
    install("greetings", greet="greetings:greet", alone="greetings:alone")
    assert shell("greet", "hello", "you", "--times", 2).out == "hello hello you\n"
    assert shell("alone", "--times", 2).out == "alone alone \n"
    told = shell("greet", "--help")
    assert told.code == 0 and "noisewise greet [OPTIONS] COMMAND" in told.out and "Greetings." in told.out
    assert "completion" not in told.out, "a typer app has options of its own for that, which have no place here"
    assert shell("greet", "refuse")[::2] == (2, "noisewise: no greeting; pass another\n")
    missing = shell("greet", "hello")
    assert missing.code == 2 and "Missing argument" in missing.err and missing.err.count("\n") == 1


@pytest.mark.parametrize("summary", ["[/nothing] was opened", ""])
def test_a_summary_is_text_and_no_markup(install, shell, summary):
    install("greetings", summary, greet="greetings:greet")
    told = shell("--help")
    assert told.code == 0 and summary in told.out and " greet " in told.out


def test_a_command_of_ours_is_not_shadowed(install, shell):
    install("greetings", methods="greetings:alone", theory="broken:app")
    assert "Training methods" in shell("methods").out
    assert "risk bounds" in shell("theory", "--help").out
    assert "Says" not in shell("--help").out


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("broken:app", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("greetings:nothing", "AttributeError"),
        ("greetings:number", "TypeError: noisewise.commands wants a typer app or a function, not int"),
        ("stops:app", "SystemExit"),
        ("nowhere_at_all:app", "No module named 'nowhere_at_all'"),
    ],
)
@pytest.mark.parametrize("arguments", [(), ("--help",), ("hello", "--json")], ids=" ".join)
def test_a_broken_command_is_one_line_and_exit_code_2(install, shell, value, reason, arguments):
    install("bad-package", bad=value)
    told = shell("bad", *arguments)
    assert told.code == 2 and told.out == "" and told.err.count("\n") == 1
    assert "the command bad of bad-package does not load" in told.err and reason in told.err
    assert shell("--help").code == 0 and shell("methods").code == 0


def test_two_packages_with_one_command_are_both_named(install, shell):
    install("one", greet="greetings:greet")
    install("two", greet="greetings:alone")
    told = shell("greet", "hello", "you")
    assert told.code == 2 and told.err.count("\n") == 1 and "uninstall one of them" in told.err
    assert "one" in told.err and "two" in told.err
    assert shell("--help").out.count(" greet ") == 1


def test_metadata_that_cannot_be_read_breaks_nothing_of_ours(monkeypatch, shell):
    def broken(**_which):
        raise TypeError("a line without =")

    monkeypatch.setattr(metadata, "entry_points", broken)
    told = shell("--help")
    assert told.code == 0 and " theory " in told.out and " bench " in told.out
    assert shell("methods").code == 0
    told = shell("bench", "speed")
    assert told.code == 2 and "TypeError: a line without =" in told.err and told.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("--help",), ("speed", "--rounds", 3), ("nothing",)], ids=str)
def test_without_the_laboratory_bench_says_how_to_install_it(install, shell, arguments):
    told = shell("bench", *arguments)
    assert told.code == 2 and told.out == "" and told.err.count("\n") == 1
    assert "pip install noisewise-lab" in told.err and "pip install ./lab" in told.err
    assert Path(__file__).parents[2].joinpath("lab", "pyproject.toml").exists()
    assert "Needs the package noisewise-lab" in shell("--help").out


def test_the_laboratory_s_command_comes_from_its_entry_point(install, shell):
    install("noisewise-lab", "Measure.", bench="greetings:greet")
    assert shell("bench", "hello", "you") == (0, "hello you\n", "")


def test_an_unknown_command_is_still_unknown(install, shell):
    told = shell("nothing")
    assert told.code == 2 and told.err.startswith("noisewise: No such command 'nothing'") and told.err.count("\n") == 1


def test_a_new_command_of_ours_is_one_file(tmp_path):
    package = Path(noisewise.__file__).parent
    shutil.copytree(package, tmp_path / "noisewise", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "noisewise" / "faces" / "cli" / "wave.py").write_text(WAVE)
    code = "import sys; from noisewise.faces.cli import main; sys.argv[0] = 'noisewise'; main()"
    for arguments, said in ((["wave"], "hello\n"), (["--help"], "Wave at people.")):
        told = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}
        )
        assert told.returncode == 0 and said in told.stdout, told.stderr
