"""What all tests share: one thread each for sums, and a desk with files for the commands that work on files."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples in every run (make fuzz looks for new ones), and no limits of time: the first call of a kernel compiles it.
settings.register_profile("noisewise", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noisewise")
os.environ["OMP_NUM_THREADS"] = "1"  # two processes with two threads each would fight for two cores
torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """What torch and numpy draw without a seed of their own is the same in every run, whatever ran before."""
    torch.manual_seed(0)
    np.random.seed(0)


TRAINING = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6, "--method", "dpsgd", "--seed", 1)


@pytest.fixture(autouse=True)
def losses_of_others():
    """Losses that a test registers are forgotten after it; the house itself has no way to forget one."""
    from noisewise.trusted import losses

    known = getattr(losses, "_known", {})  # the commit on which attacks worked had no registry
    before = dict(known)
    yield
    if known.keys() != before.keys():
        known.clear()
        known.update(before)


@pytest.fixture
def shell(monkeypatch, capsys):
    """The command line as the shell calls it."""
    from desk import shell_of

    return shell_of(monkeypatch, capsys)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with private.csv, public.csv and schema.toml, which is where the test runs."""
    from desk import laid_out

    monkeypatch.chdir(tmp_path)  # and back, in the end
    return laid_out(tmp_path)


@pytest.fixture
def run(desk, shell):
    """A run folder, trained as a simulation on the files of the desk."""
    assert shell("train", "private.csv", *TRAINING, "--out", "run").code == 0
    return Path("run")
