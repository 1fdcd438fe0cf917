"""A full disk, a folder that turns read-only, a clock that is set back: one clear line, what was spent stays written down."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from pathlib import Path

import pytest
from killed import GIVEN, KINDS, RESUME, Moment, drawn, entries, finished, holds_after_a_kill, laid_out, ran, warm

from noisewise.faces.cli import train as command


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    warm(laid_out(tmp_path_factory.mktemp("warm") / "desk"))


@pytest.fixture
def place(tmp_path, monkeypatch, warmed):
    place = laid_out(tmp_path / "desk")
    monkeypatch.chdir(place)
    return place


def said(place):
    return (place / "said.log").read_text()


def broken_from(call, number, monkeypatch):
    """From its n-th call on ``os.<call>`` says that the disk is full."""
    true, seen = getattr(os, call), []

    def full(*given, **named):
        seen.append(1)
        if len(seen) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true(*given, **named)

    monkeypatch.setattr(os, call, full)


@pytest.mark.parametrize("kind", ["filter", "bounds"])
@pytest.mark.parametrize("call, number", [("write", 3), ("write", 30), ("fsync", 4), ("fsync", 9)])
def test_a_full_disk_is_one_clear_line_and_the_run_goes_on_when_there_is_room(place, monkeypatch, kind, call, number):
    with monkeypatch.context() as patched:
        broken_from(call, number, patched)
        code = ran(place, KINDS[kind])
    if code == 0:  # it was done before the disk was full
        return
    assert code == 2 and "No space left on device" in said(place) and "Traceback" not in said(place)
    assert said(place).count("\n") <= 2 and not (place / "run").exists()
    holds_after_a_kill(place)
    if drawn(place):
        assert "`noisewise train --resume run` goes on" in said(place) and entries(place)
    finished(place, kind)


def test_a_folder_that_turns_read_only_loses_nothing(place, monkeypatch):
    """Nothing more can be created or renamed beside the run; lines of files that are open can still be written."""
    stepped = command._stepped

    def turned(report, step, *facts):
        stepped(report, step, *facts)
        if step == 5:
            for name in ("replace", "mkdir", "unlink"):
                monkeypatch.setattr(os, name, refuse)

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(command, "_stepped", turned)
    assert ran(place, KINDS["filter"]) == 2 and "Read-only file system" in said(place) and said(place).count("\n") <= 2
    monkeypatch.setattr(command, "_stepped", stepped)
    (paid,) = entries(place)
    assert paid["claimed"] > 0 and drawn(place)
    finished(place, "filter")


def test_a_folder_that_is_read_only_from_the_start_is_refused_before_anything_is_spent(place, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr("noisewise.evidence.runs.tempfile.TemporaryFile", refuse)
        assert ran(place, KINDS["filter"]) == 2 and "cannot be written (Read-only file system)" in said(place)
    assert said(place).count("\n") == 1 and not drawn(place) and {path.name for path in place.iterdir()} <= GIVEN


def test_a_clock_that_is_set_back_changes_nothing(place, monkeypatch):
    """Who may go on is decided by a lock and by claims, not by the time."""
    stepped = command._stepped

    def stopped(report, step, *facts):
        if step == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "_stepped", stopped)
        assert ran(place, KINDS["filter"]) == 130
    assert command._stepped is stepped
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() - 10 * 365 * 86400)
    for path in (place / "run.journal").iterdir():
        os.utime(path, (2**31, 2**31))  # as if they were of tomorrow
    before = len(drawn(place))
    assert finished(place, "filter") and len(drawn(place)) > before


def test_a_second_process_is_told_that_the_first_runs(place):
    """And the lock of one that was killed does not stand in the way."""
    ran(place, KINDS["filter"], Moment(call=150))
    lock = os.open("run.journal/lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert ran(place, RESUME) == 2 and "another process is running this run" in said(place)
    assert said(place).count("\n") == 1 and Path("run.journal/settings.json").exists() and entries(place)
    os.close(lock)
    assert finished(place, "filter")


@pytest.mark.parametrize("kind", ["filter", "plan"])
def test_a_step_waits_for_no_disk(place, monkeypatch, kind):
    """At most a sync of two files and one claim (file and folder) for each sixteenth of the budget, and a constant."""
    true, seen = os.fsync, place / "tmp" / "synced"

    def counted(descriptor):
        with open(seen, "a") as stream:
            stream.write("x")
        return true(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", counted)
        assert ran(place, KINDS[kind]) == 0, said(place)
    synced = len(seen.read_text())
    seen.unlink()
    asked = len(json.loads(Path("run/trace.json").read_text())["rows"])
    assert synced <= 17 * 4 + 30 and asked > 30
    print(f"{asked} answers, {synced} syncs")
