"""The face for the shell: help with examples, one JSON document, honest exit codes, one line for bad input."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import noisewise
from noisewise.accounts import Budget, PlanMeter
from noisewise.faces.cli import main as entry
from noisewise.faces.cli.main import app
from noisewise.statements.statement import FORMAT, derived_words
from noisewise.trusted.events import Gaussian, Repeated, to_dict

COMMANDS = [["demo"], ["verify"], ["methods"]]


def run(*arguments: str):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_main(monkeypatch, capsys, *arguments) -> tuple[int, str, str]:
    """The entry point itself, as the shell calls it."""
    monkeypatch.setattr(sys, "argv", ["noisewise", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        entry()
    told = capsys.readouterr()
    return stopped.value.code or 0, told.out, told.err


def statement(**changes):
    """A true statement of a private run, without running one."""
    meter = PlanMeter(Budget(1.0, 1e-6), Repeated(Gaussian(50.0), 10))
    data = {
        "format": FORMAT,
        "promise": {"epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove", "unit": "one record"},
        "simulation": False,
        "meter": meter.describe(),
        "events": [to_dict(Repeated(Gaussian(50.0), 10))],
        "size": "public",
        "method": {"name": "dpsgd", "settings": {"steps": 10}},
        "model": {"kind": "Linear", "shape": [4, 1], "loss": "logistic", "parameters": 4},
        "preparation": None,
        "hyper_parameters": "chosen without the private records",
        "assumed": ["the number of records, declared public"],
        "software": {"noisewise": noisewise.__version__},
    }
    return data | derived_words(data) | changes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "statement.json"


def test_help_lists_the_commands():
    told = run("--help")
    assert told.exit_code == 0
    assert all(name in told.output for name in ("demo", "verify", "bench"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_an_example(command):
    told = run(*command, "--help")
    assert told.exit_code == 0
    assert f"Example: noisewise {' '.join(command)}" in told.output


def test_version_says_which_kernels_are_in_use(monkeypatch, capsys):
    monkeypatch.setenv("NOISEWISE_KERNELS", "reference")
    assert run("--version").output == f"noisewise {noisewise.__version__} (kernels: reference)\n"
    monkeypatch.delenv("NOISEWISE_KERNELS")
    usual = "compiled" if importlib.util.find_spec("numba") else "reference"
    assert run("--version").output == f"noisewise {noisewise.__version__} (kernels: {usual})\n"
    monkeypatch.setitem(sys.modules, "numba", None)
    assert run("--version").output.endswith("(kernels: reference)\n")
    for wrong, reason in (("fast", "'reference' or 'compiled'"), ("compiled", "install numba")):
        monkeypatch.setenv("NOISEWISE_KERNELS", wrong)
        code, _, told = run_main(monkeypatch, capsys, "--version")
        assert code == 2 and reason in told and told.count("\n") == 1


def test_version_imports_neither_torch_nor_numba():
    code = (
        "import sys; from noisewise.faces.cli.main import main; sys.argv = ['noisewise', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint({'torch', 'numba', 'numpy'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.endswith("\nset()\n")


def test_no_arguments_and_unknown_commands_exit_with_2(monkeypatch, capsys):
    assert run_main(monkeypatch, capsys)[0] == 2
    assert run_main(monkeypatch, capsys, "train")[0] == 2
    assert run_main(monkeypatch, capsys, "verify")[0] == 2


def test_verify_says_yes(path):
    path.write_text(json.dumps(statement()), encoding="utf-8")
    told = run("verify", path)
    assert told.exit_code == 0 and told.stdout.startswith("yes: ")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (statement(simulation=True), "simulation"),
        (statement(promise=None), "without privacy"),
        (
            statement(promise={"epsilon": 0.1, "delta": 1e-6, "adjacency": "add_remove", "unit": "one record"}),
            "epsilon",
        ),
        ({}, "statement"),
        ([], "statement"),
        (None, "statement"),
        (3, "statement"),
        ("statement", "statement"),
    ],
)
def test_verify_says_no_with_the_reason(path, document, reason):
    path.write_text(json.dumps(document), encoding="utf-8")
    told = run("verify", path)
    assert told.exit_code == 1
    assert told.stdout.startswith("no: ") and reason in told.stdout
    assert not any(word in told.stdout for word in ("TypeError", "KeyError", "AttributeError")), "no Python to people"


def test_verify_as_json(path):
    for document, holds in ((statement(), True), (statement(simulation=True), False)):
        path.write_text(json.dumps(document), encoding="utf-8")
        told = run("verify", path, "--json")
        verdict = json.loads(told.stdout)
        assert list(verdict) == ["holds", "reason", "epsilon", "delta", "adjacency", "unit", "arithmetic", "seal"]
        assert verdict["holds"] is holds
        assert [verdict[name] for name in list(verdict)[2:]] == [1.0, 1e-6, "add_remove", "one record", None, "none"]
        assert told.exit_code == (0 if holds else 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        ("folder", "is a folder"),
        (bytes(range(256)), "not a JSON document"),
        (b'\xff\xfe{"format": 1}', "not a JSON document"),
        (b"{", "not a JSON document"),
        (b"", "not a JSON document"),
        (b"[" * 100_000, "not a JSON document"),
    ],
    ids=["missing", "folder", "binary", "not UTF-8", "half", "empty", "deep"],
)
def test_verify_of_what_is_no_document_is_one_line_and_exit_code_2(monkeypatch, capsys, path, content, reason):
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    code, out, err = run_main(monkeypatch, capsys, "verify", path)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and f"{path}: {reason}; pass" in err


def test_verify_says_what_is_promised(path):
    path.write_text(json.dumps(statement()), encoding="utf-8")
    assert "(epsilon, delta) = (1, 1e-06), adjacency add_remove, the unit is one record" in run("verify", path).stdout


def test_verify_of_a_folder_without_a_seal_says_no(tmp_path, path):
    path.write_text(json.dumps(statement()), encoding="utf-8")
    told = run("verify", tmp_path)
    assert told.exit_code == 1 and told.stdout.startswith("no: ") and "lacks seal.json" in told.stdout


def test_verify_reads_a_byte_order_mark(path):
    path.write_text(json.dumps(statement()), encoding="utf-8-sig")
    assert run("verify", path).exit_code == 0


def test_a_field_that_is_written_twice_is_refused(path):
    """A reader sees the first epsilon, a parser takes the last one."""
    twice = json.dumps(statement()).replace('"epsilon": 1.0', '"epsilon": 0.001, "epsilon": 1.0', 1)
    path.write_text(twice, encoding="utf-8")
    assert run("verify", path).exit_code != 0


def test_the_installed_command_runs(path):
    path.write_text(json.dumps(statement()), encoding="utf-8")
    code = "import sys; from noisewise.faces.cli import main; sys.argv[0] = 'noisewise'; main()"
    done = subprocess.run([sys.executable, "-c", code, "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("yes: ")
