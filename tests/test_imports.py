"""Pricing and checking a promise needs neither torch nor scikit-learn; public names are where they are said to be."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import noisewise as nw
import noisewise.accounting

ACCOUNTING = [f"noisewise.accounting.{module.name}" for module in pkgutil.iter_modules(noisewise.accounting.__path__)]
LIGHT = ["noisewise", "noisewise.events", "noisewise.budget", "noisewise.report.statement", "noisewise.cli.main"]
LIGHT += ["noisewise.arithmetic", "noisewise.seal", "noisewise.report.agreement", "noisewise.losses"]
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


@pytest.mark.parametrize(
    "arguments", [["--help"], ["verify", "--help"], ["demo", "--help"], ["verify", "missing.json"]]
)
def test_quick_commands_load_nothing_heavy(arguments):
    code = f"""
import sys
from noisewise.cli import main
sys.argv = ["noisewise", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
"""
    assert loaded_by(code) == []


def test_every_public_name_is_there():
    assert "PrivateClassifier" in dir(nw)
    for name in nw.__all__:
        assert getattr(nw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Privacy'"):
        nw.Privacy  # noqa: B018
