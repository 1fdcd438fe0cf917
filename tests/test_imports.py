"""Pricing and checking a promise needs neither torch nor scikit-learn; public names are where they are said to be."""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import noisewise as nw
import noisewise.accounting
from noisewise._moved import MOVED, homes

ACCOUNTING = [f"noisewise.accounting.{module.name}" for module in pkgutil.iter_modules(noisewise.accounting.__path__)]
LIGHT = ["noisewise", "noisewise.events", "noisewise.budget", "noisewise.statement", "noisewise.cli.main"]
LIGHT += [
    "noisewise.budget.purse",
    "noisewise.budget.choosing",
    "noisewise.arithmetic",
    "noisewise.runs.seal",
    "noisewise.runs.agreement",
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
from noisewise.cli import main
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


OLD = {
    "accounting.advanced": "advanced_epsilon moments_epsilon",
    "audit.bounds": "exact_epsilon epsilon_at",
    "audit.finished": "entry",
    "audit.pictures": "plot_roc plot_leakage plot_inversion",
    "audit.score_plot": "plot_audit",
    "choice": "choose_terms choose_meter explain",
    "curator.statistics": "Count SecondMoment NormAtMost Correct",
    "data.basis": "deflating",
    "data.bounds": "quantile_bounds purchase with_bounds",
    "gradients": "Linear MLP Batch",
    "gradients.batches": "Batch Mapped",
    "gradients.layers": "MLP",
    "gradients.linear": "Linear",
    "learned.cells": "new_cell",
    "learned.fast": "FastProjector",
    "learned.protector": "Weights LearnedProjector",
    "learned.zoo": "OutsideRange named shipped",
    "plan": "plan_rows records_needed",
    "protect.basis": "deflating worth_buying",
    "replay": "Tape Recording why_unknown standard_errors Spread",
    "report.plots": "plot_plan plot_comparison",
    "report.statement": "Statement make_statement check_shape verify",
    "theory.descent": "optimal_schedule descent_bound",
}


@pytest.mark.parametrize("module", sorted({*MOVED, *OLD}))
def test_what_moved_is_found_by_its_old_name_and_says_where_it_is(module):
    for name in OLD[module].split():
        with pytest.warns(DeprecationWarning, match=rf"noisewise\.{module} is deprecated; import {name} from ") as told:
            old = getattr(import_module(f"noisewise.{module}"), name)
        assert old is getattr(import_module(str(told[0].message).split()[-1]), name)
    with pytest.raises(AttributeError, match=f"module 'noisewise.{module}' has no attribute 'Any'"):
        _ = import_module(f"noisewise.{module}").Any  # what the new home itself imports is not its own
    assert importlib.util.find_spec(f"noisewise.{module}_") is None


def test_single_names_and_the_laboratory_moved_too():
    with pytest.warns(DeprecationWarning, match=r"import Adam from noisewise\.protect\.optimizers"):
        from noisewise.protect.projectors import Adam
    assert Adam.__module__ == "noisewise.protect.optimizers"
    assert homes("noisewise.bench.large") == ["noisewise_lab.large"] and homes("noisewise.bench") == ["noisewise_lab"]
    assert not homes("noisewise.benches") and not homes("noisewise.bench.large.rows")
