"""What a hostile server can make of a client, and a hostile rank or worker of another: messages that cost, and questions beyond what was agreed."""

from __future__ import annotations

import ast
import pickle
import re
import tracemalloc
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from crowds import CLIENT, RECORD, a_fit, client_files, on_clients
from desk import SCHEMA

import noisewise
from noisewise.methods import method_named, registry
from noisewise.remote.clients.client import Client
from noisewise.remote.clients.messages import (
    DONE,
    FAILED,
    REFUSED,
    WHOLE,
    pack_history,
    pack_question,
    read_history,
    read_question,
)
from noisewise.remote.clients.server import DirectCarrier
from noisewise.remote.forms import unpacked
from noisewise.remote.holder import Request
from noisewise.remote.workers import Sealed
from noisewise.trusted.stores.totals import Drawn

BAD = "not a message of noisewise"
SOURCES = Path(noisewise.__file__).parent
DROP = SCHEMA.replace("[columns", 'target_missing = "drop"\n[columns', 1)
SMALL = 1 << 21  # bytes of memory


class Calls:
    """Pickled as a call of something."""

    def __init__(self, called, *arguments):
        self.called, self.arguments = called, arguments

    def __reduce__(self):
        return self.called, self.arguments


def doubled(times):
    """A set of a pair of pairs of pairs ...: its hash takes 2^times steps, its bytes are a few for each."""
    made = ()
    for _ in range(times):
        made = (made, made)
    return pickle.dumps(frozenset([made]), protocol=4)


BOMBS = {
    "28 bytes that are 256 MB": b"\x80\x05\x96" + (1 << 28).to_bytes(8, "little") + b"." + b" " * 16,
    "a set whose hash takes half a million steps": doubled(19),
}


def peak(call, *arguments):
    """The most memory that a call takes, and what it returns or raises."""
    tracemalloc.start()
    try:
        try:
            result = call(*arguments)
        except Exception as error:
            result = error
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("read", [read_question, read_history, unpacked], ids=lambda read: read.__name__)
def test_a_message_costs_no_more_than_it_is_long(read, name):
    memory, error = peak(read, BOMBS[name])
    assert memory < SMALL and type(error) is not frozenset and BAD in str(error)


def test_a_client_reads_no_bomb(tmp_path):
    client = Client(tmp_path / "own.csv")
    for body in BOMBS.values():
        memory, answer = peak(client.answer, body, body)
        assert memory < SMALL and state_of(answer) == FAILED


def test_nothing_of_noisewise_reads_pickles():
    """Restricted readers of pickles were broken more than once; what Ray and joblib pickle is theirs."""
    state = SOURCES / "trusted" / "engine" / "state.py"  # writes pickles to compare them, and reads none
    assert re.findall(r"pickle\.\w+", state.read_text()) == ["pickle.dumps"]
    for path in {*SOURCES.rglob("*.py")} - {state}:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            assert not {"pickle", "cloudpickle", "dill", "marshal", "shelve"} & {*names}, path


def test_a_message_between_ranks_calls_nothing(tmp_path):
    """A class of noisewise could be called with anything: a journal makes its own folder."""
    from noisewise.accounts.journal import Journal

    body = pickle.dumps(Calls(Journal, tmp_path / "journal", {}), protocol=5)
    with pytest.raises(ValueError, match=BAD):
        unpacked(body)
    assert not [*tmp_path.iterdir()]


def test_a_sealed_message_of_a_worker_calls_nothing(tmp_path):
    from noisewise.accounts.journal import Journal

    worker = Sealed(b"k" * 32)
    sealed = b"n" * 12 + worker._cipher.encrypt(b"n" * 12, pickle.dumps(Calls(Journal, tmp_path / "journal", {})), b"")
    with pytest.raises(ValueError, match=BAD):
        worker.open(sealed, b"")
    assert not [*tmp_path.iterdir()]


# -- questions beyond what was agreed ----------------------------------------------------------------------------------


def pinned(path, **pins):
    """A client that agreed to this; where none could agree to anything, one that did not."""
    try:
        from noisewise.remote.clients.agreement import Agreed
    except ImportError:
        return Client(path)
    return Client(path, Agreed(**pins))


def state_of(answer):
    return int(np.frombuffer(answer, WHOLE)[1])


class Served:
    """What a server tells its clients in an honest run: a history, and a question about gradients to ask again in other ways."""

    def __init__(self, folder, federated, method=None, text=SCHEMA, size_is_public=True):
        folder.mkdir()
        self.paths, heard = client_files(folder, text=text), []

        class Heard(DirectCarrier):
            def ask(self, history, questions):
                heard.append((history, *questions.values()))
                return super().ask(history, questions)

        fit = a_fit(folder, method or registry()["dpsgd"](steps=2), size_is_public=size_is_public)
        self.fitted = on_clients(fit, self.paths, federated, carrier=Heard)
        self.make, (self.history, *_) = heard[0][1], heard[-1]
        asked = [read_question(question) for _, *questions in heard for question in questions]
        self.asked = [request for request in asked if request.act == "total"]
        self.gradient = next(request for request in self.asked if request.arguments[1] in ("gradients", "vectors"))

    def question(self, **changes):
        """The question about gradients with other arguments: drawn, clip or number."""
        number, act, (version, name, drawn, (theta, clip), *rest) = self.gradient
        clip, drawn = changes.get("clip", clip), changes.get("drawn", drawn)
        return pack_question(Request(changes.get("number", number), act, (version, name, drawn, (theta, clip), *rest)))

    def entries(self, client, **changes):
        """What a client says to that question; None where it says nothing."""
        words = np.frombuffer(client.answer(self.history, self.question(**changes)), WHOLE)
        return words[4:] if words[1] == DONE else None


@cache
def served(folder, unit, *how):
    return Served(folder / unit, {"record": RECORD, "client": CLIENT}[unit], *how)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


ONE = Drawn(np.zeros(1, np.int64), 80.0)


def test_a_client_that_agreed_to_unit_client_tells_no_sum_over_one_row(folder):
    server = served(folder, "record")
    client = pinned(server.paths[0], unit="client")
    answer = client.answer(server.history, server.question(drawn=ONE))
    assert state_of(answer) == REFUSED and len(answer) == 3 * WHOLE.itemsize
    assert "the server protects a record, and --unit is client" in client.refusal
    assert state_of(client.answer(server.history, server.make)) == REFUSED  # nor how many rows it has


def test_a_client_that_agreed_to_unit_record_makes_no_vector_of_all_its_rows(folder):
    server = served(folder, "client")
    client = pinned(server.paths[0], unit="record")
    assert server.entries(client) is None and "the server protects a client" in client.refusal


def test_a_client_answers_as_many_questions_as_it_agreed_to(folder):
    server = served(folder, "client")
    client = pinned(server.paths[0], unit="client", max_questions=3)
    answered = [server.entries(client, number=number) for number in range(1, 1001)]
    assert [entries is not None for entries in answered] == [True] * 2 + [False] * 998  # reading the file counts
    assert "more than --max-questions 3" in client.refusal


def test_a_new_history_does_not_begin_to_count_anew(folder):
    """Nor does a question that fails count for nothing: whether it does may depend on rows."""
    server = served(folder, "client")
    client = pinned(server.paths[0], unit="client", max_questions=3)
    make, hold, *_ = read_history(server.history)
    version, *rest = server.gradient.arguments
    wrong = pack_question(server.gradient._replace(arguments=(version + 7, *rest)))
    assert state_of(client.answer(server.history, wrong)) == FAILED
    assert server.entries(client) is not None
    again = pack_history([make._replace(number=99), hold])
    assert state_of(client.answer(again, server.question())) == REFUSED


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_client_answers_no_larger_clip_than_it_agreed_to(folder, unit):
    server = served(folder, unit)
    client = pinned(server.paths[0], unit=unit, max_clip=1.0)
    assert server.entries(client, clip=1.0) is not None
    for clip in (1.0000001, 1e9, np.inf, np.nan):
        assert server.entries(client, clip=clip) is None


def test_a_client_joins_no_run_with_smaller_sums_than_it_agreed_to(folder):
    """Judged from what the server declares before anything is said: never from a batch."""
    few = registry()["dpsgd"](steps=2, sampling=("poisson", 0.25))
    (folder / "few").mkdir(exist_ok=True)
    server = served(folder / "few", "record", few)
    rows = len(server.paths[0].read_text().splitlines()) - 1
    joins, stays = (pinned(server.paths[0], least_size=rows * 0.25 + more) for more in (0.0, 0.1))
    assert state_of(joins.answer(server.history, server.make)) == DONE
    assert state_of(stays.answer(server.history, server.make)) == REFUSED
    assert "fewer than --least-size" in stays.refusal and str(rows) not in stays.refusal
    for drawn in (ONE, Drawn(), Drawn(np.arange(rows), 1.0)):  # the batch says nothing either way
        assert server.entries(joins, drawn=drawn) is not None and server.entries(stays, drawn=drawn) is None


def test_a_server_that_declares_to_ask_about_all_rows_asks_about_all(folder):
    server = served(folder, "record")
    client = pinned(server.paths[0], unit="record", least_size=5)
    assert server.entries(client) is not None and server.entries(client, drawn=ONE) is None
    assert "declared that it asks about all" in client.refusal


@pytest.mark.parametrize("rows", [[0] * 1000, [1, 0], [-1], [10**6], [0, 0]])
def test_no_row_counts_twice_in_a_batch(folder, rows):
    server = served(folder, "record")
    assert server.entries(Client(server.paths[0]), drawn=Drawn(np.array(rows, np.int64), 5.0)) is None


def test_with_unit_client_no_label_of_a_row_is_told(folder):
    """Which rows had a label told how many there are."""
    (folder / "drop").mkdir(exist_ok=True)
    server = served(folder / "drop", "client", None, DROP)
    path = server.paths[0]
    head, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, first.rpartition(",")[0] + ",", *rest]) + "\n")
    client = pinned(path, unit="client")
    assert server.entries(client) is not None
    for classes in (None, 2):
        answer = client.answer(server.history, pack_question(Request(9, "counted", (classes,))))
        assert state_of(answer) == FAILED


def test_where_all_rows_have_labels_nobody_asks_which(folder):
    server = served(folder, "record")
    assert (
        state_of(Client(server.paths[0]).answer(server.history, pack_question(Request(9, "counted", (2,))))) == FAILED
    )


def test_no_question_makes_a_client_take_much_memory(folder):
    (folder / "table").mkdir(exist_ok=True)
    server = served(folder / "table", "record", method_named("additive"))
    version = server.gradient.arguments[0]
    scale = (0.0, (0.0, 1.0), (0.0, 1.0))
    client = Client(server.paths[0])
    for maps, levels in (((scale,), 23), ((scale,) * 40, 20)):
        question = pack_question(Request(9, "total", (version, "levels", Drawn(), (maps, levels), {})))
        assert server.entries(client) is not None
        memory, answer = peak(client.answer, server.history, question)
        assert state_of(answer) == FAILED and memory < 64 * len(question) + SMALL


@pytest.mark.parametrize("number", [2**70, -(2**70), -1, 1.5, "1", None, True])
def test_a_client_never_raises(folder, number):
    server = served(folder, "record")
    assert state_of(Client(server.paths[0]).answer(server.history, server.question(number=number))) == FAILED


# -- what compiled sums would take for granted --------------------------------------------------------------------------


def answered(server, client, name, *own, **options):
    request = Request(9, "total", (server.gradient.arguments[0], name, Drawn(), own, options))
    return state_of(client.answer(server.history, pack_question(request)))


def changed(server, *requests):
    """The history with other requests after it."""
    return pack_history([*(request for request in read_history(server.history) if request.act != "forget"), *requests])


@pytest.mark.parametrize(
    "scale",
    [
        (40.0, (0.0, 1.0), (0.0, 1.0)), (-1.0, (0.0, 1.0), (0.0, 1.0)), (0.5, (0.0, 1.0), (0.0, 1.0)), (0.0, (0.0, 1.0), (0.0, 1.0, 2.0)),
        (0.0, (0.0, 1.0), (-0.5, 1.0)), (0.0, (0.0, 1.0), (0.0, float("inf"))), (0.0, (1.0, 0.0), (0.0, 1.0)), (0.0, (), ()),
    ],
)  # fmt: skip
def test_no_count_is_written_beside_the_counts(folder, scale):
    """A rank below 0 was a place before the first count; a column that is not there was memory behind the table."""
    (folder / "table").mkdir(exist_ok=True)
    server = served(folder / "table", "record", method_named("additive"))
    client = Client(server.paths[0])
    assert answered(server, client, "levels", ((0.0, (0.0, 1.0), (0.0, 1.0)),), 3) == DONE
    assert answered(server, client, "levels", (scale,), 3) == FAILED


def test_no_theta_is_read_beyond_its_end(folder):
    server = served(folder, "record")
    client, theta = Client(server.paths[0]), server.gradient.arguments[3][0]
    for wrong in (theta[:1], theta[:-1], theta[:0], np.append(theta, 0.0), theta[None], theta.astype(np.int64)):
        for name in ("gradients", "short"):
            assert answered(server, client, name, wrong, 0.5) == FAILED
        assert answered(server, client, "losses", (theta, wrong), 0.5) == FAILED
        assert answered(server, client, "gradients", theta, 0.5) == DONE


def test_features_name_no_column_that_the_table_has_not(folder):
    from noisewise.trusted.features import Codes, Hats, even

    (folder / "table").mkdir(exist_ok=True)
    server = served(folder / "table", "record", method_named("additive"))
    client, version = Client(server.paths[0]), server.gradient.arguments[0]
    for block in (Hats(40, (0.0, 1.0), (0.0, 1.0), 4), Hats(-9, (0.0, 1.0), (0.0, 1.0), 4), Codes(40, (0, 1))):
        history = changed(server, Request(8, "change", (version, 99, "prepared", (even((block,)),))))
        asked = Request(9, "total", (99, "row_sum", Drawn(), (), {}))
        assert state_of(client.answer(history, pack_question(asked))) == FAILED


def test_a_model_is_of_the_rows_that_were_made(folder):
    from noisewise.trusted.losses import Logistic
    from noisewise.trusted.models import MLP, Additive, Linear

    server = served(folder, "record")
    client, width = Client(server.paths[0]), len(server.gradient.arguments[3][0])
    for model in (Linear(width + 7, Logistic()), MLP((width + 1, 2, 1), Logistic()), Additive(width, Logistic())):
        history = changed(server, Request(8, "hold", (99, model)))
        asked = Request(9, "total", (99, "gradients", Drawn(), (np.zeros(model.dimension), 0.5), {}))
        assert state_of(client.answer(history, pack_question(asked))) == FAILED


def test_a_basis_has_no_more_columns_than_rows(folder):
    server = served(folder, "record")
    client, width = Client(server.paths[0]), len(server.gradient.arguments[3][0])
    version = server.gradient.arguments[0]
    for matrix in (np.zeros((width, width + 1)), np.zeros((width - 1, width - 1)), np.zeros((0, 0))):
        history = changed(server, Request(8, "change", (version, 99, "in_basis", (matrix,))))
        asked = Request(9, "total", (99, "row_sum", Drawn(), (), {}))
        assert state_of(client.answer(history, pack_question(asked))) == FAILED


def test_a_history_lays_rows_out_no_more_often_than_a_run_needs(folder):
    server = served(folder, "record")
    make, hold, *_ = read_history(server.history)
    often = pack_history([make, *(hold._replace(arguments=(n, hold.arguments[1])) for n in range(1, 1000))])
    assert state_of(Client(server.paths[0]).answer(often, server.question())) == FAILED


def test_a_server_does_not_try_schemas_and_labels_until_one_fits(folder):
    """Whether a file fits tells about its rows: each try is a question."""
    server = served(folder, "record")
    make, *_ = read_history(server.history)
    client, states = pinned(server.paths[0], unit="record", max_questions=5), []
    for value in range(20):
        schema = make.arguments[1]
        narrow = schema.with_column(schema.columns[0].__class__(schema.columns[0].name, "number", 0.0, 50.0 + value))
        request = make._replace(arguments=(make.arguments[0], narrow, *make.arguments[2:]))
        states.append(state_of(client.answer(pack_history([request]), pack_question(request))))
    assert states == [states[0]] * 5 + [REFUSED] * 15 and states[0] != REFUSED
