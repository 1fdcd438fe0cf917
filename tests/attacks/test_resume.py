"""A stopped run attacked: somebody edits what lies beside --out, and goes on. Nothing may be drawn that is not paid for."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from desk import people

from noisewise.budget import Budget, meter_from
from noisewise.curator import Curator
from noisewise.faces.cli import train as command
from noisewise.runs import verify

pytestmark = pytest.mark.guard("--resume is new")

FILTER = ("train", "private.csv", "--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-6, "--out", "run")
PLAN = (*FILTER, "--method", "dpsgd", "--size-is-public")
SETTINGS, JOURNAL, SPENDING = (
    Path("run.journal/settings.json"),
    Path("run.journal/journal.jsonl"),
    Path("run.spending.json"),
)


@pytest.fixture
def events(monkeypatch):
    """Every event whose noise is drawn, by any run of the test."""
    noted = []

    def note(name):
        true = getattr(Curator, name)

        def asked(self, *given, **named):
            before = len(self.trace)
            answer = true(self, *given, **named)
            noted.extend(row.event for row in self.trace[max(before, asked.seen) :])
            asked.seen = 0
            return answer

        asked.seen = 0
        monkeypatch.setattr(Curator, name, asked)

    note("ask")  # by which the size is bought, too
    return noted


@pytest.fixture
def go(desk, shell, monkeypatch):
    """A command that is stopped at a step, or goes on to its end."""

    def call(*arguments, stop=None):
        def stepped(report, step, *_):
            if step == stop:
                raise KeyboardInterrupt

        monkeypatch.setattr(command, "_stepped", stepped)
        return shell(*arguments)

    return call


def edit(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def terms():
    (entry,) = json.loads(SPENDING.read_text())["entries"]
    return entry["terms"]


def paid(terms, events):
    """Whether one promise of these terms covers all that was drawn."""
    meter = meter_from(Budget(terms["epsilon"], terms["delta"], adjacency=terms["adjacency"]), terms["meter"])
    for event in events:
        meter.spend(event)
    return bool(events)


def refused(told, why):
    assert told.code == 2 and why in told.err and told.err.count("\n") <= 2 and "Traceback" not in told.err, told
    assert not Path("run").exists()


SETTINGS_EDITS = {
    "other files": lambda d: d["asked"].update(data=[str(Path("public.csv").absolute())]),
    "more epsilon": lambda d: d["asked"].update(epsilon=20.0),
    "a public size": lambda d: d["asked"].update(size_is_public=True),
    "another method": lambda d: d["asked"].update(method="ppsgd"),
    "another schema": lambda d: d["asked"].update(schema=None),
    "another option": lambda d: d["asked"].update(seed=1),
    "an option of another kind": lambda d: d["asked"].update(epsilon="2"),
    "no options": lambda d: d.update(asked=None),
    "no digests": lambda d: d.update(declared=None),
    "spending elsewhere": lambda d: d.update(spending="../run.spending.json"),
    "spending of another run": lambda d: d.update(spending="other.spending.json"),
    "a fresh file of spending": lambda d: d.update(spending="run.spending-2.json"),
    "another place": lambda d: d.update(run="/elsewhere/run"),
    "another version": lambda d: d.update(noisewise="0.0.1"),
    "another format": lambda d: d.update(format="noisewise-journal/1"),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", SETTINGS_EDITS)
def test_settings_that_were_edited_are_refused(go, events, name):
    assert go(*FILTER, stop=5).code == 130
    before = len(events)
    edit(SETTINGS, SETTINGS_EDITS[name])
    refused(go("train", "--resume", "run"), "")
    assert len(events) == before and SPENDING.exists() and JOURNAL.exists()


def test_a_schema_that_changed_is_refused_and_private_files_are_not_compared(go, events):
    assert go(*FILTER, stop=5).code == 130
    schema = Path("schema.toml").read_text()
    Path("schema.toml").write_text(schema.replace("high = 90", "high = 91"))
    refused(go("train", "--resume", "run"), "schema.toml: has changed since the run began")
    Path("schema.toml").write_text(schema)
    people(380, 5).to_csv("private.csv", index=False)
    known = terms()
    assert go("train", "--resume", "run").code == 0 and verify("run").holds and paid(known, events)


def test_a_copy_beside_it_is_refused(go, events):
    assert go(*FILTER, stop=5).code == 130
    shutil.copytree("run.journal", "copy.journal")
    shutil.copy(SPENDING, "copy.spending.json")
    edit(Path("copy.journal/settings.json"), lambda d: d.update(spending="copy.spending.json"))
    refused(go("train", "--resume", "copy"), "was copied or moved")
    edit(Path("copy.journal/settings.json"), lambda d: d.update(run=str(Path("copy").absolute())))
    refused(go("train", "--resume", "copy"), "changed")  # what was paid for was another run


@pytest.mark.parametrize(
    ("command", "stop"),
    [
        pytest.param(FILTER, 1, id="filter-1"),
        pytest.param(FILTER, 5, id="filter-5"),
        pytest.param(PLAN, 1, id="plan-1", marks=pytest.mark.slow),  # plan-5 goes the same way
        pytest.param(PLAN, 5, id="plan-5"),
    ],
)
def test_a_journal_that_is_put_back_draws_nothing_twice(go, events, command, stop):
    """An older copy of the journal with the file of what was spent as it is now: all between them is given up."""
    assert go(*command, stop=stop).code == 130
    shutil.copytree("run.journal", "older")
    assert go("train", "--resume", "run", stop=stop + 25).code == 130
    shutil.rmtree("run.journal")
    shutil.move("older", "run.journal")
    known = terms()
    assert go("train", "--resume", "run").code == 0 and verify("run").holds
    assert paid(known, events)  # of all three processes together


@pytest.mark.sample(2)
@pytest.mark.parametrize("what", ["lines", "answers", "all", "questions", "first lines"])
def test_lines_that_are_taken_out_are_not_drawn_again_unpaid(go, events, what):
    assert go(*FILTER, stop=12).code == 130
    known, lines = terms(), JOURNAL.read_text().splitlines(keepends=True)
    if what == "all":
        JOURNAL.unlink()
    elif what == "answers":
        Path("run.journal/answers.bin").unlink()
    elif what == "questions":
        JOURNAL.write_text("".join(line for line in lines if "charged" not in line))
    elif what == "first lines":
        JOURNAL.write_text("".join(lines[4:]))
    else:
        JOURNAL.write_text("".join(line for line in lines if "charged" not in line and "answered" not in line))
    told = go("train", "--resume", "run")
    assert told.code in (0, 2) and "Traceback" not in told.err and paid(known, events)
    assert told.code == 2 or verify("run").holds


def rechained(lines):
    """Edited lines with hashes that follow from each other, where the journal has any."""
    head = "0" * 64
    for line in map(json.loads, lines):
        if line.pop("chain", None) is not None:
            head = sha256(f"{head}\n{json.dumps(line)}".encode()).hexdigest()
            line["chain"] = head
        yield json.dumps(line)


def test_an_event_that_is_made_cheaper_is_refused(go, events):
    """The question is asked anew with its true noise, and that is not what the line says."""
    assert go(*FILTER, stop=5).code == 130
    lines = JOURNAL.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if "charged" in line)
    line = json.loads(lines[place])
    line["event"]["noise_multiplier"] *= 100
    lines[place] = json.dumps(line)
    JOURNAL.write_text("\n".join(rechained(lines)) + "\n")
    refused(go("train", "--resume", "run"), "answers are to other questions")


def test_what_was_spent_cannot_be_forgotten(go, events):
    assert go(*FILTER, stop=5).code == 130
    before, document = len(events), SPENDING.read_text()
    SPENDING.unlink()
    refused(go("train", "--resume", "run"), "does not say what the run")
    edit_terms = json.loads(document)
    SPENDING.write_text(json.dumps({**edit_terms, "entries": []}))
    refused(go("train", "--resume", "run"), "does not say what the run")
    for change in (
        lambda d: d["terms"].update(epsilon=20.0),
        lambda d: d["entries"][0]["terms"].update(epsilon=1.0),
        lambda d: d["entries"][0].update(state="spent", spent={"cost": 0.0, "delta": 0.0, "events": []}),
        lambda d: d["entries"][0].update(claimed=2.0),
    ):
        SPENDING.write_text(document)
        edit(SPENDING, change)
        refused(go("train", "--resume", "run"), "")
    assert len(events) == before
    known = json.loads(document)["entries"][0]["terms"]
    SPENDING.write_text(document)
    edit(SPENDING, lambda d: d["entries"][0].update(claimed=0.0))  # the journal knows better
    assert go("train", "--resume", "run").code == 0 and verify("run").holds and paid(known, events)


def test_bounds_that_somebody_made_up_are_refused(go, events):
    rows = people(300)[["age", "hours", "income"]]
    rows.loc[0, "age"] = 61.73519183
    rows.to_csv("numbers.csv", index=False)
    how = (
        "train",
        "numbers.csv",
        "--target",
        "income",
        "--epsilon",
        2,
        "--delta",
        1e-6,
        "--bounds-epsilon",
        1,
        "--out",
        "run",
    )
    assert go(*how, stop=2).code == 130
    path = Path("run.journal/bounds.json")
    kept = path.read_text()
    edit(path, lambda d: d["preparation"].update(epsilon=0.001))
    refused(go("train", "--resume", "run"), "does not say what the run")
    path.unlink()
    refused(go("train", "--resume", "run"), "paid for and lost")
    assert SPENDING.exists()
    assert "age" in kept and "61.735" not in kept


def test_a_link_in_the_place_of_a_journal_is_refused(go):
    assert go(*FILTER, stop=5).code == 130
    Path("run.journal").rename("elsewhere")
    Path("run.journal").symlink_to("elsewhere")
    refused(go("train", "--resume", "run"), "is a link, or somebody else's")


def test_another_run_in_the_place_of_the_stopped_one_removes_nothing(go):
    assert go(*FILTER, stop=5).code == 130
    assert go(*FILTER[:-1], "other").code == 0
    shutil.copytree("other", "run")
    told = go("train", "--resume", "run")
    assert told.code == 2 and "is not what the stopped run would write" in told.err
    kept = SPENDING.read_text()
    SPENDING.unlink()
    assert go("train", "--resume", "run").code == 2 and JOURNAL.exists()
    SPENDING.write_text(kept)
    shutil.rmtree("run")
    assert go("train", "--resume", "run").code == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "also", [("private.csv",), ("--epsilon", 3), ("--out", "x"), ("--seed", 1), ("--dry-run",), ("--tune", "none")]
)
def test_nothing_else_is_said_beside_resume(go, also):
    assert go(*FILTER, stop=5).code == 130
    told = go("train", "--resume", "run", *also)
    refused(told, "--resume goes on with what the run was asked; leave")
    assert told.err.count("\n") == 1 and (str(also[0]) in told.err or "DATA" in told.err)


def test_a_search_keeps_no_journal_and_says_why_it_does_not_go_on(go):
    SPENDING.write_text("{}")
    refused(go("train", "--resume", "run"), "a search (--tune) keeps none")
