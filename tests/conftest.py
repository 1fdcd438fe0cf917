"""What all tests share: one torch thread each, and a desk with files for the commands that work on files."""

from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("noisewise", deadline=None)  # the first call of a kernel compiles it
settings.load_profile("noisewise")
torch.set_num_threads(1)  # two processes with two threads each would fight for two cores

TRAINING = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6, "--method", "dpsgd", "--seed", 1)


@pytest.fixture(autouse=True)
def losses_of_others():
    """Losses that a test registers are forgotten after it; the house itself has no way to forget one."""
    from noisewise import losses

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
