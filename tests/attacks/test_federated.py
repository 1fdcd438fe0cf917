"""Records that lie with clients: what a hostile server, client, method or analyst can make of them."""

from __future__ import annotations

import json
import pickle
from functools import reduce
from types import SimpleNamespace

import numpy as np
import pytest
from crowds import CLIENT, INDEPENDENT, RECORD, Meddling, a_fit, client_files, on_clients

from noisewise import verify
from noisewise.remote.clients.client import Client, told_by
from noisewise.remote.clients.flower import FlowerCarrier
from noisewise.remote.clients.messages import FAILED, WHOLE, pack_history, pack_question, read_history, read_question
from noisewise.remote.clients.server import Crowd, DirectCarrier, fit_of_clients, ready_clients
from noisewise.remote.forms import packed, unpacked
from noisewise.remote.holder import Request
from noisewise.remote.transport import RankLost
from noisewise.statement import _odd_clients, worded
from noisewise.trusted.stores.totals import Drawn
from noisewise.trusted.units import CLIENT as CLIENTS_WORD

BAD = "not a message of noisewise"


class Calls:
    """Packed as a call of something."""

    def __init__(self, called, *arguments):
        self.called, self.arguments = called, arguments

    def __reduce__(self):
        return self.called, self.arguments


def of_class(kind, **attributes):
    """A message that, once read, has set attributes of a class."""
    state = pickle.dumps((None, attributes), protocol=0).removesuffix(b".")
    return f"c{kind.__module__}\n{kind.__name__}\n".encode() + state + b"b."


def state_of(answer):
    return int(np.frombuffer(answer, WHOLE)[1])


def test_a_server_cannot_name_the_file_that_a_client_reads(tmp_path):
    """What all paths of a process are called was an attribute that a message could set."""
    own, kind = tmp_path / "own.csv", type(tmp_path)
    name = str(own)
    try:
        assert state_of(Client(own).answer(b"", of_class(kind, _str="other.csv"))) == FAILED
        assert str(own) == name
    finally:
        if "_str" in vars(kind):
            del kind._str


def test_a_server_makes_a_client_write_nothing(tmp_path):
    from noisewise.accounts.journal import Journal

    body = pickle.dumps(Calls(Journal, tmp_path / "journal", {}), protocol=5)
    assert state_of(Client(tmp_path / "own.csv").answer(b"", body)) == FAILED
    assert not [*tmp_path.iterdir()]


def test_a_server_makes_a_client_look_up_no_address(tmp_path):
    from noisewise.ledger import Ledger

    with pytest.raises(ValueError, match=BAD):
        read_question(pickle.dumps(Calls(Ledger, f"sqlite:///{tmp_path}/ledger.db"), protocol=5))
    assert not [*tmp_path.iterdir()]


def test_a_server_changes_no_class_of_a_client(monkeypatch):
    monkeypatch.setattr(Drawn, "count", Drawn.count)  # and so given back
    with pytest.raises(ValueError, match=BAD):
        read_question(of_class(Drawn, count="anything"))
    assert callable(Drawn.count)


def test_an_object_gets_no_field_that_its_class_has_not(tmp_path):
    """A model says which module of ours lays its rows out; a message does not."""
    from noisewise.trusted.losses import Logistic
    from noisewise.trusted.models import Linear

    model = Linear(3, Logistic())
    vars(model)["records"] = "on_ray"
    read = read_question(pack_question(Request(1, "hold", (1, model))))
    assert read.arguments[1].records == "linear" and read.arguments[1] == Linear(3, Logistic())


def test_a_dtype_whose_entries_are_addresses_is_refused():
    pointers = np.array([1, 2], np.int64)
    lying = pickle.dumps(pointers, protocol=5).replace(b"\x8c\x02i8", b"\x8c\x02O8")
    with pytest.raises(ValueError, match=BAD):
        read_question(lying)
    with pytest.raises(ValueError, match=BAD):
        read_question(pickle.dumps(np.zeros(2, [("a", "O"), ("b", "<i8")]), protocol=5))


@pytest.mark.guard("acts were always named")
def test_a_client_does_nothing_but_answer_sums(tmp_path):
    paths = client_files(tmp_path)
    heard = []

    class Heard(DirectCarrier):
        def ask(self, history, questions):
            heard.append(history)
            return super().ask(history, questions)

    on_clients(a_fit(tmp_path, "dpsgd"), paths, RECORD, carrier=Heard)
    client = Client(paths[0])
    version = max(request.arguments[0] for request in read_history(heard[-1]) if request.act == "hold")
    for act, arguments in (("rows", (version,)), ("stamp", ()), ("reply", (Request(1, "rows", (version,)),))):
        assert state_of(client.answer(heard[-1], pack_question(Request(9, act, arguments)))) == FAILED
    for name in ("float_rows", "__class__", "unit_rows", "scored"):
        asked = Request(9, "total", (version, name, Drawn(), (), {}))
        assert state_of(client.answer(heard[-1], pack_question(asked))) == FAILED


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6)[::2],
        np.array(["a", "bb"]),
        np.array(["a", "bb"], object),
        np.float32(3),
        np.array([True, False]),
        np.zeros((0, 3)),
    ],
    ids=str,
)
@pytest.mark.guard("what is plain is read as it was packed")
def test_arrays_are_read_as_they_were_packed(array):
    read = unpacked(packed(Request(1, "total", (array,)))).arguments[0]
    assert np.array_equal(read, array) and read.dtype == array.dtype and CLIENT.unit == "client"


@pytest.mark.guard("losses, models and schemas of ours were always read")
def test_what_questions_are_made_of_is_read():
    from noisewise.trusted.losses import LOSSES, ClassWeighted, Logistic, loss_named
    from noisewise.trusted.models import MLP, Additive, Linear

    losses = [*map(loss_named, LOSSES), ClassWeighted(Logistic(), (1.0, 2.0))]
    models = [Linear(3, Logistic()), MLP((3, 2, 1), Logistic()), Additive(1, Logistic())]
    asked = Request(1, "hold", (1, losses, models, RECORD))
    assert str(unpacked(packed(asked)).arguments) == str(asked.arguments)


# --- statements ---


def forged(statement, **changes):
    """A statement with other data, and the words that follow from them."""
    data = json.loads(json.dumps(statement))
    for path, value in changes.items():
        *way, last = path.split("__")
        reduce(dict.__getitem__, way, data)[last] = value
    return dict(worded(data).data)


@pytest.fixture(scope="module")
def stated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stated")
    paths = client_files(folder)
    return {
        unit.unit: json.loads(on_clients(a_fit(folder, "descent", seed=None), paths, unit).statement.to_json())
        for unit in (RECORD, CLIENT)
    }


BEFORE = {"epsilon": 1.0, "delta": 1e-6, "what": "bounds", "events": [{"kind": "Gaussian", "noise_multiplier": 50.0}]}


@pytest.mark.parametrize(
    "unit, changes",
    [
        ("record", {"promise__unit": "one person, at most 1 row"}),
        ("record", {"promise__unit": "one person, at most 3 rows"}),
        ("record", {"federated__local_steps": 5}),
        ("client", {"federated__availability": "independent"}),
        pytest.param("record", {"promise__unit": CLIENTS_WORD}, marks=pytest.mark.guard("units were compared")),
        pytest.param("client", {"promise__unit": "one record"}, marks=pytest.mark.guard("units were compared")),
        pytest.param("client", {"federated__unit": "record"}, marks=pytest.mark.guard("units were compared")),
        pytest.param("record", {"federated__unit": "client"}, marks=pytest.mark.guard("units were compared")),
    ],
)
def test_a_statement_of_what_clients_cannot_be_asked_is_no_promise(unit, changes, stated):
    assert verify(stated[unit]).holds
    assert not verify(forged(stated[unit], **changes)).holds


def test_no_bounds_were_bought_of_clients(stated):
    before = BEFORE | {"meter": stated["record"]["meter"]}
    assert "not with clients" in _odd_clients(forged(stated["record"], preparation=before))


@pytest.mark.guard("the setting was always derived")
def test_the_setting_is_not_hidden(stated):
    for name, value in (("setting", "central"), ("trusted", "the curator"), ("does_not_cover", [])):
        assert not verify({**stated["client"], name: value}).holds
    without = {name: value for name, value in stated["client"].items() if name != "federated"}
    assert not verify(without).holds and not verify(dict(worded(without).data)).holds


def test_a_statement_says_that_a_row_is_seen_where_it_is(tmp_path, stated):
    """A method of statistics sees, with unit client, what one row adds: that is nearly the row."""
    assert "what one row adds to a statistic" in stated["client"]["trusted"]


# --- who answers ---


def test_a_record_takes_none_of_its_clients_others_along(tmp_path):
    """Where availability is declared independent of the records, one cell must not keep its client from answering."""
    paths = client_files(tmp_path)
    head, first, *rows = paths[2].read_text().splitlines()
    paths[2].write_text("\n".join([head, ",".join(["rubbish"] * len(first.split(","))), *rows]) + "\n")
    with pytest.raises(ValueError, match=r"002\.csv: does not fit the schema.*Nothing was spent"):
        on_clients(a_fit(tmp_path, "dpsgd"), paths, INDEPENDENT)


class Slow:
    """A grid whose clients all answer in time, one of them with so much that looking at it takes longer."""

    def __init__(self, replies):
        self.replies = replies

    def push_messages(self, messages):
        return [str(message.metadata.dst_node_id) for message in messages]

    def pull_messages(self, names):
        return [self.replies.pop(0)] if self.replies else []


def reply(question, node, content="said"):
    metadata = SimpleNamespace(reply_to_message_id=question, src_node_id=node)
    return SimpleNamespace(metadata=metadata, content=content, has_error=lambda: False)


def exchanged(monkeypatch, replies, wait, pause=0.0):
    """What clients said; the clock moves only while their answers are looked at, ``pause`` seconds each."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None)
    monkeypatch.setattr("noisewise.remote.clients.flower.time", clock)
    carrier = FlowerCarrier(Slow(replies), [], [], wait=wait)
    asked = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node)) for node in (1, 2)]
    said = []
    for node, content in carrier.exchanged(asked):
        said.append((node, content))
        now[0] += pause
    return said


def test_no_client_makes_another_late(monkeypatch):
    assert exchanged(monkeypatch, [reply("1", 1), reply("2", 2)], wait=0.05, pause=0.1) == [(1, "said"), (2, "said")]


def test_no_client_takes_the_place_of_anothers_answer(monkeypatch):
    replies = [reply("2", 1, "forged"), reply("1", 1), reply("2", 2)]
    assert exchanged(monkeypatch, replies, wait=5.0) == [(1, "said"), (2, "said")]


def test_records_made_of_other_records_are_not_taken_for_those_that_are_held():
    """A client that a second server asks, whose versions have the same numbers."""

    from noisewise.data.schema import Schema
    from noisewise.remote import federation
    from noisewise.tables.fit.fit import Scaling
    from noisewise.tables.fit.labels import Target
    from noisewise.trusted.losses import Squared
    from noisewise.trusted.models import Linear

    scaling, declared = Scaling(np.zeros(1), np.ones(1), True), getattr(federation, "Declared", tuple)()
    rows = ("client", Schema(a=(0, 1), y=(0, 1), target="y"), scaling, Target(0.0, 1.0), False, None, RECORD, declared)

    def history(matrix):
        make, hold = Request(1, "make", rows), Request(2, "hold", (1, Linear(2, Squared())))
        change = Request(3, "change", (1, 2, "in_basis", (matrix,)))
        return pack_history([make, hold, change, Request(4, "change", (2, 3, "in_basis", (np.eye(2),)))])

    one, other = (told_by(history(matrix))[0] for matrix in (np.eye(2), 2 * np.eye(2)))
    assert one[1].digest == other[1].digest and one[3].digest != other[3].digest


def test_a_carrier_that_fails_in_the_middle_of_a_question_ends_the_run(tmp_path):
    """Some clients had heard it, and their server took it for a question that was refused before."""
    paths = client_files(tmp_path)

    class Failing(DirectCarrier):
        asked = 0

        def ask(self, history, questions):
            Failing.asked += 1
            for number, answer in enumerate(super().ask(history, questions)):
                if Failing.asked > 2 and number == 3:
                    raise ValueError("too large")
                yield answer

    fit = a_fit(tmp_path, "dpsgd")
    with pytest.raises(RankLost, match=r"not carried to all clients.*stays charged"):
        on_clients(fit, paths, CLIENT, carrier=Failing)


def test_a_method_that_goes_on_after_a_failed_question_releases_nothing(tmp_path):
    """Its statement says that everybody answered."""
    paths = client_files(tmp_path)
    crowd = Crowd(Meddling(paths, lambda *_: []), RECORD)
    fit = fit_of_clients(a_fit(tmp_path, "dpsgd"), RECORD)
    records = ready_clients(fit, crowd).private.X.held(fit.model, None, None)
    crowd.check()
    with pytest.raises(RankLost):
        records.gradients(Drawn(), np.zeros(fit.model.dimension), 0.5)
    with pytest.raises(RankLost, match="fails whole"):
        crowd.check()
