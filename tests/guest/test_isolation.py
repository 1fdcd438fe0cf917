"""What a guest can reach: nothing of the host's in a sandbox; in a plain process what its statement says."""

import json
import os
import socket
import warnings

import numpy as np
import pytest
from sandbox import as_another_user, needs_sandbox

import noisewise as nw
from noisewise.accounts.purse import Purse
from noisewise.guest import method_named, running
from noisewise.guest.running import GuestFailed

pytestmark = needs_sandbox


def fitted(method, rows, **options):
    given = {"epsilon": 1.0, "bounds": (-1, 1), "classes": [0, 1], **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nw.PrivateClassifier(method=method, **given).fit(*rows, purse=options.pop("purse", None))


def learned(text):
    lines = [line.partition("learned ")[2] for line in text.splitlines() if "learned " in line]
    return dict(line.split(": ", 1) for line in lines)


@pytest.fixture
def burglar(tmp_path):
    """Settings of a burglar: a file of records, an open port and a process to look into."""
    (tmp_path / "rows.csv").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {"file": str(tmp_path / "rows.csv"), "port": server.getsockname()[1], "parent": os.getpid()}


def test_a_sandbox_shows_nothing_of_the_host(rows, burglar, capfd, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "of the host")
    fitted(method_named("visitors.spies:Burglar").with_settings(**burglar), rows)
    found = learned(capfd.readouterr().err)
    assert len(found) == 19
    folders = json.loads(found.pop("folders").replace("'", '"'))
    assert {*folders} <= {"etc", "work", "root", "home", "usr"}  # where the interpreter and the packages lie
    assert {name: said for name, said in found.items() if said not in ("None", "[]", "False")} == {}


def test_a_plain_process_is_refused_to_root(rows):
    if os.geteuid():
        pytest.skip("this is not root")
    with pytest.raises(ValueError, match="refused to root"):
        method_named("visitors.honest:Descent", "process")


AS_PROCESS = """
import json, os, sys, warnings
import numpy as np
import noisewise as nw
from noisewise.guest import method_named
warnings.simplefilter("ignore")
os.environ["SECRET_TOKEN"] = "of the host"
inherited = os.open("/dev/null", os.O_RDONLY)
os.set_inheritable(inherited, True)
X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
method = method_named("visitors.spies:Burglar", "process").with_settings(**json.loads(sys.argv[1]), parent=os.getpid())
made = nw.PrivateClassifier(1.0, 1e-6, method=method, bounds=(-1, 1), classes=[0, 1]).fit(X, X[:, 0] > 0)
assert "visitors" not in sys.modules
print(made.statement_.data["isolation"], "|", made.statement_.data["trusted"])
"""


def test_a_plain_process_sees_what_its_statement_says(burglar):
    burglar.pop("parent")
    done = as_another_user(AS_PROCESS, json.dumps(burglar))
    assert done.returncode == 0, done.stderr
    found = learned(done.stderr)
    assert found["file"] == "secret" and found["status"] != "None"  # the documented remainder
    assert found["parent"] == "None" and found["traced"] == "None"  # memory is hidden all the same
    assert found["environment"] == "[]" and found["descriptors"] == "[]"
    assert "process | the model and loss named here" in done.stdout and "trusted not to look" in done.stdout


WATCHING = """
import sys, warnings
import numpy as np
import torch
import noisewise as nw
from noisewise.guest import method_named
warnings.simplefilter("ignore")
X = np.random.default_rng(0).uniform(-1, 1, (4321, 3))
y = (X[:, 0] > 0).astype(int)
for how in ("trace", "signalled", "kernel", "hook"):
    method = method_named("visitors.spies:Observer", "process").with_settings(how=how, steps=10)
    made = nw.PrivateClassifier(1.0, 1e-6, method=method, bounds=(-1, 1), classes=[0, 1], model=(8,)).fit(X, y)
    assert made.statement_.data["isolation"] == "process"
records = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y))
method = method_named("visitors.spies:Observer", "process").with_settings(how="thread", steps=10)
nw.fit(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), records, budget=nw.Budget(1.0, 1e-6), method=method, progress=False)
"""


@pytest.mark.slow
def test_watchers_in_a_plain_process_see_no_record():
    """What they watch is their own process, in which no record is: the remainder is what they open, see above."""
    done = as_another_user(WATCHING)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("learned ")[2] for line in done.stderr.splitlines() if "learned " in line]
    assert lines == ["lengths: []"] * 5


def written_down(purse):
    """How many answers a failed run has paid for; all that was reserved for it stays spent."""
    (entry,) = purse.entries
    assert entry.state == "failed" and purse.spent_fraction == 1
    return sum(event.count for event in entry.events)


@pytest.mark.sample(2)
@pytest.mark.parametrize("what", ["dies", "raises", "noise", "half", "endless", "deep", "listed", "empty"])
def test_a_guest_that_breaks_off_ends_the_run_with_what_was_spent(rows, what, monkeypatch):
    purse = Purse(nw.Budget(1.0, 1e-6))
    method = method_named("visitors.hostile:Rude").with_settings(what=what)
    with pytest.raises(GuestFailed, match="the method visitors") as caught:
        nw.PrivateClassifier(1.0, 1e-6, method=method, bounds=(-1, 1), classes=[0, 1]).fit(*rows, purse=purse)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    assert written_down(purse) == 2  # the size, and the first of twelve steps
    assert method_named("visitors.honest:Descent").total_steps() == 12  # the next guest is another process


@pytest.fixture
def impatient(monkeypatch):
    """The host waits one second for a second step, and as long as ever for all else: a busy machine loads slowly."""
    exchanged, steps = running.Guest._exchanged, []

    def counted(self, message):
        steps.extend([message] if message.get("do") == "step" else [])
        if len(steps) == 2:
            monkeypatch.setattr(running, "MAX_SILENCE", 1.0)
        return exchanged(self, message)

    monkeypatch.setattr(running.Guest, "_exchanged", counted)


def test_a_guest_that_says_nothing_is_ended(rows, impatient):
    purse, method = Purse(nw.Budget(1.0, 1e-6)), method_named("visitors.hostile:Rude").with_settings(what="hangs")
    with pytest.raises(GuestFailed, match="said nothing for 1 s"):
        nw.PrivateClassifier(1.0, 1e-6, method=method, bounds=(-1, 1), classes=[0, 1]).fit(*rows, purse=purse)
    assert written_down(purse) == 2


def test_requests_that_are_none_are_refused_unpaid(rows):
    method = method_named("visitors.hostile:Rude").with_settings(what="odd_requests")
    odd = fitted(method, rows, random_state=1)
    same = fitted("visitors.honest:Descent", rows, random_state=1)
    assert np.array_equal(odd.fitted_.theta, same.fitted_.theta)


def test_an_early_reply_is_out_of_turn(rows):
    """It says that its step is done while it goes on: what it asks next is no answer to what the host asks."""
    purse, method = Purse(nw.Budget(1.0, 1e-6)), method_named("visitors.hostile:Rude").with_settings(what="early")
    with pytest.raises(GuestFailed):
        nw.PrivateClassifier(1.0, 1e-6, method=method, bounds=(-1, 1), classes=[0, 1]).fit(*rows, purse=purse)
    assert written_down(purse) == 2


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", ["text", "short", "whole", "matrix", "infinite", "unknown", "below"])
def test_what_is_no_theta_or_spread_is_refused(rows, what):
    method = method_named("visitors.hostile:Liar").with_settings(what=what)
    with pytest.raises((TypeError, GuestFailed), match=r"theta|floating-point|the spread"):
        fitted(method, rows)


def test_a_plan_that_costs_too_much_is_refused_before_anything_is_paid(rows):
    purse, method = Purse(nw.Budget(1.0, 1e-6)), method_named("visitors.hostile:Liar").with_settings(what="plan")
    with pytest.raises(ValueError, match="more than the budget's"):
        nw.PrivateClassifier(1.0, 1e-6, method=method, bounds=(-1, 1), classes=[0, 1]).fit(*rows, purse=purse)
    assert purse.spent_fraction == 0


def test_what_a_guest_says_of_itself_is_checked(rows):
    method = method_named("visitors.hostile:Boastful")
    assert method.name == "visitors.hostile:Boastful" and method.private is True
    assert method.losses == ("logistic", "squared") and len(method.summary) <= 1000 and "\x1b" not in method.summary


def test_what_a_guest_prints_is_shown_as_its_own_after_the_run(rows, capfd):
    fitted(method_named("visitors.hostile:Rude").with_settings(what="prints"), rows)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "[visitors.hostile:Rude] a line ?[2J of its own" and len(said) == 2 and len(said[1]) < 600


def test_a_run_that_was_stopped_goes_on_with_a_guest(rows, tmp_path, monkeypatch):
    import torch

    data = torch.utils.data.TensorDataset(torch.tensor(rows[0], dtype=torch.float32), torch.tensor(rows[1]))
    asked = {"budget": nw.Budget(1.0, 1e-6), "checkpoint": tmp_path / "kept", "progress": False}
    torch.manual_seed(0)
    module, loss = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss()
    seen = []

    def stop(step, steps, spent):
        seen.append(step)
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nw.fit(module, loss, data, method="visitors.honest:Descent", **{**asked, "progress": stop})
    made = nw.fit(module, loss, data, method="visitors.honest:Descent", **asked)
    assert made.statement.data["isolation"] == "sandbox" and nw.verify(made.statement.data).holds


def test_processes_that_hold_rows_hide_their_memory():
    code = (
        "import ctypes, numpy as np, noisewise as nw, warnings; warnings.simplefilter('ignore');"
        "dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0); before = dumpable();"
        "X = np.zeros((50, 2)); nw.PrivateClassifier(1.0, 1e-6, method='descent', bounds=(-1, 1), classes=[0, 1]).fit(X, X[:, 0] > 0);"
        "print(before, dumpable())"
    )
    done = as_another_user(code)
    assert done.stdout.split() == ["1", "0"], done.stderr


def test_a_host_with_many_open_files_has_guests_too(rows):
    import resource

    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(low, 4096), high))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1500)]
    try:
        method = method_named("visitors.honest:Sampled").with_settings(steps=2)  # a guest that nobody started before
        assert fitted(method, rows, random_state=1, size_is_public=True).n_iter_ == 2
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, high))
