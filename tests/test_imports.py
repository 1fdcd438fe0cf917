"""Pricing and checking a promise needs neither torch nor scikit-learn; public names are where they are said to be."""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import noisewise as nw
import noisewise.trusted.accountants
from noisewise._public import PUBLIC, home

ACCOUNTING = [
    f"noisewise.trusted.accountants.{module.name}"
    for module in pkgutil.iter_modules(noisewise.trusted.accountants.__path__)
]
LIGHT = [
    "noisewise",
    "noisewise.trusted.events",
    "noisewise.accounts",
    "noisewise.statements.statement",
    "noisewise.faces.cli.main",
]
LIGHT += [
    "noisewise.accounts.purse",
    "noisewise.accounts.choosing",
    "noisewise.trusted.arithmetic",
    "noisewise.statements.seal",
    "noisewise.statements.verify",
]
FORBIDDEN = ("torch", "sklearn", "pandas", "matplotlib")


def loaded_by(code: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded after running the code."""
    check = f"{code}\nimport sys; print(*[name for name in {FORBIDDEN!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


def test_light_modules_import_nothing_heavy():
    assert loaded_by("import " + ", ".join([*LIGHT, *ACCOUNTING])) == []


def test_pricing_and_checking_load_nothing_heavy():
    code = (
        "import noisewise as nw; b = nw.Budget(1.0, 1e-6); nw.calibrate(b, steps=3); nw.verify({}); "
        "nw.calibrate(b, steps=3, sampling=('poisson', 0.1)); print(nw.explain(b, steps=3))"
    )
    assert loaded_by(code) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "arguments", [["--help"], ["verify", "--help"], ["demo", "--help"], ["verify", "missing.json"]]
)
def test_quick_commands_load_nothing_heavy(arguments):
    code = f"""
import sys
from noisewise.faces.cli import main
sys.argv = ["noisewise", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
"""
    assert loaded_by(code) == []


REFUSALS = {
    "--epsilon -1": "epsilon is -1.0; pass a finite number > 0",
    "--epsilon 1 --delta 2": "delta is 2.0",
    "--epsilon 1 --delta 1e-6 --method magic": "magic",
    "--epsilon 1 --delta 1e-6 --model none": "--model is 'none'",
    "--epsilon 1 --delta 1e-6 --out there": "there exists already",
    "--epsilon 1 --delta 1e-6 --target incom": "--target is 'incom'",
}


def test_what_is_refused_has_waited_for_nothing_heavy(desk):
    """All in one process, and after each: torch, scikit-learn, pandas, matplotlib, scipy and numba are not there."""
    (desk / "there").mkdir()
    (desk / "there" / "run.json").touch()
    code = f"""
import sys
from noisewise.faces.cli import main
for options in {[*REFUSALS]!r}:
    delta = [] if "--delta" in options else ["--delta", "1e-6"]
    sys.argv = ["noisewise", "train", "private.csv", "--schema", "schema.toml", *delta, *options.split()]
    try:
        main()
    except SystemExit as end:
        print(end.code, *[name for name in {(*FORBIDDEN, "scipy", "numba", "dp_accounting")!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["2"] * len(REFUSALS)
    for told, wanted in zip(done.stderr.splitlines(), REFUSALS.values(), strict=True):
        assert wanted in told


def test_the_package_is_a_command_too():
    done = subprocess.run([sys.executable, "-m", "noisewise", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"noisewise {nw.__version__}")


def test_every_public_name_is_there():
    assert "PrivateClassifier" in dir(nw)
    for name in nw.__all__:
        assert getattr(nw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Privacy'"):
        nw.Privacy  # noqa: B018


@pytest.mark.parametrize("public", sorted(PUBLIC))
def test_a_public_path_is_the_module_itself(public):
    found = import_module(f"noisewise.{public}")
    assert found is import_module(f"noisewise.{PUBLIC[public]}") is sys.modules[f"noisewise.{public}"]
    assert found.__name__ == found.__spec__.name == home(f"noisewise.{public}")


def test_submodules_of_public_paths_are_found_too():
    from noisewise.losses.hinge import Hinge  # type: ignore[import-untyped]

    assert Hinge.__module__ == "noisewise.trusted.losses.hinge"
    assert importlib.util.find_spec("noisewise.events_") is None and home("other.events") is None
