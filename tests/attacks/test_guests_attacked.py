"""What a guest found to get more than answers: gaps in its sandbox, in the clock, in its memory, and in its words."""

import os
import threading
import time
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sandbox import needs_sandbox

import noisewise as nw
from noisewise import methods
from noisewise.guest import described, method_named, running
from noisewise.guest.method import About
from noisewise.guest.running import Guest, GuestFailed, borrowed
from noisewise.methods import isolation_of, registered_elsewhere
from noisewise.methods.dpsgd import DpSgd

pytestmark = [needs_sandbox, pytest.mark.guard("they worked before guests were in the history")]
HERE = Path(__file__).parent
X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
y = (X[:, 0] > 0).astype(int)


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    yield
    for waiting in running._idle.values():
        while waiting:
            waiting.pop().end()


def fitted(method, **options):
    given = {"epsilon": 1.0, "bounds": (-1, 1), "classes": [0, 1], **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nw.PrivateClassifier(method=method, **given).fit(X, y)


def said(capfd):
    lines = [line.partition("learned ")[2] for line in capfd.readouterr().err.splitlines() if "learned " in line]
    assert lines
    return dict(line.split(": ", 1) for line in lines)


# --- the sandbox ---


def test_no_call_tells_who_uses_a_file_or_leads_out_of_a_namespace(capfd):
    fitted("visitors.intruders:Intruder")
    learned = said(capfd)
    assert len(learned) == 12
    assert {name: value for name, value in learned.items() if value not in ("None", "False")} == {}


def children_of(parent):
    """Processes that a process has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent and words[0] != "Z":
            found.append(int(place.parent.name))
    return found


def test_no_guest_outlives_its_end():
    method = method_named("visitors.intruders:Survivor")
    with borrowed(method.spec, "sandbox") as guest:
        guest.call({"do": "make", "settings": {}})
        (inside,) = children_of(guest._process.pid)
        guest.end()
    for _ in range(600):
        if not os.path.exists(f"/proc/{inside}"):
            return
        time.sleep(0.1)
    os.kill(inside, 9)
    raise AssertionError("it lives on")


def test_a_guest_is_not_shared_with_threads_that_end():
    """It ends with the thread that started it, and would take the run of another thread with it."""
    borrowed_in: list[Guest] = []
    ready, go_on = threading.Event(), threading.Event()

    def first():
        with borrowed("visitors.honest:Descent", "sandbox") as guest:
            borrowed_in.append(guest)
        ready.set()
        go_on.wait(600)

    thread = threading.Thread(target=first)
    thread.start()
    ready.wait(600)
    with borrowed("visitors.honest:Descent", "sandbox") as guest:
        go_on.set()
        thread.join()
        borrowed_in[0]._process.wait(600)
        assert guest.call({"do": "make", "settings": {}})["total_steps"] == 12
    with borrowed("visitors.honest:Descent", "sandbox"):
        assert not any(borrowed_in[0] in waiting for waiting in running._idle.values())


# --- the clock ---


class Clock:
    def __init__(self):
        self.now, self.slept = 1000.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_when_a_guest_asks_does_not_tell_how_long_an_answer_took(monkeypatch):
    """With a clock that runs on by itself, a guest that asks at every phase of it finds the time of an answer exactly."""
    clock = Clock()
    monkeypatch.setattr(running, "time", clock)
    guest = Guest("visitors.honest:Descent", "sandbox")
    waited = []
    for phase in (0.001, 0.007, 0.013):
        exchanged = Guest._exchanged

        def later(self, message, phase=phase, exchanged=exchanged):
            clock.now += phase  # the guest takes its time
            return exchanged(self, message)

        with monkeypatch.context() as patched:
            patched.setattr(Guest, "_exchanged", later)
            guest.call({"do": "make", "settings": {}})
        clock.now += 0.003  # an answer is computed
        guest.tick()
        waited.append(clock.slept[-1])
    guest.end()
    assert waited == pytest.approx([running.TICK_SECONDS - 0.003] * 3, abs=1e-9)


def test_a_guest_cannot_time_how_rows_are_read_and_laid_out(monkeypatch):
    noted = []
    tick, exchanged = Guest.tick, Guest._exchanged

    def ticking(self):
        noted.append("tick")
        tick(self)

    def exchanging(self, message):
        noted.append(message.get("do", "answer"))
        return exchanged(self, message)

    monkeypatch.setattr(Guest, "tick", ticking)
    monkeypatch.setattr(Guest, "_exchanged", exchanging)
    fitted("visitors.honest:Descent")
    before = {
        name: noted[at - 1] for at, name in enumerate(noted) if at and name in ("make", "terms", "init", "finish")
    }
    assert before == dict.fromkeys(("make", "terms", "init", "finish"), "tick")


def test_a_walk_that_takes_years_is_refused(capfd):
    fitted("visitors.intruders:Endless")
    assert said(capfd) == {"walk": "refused"}


# --- what it remembers ---


def test_a_private_run_does_not_remember_simulations(capfd):
    """Noise of a simulation follows from its seed, which a guest can guess: its answers are not paid for."""
    fitted("visitors.hostile:Collector", random_state=1)
    fitted("visitors.hostile:Collector", random_state=2)
    fitted("visitors.hostile:Collector")
    lines = [line for line in capfd.readouterr().err.splitlines() if "runs seen" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["1", "2", "1"]


def test_a_guest_that_may_have_read_records_is_ended(tmp_path, monkeypatch):
    package = tmp_path / "with_records"
    package.mkdir()
    (package / "__init__.py").write_text("from noisewise.methods.dpsgd import DpSgd\n")
    (package / "rows.csv").write_text("secret")
    monkeypatch.syspath_prepend(str(tmp_path))
    method = described("with_records:DpSgd")
    assert any(running._idle.values())
    with pytest.raises(ValueError, match="move it elsewhere"):
        method.refuse_readable([package / "rows.csv"])
    assert not any(running._idle.values())


def test_files_of_clients_are_refused_too(tmp_path):
    from noisewise.faces.cli.federated import fitted_on_clients

    (tmp_path / "rows.csv").write_text("a\n1\n")

    def refuse(files):
        raise ValueError(f"refused {[file.name for file in files]}")

    fit = SimpleNamespace(federated=SimpleNamespace(wait=1), method=SimpleNamespace(refuse_readable=refuse))
    asked = SimpleNamespace(data=[tmp_path / "rows.csv"], public=())
    with pytest.raises(ValueError, match=r"refused \['rows.csv'\]"):
        fitted_on_clients(fit, asked, None, lambda *_: None, {}, None)


def test_no_run_folder_chooses_to_have_its_method_run_outside_of_a_sandbox():
    from noisewise.evidence.audit.finished_run import claim_of

    statement = fitted("visitors.honest:Descent").statement_.data
    assert claim_of({**statement, "isolation": "process"}).method.isolation == "sandbox"


# --- what it says ---

ABOUT = {"title": "", "summary": "", "paper": "", "losses": (), "total_steps": 3, "settings": {}}
FLAGS = dict.fromkeys(("needs_public", "adaptive", "table", "walks"), False)


@pytest.mark.parametrize(
    "settings",
    [
        {"steps\nPromise: epsilon = 0.001": 1},
        {"\x1b[2J": 1},
        {"<script>": 1},
        {"x" * 10_000: 1},
        {"rate": float("nan")},
        {"rate": [float("inf")]},  # no run folder can keep it, and the run would be lost when it is paid for
    ],
)
def test_settings_that_no_statement_can_print_are_refused(settings):
    About.of({**ABOUT, **FLAGS})
    with pytest.raises(GuestFailed, match="does not describe"):
        About.of({**ABOUT, **FLAGS, "settings": settings})


@pytest.mark.parametrize("name", ["visitors.honest:Descent", "a\x1b[2Jb", "a b\nc", ""])
def test_no_package_registers_a_method_under_the_name_of_anothers(name, monkeypatch):
    points = [EntryPoint(name, "visitors.hostile:Rude", methods.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(methods, "entry_points", lambda group: points)
    registered_elsewhere.cache_clear()
    try:
        with pytest.warns(UserWarning, match="of another package is left out"):
            assert registered_elsewhere() == {}
    finally:
        registered_elsewhere.cache_clear()


def test_two_packages_do_not_share_a_name(monkeypatch):
    points = [
        EntryPoint("mine", f"visitors.{of}", methods.ENTRY_POINT_GROUP) for of in ("honest:Descent", "hostile:Rude")
    ]
    monkeypatch.setattr(methods, "entry_points", lambda group: points)
    registered_elsewhere.cache_clear()
    try:
        with pytest.warns(UserWarning, match="'mine' of another package is left out"):
            assert registered_elsewhere() == {"mine": "visitors.honest:Descent"}
    finally:
        registered_elsewhere.cache_clear()


def test_an_object_that_calls_itself_a_guest_is_the_callers_own_code():
    class Pretender(DpSgd):
        elsewhere, isolation = True, "sandbox"

    assert isolation_of(Pretender()) == "caller's own code"
