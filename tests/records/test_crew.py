"""Threads that are kept: every part is done once, in order, with the settings of who asks, also after a fork."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from noisewise.trusted.stores import threads as crew
from noisewise.trusted.stores.threads import together


def test_every_part_is_done_once_and_in_order_by_threads_that_stay(monkeypatch):
    def share(part):
        time.sleep(0.01)
        return part * part, threading.current_thread()

    monkeypatch.setattr(
        crew, "_crew", cache(lambda: ThreadPoolExecutor(crew.MAX_THREADS))
    )  # no thread of earlier tests
    seen = set()
    for _ in range(20):
        done = together(share, range(4))
        assert [value for value, _ in done] == [0, 1, 4, 9] and done[0][1] is threading.current_thread()
        seen |= {thread for _, thread in done[1:]}
    assert len(seen) < 20  # of 60: one that has just answered may not be idle yet
    crew._crew().shutdown()


def test_one_part_needs_nobody_else():
    before = threading.active_count()
    assert together(lambda part: part, ["alone"]) == ["alone"]
    assert threading.active_count() == before


def test_all_see_the_askers_settings_of_numpy():
    with np.errstate(all="raise"):
        assert {np.geterr()["over"] for _ in range(3)} == set(together(lambda _: np.geterr()["over"], range(3)))
    with np.errstate(all="ignore"):
        assert together(lambda _: np.geterr()["over"], range(3)) == ["ignore"] * 3


@pytest.mark.parametrize("failing", [0, 1])
def test_nobody_works_on_when_one_has_failed(failing):
    done = []

    def share(part):
        if part == failing:
            raise KeyError(part)
        time.sleep(0.05)
        done.append(part)

    with pytest.raises(KeyError):
        together(share, range(3))
    assert sorted(done) == [part for part in range(3) if part != failing]


def test_a_forked_child_has_threads_of_its_own():
    together(lambda part: part, range(3))
    child = os.fork()
    if child == 0:
        os._exit(0 if together(lambda part: part, range(3)) == [0, 1, 2] else 1)
    for _ in range(6000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for threads that it does not have")
    assert os.waitstatus_to_exitcode(status) == 0
