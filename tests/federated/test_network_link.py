"""The network below federated training: who is let in, who is heard, and what nobody can find out. Requests are real ones."""

from __future__ import annotations

import sys
import time

import pytest

pytest.importorskip("flwr", reason="noisewise[flower] is not installed")

import httpx
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.clientapp import ClientApp
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.serverapp import ServerApp
from networks import ANY, Clients, certificate_of, key_of, opened_link

from noisewise.remote.clients.address import ServerAddress
from noisewise.remote.clients.network import node as nodes
from noisewise.remote.clients.network.link import Link, check_certificate, listening, public_keys
from noisewise.remote.clients.network.node import Node, Server, serve


def echo(answers=lambda number: number):
    """A ClientApp that answers a number with another."""
    app = ClientApp()

    @app.query()
    def query(message, context):
        number = message.content["question"]["number"]
        return Message(RecordDict({"answer": ConfigRecord({"number": answers(number)})}), reply_to=message)

    return app


def asking(questions, heard, timeout=10.0):
    """A ServerApp that asks all clients as often and notes each one's answer."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        order = {number: place for place, number in enumerate(grid.get_node_ids())}
        for number in range(questions):
            content = RecordDict({"question": ConfigRecord({"number": number})})
            replies = grid.send_and_receive([Message(content, to, "query") for to in order], timeout=timeout)
            heard.append(
                {
                    order[reply.metadata.src_node_id]: reply.content["answer"]["number"]
                    if reply.has_content()
                    else None
                    for reply in replies
                }
            )

    return app


def test_clients_answer_in_the_order_in_which_they_came_and_are_told_when_it_is_over():
    link, heard = Link(3), []
    with opened_link(link) as address:
        clients = Clients(address)
        for factor in (1, 10, 100):
            clients.start(echo(lambda number, factor=factor: number * factor))
        link.gather(lambda many: None)
        link.run(asking(3, heard))
    assert heard == [{0: n, 1: 10 * n, 2: 100 * n} for n in range(3)]
    assert clients.wait() == [True, True, True]


def test_a_run_that_fails_is_told_as_stopped():
    link = Link(1)
    with pytest.raises(ZeroDivisionError), opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        link.gather(lambda many: None)
        raise ZeroDivisionError
    assert clients.wait() == [False]


def test_who_comes_late_is_not_let_in():
    link, heard = Link(1), []
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        link.gather(lambda many: None)
        clients.start(echo(lambda number: -1))
        link.run(asking(2, heard))
    assert heard == [{0: 0}, {0: 1}]
    first, late = clients.wait()
    assert first is True and "begun without this one" in str(late)


def test_a_client_with_another_version_is_refused(monkeypatch):
    link = Link(1)
    with opened_link(link) as address:
        monkeypatch.setattr(nodes, "__version__", "0.0.7")
        clients = Clients(address)
        clients.start(echo())
        (error,) = clients.wait()
    assert "and this is 0.0.7; install the same" in str(error) and not link.grid.get_node_ids()


def test_no_server_is_one_line():
    with pytest.raises(ConnectionError, match=r"no server answers at 127\.0\.0\.1:9; start"):
        serve(echo(), Server(ServerAddress("127.0.0.1", 9), True, patience=0.5), lambda: None)


def test_a_port_that_is_taken_is_one_line():
    with opened_link(Link(1)) as address:
        again = listening(Link(1), address, certificate=None, key=None, opened=print)
        with pytest.raises(
            ValueError, match=f"cannot listen at {address}: address already in use; pass another --listen"
        ):
            again.__enter__()


class Meddling(Node):
    """A client that answers badly: ``how`` says in which way."""

    how = ""

    def push(self, reply):
        if self.how == "late":
            time.sleep(1.5)
        if self.how == "another":
            reply.metadata.__dict__["_src_node_id"] = reply.metadata.src_node_id + 1
        if self.how == "error":
            reply = make_message(reply.metadata, error=Error(0, "SECRET"))
        super().push(reply)
        if self.how == "twice":
            reply.content = RecordDict({"answer": ConfigRecord({"number": 10**9})})
            super().push(reply)


@pytest.mark.parametrize(
    ("how", "hears"),
    [
        ("twice", [{0: 0}, {0: 1}]),
        ("late", [{}, {}]),
        ("another", [{0: None}, {0: None}]),
        ("error", [{0: None}, {0: None}]),
    ],
)
def test_a_client_that_meddles_is_heard_once_or_not_at_all(how, hears, monkeypatch):
    monkeypatch.setattr(Meddling, "how", how)
    monkeypatch.setattr(nodes, "Node", Meddling)
    link, heard = Link(1), []
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        link.gather(lambda many: None)
        link.run(asking(2, heard, timeout=1.0))
    assert heard == hears
    clients.wait()


def test_a_client_has_no_way_to_what_others_were_asked_or_said():
    """Flower's store of message parts, by the hash of their content, is neither used nor served."""
    link, seen = Link(1), []
    with opened_link(link) as address:
        clients = Clients(address)
        app = echo()
        clients.start(app)
        link.gather(lambda many: None)
        link.run(asking(1, []))
        store = link.grid._state.object_store
        seen += [len(store), *store.store]
        said = {nodes.VERSION: nodes.__version__, "content-type": "application/protobuf"}
        for path in ("pull-object", "push-object", "get-run", "get-fab", "confirm-message-received"):
            assert httpx.post(f"http://{address}/v1/fleet/{path}", headers=said, content=b"").status_code == 401
    assert seen == [0]
    clients.wait()


class Reading(Node):
    """A client that asks for parts of messages, signed as it should be."""

    def push(self, reply):
        with pytest.raises(ValueError, match="refused"):
            self._call(
                self._fleet.PullObject,
                PullObjectRequest(node=self._name, run_id=reply.metadata.run_id, object_id="0" * 64),
            )
        super().push(reply)


def test_parts_of_messages_are_not_served(monkeypatch):
    monkeypatch.setattr(nodes, "Node", Reading)
    link, heard = Link(1), []
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo())
        link.gather(lambda many: None)
        link.run(asking(1, heard))
    assert heard == [{0: 0}] and clients.wait() == [True]


def test_only_clients_whose_keys_are_listed_take_part_in_the_order_of_the_list(tmp_path):
    lines = [key_of(tmp_path / name) for name in ("first", "second")]
    (tmp_path / "keys").write_text("# two clients\n" + "\n".join(lines) + "\n")
    key_of(tmp_path / "stranger")
    link, heard = Link(2, public_keys(tmp_path / "keys")), []
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo(lambda number: -1))
        clients.start(echo(lambda number: -1), key=tmp_path / "stranger")
        clients.start(echo(lambda number: 2), key=tmp_path / "second")
        clients.start(echo(lambda number: 1), key=tmp_path / "first")
        link.gather(lambda many: None)
        link.run(asking(1, heard))
    nameless, stranger, *others = clients.wait()
    assert "pass one of them with --key" in str(nameless) and "pass one of them with --key" in str(stranger)
    assert heard == [{0: 1, 1: 2}] and others == [True, True]


def test_keys_that_are_none_are_refused(tmp_path):
    path = tmp_path / "keys"
    path.write_text("ssh-rsa AAAA\n")
    with pytest.raises(ValueError, match="key 1 is none of ssh-keygen -t ecdsa"):
        public_keys(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="has no key"):
        public_keys(path)
    with pytest.raises(ValueError, match="no private key of ssh-keygen -t ecdsa"):
        nodes.private_key(path)


def test_with_a_certificate_all_is_encrypted_and_others_are_refused(tmp_path):
    certificate, key = certificate_of(tmp_path)
    check_certificate(certificate, key)
    link, heard = Link(1), []
    with opened_link(link, certificate=certificate, key=key) as address:
        clients = Clients(address)
        clients.start(echo(), insecure=False)
        clients.start(echo(), patience=0.5)
        clients.start(echo(), insecure=False, certificate=certificate)
        link.gather(lambda many: None)
        link.run(asking(1, heard))
    stranger, open_, trusting = clients.wait()
    assert "its certificate cannot be trusted; pass that of its authority" in str(stranger)
    assert "no server answers" in str(open_) and trusting is True and heard == [{0: 0}]


def test_a_client_that_wants_encryption_does_not_go_without():
    refused = pytest.raises(ValueError, match="it does not speak TLS; start the server with --certificate")
    with opened_link(Link(1)) as address, refused:
        serve(echo(), Server(address, insecure=False, patience=1.0), lambda: None)


def test_files_that_are_no_certificate_are_refused(tmp_path):
    certificate, key = certificate_of(tmp_path)
    for files in ((tmp_path / "none.pem", key), (certificate, None), (key, certificate)):
        with pytest.raises(ValueError, match="with its private key"):
            check_certificate(*files)
    with pytest.raises(ValueError, match="is no certificate in PEM"):
        serve(echo(), Server(ANY, insecure=False, certificate=key), lambda: None)


def test_nothing_is_served_beside_the_questions():
    """What starts runs, shows them or describes the server is not there; nor is anything without a signature."""
    with opened_link(Link(1)) as address:
        said = {nodes.VERSION: nodes.__version__, "content-type": "application/protobuf"}
        for path in ("/docs", "/openapi.json", "/v1/control/list-runs", "/v1/runtime/get-nodes", "/v1/health"):
            assert httpx.post(f"http://{address}{path}", headers=said, content=b"").status_code == 404
        assert httpx.post(f"http://{address}/v1/fleet/pull-messages", headers=said, content=b"").status_code == 401
        assert httpx.post(f"http://{address}/v1/fleet/pull-messages", content=b"").status_code == 409
        much = (b"x" for _ in range(2))  # of a length that is not said
        assert httpx.post(f"http://{address}/v1/fleet/pull-messages", headers=said, content=much).status_code == 413


def test_an_answer_counts_also_of_who_left_after_it():
    link, heard = Link(1), []
    with opened_link(link) as address:
        clients = Clients(address)
        clients.start(echo(), answered=lambda: sys.exit())
        link.gather(lambda many: None)
        link.run(asking(2, heard))
    assert heard == [{0: 0}, {0: None}]
    clients.wait()
