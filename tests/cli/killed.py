"""A ``noisewise train`` in a forked process that is killed somewhere, and everything that must hold of what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from desk import SCHEMA, people

from noisewise.accounts import Budget, meter_from
from noisewise.accounts.journal import WHAT
from noisewise.curator import Curator
from noisewise.evidence.runs import verify
from noisewise.faces.cli import main as entry
from noisewise.trusted.events import from_dict, to_dict

SECRET, NUMBER = "PLANTED-7f3a91", 61.73519183
CALLS = ("write", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "ftruncate", "open", "chmod", "link")
NOTE = '[columns.note]\nkind = "ignore"\n'
BUDGET = ("--epsilon", "2", "--delta", "1e-6", "--out", "run")
KINDS = {
    "filter": ("train", "private.csv", "--schema", "schema.toml", *BUDGET),
    "plan": ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--method", "dpsgd", "--size-is-public"),
    "plan with a count": ("train", "private.csv", "--schema", "schema.toml", *BUDGET, "--method", "dpsgd"),
    "bounds": ("train", "private.csv", "--schema", "open.toml", *BUDGET, "--bounds-epsilon", "1"),
}
RESUME = ("train", "--resume", "run")


def laid_out(place: Path) -> Path:
    """Private rows with a planted record, schemas, and a folder for temporary files."""
    rows = people(60, 3)
    rows["note"] = "nothing"
    rows.loc[7, ["age", "note"]] = [NUMBER, SECRET]
    place.mkdir()
    rows.to_csv(place / "private.csv", index=False)
    (place / "schema.toml").write_text(SCHEMA + NOTE)
    open_ended = (SCHEMA + NOTE).replace("low = 17\nhigh = 90\n", "").replace("low = 0\nhigh = 99\n", "")
    (place / "open.toml").write_text(open_ended)
    (place / "tmp").mkdir()
    return place


GIVEN = {"private.csv", "schema.toml", "open.toml", "tmp", "drawn.log", "said.log"}


@dataclass(frozen=True)
class Moment:
    """When to kill: after some seconds, or at a call of the system, before it or after it."""

    seconds: float | None = None
    call: int | None = None
    after: bool = False


def ran(place: Path, arguments: tuple[str, ...], moment: Moment | None = None, counted: Path | None = None) -> int:
    """The command in a forked process: how it ended. What it draws is noted in drawn.log; ``counted``: how often it calls."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _command(place, arguments, moment, counted)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if moment is not None and moment.seconds is not None:
        time.sleep(moment.seconds)
        os.kill(child, signal.SIGKILL)  # not waited for yet, so it is still this one
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _command(place: Path, arguments: tuple[str, ...], moment: Moment | None, counted: Path | None) -> int:
    os.chdir(place)
    said = os.open("said.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  until the end
    tempfile.tempdir = str(place / "tmp")
    _note_draws(os.open("drawn.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    calls = _count_calls(moment)
    sys.argv = ["noisewise", *arguments]
    try:
        entry()
    except SystemExit as stop:
        if counted is not None:
            counted.write_text(str(len(calls)))
        sys.stdout.flush()
        sys.stderr.flush()
        return int(stop.code or 0)
    return 71


def _note_draws(log: int) -> None:
    """Every question that the records answer, whoever asks, is noted when its noise is drawn."""
    write, noted_until = os.write, [0]

    def noted(true, self, *given, **named):
        answer = true(self, *given, **named)
        if len(self.trace) > noted_until[0]:  # one may ask another
            noted_until[0] = len(self.trace)
            write(log, json.dumps(to_dict(self.trace[-1].event)).encode() + b"\n")
        return answer

    def with_note(true):
        return lambda self, *given, **named: noted(true, self, *given, **named)

    for name in ("ask", "last_iterate", "minimise", "release_size"):
        setattr(Curator, name, with_note(getattr(Curator, name)))


def _count_calls(moment: Moment | None) -> list[str]:
    seen: list[str] = []

    def counted(true, *given, **named):
        seen.append(true.__name__)
        at = moment is not None and moment.call == len(seen)
        if at and not moment.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = true(*given, **named)
        if at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    for name in CALLS:
        setattr(os, name, partial(counted, getattr(os, name)))
    return seen


def warm(place: Path) -> None:
    """Import and compile in this process what its forks need."""
    before = os.getcwd(), sys.argv
    try:
        os.chdir(place)
        for arguments in KINDS.values():
            sys.argv = ["noisewise", *arguments]
            with pytest.raises(SystemExit):
                entry()
            assert verify(place / "run").holds
            shutil.rmtree("run")
    finally:
        os.chdir(before[0])
        sys.argv = before[1]


# --- what must hold ----------------------------------------------------------------------------------------------------------


def entries(place: Path) -> list[dict]:
    path = place / "run.spending.json"
    return json.loads(path.read_text())["entries"] if path.exists() else []


def lines(place: Path) -> list[dict]:
    """The whole lines of the journal; the last may be torn."""
    path = place / "run.journal" / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def fits(terms: dict, events: list) -> float:
    """All events are within what these terms promise, priced by a new meter; the share that they take."""
    meter = meter_from(Budget(terms["epsilon"], terms["delta"], adjacency=terms["adjacency"]), terms["meter"])
    for event in events:
        meter.spend(from_dict(event))  # refused if it is not paid for
    return meter.spent_fraction


def drawn(place: Path) -> list:
    path = place / "drawn.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def holds_after_a_kill(place: Path) -> None:
    """Charged at least what was released, no file half-written, nothing temporary left, and no record anywhere."""
    there = {path.name for path in place.iterdir()} - GIVEN
    assert there <= {"run", "run.journal", "run.spending.json", "run.spending.json.lock"}, there
    assert not list((place / "tmp").iterdir())
    for path in place.rglob("*.json"):
        if not path.name.startswith(".") and "draft" not in path.parts:
            json.loads(path.read_text())
    if "run" in there:
        assert verify(place / "run").holds
    known = entries(place) or (
        json.loads((place / "run/spending.json").read_text())["entries"] if "run" in there else []
    )
    assert sum((one["spent"] or one["reserved"])["cost"] for one in known) <= 2
    training = [one for one in known if one["terms"]["what"] == WHAT]
    if released := drawn(place):
        (paid,) = training
        assert paid["state"] == "spent" or fits(paid["terms"], released) <= paid["claimed"] * (1 + 1e-12)
        assert (paid["spent"] or paid["reserved"])["cost"] == paid["terms"]["epsilon"]
    answered = [line for line in lines(place) if "answered" in line]
    assert len(answered) <= len(released)
    no_record_in(place)


def no_record_in(place: Path) -> None:
    planted = (SECRET.encode(), str(NUMBER).encode(), struct.pack("<d", NUMBER))
    for path in place.rglob("*"):
        if path.is_file() and path.name != "private.csv":
            content = path.read_bytes()
            assert not any(value in content for value in planted), path


def finished(place: Path, kind: str) -> bool:
    """Go on after a kill, or start anew where nothing had begun; whether there is a model, which then is paid for and alone."""
    begun = (place / "run.journal" / "settings.json").exists() or (place / "run").exists()
    leftover = (place / "run.journal").exists() or entries(place)
    if (place / "run").exists() and not leftover and not (place / "run.spending.json.lock").exists():
        return True
    known = entries(place)
    if (
        known and not begun
    ):  # stopped while it bought bounds: what it says stays spent, and there is nothing to go on from
        assert kind == "bounds" and [one["terms"]["what"] for one in known] == ["bounds"]
        return False
    code, said = ran(place, RESUME if begun else KINDS[kind]), (place / "said.log").read_text()
    if code == 2 and "paid for and lost" in said:
        assert known and not (place / "run").exists() and entries(place)
        if "bounds of this run" in said:
            assert kind == "bounds" and [one["terms"]["what"] for one in known] == ["bounds"]
        else:
            assert kind == "plan with a count" and not any("answered" in line for line in lines(place))
        return False
    assert code == 0, said
    assert {path.name for path in place.iterdir()} - GIVEN == {"run"} and not list((place / "tmp").iterdir())
    verdict = verify(place / "run")
    assert verdict.holds, str(verdict)
    whole = json.loads((place / "run/spending.json").read_text())["entries"]
    training = whole[-1]
    assert training["state"] == "spent" and sum(one["spent"]["cost"] for one in whole) <= 2
    fits(training["terms"], drawn(place))  # all that any process of the run has drawn
    rows = json.loads((place / "run/trace.json").read_text())["rows"]
    fits(training["terms"], [row["event"] for row in rows])
    no_record_in(place)
    return True
