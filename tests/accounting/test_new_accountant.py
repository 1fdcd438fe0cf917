"""Adding an accountant is adding one file: in a copy of the tree, everything finds it, and the contract tests it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEW = '''
"""Twice what GDP asks: an accountant for a test."""

from ..events import Adjacency
from . import gdp
from .base import Accountant, Currency, accountant


def doubled(events, delta, adjacency):
    return 2 * gdp.plan_epsilon(events, delta, adjacency)


@accountant
class Doubled(Accountant):
    __slots__ = ()
    name, adaptive = "doubled", True
    epsilon, cost, noise_for = staticmethod(doubled), staticmethod(gdp.cost), staticmethod(gdp.noise_for)

    def turn(self, counts):
        return 2

    def buy(self, epsilon: float, delta: float, adjacency: Adjacency, order: int | None) -> Currency:
        return Currency(self.name, gdp.cap(epsilon / 2, delta), adjacency)
'''


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "accounting", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "src/noisewise/trusted/accountants/doubled.py").write_text(NEW)
    return folder


def ran(tree: Path, *command: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "",
    }  # compiled once for all of them
    done = subprocess.run([sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found_and_chosen_by_name(tree):
    told = ran(tree, "-c", """if True:
        import noisewise as nw
        from noisewise.trusted.accountants.base import currencies, names
        from noisewise.accounts import Budget, Terms, meter_from
        from noisewise.accounts.choosing import choose_meter
        from noisewise.accounts.purse import Purse
        from noisewise.trusted.events import Gaussian
        assert nw.__file__.startswith(__import__("os").getcwd())
        assert names()[-1] == "doubled" and "doubled" in currencies()
        budget = Budget(1.0, 1e-6)
        assert nw.calibrate(budget, steps=5, accountant="doubled") > nw.calibrate(budget, steps=5)
        assert nw.epsilon(Gaussian(5.0), delta=1e-6, accountant="doubled") == 2 * nw.epsilon(Gaussian(5.0), delta=1e-6)
        assert "doubled" in str(nw.explain(budget, steps=5))
        meter = choose_meter(budget, adaptive=True, meter="doubled")
        meter.spend(Gaussian(meter.noise_for(0.5)))
        assert meter_from(budget, meter.describe()).currency == meter.currency
        Purse(budget, Terms.adaptive("doubled")).part(Terms.adaptive("doubled"), share=0.5)
        print(choose_meter(budget, adaptive=True).name)
        """)  # fmt: skip
    assert told == "gdp\n", "what was chosen before is chosen still"


def test_the_commands_show_it(tree):
    command = "import sys; from noisewise.faces.cli import main; sys.argv = ['noisewise', *sys.argv[1:]]; main()"
    plan = ["plan", "--epsilon", "1", "--delta", "1e-6", "--steps", "10", "--rates", "0.1", "--json"]
    full, batches = json.loads(ran(tree, "-c", command, *plan))["rows"]
    assert full["accountant"] == "gdp" and full["alternatives"]["doubled"] > full["noise_multiplier"]
    assert batches["accountant"] == "pld" and batches["alternatives"]["doubled"] > batches["noise_multiplier"]
    assert (
        ran(tree, "-c", "from noisewise.evidence.theory.accountants import NAMES; print(*NAMES)").split()[-1]
        == "doubled"
    )


CONTRACT = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_contract.py", "-k", "doubled", "--noconftest"]


def test_the_contract_tests_it(tree):
    told = ran(tree, *CONTRACT)
    assert " passed" in told and int(told.split(" passed")[0].split()[-1]) >= 25


def test_the_contract_finds_one_that_promises_too_much(tree):
    file = tree / "src/noisewise/trusted/accountants/doubled.py"
    file.write_text(NEW.replace("2 * gdp", "0.99 * gdp"))
    try:
        with pytest.raises(AssertionError, match="no_price_is_below_the_exact_one_of_gaussians"):
            ran(tree, *CONTRACT)
    finally:
        file.write_text(NEW)
