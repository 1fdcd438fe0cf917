"""``noisewise bench machines``: engines add up to the same sum, and processor time is that of all processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from noisewise_lab.commands.machines import machines
from noisewise_lab.machines import ENGINES, _gloo, _one_process, _ray, cpu_of, engine_rows, large_on_ray, made, total


def test_parts_add_up_to_what_two_holders_hold():
    theta = np.linspace(-1.0, 1.0, 5)
    with _one_process(40, 5) as ask:
        assert ask(theta).shape == (5,)
    halves = [total(made(part, 2, 40, 5), theta) for part in range(2)]
    assert (halves[0] != halves[1]).any() and halves[0].dtype == np.int64


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("engine", [_gloo, _ray])
def test_engines_give_the_sum_of_their_halves(engine):
    if engine is _ray:
        pytest.importorskip("ray", reason="ray is not installed: pip install 'noisewise[ray]'")
    theta, before = np.linspace(-1.0, 1.0, 5), dict(os.environ)
    with engine(40, 5) as ask:
        assert np.array_equal(ask(theta), sum(total(made(part, 2, 40, 5), theta) for part in range(2)))
        assert "RANK" not in os.environ
    assert engine is _ray or dict(os.environ) == before


@pytest.mark.slow
def test_a_small_large_table_gives_the_same_bits_on_ray():
    pytest.importorskip("ray", reason="ray is not installed: pip install 'noisewise[ray]'")
    found = large_on_ray(30_000, 6, passes=3, report=lambda what, share: None)
    assert found["same_bits"] and found["ratio"] > 0


def test_processor_time_is_that_of_the_whole_family():
    busy = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'while True: pass']); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", busy], start_new_session=True)
    try:
        began = time.monotonic()
        while cpu_of(process.pid) < 0.3:
            assert time.monotonic() - began < 600
            time.sleep(0.05)
    finally:
        import os
        import signal

        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_engines_that_are_not_installed_have_no_figures(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    rows = engine_rows(1000, 5, report=lambda what, share: None, only=("Dask", "Spark"))
    assert [row["why"] for row in rows] == ["not installed"] * 2


def test_an_engine_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="the engines are one process, gloo, Ray, Dask, Spark"):
        machines(only="Slurm")
    assert len(ENGINES) == 5
